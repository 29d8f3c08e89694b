//! `linux/ublk_cmd.h`: structs, numbers and places, as the kernel has had them since Linux 6.6. Layouts are checked when this is compiled.

use rustix::ioctl::{Opcode, opcode};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of the kernel's sector.
pub(crate) const SECTOR: u64 = 512;

/// Data of requests is copied by reading and writing the character device.
pub(crate) const F_USER_COPY: u64 = 1 << 7;
/// The device is zoned.
pub(crate) const F_ZONED: u64 = 1 << 8;
/// Commands have the numbers of ioctls.
pub(crate) const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;

/// The device's disk is there.
pub(crate) const S_DEV_LIVE: u16 = 1;

/// What the kernel answers to a fetch when the device ends: there is nothing more to fetch.
pub(crate) const IO_RES_ABORT: i32 = -19;

pub(crate) const ATTR_ROTATIONAL: u32 = 1 << 1;
pub(crate) const ATTR_VOLATILE_CACHE: u32 = 1 << 2;

pub(crate) const PARAM_TYPE_BASIC: u32 = 1 << 0;
pub(crate) const PARAM_TYPE_ZONED: u32 = 1 << 3;

/// Where the data of requests begins in the character device, and how the place of one is made of its tag.
const IO_BUF_OFFSET: u64 = 0x8000_0000;
const IO_BUF_BITS: u32 = 25;
/// Most requests that a queue may have.
pub(crate) const MAX_QUEUE_DEPTH: u16 = 4096;

/// The place of a request's data in the character device, of the only queue.
pub(crate) fn data_place(tag: u16) -> u64 {
    IO_BUF_OFFSET + (u64::from(tag) << IO_BUF_BITS)
}

/// `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct CtrlCmd {
    pub(crate) dev_id: u32,
    pub(crate) queue_id: u16,
    pub(crate) len: u16,
    pub(crate) addr: u64,
    pub(crate) data: u64,
    pub(crate) dev_path_len: u16,
    pub(crate) pad: u16,
    pub(crate) reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DevInfo {
    pub(crate) nr_hw_queues: u16,
    pub(crate) queue_depth: u16,
    pub(crate) state: u16,
    pub(crate) pad0: u16,
    pub(crate) max_io_buf_bytes: u32,
    pub(crate) dev_id: u32,
    pub(crate) ublksrv_pid: i32,
    pub(crate) pad1: u32,
    pub(crate) flags: u64,
    /// For the server; the driver does not look at it.
    pub(crate) ublksrv_flags: u64,
    pub(crate) owner_uid: u32,
    pub(crate) owner_gid: u32,
    pub(crate) reserved1: u64,
    pub(crate) reserved2: u64,
}

/// `struct ublk_param_basic`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct ParamBasic {
    pub(crate) attrs: u32,
    pub(crate) logical_bs_shift: u8,
    pub(crate) physical_bs_shift: u8,
    pub(crate) io_opt_shift: u8,
    pub(crate) io_min_shift: u8,
    pub(crate) max_sectors: u32,
    pub(crate) chunk_sectors: u32,
    pub(crate) dev_sectors: u64,
    pub(crate) virt_boundary_mask: u64,
}

/// `struct ublk_param_zoned`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct ParamZoned {
    pub(crate) max_open_zones: u32,
    pub(crate) max_active_zones: u32,
    pub(crate) max_zone_append_sectors: u32,
    pub(crate) reserved: [u8; 20],
}

/// `struct ublk_params` up to what zoned devices need.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Params {
    pub(crate) len: u32,
    pub(crate) types: u32,
    pub(crate) basic: ParamBasic,
    /// `struct ublk_param_discard` and `struct ublk_param_devt`.
    pub(crate) unused: [u32; 9],
    pub(crate) zoned: ParamZoned,
    pub(crate) pad: u32,
}

/// `struct ublksrv_io_desc`: a request, as the kernel shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct IoDesc {
    pub(crate) op_flags: u32,
    /// Sectors; of a report, zones.
    pub(crate) count: u32,
    pub(crate) start_sector: u64,
    pub(crate) addr: u64,
}

/// `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct IoCmd {
    pub(crate) q_id: u16,
    pub(crate) tag: u16,
    pub(crate) result: i32,
    /// Of an append: the sector that it was written at.
    pub(crate) addr: u64,
}

/// `struct blk_zone` of `linux/blkzoned.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable)]
#[repr(C)]
pub(crate) struct BlkZone {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) wp: u64,
    pub(crate) kind: u8,
    pub(crate) cond: u8,
    pub(crate) non_seq: u8,
    pub(crate) reset: u8,
    pub(crate) resv: [u8; 4],
    pub(crate) capacity: u64,
    pub(crate) reserved: [u8; 24],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<CtrlCmd>() == 32 && size_of::<DevInfo>() == 64);
    assert!(size_of::<ParamBasic>() == 32 && size_of::<ParamZoned>() == 32);
    assert!(offset_of!(Params, basic) == 8 && offset_of!(Params, zoned) == 76 && size_of::<Params>() == 112);
    assert!(size_of::<IoDesc>() == 24 && size_of::<IoCmd>() == 16 && size_of::<BlkZone>() == 64);
    assert!(offset_of!(DevInfo, flags) == 24 && offset_of!(BlkZone, capacity) == 32);
};

pub(crate) const CMD_ADD_DEV: Opcode = opcode::read_write::<CtrlCmd>(b'u', 0x04);
pub(crate) const CMD_DEL_DEV: Opcode = opcode::read_write::<CtrlCmd>(b'u', 0x05);
pub(crate) const CMD_START_DEV: Opcode = opcode::read_write::<CtrlCmd>(b'u', 0x06);
pub(crate) const CMD_STOP_DEV: Opcode = opcode::read_write::<CtrlCmd>(b'u', 0x07);
pub(crate) const CMD_SET_PARAMS: Opcode = opcode::read_write::<CtrlCmd>(b'u', 0x08);
pub(crate) const CMD_GET_DEV_INFO: Opcode = opcode::read::<CtrlCmd>(b'u', 0x02);
pub(crate) const CMD_GET_FEATURES: Opcode = opcode::read::<CtrlCmd>(b'u', 0x13);
pub(crate) const CMD_DEL_DEV_ASYNC: Opcode = opcode::read::<CtrlCmd>(b'u', 0x14);
pub(crate) const IO_FETCH_REQ: Opcode = opcode::read_write::<IoCmd>(b'u', 0x20);
pub(crate) const IO_COMMIT_AND_FETCH_REQ: Opcode = opcode::read_write::<IoCmd>(b'u', 0x21);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_have_the_kernels_numbers() {
        // As a C compiler makes them of linux/ublk_cmd.h on x86-64.
        assert_eq!(
            [CMD_ADD_DEV, CMD_DEL_DEV, CMD_START_DEV, CMD_STOP_DEV, CMD_SET_PARAMS],
            [0xc020_7504, 0xc020_7505, 0xc020_7506, 0xc020_7507, 0xc020_7508]
        );
        assert_eq!(
            [CMD_GET_DEV_INFO, CMD_GET_FEATURES, CMD_DEL_DEV_ASYNC, IO_FETCH_REQ, IO_COMMIT_AND_FETCH_REQ],
            [0x8020_7502, 0x8020_7513, 0x8020_7514, 0xc010_7520, 0xc010_7521]
        );
        assert_eq!((data_place(0), data_place(3)), (0x8000_0000, 0x8600_0000));
    }
}
