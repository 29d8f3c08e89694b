//! Many blocks of a zone in few commands: what is wanted is read with what stands between, where that takes a disk less time than a command for each.

use crate::blob::BLOCK;
use crate::core::Core;
use imbrex_device::{AlignedBuf, Cause, Tag, ZoneId};

/// Blocks that are read in vain rather than with another command, and blocks of a command.
const GAP: u32 = 64;
const LONGEST: u32 = 1024;

/// Ranges of blocks, the first and the one behind the last, as commands that read them all.
pub(crate) fn joined(mut wanted: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    wanted.sort_unstable();
    wanted.into_iter().fold(Vec::<(u32, u32)>::new(), |mut all, (from, to)| {
        match all.last_mut() {
            Some(last) if from <= last.1 + GAP && to - last.0 <= LONGEST => last.1 = last.1.max(to),
            _ => all.push((from, to)),
        }
        all
    })
}

impl Core {
    /// Reads these blocks of a zone, which somebody keeps from being freed. `None`: they cannot be read.
    pub fn read_part(&self, zone: u32, (from, to): (u32, u32), cause: Cause) -> Option<AlignedBuf> {
        let volume = self.tenant.volume();
        let mut bytes = AlignedBuf::zeroed((to - from) as usize * BLOCK as usize);
        let at = volume.geometry().start(ZoneId(zone)) + u64::from(from) * BLOCK;
        volume.read(&mut bytes, at, Tag::new(cause)).is_ok().then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_read_together_and_no_command_is_too_long() {
        assert_eq!(joined(vec![]), []);
        assert_eq!(joined(vec![(90, 91), (10, 12), (12, 30)]), [(10, 91)]);
        assert_eq!(
            joined(vec![(0, 1), (1 + GAP, 2 + GAP), (3 + 2 * GAP, 9 + 2 * GAP)]),
            [(0, 2 + GAP), (3 + 2 * GAP, 9 + 2 * GAP)]
        );
        let all = joined((0..3000).map(|n| (n, n + 1)).collect());
        assert_eq!(all, [(0, 1024), (1024, 2048), (2048, 3000)]);
        // One that holds another.
        assert_eq!(joined(vec![(0, 10), (2, 3)]), [(0, 10)]);
    }
}
