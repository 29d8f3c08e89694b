use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

impl<K: Ord + Clone, T> Registry<K, T> {
    /// How many keys are open, being opened or being dropped.
    fn len(&self) -> usize {
        lock(&self.table.entries).len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Ord + Clone, T> Shared<K, T> {
    /// Whether both refer to the same open thing.
    fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// An exclusive drive: opening it while it is open, or not yet let go of, fails.
struct Exclusive {
    taken: Arc<AtomicBool>,
    let_go: Box<dyn Fn() + Send + Sync>,
}

impl Exclusive {
    fn open(taken: &Arc<AtomicBool>, let_go: impl Fn() + Send + Sync + 'static) -> Result<Exclusive, &'static str> {
        if taken.swap(true, Ordering::SeqCst) {
            return Err("busy");
        }
        Ok(Exclusive { taken: taken.clone(), let_go: Box::new(let_go) })
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        (self.let_go)();
        assert!(self.taken.swap(false, Ordering::SeqCst), "let go of once");
    }
}

/// With the standard library's threads.
#[cfg(not(feature = "shuttle"))]
mod threads {
    use super::*;
    use std::sync::mpsc::channel;
    use std::sync::{Barrier, Mutex};
    use std::thread;
    use std::time::Duration;

    /// Long enough for a thread that would not wait to be seen not waiting; nothing fails when the machine is slow.
    const A_WHILE: Duration = Duration::from_millis(30);

    #[test]
    fn everyone_gets_the_same_thing_until_the_last_lets_go() {
        let registry = Registry::new();
        let opened = AtomicUsize::new(0);
        let open = || Ok::<_, ()>(opened.fetch_add(1, Ordering::SeqCst));
        let a = registry.get_or_open("x", open).unwrap();
        let b = registry.get_or_open("x", open).unwrap();
        let other = registry.get_or_open("y", open).unwrap();
        assert!(a.ptr_eq(&b) && a.ptr_eq(&b.clone()) && !a.ptr_eq(&other));
        assert_eq!((*a, *b, *other, registry.len()), (0, 0, 1, 2));
        drop(a);
        assert!(registry.get(&"x").is_some_and(|x| x.ptr_eq(&b)));
        drop(b);
        assert!(registry.get(&"x").is_none());
        assert_eq!(registry.len(), 1);
        assert_eq!(*registry.get_or_open("x", open).unwrap(), 2);
        drop(other);
        assert!(registry.is_empty());
    }

    #[test]
    fn many_at_once_open_once() {
        let registry = Registry::new();
        let (opened, together) = (AtomicUsize::new(0), Barrier::new(8));
        let all: Vec<_> = thread::scope(|scope| {
            let ask = || {
                together.wait();
                registry.get_or_open("x", || {
                    thread::sleep(A_WHILE);
                    Ok::<_, ()>(opened.fetch_add(1, Ordering::SeqCst))
                })
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|t| t.join().unwrap().unwrap()).collect()
        });
        assert_eq!(opened.load(Ordering::SeqCst), 1);
        assert!(all.iter().all(|one| one.ptr_eq(&all[0])));
    }

    #[test]
    fn a_slow_open_blocks_no_other_key() {
        let registry = Registry::new();
        let (go, wait) = channel();
        thread::scope(|scope| {
            let (started, on_start) = channel();
            let slow = scope.spawn({
                let registry = &registry;
                move || {
                    let open = || {
                        started.send(()).unwrap();
                        wait.recv().unwrap();
                        Ok::<_, ()>(1)
                    };
                    registry.get_or_open("slow", open).map(|x| *x)
                }
            });
            on_start.recv().unwrap();
            // Were it blocked, this would wait for ever: only then is the slow one let on.
            assert_eq!(*registry.get_or_open("fast", || Ok::<_, ()>(2)).unwrap(), 2);
            assert!(registry.get(&"slow").is_none());
            go.send(()).unwrap();
            assert_eq!(slow.join().unwrap(), Ok(1));
        });
    }

    #[test]
    fn a_failed_open_leaves_nothing_and_the_next_tries_for_itself() {
        let registry = Registry::new();
        assert_eq!(registry.get_or_open("x", || Err::<i32, _>("no")).unwrap_err(), "no");
        assert!(registry.is_empty());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            registry.get_or_open("x", || -> Result<i32, &str> { panic!("while opening") })
        }));
        assert!(panicked.is_err() && registry.is_empty());

        thread::scope(|scope| {
            let (started, on_start) = channel();
            let (go, wait) = channel::<()>();
            let fails = scope.spawn({
                let registry = &registry;
                move || {
                    let open = || {
                        started.send(()).unwrap();
                        wait.recv().unwrap();
                        Err("no")
                    };
                    registry.get_or_open("x", open).map(|x| *x)
                }
            });
            on_start.recv().unwrap();
            let waits = scope.spawn(|| registry.get_or_open("x", || Ok::<_, &str>(5)).map(|x| *x));
            thread::sleep(A_WHILE);
            assert!(!waits.is_finished(), "somebody is opening it");
            go.send(()).unwrap();
            assert_eq!((fails.join().unwrap(), waits.join().unwrap()), (Err("no"), Ok(5)));
        });
    }

    #[test]
    fn opening_waits_until_the_drop_has_finished() {
        let (registry, taken) = (Registry::new(), Arc::new(AtomicBool::new(false)));
        let (dropping, on_dropping) = channel();
        let (go, wait) = channel::<()>();
        let (dropping, wait) = (Mutex::new(dropping), Mutex::new(wait));
        let slow_to_let_go = move || {
            dropping.lock().unwrap().send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
        };
        let first = registry.get_or_open("x", || Exclusive::open(&taken, slow_to_let_go)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| drop(first));
            on_dropping.recv().unwrap();
            assert!(registry.get(&"x").is_none());
            // Another key is not held up by the drop.
            let other = Arc::new(AtomicBool::new(false));
            drop(registry.get_or_open("y", || Exclusive::open(&other, || ())).unwrap());
            let second = scope.spawn(|| registry.get_or_open("x", || Exclusive::open(&taken, || ())).map(|_| ()));
            thread::sleep(A_WHILE);
            assert!(!second.is_finished(), "it is still being dropped");
            go.send(()).unwrap();
            assert_eq!(second.join().unwrap(), Ok(()));
        });
        assert!(registry.is_empty() && !taken.load(Ordering::SeqCst));
    }

    #[test]
    fn a_drop_that_panics_still_releases_the_key() {
        struct Bad;
        impl Drop for Bad {
            fn drop(&mut self) {
                panic!("while dropping");
            }
        }
        let registry = Registry::new();
        let bad = registry.get_or_open("x", || Ok::<_, ()>(Some(Bad))).unwrap();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(bad))).is_err());
        assert!(registry.get_or_open("x", || Ok::<_, ()>(None)).unwrap().is_none());
    }

    #[test]
    fn under_pressure_an_exclusive_drive_is_never_busy() {
        let registry = Registry::new();
        let drives: [_; 3] = std::array::from_fn(|_| Arc::new(AtomicBool::new(false)));
        let opens = AtomicUsize::new(0);
        thread::scope(|scope| {
            for seed in 0..8usize {
                let (registry, drives, opens) = (&registry, &drives, &opens);
                scope.spawn(move || {
                    for i in 0..3000 {
                        let key = (seed + i * 7) % 3;
                        let open = || {
                            opens.fetch_add(1, Ordering::SeqCst);
                            if i % 11 == 0 { Err("refused") } else { Exclusive::open(&drives[key], thread::yield_now) }
                        };
                        match registry.get_or_open(key, open) {
                            Ok(drive) => assert!(drive.taken.load(Ordering::SeqCst)),
                            Err(why) => assert_eq!(why, "refused"),
                        }
                    }
                });
            }
        });
        assert!(registry.is_empty());
        assert!(opens.load(Ordering::SeqCst) > 100, "so few opens prove little");
    }
}

/// With `shuttle`, which decides who runs at every lock.
#[cfg(feature = "shuttle")]
mod interleavings {
    use super::*;
    use shuttle::thread;

    #[test]
    fn an_exclusive_drive_is_never_busy_and_nobody_waits_for_ever() {
        shuttle::check_random(
            || {
                let registry = Arc::new(Registry::new());
                let (taken, tries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
                let threads: Vec<_> = (0..3)
                    .map(|_| {
                        let (registry, taken, tries) = (registry.clone(), taken.clone(), tries.clone());
                        thread::spawn(move || {
                            for _ in 0..2 {
                                let open = || {
                                    thread::yield_now();
                                    // The second of all tries is refused.
                                    if tries.fetch_add(1, Ordering::SeqCst) == 1 {
                                        return Err("refused");
                                    }
                                    Exclusive::open(&taken, thread::yield_now)
                                };
                                match registry.get_or_open("x", open) {
                                    Ok(drive) => assert!(drive.taken.load(Ordering::SeqCst)),
                                    Err(why) => assert_eq!(why, "refused"),
                                }
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|t| t.join().unwrap());
                assert!(registry.is_empty() && !taken.load(Ordering::SeqCst));
            },
            5000,
        );
    }
}
