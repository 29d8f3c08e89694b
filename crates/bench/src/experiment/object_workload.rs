//! Plays the [streams of an object store](super::oss) on a chunk store on a virtual clock: fills it to so much, then deletes sealed
//! chunks at random, as many as hold that, until so many capacities have been written over.
//!
//! **What is scaled.** Zones are as large as they are, lie evenly over the drive's whole stroke, and there are fewer of them. What does not
//! become less with them, a handful of 74,508 on a whole drive, is beside those that count as capacity: metazones, label, reserve, the
//! cleaner's two, and one for each chunk that is open and may fill a zone. Utilisation is what sealed chunks hold of what the others take.
//!
//! **What is durable.** As in [`super::chunk_write`]: with the write cache on whoever finds no group being written writes one; with it off each append is
//! durable by itself, and what its client asked for before it (seal, delete, create) goes with the commit that a new chunk needs.

use super::Stop;
use super::chunk_write::{TURNAROUND, make_durable};
use super::oss::{Chunks, MIB, Piece, Source, Turn};
use super::virtual_clock::{Groups, Host, Nanoseconds, Steps, Turns, why};
use imbrex_chunkstore::format::{BLOCK, data_blocks};
use imbrex_chunkstore::{Append, ChunkStore, Durability, Options, RESERVE, ZoneState};
use imbrex_device::Cause;
use imbrex_emulator::time::TimeStats;
use imbrex_emulator::{Op, Profile, TraceEntry};

/// Appends that are under way at once, as in one job of the paper's load generator; the most that can be.
pub(super) const CLIENTS: usize = 32;
/// What [`Steps`] knows an append by that is durable by itself, with the client's number; those of [`Groups`] are between the clients' and these.
const DURABLE: usize = CLIENTS + 2;
/// In the sentence of a store that finds none.
const NO_SPACE: &str = "no space left";
const BUFFERED: Append = Append { offset: None, durability: Durability::Buffered };

/// What is played.
#[derive(Clone, Debug)]
pub(super) struct Play {
    pub(super) sources: Vec<Source>,
    /// Zones that count as capacity.
    pub(super) zones: u32,
    /// Bytes of a zone.
    pub(super) zone_size: u64,
    /// So much of it is filled.
    pub(super) filled: f64,
    /// How many capacities are written then before it is measured: until what lives is what such deletes leave.
    pub(super) settle: f64,
    /// How many capacities are written after that.
    pub(super) overwrite: f64,
    /// At the paper's rate; else as fast as it goes.
    pub(super) paced: bool,
    pub(super) cache: bool,
    /// Appends under way, [`CLIENTS`] at most.
    pub(super) clients: usize,
    /// It ends before, once so many capacities were written to the drive, moved bytes included.
    pub(super) most: f64,
    pub(super) seed: u64,
}

/// One of the two phases.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase {
    pub(super) seconds: f64,
    pub(super) busy: f64,
    /// Seek, rotation, transfer, zone operations.
    pub(super) kinds: [f64; 4],
    pub(super) user: u64,
    pub(super) appends: u64,
    pub(super) commits: u64,
    /// Bytes written to datazones, and of these by the cleaner.
    pub(super) data: u64,
    pub(super) moved: u64,
    /// Bytes of journal and checkpoints.
    pub(super) meta: u64,
    pub(super) read: u64,
    pub(super) flushes: u64,
    pub(super) resets: u64,
    pub(super) turns: u64,
    pub(super) seeks: u64,
    /// Open zones, each time that a chunk is sealed: how many times, and of all of them the sum.
    pub(super) open: (u64, u64),
    pub(super) took: Vec<Nanoseconds>,
}

impl Phase {
    pub(super) fn rate(&self) -> f64 {
        self.user as f64 / 1e6 / self.seconds.max(1e-9)
    }

    /// Written for users and moved, over written for users.
    pub(super) fn cleaning(&self) -> f64 {
        self.data as f64 / self.data.saturating_sub(self.moved).max(1) as f64
    }
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    pub(super) clean: Phase,
    pub(super) deleting: Phase,
    /// Capacities that were written over, where it is less than was asked for; and whether the store found no space.
    pub(super) stopped_at: Option<f64>,
    pub(super) no_space: bool,
    pub(super) deleted: u64,
    pub(super) capacity: u64,
    /// Seconds, and bytes that were answered since the point before.
    pub(super) over_time: Vec<(f64, u64)>,
    /// Live part of each closed zone, ascending.
    pub(super) utilisation: Vec<f64>,
    /// Zones of the store's drive.
    pub(super) drive_zones: u32,
}

struct Player<'a> {
    host: &'a Host,
    steps: Steps,
    chunks: Chunks,
    play: &'a Play,
    bytes: Vec<u8>,
    target: u64,
    capacity: u64,
    came: [Nanoseconds; CLIENTS],
    /// Bytes of a client's append that is durable by itself.
    appended: [u64; CLIENTS],
    /// What a client appends next.
    next: [Turn; CLIENTS],
    asked: Vec<TraceEntry>,
    groups: Groups<(usize, u64)>,
    turns: Turns,
    now: Phase,
    /// The end of the phase before, with the drive's figures and what was moved then.
    before: (Nanoseconds, TimeStats, u64),
    deleting: bool,
    settled: bool,
    done: bool,
    played: Played,
}

impl Player<'_> {
    fn noted(&mut self, commands: &[TraceEntry]) {
        self.turns.add(commands);
        for one in commands {
            let bytes = u64::from(one.len);
            match one.op {
                Op::Write if one.cause == Cause::UserWrite.name() => self.now.data += bytes,
                Op::Write => self.now.meta += bytes,
                Op::Read => self.now.read += bytes,
                Op::Flush => self.now.flushes += 1,
                Op::Reset => self.now.resets += 1,
                _ => {}
            }
        }
    }

    fn took<T>(&mut self, operation: impl FnOnce(&ChunkStore) -> imbrex_chunkstore::Result<T>) -> Result<T, Stop> {
        let (value, asked) = self.host.took(operation)?;
        self.asked.extend(asked);
        Ok(value)
    }

    /// The client waits for its next turn.
    fn wait(&mut self, client: usize, from: Nanoseconds) {
        if self.done {
            return;
        }
        let turn = self.chunks.turn();
        self.next[client] = turn;
        let at = if self.play.paced { from.max(turn.due) } else { from };
        self.steps.begin(client, Vec::new(), at);
    }

    fn append(&mut self, client: usize, now: Nanoseconds) -> Result<(), Stop> {
        let Piece { seal, create, id, len, .. } = self.chunks.piece(self.next[client]);
        self.came[client] = now;
        if let Some(full) = seal {
            self.took(|store| store.seal_with(full, Durability::Buffered))?;
            let open = self.host.store.zones();
            let open = open.iter().filter(|z| z.state.is_open() && z.usage.is_some()).count();
            self.now.open = (self.now.open.0 + 1, self.now.open.1 + open as u64);
            while self.chunks.sealed_bytes > self.target {
                self.begin_deleting(now);
                let Some(gone) = self.chunks.dies() else { break };
                self.took(|store| store.delete_with(gone, Durability::Buffered))?;
            }
        }
        if let Some(stream) = create {
            self.took(|store| store.create_with(id, stream, Durability::Buffered))?;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let appended = self.took(|store| store.append_with(id, &bytes[..len as usize], BUFFERED));
        self.bytes = bytes;
        appended?;
        if self.play.cache {
            self.groups.gather((client, len), std::mem::take(&mut self.asked));
            return self.commit(now);
        }
        let (written, zone) = make_durable(self.host, id)?;
        let commands: Vec<_> = std::mem::take(&mut self.asked).into_iter().chain(written).collect();
        self.noted(&commands);
        self.appended[client] = len;
        self.steps.begin_in(DURABLE + client, commands, zone, now);
        Ok(())
    }

    fn commit(&mut self, now: Nanoseconds) -> Result<(), Stop> {
        if let Some(commands) = self.groups.write(self.host, &mut self.steps, now)? {
            self.noted(&commands);
            self.now.commits += 1;
        }
        Ok(())
    }

    /// What the phase that ends now was.
    fn phase(&mut self, now: Nanoseconds) -> Phase {
        let (stats, moved) = (self.steps.stats(), self.host.store.stats().moved_bytes);
        let (from, old, old_moved) = std::mem::replace(&mut self.before, (now, stats.clone(), moved));
        let mut phase = std::mem::take(&mut self.now);
        phase.seconds = (now - from) / 1e9;
        phase.busy = stats.total.busy() - old.total.busy();
        phase.kinds = [
            stats.total.seek - old.total.seek,
            stats.total.rotation - old.total.rotation,
            stats.total.transfer - old.total.transfer,
            stats.total.zone_ops - old.total.zone_ops,
        ];
        phase.seeks = stats.seeks - old.seeks;
        phase.moved = moved - old_moved;
        phase.turns = std::mem::take(&mut self.turns).turns;
        phase.took.sort_by(f64::total_cmp);
        phase
    }

    fn begin_deleting(&mut self, now: Nanoseconds) {
        if !self.deleting {
            self.deleting = true;
            self.played.clean = self.phase(now);
        }
    }

    fn answered(&mut self, client: usize, len: u64, now: Nanoseconds) {
        self.now.took.push(now - self.came[client]);
        self.now.appends += 1;
        self.now.user += len;
        if self.deleting && !self.settled && self.now.user as f64 >= self.play.settle * self.capacity as f64 {
            self.settled = true;
            self.phase(now);
        }
        let written = self.now.data as f64 / self.capacity as f64;
        let over = self.settled && self.now.user as f64 >= self.play.overwrite * self.capacity as f64;
        self.done |= self.deleting && (over || written >= self.play.most);
    }

    fn run(mut self, stopped: &dyn Fn() -> bool) -> Result<Played, Stop> {
        for client in 0..self.play.clients.min(CLIENTS) {
            self.wait(client, client as f64 * TURNAROUND);
        }
        let mut end = 0.0;
        while let Some((who, now)) = self.steps.next() {
            if who < CLIENTS {
                match self.append(who, now) {
                    // What was measured up to here counts, and the row says so. The chunk that it was for is not what it should be.
                    Err(Stop::Failed(why)) if self.deleting && why.contains(NO_SPACE) => {
                        (self.done, self.played.no_space) = (true, true);
                    }
                    result => result?,
                }
                continue;
            }
            end = now;
            let all = match who.checked_sub(DURABLE) {
                Some(client) => vec![(client, self.appended[client])],
                None => self.groups.ended(who, &mut self.steps, now),
            };
            self.now.flushes += u64::from(who == CLIENTS + 1);
            self.played.over_time.push((now / 1e9, all.iter().map(|(_, len)| len).sum()));
            for (client, len) in &all {
                self.answered(*client, *len, now);
            }
            for (rank, (client, _)) in all.into_iter().enumerate() {
                self.wait(client, now + (rank + 1) as f64 * TURNAROUND);
            }
            self.commit(now)?;
            if stopped() {
                return Err(Stop::Interrupted);
            }
        }
        self.played.deleting = self.phase(end);
        let over = self.played.deleting.user as f64 / self.capacity as f64;
        self.played.stopped_at = (over < self.play.overwrite).then_some(over);
        self.played.deleted = self.chunks.deleted;
        if !self.played.no_space {
            self.verify()?;
        }
        let zones = self.host.store.zones();
        let closed = zones.iter().filter(|z| z.state == ZoneState::Closed && z.usage.is_some());
        self.played.utilisation = closed.map(|zone| zone.live as f64 / zone.capacity.max(1) as f64).collect();
        self.played.utilisation.sort_by(f64::total_cmp);
        Ok(self.played)
    }

    /// The store has the chunks that there shall be, and no others.
    fn verify(&self) -> Result<(), Stop> {
        let mut n = 0;
        for (id, len, sealed) in self.chunks.all() {
            let info = self.host.store.stat(id).map_err(why)?;
            if (u64::from(info.len), info.sealed) != (len, sealed) {
                return Err(Stop::Failed(format!("chunk {id} has {} bytes where {len} were appended", info.len)));
            }
            n += 1;
        }
        let has = self.host.store.stats().chunks;
        if has != n {
            return Err(Stop::Failed(format!("the store has {has} chunks where there should be {n}")));
        }
        Ok(())
    }
}

/// Bytes of chunks that fill a zone when they come in pieces of so many.
pub(super) fn zone_takes(zone_size: u64, piece: u64) -> u64 {
    let blocks = (zone_size / BLOCK as u64).saturating_sub(1);
    blocks / u64::from(data_blocks(piece as u32)) * piece
}

/// Zones beside the capacity: see the module. Six metazones and two of the label are the least that there are; cleaning begins below a
/// sixty-fourth of all, or four, if that is more.
fn beside(play: &Play) -> u32 {
    let alone = |source: &Source| source.most.is_none_or(|most| most >= play.zone_size / 16);
    let open: usize = play.sources.iter().map(|source| if alone(source) { source.open } else { 1 }).sum();
    let meta = 6 + play.zones * 400 / 74_508;
    meta + 2 + RESERVE + 2 + 4u32.saturating_sub(play.zones / 64) + open as u32
}

/// Plays it on a store of these options.
pub(super) fn play(
    profile: &Profile,
    play: &Play,
    options: Options,
    stopped: &dyn Fn() -> bool,
) -> Result<Played, Stop> {
    let profile = &Profile { zone_size: play.zone_size, ..profile.clone() };
    let drive_zones = play.zones + beside(play);
    let host = Host::packed(profile, drive_zones, play.cache, options)?;
    // Evenly over the sequential zones of the whole drive.
    let first = u64::from(profile.conventional_zones);
    let all = profile.capacity / profile.zone_size - first;
    let place = |zone: u64| (first + zone * all / u64::from(drive_zones)) * profile.zone_size;
    let steps = Steps::new(profile, play.cache, (0..u64::from(drive_zones)).map(place).collect())?;
    // The store's limit is what fills a zone in pieces of 1 MiB; in shorter ones it would be a piece of a second zone.
    let limit = |stream, piece| u64::from(host.store.chunk_limit(stream)).min(zone_takes(profile.zone_size, piece));
    let chunks = Chunks::new(play.sources.clone(), limit, play.seed);
    let largest = play.sources.iter().map(|source| source.pieces.1).max().unwrap_or(MIB);
    let capacity = u64::from(play.zones) * zone_takes(profile.zone_size, largest);
    let player = Player {
        host: &host,
        before: (0.0, steps.stats(), host.store.stats().moved_bytes),
        steps,
        chunks,
        play,
        bytes: vec![7; MIB as usize],
        target: (play.filled * capacity as f64) as u64,
        capacity,
        came: [0.0; CLIENTS],
        appended: [0; CLIENTS],
        next: [Turn::default(); CLIENTS],
        asked: Vec::new(),
        groups: Groups::new(CLIENTS),
        turns: Turns::default(),
        now: Phase::default(),
        deleting: false,
        settled: play.settle <= 0.0,
        done: false,
        played: Played { capacity, drive_zones, ..Played::default() },
    };
    player.run(stopped)
}

#[cfg(test)]
mod tests {
    use super::super::chunk_write::DRIVE;
    use super::super::oss::{shrunk, table3};
    use super::*;
    use crate::ablation::place::Placement;
    use imbrex_chunkstore::CleaningPolicy;

    fn short(placement: Placement, cache: bool) -> Played {
        let profile = Profile::named(DRIVE).unwrap();
        let load = Play {
            sources: shrunk(table3(), 16),
            zones: 40,
            zone_size: 16 * MIB,
            filled: 0.9,
            settle: 0.0,
            overwrite: 1.0,
            paced: false,
            cache,
            clients: CLIENTS,
            most: 8.0,
            seed: 1,
        };
        let options = Options { cleaning_policy: CleaningPolicy::Greedy, ..placement.options() };
        play(&profile, &load, options, &|| false).unwrap()
    }

    #[test]
    fn a_drive_is_filled_and_holds_what_it_has_while_chunks_die() {
        let ours = short(Placement::OURS, true);
        let capacity = ours.capacity as f64;
        assert!(ours.stopped_at.is_none() && ours.deleted > 0);
        assert!(ours.clean.user as f64 > 0.9 * capacity && ours.deleting.user as f64 >= capacity);
        assert!(ours.clean.seconds > 0.0 && ours.clean.busy <= 1.001 * ours.clean.seconds);
        let answered: u64 = ours.over_time.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(answered, ours.clean.user + ours.deleting.user);
        assert!(ours.clean.data > ours.clean.user && ours.utilisation.is_sorted());
        let one = short(Placement::ONE_ZONE, true);
        assert!(one.clean.turns < ours.clean.turns);
        let moved = (one.deleting.cleaning(), ours.deleting.cleaning());
        assert!(moved.0 > moved.1, "{moved:?}");
    }

    #[test]
    fn with_the_write_cache_off_each_append_is_durable_by_itself() {
        let ours = short(Placement::OURS, false);
        assert!(ours.stopped_at.is_none() && ours.deleted > 0);
        for phase in [&ours.clean, &ours.deleting] {
            assert!(phase.busy <= 1.001 * phase.seconds && phase.appends > 0, "{} {}", phase.busy, phase.seconds);
            assert_eq!((phase.commits, phase.took.len() as u64), (0, phase.appends));
        }
        let answered: u64 = ours.over_time.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(answered, ours.clean.user + ours.deleting.user);
        let mut times: Vec<u64> = ours.over_time.iter().map(|(at, _)| at.to_bits()).collect();
        times.dedup();
        let appends = ours.clean.appends + ours.deleting.appends;
        assert!(
            times.len() as u64 > appends / 4,
            "32 that wait are not answered together: {} of {appends}",
            times.len()
        );
        let one = short(Placement::ONE_ZONE, false);
        let moved = (one.deleting.cleaning(), ours.deleting.cleaning());
        assert!(moved.0 > moved.1, "{moved:?}");
    }
}
