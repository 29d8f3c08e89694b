//! Work that waits for the drive, done by several threads at once: a drive that has many commands takes the nearest first, or works on all of them.

use crate::sync::{Mutex, lock};
use imbrex_device::Result;
use std::thread::{Builder, scope};

/// Does `each` of the pieces: on this thread, and on others, `most` in all at most. Where a thread cannot be had, there are fewer. `each` makes no other pieces wait for it.
///
/// # Errors
/// The first that was met. Pieces that nobody has begun by then are left.
pub(crate) fn together<T: Send>(
    most: usize,
    pieces: &mut [T],
    each: impl Fn(&mut T) -> Result<()> + Sync,
) -> Result<()> {
    let others = most.min(pieces.len()).saturating_sub(1);
    let (rest, failed) = (Mutex::new(pieces.iter_mut()), Mutex::new(None));
    let work = || {
        while lock(&failed).is_none() {
            let Some(piece) = lock(&rest).next() else { break };
            if let Err(error) = each(piece) {
                lock(&failed).get_or_insert(error);
            }
        }
    };
    scope(|threads| {
        for _ in 0..others {
            let thread = Builder::new().name("imbrex-kv-read".into());
            if thread.spawn_scoped(threads, work).is_err() {
                break;
            }
        }
        work();
    });
    failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::{Code, Error};
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};

    #[test]
    fn each_piece_is_done_once_and_as_many_at_once_as_may_be() {
        for (most, pieces, threads) in [(1, 5, 1), (4, 4, 4), (4, 8, 4), (9, 3, 3), (3, 0, 0)] {
            let (barrier, seen) = (Barrier::new(threads.max(1)), Mutex::new(HashSet::new()));
            let mut all = vec![0; pieces];
            // Nobody gets on before so many have one.
            let each = |piece: &mut i32| {
                if pieces % threads == 0 {
                    barrier.wait();
                }
                lock(&seen).insert(std::thread::current().id());
                *piece += 1;
                Ok(())
            };
            together(most, &mut all, each).unwrap();
            assert_eq!(all, vec![1; pieces]);
            if pieces > 0 && pieces % threads == 0 {
                assert_eq!(lock(&seen).len(), threads, "{most} {pieces}");
            }
        }
    }

    #[test]
    fn an_error_ends_it() {
        let done = AtomicUsize::new(0);
        let each = |piece: &mut usize| {
            done.fetch_add(1, Ordering::Relaxed);
            if *piece == 2 { Err(Error::refused(Code::NotFound, &Arc::from("drive"), "two")) } else { Ok(()) }
        };
        let error = together(1, &mut [0, 1, 2, 3, 4], each).unwrap_err();
        assert!(error.to_string().contains("two"), "{error}");
        assert_eq!(done.load(Ordering::Relaxed), 3);
        assert!(together(3, &mut [2, 2, 2, 2], each).is_err());
    }
}
