//! One drive fails, or loses its power, while the store is used; and the other one does not.

use super::crash::{Shared, holds, workload};
use super::*;
use imbrex_device::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use watched::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A command fails, once.
    Once,
    /// Each command does from then on: the drive is gone.
    Gone,
    /// The drive has no power for a moment, and says so or not.
    Power { told: bool },
}

fn fails(fault: Fault, victim: usize, command: u64, seed: u64) -> (bool, u64) {
    let mut two = Two::formatted();
    two.survivors = [(); 2].map(|()| Some(Arc::new(HeapSurvivor::new())));
    let (drives, hit, seen) = (two.drives.clone(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (hits, count) = (hit.clone(), seen.clone());
    two.watch = Some(Watch::new(move |n, kind| {
        if n != victim {
            return Ok(());
        }
        let now = count.fetch_add(1, Ordering::Relaxed);
        if now == command {
            hits.store(true, Ordering::Relaxed);
        }
        let failed = || Error::io(&"drive".into(), std::io::Error::other(format!("{kind:?} fails")));
        match fault {
            Fault::Once if now == command => Err(failed()),
            Fault::Gone if now >= command => Err(failed()),
            Fault::Power { told } if now == command && kind != Kind::Flush => {
                drives[n].faults().lose_power_by(told, command).unwrap();
                Ok(())
            }
            _ => Ok(()),
        }
    }));
    let log = Shared::default();
    let ended = workload(&two, seed, &log);
    let watch = two.watch.take().unwrap();
    watch.end();
    let (then, promised) = {
        let log = log.lock().unwrap();
        (log.then(), log.promised())
    };
    if matches!(fault, Fault::Gone) && hit.load(Ordering::Relaxed) {
        assert!(ended.is_err(), "nobody has noticed that drive {victim} is gone");
    }
    for power in [false, true] {
        let mut after = two.copy();
        if power {
            after.drives = two.drives.clone().map(|drive| drive.after_power_loss(command).unwrap());
        }
        // A drive that had lost its power has lost what was only in memory.
        let synced = power || matches!(fault, Fault::Power { .. });
        let what = format!("{fault:?} of drive {victim} at {command}, power {power}: {ended:?}, {promised:?}");
        holds(&after, &then, if synced { promised.0 } else { promised.1 }, &what);
    }
    (hit.load(Ordering::Relaxed), seen.load(Ordering::Relaxed))
}

#[test]
fn whatever_fails_of_one_drive_nothing_that_was_durable_is_lost() {
    for victim in 0..2 {
        let (_, commands) = fails(Fault::Once, victim, u64::MAX, 5);
        assert!(commands > 60, "{commands}");
        for fault in [Fault::Once, Fault::Gone, Fault::Power { told: true }, Fault::Power { told: false }] {
            for n in 0..24 {
                let command = n * commands / 24 + n % 3;
                fails(fault, victim, command, 5);
            }
        }
    }
}
