//! Blocks that stand in many places, in few commands and in the order of the drive: what is near is read with what stands between, where that takes a disk less time than a command for each.
//!
//! Several commands are at the drive at once where its volume has threads: a disk takes them in the order that it likes best, and others do several at a time.

use crate::blob::{BLOCK, Place};
use crate::core::Core;
use crate::lock::lock;
use imbrex_device::{AlignedBuf, Cause, Error, Result, Tag, ZoneId};
use std::ops::Range;
use std::sync::Mutex;

/// Blocks that a disk reads in vain rather than with another command, and blocks of a command.
const GAP: u32 = 64;
const LONGEST: u32 = 1024;
/// The same of a drive without a head: about what it reads in the time of a command.
const SHORT_GAP: u32 = 8;
/// From so many commands of a read on threads help at a disk. Measured once, in real time on the model of a disk, beside other work: reads of 1 and 4 MiB of what was half overwritten took a fifth less with threads, and shorter ones 5 % more.
const MANY: usize = 8;
/// A drive without a head has so many commands for each thread that helps: a command may take no longer than to begin a thread.
const EACH_HELPER: usize = 4;

/// Blocks that stand together, and that somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    pub place: Place,
    pub blocks: u32,
}

/// Blocks of a zone that are read at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub zone: u32,
    pub life: u32,
    pub blocks: Range<u32>,
    /// Which of those in order are wanted.
    pub wanted: Range<usize>,
}

/// Whether a range of blocks, the first and the one behind the last, is read with the one before.
fn joins(last: (u32, u32), (from, to): (u32, u32), gap: u32) -> bool {
    from <= last.1.saturating_add(gap) && to - last.0 <= LONGEST
}

/// Ranges of blocks, the first and the one behind the last, as commands that read them all.
pub(crate) fn joined(mut wanted: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    wanted.sort_unstable();
    wanted.into_iter().fold(Vec::<(u32, u32)>::new(), |mut all, next| {
        match all.last_mut() {
            Some(last) if joins(*last, next, GAP) => last.1 = last.1.max(next.1),
            _ => all.push(next),
        }
        all
    })
}

/// What is wanted in the order of the drive, by number; and commands that read it, where so many blocks are read in vain rather than with another command.
fn commands(wanted: &[Stand], gap: u32) -> (Vec<usize>, Vec<Command>) {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let key = |n: &usize| {
        let Stand { place: Place { zone, life, block }, blocks } = wanted[*n];
        (zone, life, block, blocks)
    };
    order.sort_unstable_by_key(key);
    let mut all: Vec<Command> = Vec::new();
    for (n, (zone, life, block, blocks)) in order.iter().map(key).enumerate() {
        let end = block.saturating_add(blocks);
        match all.last_mut() {
            Some(last)
                if (last.zone, last.life) == (zone, life)
                    && joins((last.blocks.start, last.blocks.end), (block, end), gap) =>
            {
                last.blocks.end = last.blocks.end.max(end);
                last.wanted.end = n + 1;
            }
            _ => all.push(Command { zone, life, blocks: block..end, wanted: n..n + 1 }),
        }
    }
    (order, all)
}

/// Whole blocks of a drive's longest command.
fn blocks_of_command(max_io: u32) -> u32 {
    (max_io / BLOCK as u32).max(1)
}

impl Command {
    /// Bytes that it reads.
    pub fn len(&self) -> usize {
        self.blocks.len() * BLOCK as usize
    }

    /// What it has read of what is wanted.
    pub fn part<'a>(&self, wanted: &Stand, read: &'a [u8]) -> Option<&'a [u8]> {
        let from = wanted.place.block.checked_sub(self.blocks.start)? as usize * BLOCK as usize;
        read.get(from..from + wanted.blocks as usize * BLOCK as usize)
    }
}

/// What has become of a command.
#[derive(Debug)]
pub(crate) enum Got {
    /// The zone is in another life.
    Gone,
    Bytes,
    Failed(Error),
}

/// A command, and memory of its length that the drive accepts.
pub(crate) struct Ask<'a> {
    pub command: &'a Command,
    pub into: &'a mut [u8],
    pub got: Got,
}

impl Core {
    /// What is wanted in the order of the drive, by number; and commands that read it.
    pub fn commands(&self, wanted: &[Stand]) -> (Vec<usize>, Vec<Command>) {
        commands(wanted, if self.tenant.volume().geometry().rotational { GAP } else { SHORT_GAP })
    }

    /// How many threads may help with so many commands of users.
    pub fn helpers_for(&self, commands: usize) -> usize {
        let volume = self.tenant.volume();
        match (volume.is_threaded(), volume.geometry().rotational) {
            (false, _) => 0,
            (true, true) if commands < MANY => 0,
            (true, true) => commands - 1,
            (true, false) => commands / EACH_HELPER,
        }
    }

    /// Has the drive carry commands out, several at once if it may.
    pub fn ask(&self, asks: &mut [Ask<'_>], cause: Cause) {
        let helpers = self.helpers_for(asks.len());
        if helpers == 0 {
            asks.iter_mut().for_each(|ask| ask.got = self.carry_out(ask.command, ask.into, cause));
            return;
        }
        // In the order of the drive.
        let left = Mutex::new(asks.iter_mut());
        self.helpers.beside(helpers, || {
            loop {
                let Some(ask) = lock(&left).next() else { break };
                ask.got = self.carry_out(ask.command, ask.into, cause);
            }
        });
    }

    fn carry_out(&self, command: &Command, into: &mut [u8], cause: Cause) -> Got {
        if !self.pin(command.zone, command.life) {
            return Got::Gone;
        }
        let read = self.read_long(command, into, cause);
        self.tenant.unpin(ZoneId(command.zone));
        read.map_or_else(Got::Failed, |()| Got::Bytes)
    }

    /// Reads what is longer than a disk's commands in several that are there at once. Else others' commands come between them, and the head goes back for each.
    fn read_long(&self, command: &Command, into: &mut [u8], cause: Cause) -> Result<()> {
        let volume = self.tenant.volume();
        let (geometry, first) = (volume.geometry(), command.blocks.start);
        let longest = blocks_of_command(geometry.max_io);
        let pieces = command.blocks.len().div_ceil(longest as usize);
        if pieces < 2 || !volume.is_threaded() || !geometry.rotational {
            return self.read_blocks(command.zone, first, into, cause);
        }
        let left =
            Mutex::new((first..).step_by(longest as usize).zip(into.chunks_mut((longest * BLOCK as u32) as usize)));
        let failed = Mutex::new(None);
        let _turn = self.turns.wait(pieces);
        self.helpers.beside(pieces - 1, || {
            loop {
                let Some((block, piece)) = lock(&left).next().filter(|_| lock(&failed).is_none()) else { break };
                if let Err(error) = self.read_blocks(command.zone, block, piece, cause) {
                    lock(&failed).get_or_insert(error);
                }
            }
        });
        lock(&failed).take().map_or(Ok(()), Err)
    }

    /// Reads blocks of a zone that somebody keeps from being freed.
    pub fn read_blocks(&self, zone: u32, first: u32, into: &mut [u8], cause: Cause) -> Result<()> {
        let at = u64::from(first) * BLOCK;
        if self.data.in_memory(zone, at, into) {
            return Ok(());
        }
        let volume = self.tenant.volume();
        volume.read(into, volume.geometry().start(ZoneId(zone)) + at, Tag::new(cause))
    }

    /// The same; `None`: they cannot be read.
    pub fn read_part(&self, zone: u32, (from, to): (u32, u32), cause: Cause) -> Option<AlignedBuf> {
        let mut bytes = AlignedBuf::zeroed((to - from) as usize * BLOCK as usize);
        self.read_blocks(zone, from, &mut bytes, cause).is_ok().then_some(bytes)
    }

    /// Reads all of this, a command after the other, in the order of the drive. Has `each` see the number of each and its bytes; `None`: they cannot be read with the others, or are elsewhere by now.
    pub fn each_part(
        &self,
        wanted: &[Stand],
        cause: Cause,
        mut each: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let (order, commands) = self.commands(wanted);
        for command in commands {
            let mut memory = self.data.records.memory(command.len());
            let got = self.carry_out(&command, &mut memory, cause);
            let read = matches!(got, Got::Bytes).then_some(&memory[..]);
            for n in &order[command.wanted.clone()] {
                each(*n, read.and_then(|read| command.part(&wanted[*n], read)))?;
            }
        }
        Ok(())
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

    #[test]
    fn commands_go_by_zone_and_block_and_never_from_one_life_to_another() {
        let stand = |zone, life, block, blocks| Stand { place: Place { zone, block, life }, blocks };
        let wanted =
            [stand(2, 1, 500, 8), stand(1, 1, 90, 10), stand(2, 1, 440, 4), stand(2, 2, 510, 1), stand(1, 1, 80, 64)];
        let (order, all) = commands(&wanted, GAP);
        assert_eq!(order, [4, 1, 2, 0, 3]);
        let command = |zone, life, blocks, wanted| Command { zone, life, blocks, wanted };
        let expected = [command(1, 1, 80..144, 0..2), command(2, 1, 440..508, 2..4), command(2, 2, 510..511, 4..5)];
        assert_eq!(all, expected);
        let read: Vec<u8> = (0..64 * BLOCK).map(|n| (n / BLOCK) as u8).collect();
        assert_eq!(all[0].part(&wanted[1], &read).map(|part| (part[0], part.len() as u64)), Some((10, 10 * BLOCK)));
        assert_eq!(all[0].part(&wanted[0], &read), None);
        // What makes no sense is no panic.
        let (_, all) = commands(&[stand(1, 1, u32::MAX, 9), stand(1, 1, u32::MAX - 1, 1)], GAP);
        assert_eq!(all.len(), 1);
        assert_eq!(commands(&wanted, SHORT_GAP).1.len(), 4);
    }
}
