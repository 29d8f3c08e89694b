//! Drives as bytes: packed, copied, and looked into.

use imbrex_device::{AlignedBuf, Cause, Drive, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::ZoneHeader;
use std::sync::Arc;

const TAG: Cause = Cause::Check;
pub const BLOCK: usize = 4096;

/// What a zone holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneBytes {
    /// It is conventional, or was finished.
    pub state: ZoneState,
    /// Up to the write pointer. Where that tells nothing, up to the last block that is not zeros.
    pub bytes: Vec<u8>,
}

/// What all zones of a drive hold.
pub fn zones_of(device: &dyn ZonedDevice) -> Vec<ZoneBytes> {
    let mut all = Vec::new();
    for zone in report_all(device).unwrap() {
        let start = device.geometry().start(zone.id);
        let told = matches!(zone.state, ZoneState::Empty | ZoneState::Closed) || zone.state.is_open();
        let end = if told { zone.wp.unwrap() } else { zone.capacity };
        let mut bytes = vec![0; end as usize];
        if end > 0 {
            let mut buf = AlignedBuf::zeroed(end as usize);
            device.read_at(&mut buf, start, TAG.into()).unwrap();
            bytes.copy_from_slice(&buf);
        }
        if !told {
            let used = bytes.chunks(BLOCK).rposition(|block| block.iter().any(|byte| *byte != 0));
            bytes.truncate(used.map_or(0, |last| (last + 1) * BLOCK));
        }
        let state = match zone.state {
            ZoneState::Conventional | ZoneState::Full => zone.state,
            _ => ZoneState::Closed,
        };
        all.push(ZoneBytes { state, bytes });
    }
    all
}

/// A drive in memory that holds this.
pub fn drive_of(config: &Config, zones: &[ZoneBytes]) -> (Emulator, Drive) {
    let emulator = Emulator::memory(config).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    for (zone, id) in zones.iter().zip((0..).map(ZoneId)) {
        if !zone.bytes.is_empty() {
            let mut buf = AlignedBuf::zeroed(zone.bytes.len());
            buf.copy_from_slice(&zone.bytes);
            drive.device.write_at(&buf, drive.device.geometry().start(id), TAG.into()).unwrap();
        }
        let op = if zone.state == ZoneState::Full { ZoneOp::Finish } else { ZoneOp::Close };
        if zone.state != ZoneState::Conventional && (!zone.bytes.is_empty() || op == ZoneOp::Finish) {
            drive.device.zone_op(op, id, TAG.into()).unwrap();
        }
    }
    drive.device.flush(TAG.into()).unwrap();
    (emulator, drive)
}

/// The header that a sequential zone begins with.
pub fn header_of(zone: &ZoneBytes) -> Option<ZoneHeader> {
    (zone.state != ZoneState::Conventional).then(|| ZoneHeader::decode(zone.bytes.get(..BLOCK)?)).flatten()
}

/// Zones as few bytes: of each its state (1), its length (4) and its bytes, all of it compressed.
pub fn packed(zones: &[ZoneBytes]) -> Vec<u8> {
    let mut all = Vec::new();
    for zone in zones {
        all.push(zone.state as u8);
        all.extend_from_slice(&(zone.bytes.len() as u32).to_le_bytes());
        all.extend_from_slice(&zone.bytes);
    }
    zstd::encode_all(&all[..], 19).unwrap()
}

pub fn unpacked(bytes: &[u8]) -> Vec<ZoneBytes> {
    let all = zstd::decode_all(bytes).unwrap();
    let (mut rest, mut zones) = (&all[..], Vec::new());
    while let Some((head, behind)) = rest.split_first_chunk::<5>() {
        let len = u32::from_le_bytes(*head.last_chunk().unwrap()) as usize;
        let state = ZoneState::ALL.into_iter().find(|state| *state as u8 == head[0]).unwrap();
        zones.push(ZoneBytes { state, bytes: behind[..len].to_vec() });
        rest = &behind[len..];
    }
    zones
}
