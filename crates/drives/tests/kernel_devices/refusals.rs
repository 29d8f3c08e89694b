//! Who is refused, and the sentence: other openers of a device, and devices that are no drives.

use crate::{Tally, open, wipe};
use imbrex_device::Fault;
use imbrex_device::kernel::{Access, KernelDevice};
use imbrex_device::{AlignedBuf, Cause, Class, Error, ZoneOp, ZoneState, ZonedDevice};
use imbrex_drives::OpenOptions;
use std::path::Path;

fn try_open(path: &str, access: Access) -> Result<KernelDevice, Error> {
    KernelDevice::open(Path::new(path), access)
}

fn sequential(device: &KernelDevice) -> imbrex_device::ZoneId {
    let zones = imbrex_device::report_all(device).unwrap();
    zones.iter().find(|zone| zone.state != ZoneState::Conventional).unwrap().id
}

/// On a device that is a drive.
pub fn run(tally: &mut Tally, path: &str) {
    tally.test(&format!("{path}: one writer, or several who read"), || {
        let us = Some(std::process::id());
        let writer = open(path);
        for access in [Access::Write, Access::ReadOnly] {
            let error = try_open(path, access).unwrap_err();
            assert!(
                matches!(&error.fault, Fault::Busy { by } if by.first().map(|holder| holder.pid) == us),
                "{access:?}: {error}"
            );
        }
        assert_eq!(try_open(path, Access::Observe).unwrap().about().in_use_by, us);
        drop(writer);
        let readers = [0, 1].map(|_| try_open(path, Access::ReadOnly).unwrap());
        let error = try_open(path, Access::Write).unwrap_err();
        assert!(matches!(error.fault, Fault::Busy { .. }), "{error}");
        drop(readers);
        drop(open(path));
    });
    tally.test(&format!("{path}: who only reads changes nothing"), || {
        wipe(&open(path));
        let device = try_open(path, Access::ReadOnly).unwrap();
        let zone = sequential(&device);
        let block = AlignedBuf::zeroed(device.geometry().block as usize);
        let at = device.geometry().start(zone);
        let tag = Cause::Check.into();
        assert!(matches!(device.write_at(&block, at, tag).unwrap_err().fault, Fault::ReadOnly));
        assert!(matches!(device.zone_op(ZoneOp::Finish, zone, tag).unwrap_err().fault, Fault::ReadOnly));
        let mut out = [imbrex_device::Zone::EMPTY];
        device.report(zone, &mut out).unwrap();
        assert_eq!(out[0].state, ZoneState::Empty);
    });
    tally.test(&format!("{path}: a locator opens it, with a survivor, or to look"), || {
        let drive = imbrex_drives::open(path, &OpenOptions::default()).unwrap();
        assert!(drive.survivor.is_some());
        assert_eq!(&*drive.device.identity().name, path);
        drop(drive);
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        let looks = [0, 1].map(|_| imbrex_drives::open(path, &read_only).unwrap());
        let zone = sequential(&try_open(path, Access::Observe).unwrap());
        let block = AlignedBuf::zeroed(looks[0].device.geometry().block as usize);
        let at = looks[0].device.geometry().start(zone);
        let error = looks[0].device.write_at(&block, at, Cause::Check.into()).unwrap_err();
        assert!(matches!(error.fault, Fault::ReadOnly), "{error}");
        let mut out = [imbrex_device::Zone::EMPTY];
        looks[1].device.report(zone, &mut out).unwrap();
        assert_eq!(out[0].state, ZoneState::Empty);
    });
}

/// On a device that is none, or is in use: every way to open it that takes it fails with the sentence.
pub fn refused(tally: &mut Tally, path: &str, sentence: &str) {
    tally.test(&format!("{path} is refused: {sentence}"), || {
        for access in [Access::Write, Access::ReadOnly] {
            let error = try_open(path, access).unwrap_err();
            let text = error.to_string();
            let taken = error.class() == Class::Busy;
            assert!(taken || matches!(error.fault, Fault::Unusable(_)), "{error:?}");
            assert!(text.contains(sentence) && text.contains(path), "{text:?} lacks {sentence:?}");
        }
    });
}
