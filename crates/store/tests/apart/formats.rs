//! Formatting two drives for one store, and losses of power in the middle of it.

use super::*;
use imbrex_device::Error;
use std::sync::atomic::{AtomicUsize, Ordering};

fn opens(two: &Two) {
    let store = two.open().unwrap();
    put(&store, 1, &content(100_000, 1)).unwrap();
    drop(store);
    assert!(two.open().unwrap().read(ALL, &name(1), 0, 1 << 20).unwrap() == content(100_000, 1));
}

#[test]
fn nothing_that_is_there_is_formatted_over() {
    let two = Two::formatted();
    // Not even where it was never opened.
    for force in [false, true] {
        let before = [two.bytes(0), two.bytes(1)];
        let formatted = two.format(force);
        assert_eq!(formatted.is_ok(), force);
        if let Err(why) = formatted {
            assert!(why.to_string().contains("already formatted"), "{why}");
            assert!(before == [two.bytes(0), two.bytes(1)]);
        }
    }
    opens(&two);
    // One of them holds something.
    for other in 0..2 {
        let mut mixed = Two::new(&config(), &config());
        mixed.drives[other] = two.drives[other].clone();
        let before = [mixed.bytes(0), mixed.bytes(1)];
        let why = mixed.format(false).unwrap_err().to_string();
        assert!(why.contains("already formatted"), "{why}");
        assert!(before == [mixed.bytes(0), mixed.bytes(1)]);
    }
    opens(&two);
    // A drive that is too small for its part.
    let small = Config { capacity: 3 << 18, ..config() };
    for (objects, metadata) in [(&small, &config()), (&config(), &small)] {
        let two = Two::new(objects, metadata);
        assert!(two.format(false).is_err());
        // The other one can be used.
        let n = usize::from(objects.capacity == small.capacity);
        let mut again = Two::new(&config(), &config());
        again.drives[n] = two.drives[n].clone();
        again.format(false).unwrap();
        opens(&again);
    }
}

/// The power of both drives, or of one, fails before each command in turn; or the process is killed there.
#[test]
fn a_formatting_that_is_cut_off_is_repeated_or_was_done() {
    let conventional = config();
    let rings = Config { conventional: 0, ..config() };
    let (mut done, mut repeated) = (0, 0);
    for shape in [&conventional, &rings] {
        let mut last = 0;
        for command in 0.. {
            let mut two = Two::new(shape, shape);
            let seen = Arc::new(AtomicUsize::new(0));
            let count = seen.clone();
            two.watch = Some(Watch::new(move |_, _| match count.fetch_add(1, Ordering::Relaxed) < command {
                true => Ok(()),
                false => Err(Error::io(&"drive".into(), std::io::Error::other("it has no power"))),
            }));
            let formatted = two.format(false);
            two.watch = None;
            for lost in 0..4 {
                for keep in [false, true] {
                    let mut after = two.copy();
                    for n in (0..2).filter(|n| lost & 1 << n != 0) {
                        let choose = &mut |most| if keep { most } else { 0 };
                        after.drives[n] = two.drives[n].after_power_loss_choosing(choose).unwrap();
                    }
                    match after.open() {
                        Ok(store) => {
                            drop(store);
                            done += 1;
                        }
                        Err(why) => {
                            assert!(formatted.is_err(), "{command}: it was done; {why}");
                            // It says so, where both have been formatted.
                            after.format(false).unwrap_or_else(|error| panic!("{command}, {lost}: {error}; {why}"));
                            repeated += 1;
                        }
                    }
                    opens(&after);
                }
            }
            last = command;
            if formatted.is_ok() {
                break;
            }
        }
        assert!(last > 12, "{last}");
    }
    assert!(done >= 8 && repeated > 100, "{done}, {repeated}");
}
