//! Worker threads that run checks while the workload goes on, with a guard against hangs.
//!
//! Jobs are numbered by their sender, ascending. The failure with the lowest number wins, whichever thread was faster, so a
//! run's answer does not depend on timing. A job that never ends cannot be stopped; it is reported, and its thread is left
//! behind.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) run: Box<dyn FnOnce() -> Result<(), String> + Send>,
}

/// A job that did not succeed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) number: u64,
    pub(crate) why: String,
}

#[derive(Default)]
struct Progress {
    running: BTreeMap<u64, Instant>,
    done: u64,
    failed: Option<Failed>,
}

struct Shared {
    progress: Mutex<Progress>,
    cancelled: AtomicBool,
    hang_limit: Duration,
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, failed: Failed) {
        let mut progress = self.progress();
        if progress.failed.as_ref().is_none_or(|old| failed.number < old.number) {
            progress.failed = Some(failed);
        }
        self.cancelled.store(true, Ordering::Release);
    }
}

/// Where jobs are handed in; blocks while the queue is full. Dropping the last one ends the pool's work.
#[derive(Clone)]
pub(crate) struct Feed {
    queue: SyncSender<Job>,
    shared: Arc<Shared>,
}

impl Feed {
    /// Hands a job in; dropped unrun once another has failed (jobs handed in before still run, so the lowest wins).
    pub(crate) fn give(&self, job: Job) {
        if !self.shared.cancelled.load(Ordering::Acquire) {
            let _ = self.queue.send(job);
        }
    }
}

pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<std::thread::JoinHandle<()>>,
}

impl Pool {
    /// `threads` workers (0: one per processor).
    pub(crate) fn start(threads: usize, hang_limit: Duration) -> (Pool, Feed) {
        let threads = if threads > 0 {
            threads
        } else {
            std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
        };
        let (queue, jobs) = sync_channel::<Job>(2 * threads);
        let jobs = Arc::new(Mutex::new(jobs));
        let shared = Arc::new(Shared { progress: Mutex::default(), cancelled: AtomicBool::new(false), hang_limit });
        let workers = (0..threads)
            .map(|_| {
                let (jobs, shared) = (jobs.clone(), shared.clone());
                std::thread::spawn(move || work(&jobs, &shared))
            })
            .collect();
        (Pool { shared: shared.clone(), workers }, Feed { queue, shared })
    }

    /// A job that has run for longer than the limit, as a failure.
    pub(crate) fn hung(&self) -> Option<Failed> {
        let limit = self.shared.hang_limit;
        let progress = self.shared.progress();
        let (number, _) = progress.running.iter().find(|(_, since)| since.elapsed() > limit)?;
        Some(Failed { number: *number, why: format!("hung: no end after {} seconds", limit.as_secs_f32()) })
    }

    /// Tells workers and feeders to stop; what is queued is dropped.
    pub(crate) fn abandon(&self, failed: Failed) -> Failed {
        let (number, why) = (failed.number, failed.why.clone());
        self.shared.fail(failed);
        Failed { number, why }
    }

    /// Whether all feeds are gone and everything handed in is done.
    pub(crate) fn finished(&self) -> bool {
        self.workers.iter().all(std::thread::JoinHandle::is_finished)
    }

    /// How many jobs ran, and the first failure by number.
    pub(crate) fn result(&self) -> (u64, Option<Failed>) {
        let mut progress = self.shared.progress();
        (progress.done, progress.failed.take())
    }
}

fn work(jobs: &Mutex<Receiver<Job>>, shared: &Shared) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { number, run }) = next else { return };
        // After a failure only jobs that might fail with a lower number are still of interest.
        if shared.progress().failed.as_ref().is_some_and(|failed| failed.number < number) {
            continue;
        }
        shared.progress().running.insert(number, Instant::now());
        let result = caught(run);
        let mut progress = shared.progress();
        progress.running.remove(&number);
        progress.done += 1;
        drop(progress);
        if let Err(why) = result {
            shared.fail(Failed { number, why });
        }
    }
}

/// Runs something that may panic; a panic is an error with its message.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    or_panic(run).and_then(|result| result)
}

/// The same, telling a panic (the outer error) from an error.
pub(crate) fn or_panic<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "of an unknown kind".to_owned());
        format!("panic: {text}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(pool: &Pool) -> (u64, Option<Failed>) {
        while !pool.finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        pool.result()
    }

    #[test]
    fn the_lowest_failure_wins_however_slow_it_is() {
        for _ in 0..20 {
            let (pool, feed) = Pool::start(4, Duration::from_secs(60));
            for number in 0..50u64 {
                let run = move || match number {
                    5 => {
                        std::thread::sleep(Duration::from_millis(5));
                        Err("slow".to_owned())
                    }
                    6..8 => Err("fast".to_owned()),
                    _ => Ok(()),
                };
                feed.give(Job { number, run: Box::new(run) });
            }
            drop(feed);
            let (_, failed) = finish(&pool);
            assert_eq!(failed.map(|f| f.number), Some(5));
        }
    }

    #[test]
    fn panics_are_failures_and_everything_handed_in_runs() {
        let (pool, feed) = Pool::start(3, Duration::from_secs(60));
        for number in 0..100 {
            feed.give(Job { number, run: Box::new(|| Ok(())) });
        }
        drop(feed);
        let (done, failed) = finish(&pool);
        assert_eq!((done, failed.is_none()), (100, true));

        let (pool, feed) = Pool::start(3, Duration::from_secs(60));
        feed.give(Job { number: 0, run: Box::new(|| panic!("number {}", 7)) });
        drop(feed);
        assert_eq!(finish(&pool).1.unwrap().why, "panic: number 7");
    }

    #[test]
    fn a_hung_job_is_named() {
        let (pool, feed) = Pool::start(1, Duration::from_millis(20));
        let (release, wait) = sync_channel::<()>(0);
        feed.give(Job { number: 9, run: Box::new(move || wait.recv().map_err(|e| e.to_string())) });
        let hung = loop {
            if let Some(hung) = pool.hung() {
                break hung;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(hung.number, 9);
        assert!(hung.why.contains("hung"));
        drop(release);
    }
}
