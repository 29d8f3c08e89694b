//! The host under an emulated drive has no room: an error that goes away with its cause.

use crate::support::{config, few_active, options, value};
use imbrex_device::{Code, Drive, HeapSurvivor};
use imbrex_emulator::Emulator;
use imbrex_kv::Kv;
use std::sync::Arc;

fn key(n: u64) -> Vec<u8> {
    format!("k{n:05}").into_bytes()
}

#[test]
fn puts_go_on_once_the_host_has_room_and_nothing_is_lost() {
    for config in [config(), few_active()] {
        let emulator = Emulator::memory(&config).unwrap();
        let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new()) as _) };
        Kv::format(&drive, Some([9; 16]), false).unwrap();
        let store = Kv::open(drive.clone(), options()).unwrap();
        let mut taken = Vec::new();
        for round in 0..6u64 {
            emulator.faults().host_full(round % 2 == 1);
            let mut refused = 0;
            for n in round * 400..(round + 1) * 400 {
                // What fails may be there, or not.
                match store.put(&key(n), &value(n, 300), n % 50 == 49) {
                    Ok(()) => taken.push(n),
                    Err(error) => {
                        assert_eq!(error.code(), Code::NoSpace, "{error}");
                        assert!(error.to_string().contains("disk is full"), "{error}");
                        refused += 1;
                    }
                }
            }
            assert_eq!(refused > 0, round % 2 == 1, "round {round}");
            for n in &taken {
                assert_eq!(store.get(&key(*n)).unwrap().as_deref(), Some(&value(*n, 300)[..]), "{n}");
            }
        }
        emulator.faults().host_full(true);
        assert!(store.sync().is_err() && store.flush().is_err());
        emulator.faults().host_full(false);
        store.sync().unwrap();
        store.compact().unwrap();
        drop(store);
        let store = Kv::open(drive, options()).unwrap();
        assert_eq!((store.damage(), store.check().unwrap()), (vec![], vec![]));
        for n in &taken {
            assert_eq!(store.get(&key(*n)).unwrap().as_deref(), Some(&value(*n, 300)[..]), "{n}");
        }
    }
}
