//! Tests of the kernel backend on real zoned block devices, as the VM of `scripts/test-kernel` has them. A program of its own,
//! since it wants devices that it may destroy:
//!
//! ```text
//! kernel_devices contract /dev/nullb0        the device contract, the same checks that the emulator passes
//! kernel_devices differential /dev/nullb0    random commands, on the device and on an emulator of the same geometry
//! kernel_devices refusals /dev/nullb0        who else may open the device while it is open
//! kernel_devices settings /dev/nullb0        settings that are not good are told, and the advice helps
//! kernel_devices refused /dev/vda SENTENCE   opening it fails, and says so
//! kernel_devices write /dev/nvme0n1          writes and says what is durable, until something ends it
//! kernel_devices verify /dev/nvme0n1 FILE    what `write` said in FILE is there
//! ```
//!
//! Ends with "N passed, N failed".

mod differential;
mod refusals;
mod settings;
mod survival;

use imbrex_device::contract::CHECKS;
use imbrex_device::kernel::{Access, KernelDevice};
use imbrex_device::{ZoneId, ZoneOp, ZoneState, ZonedDevice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

/// Counts tests as they end.
#[derive(Default)]
struct Tally {
    passed: u32,
    failed: u32,
}

impl Tally {
    /// Runs one test; a panic is its failure.
    fn test(&mut self, name: &str, test: impl FnOnce()) {
        let ok = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("{} {name}", if ok { "ok    " } else { "FAILED" });
        *(if ok { &mut self.passed } else { &mut self.failed }) += 1;
    }

    fn end(self) -> ExitCode {
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 && self.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn open(path: &str) -> KernelDevice {
    KernelDevice::open(Path::new(path), Access::Write).unwrap()
}

/// Makes every sequential zone empty.
fn wipe(device: &dyn ZonedDevice) {
    for zone in imbrex_device::report_all(device).unwrap() {
        if zone.state != ZoneState::Conventional && zone.state != ZoneState::Empty {
            device.zone_op(ZoneOp::Reset, zone.id, imbrex_device::Cause::Check.into()).unwrap();
        }
    }
}

fn contract(tally: &mut Tally, path: &str) {
    for (name, check) in CHECKS {
        tally.test(&format!("{path}: {name}"), || check(&open(path)));
    }
    tally.test(&format!("{path}: what a drive says of itself"), || {
        let device = open(path);
        let about = device.about();
        assert_eq!(about.in_use_by, Some(std::process::id()));
        assert!(path.ends_with(&about.kernel_name) && about.logical_block >= 512);
        assert!(about.advice.iter().any(|advice| advice.subject == "scheduler"), "{:?}", about.advice);
        assert!(device.report(ZoneId(0), &mut []).unwrap() == 0);
        let again = {
            let first = device.identity().clone();
            drop(device);
            (first, open(path).identity().clone())
        };
        assert_eq!((again.0.medium, again.0.power_epoch), (again.1.medium, again.1.power_epoch));
    });
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut tally = Tally::default();
    match words[..] {
        ["contract", device] => contract(&mut tally, device),
        ["differential", device] => differential::run(&mut tally, device),
        ["refusals", device] => refusals::run(&mut tally, device),
        ["settings", device] => settings::run(&mut tally, device),
        ["refused", device, sentence] => refusals::refused(&mut tally, device, sentence),
        ["write", device] => survival::write(device),
        ["verify", device, said] => survival::verify(&mut tally, device, said),
        _ => {
            eprintln!("usage: see the head of crates/drives/tests/kernel_devices/main.rs");
            return ExitCode::from(2);
        }
    }
    tally.end()
}
