//! Clients of a store on the virtual clock: what each appends next, and what waits for a commit.

use super::super::Stop;
use super::super::virtual_clock::{Groups, Host, Nanoseconds, Steps, Turns, why};
use super::TURNAROUND;
use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability};
use imbrex_emulator::{Op, TraceEntry};

/// What a client appends next.
pub(super) struct Next {
    pub(super) id: ChunkId,
    pub(super) bytes: u64,
    /// What finding the chunk asked of the drive.
    pub(super) asked: Vec<TraceEntry>,
}

/// Which chunks appends go to.
pub(super) trait Chunks {
    /// Where this client's next one goes; `None`: nobody has any more.
    fn next(&mut self, host: &Host, client: usize) -> Result<Option<Next>, Stop>;

    /// What comes behind the last one: what it asked of the drive.
    fn end(&mut self, host: &Host) -> Result<Vec<TraceEntry>, Stop>;
}

/// When an append is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// When it is durable.
    Durable,
    /// When the store has it; the client asks for a sync after so many bytes.
    Buffered { sync: Option<u64> },
}

/// What was measured at one place or, added up, at all.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) seconds: f64,
    pub(super) busy: f64,
    pub(super) kinds: [f64; 4],
    pub(super) appends: u64,
    pub(super) commits: u64,
    pub(super) user: u64,
    pub(super) turns: Turns,
    pub(super) flushes: u64,
    /// Of each append, in nanoseconds.
    pub(super) took: Vec<Nanoseconds>,
    /// When zones were written, at the first place.
    pub(super) written: Vec<(Nanoseconds, u32)>,
}

impl Measured {
    pub(super) fn add(&mut self, one: Measured) {
        self.seconds += one.seconds;
        self.busy += one.busy;
        self.kinds.iter_mut().zip(one.kinds).for_each(|(sum, part)| *sum += part);
        self.appends += one.appends;
        self.commits += one.commits;
        self.user += one.user;
        self.turns.bytes += one.turns.bytes;
        self.turns.turns += one.turns.turns;
        self.flushes += one.flushes;
        self.took.extend(one.took);
        if self.written.is_empty() {
            self.written = one.written;
        }
    }
}

/// The clients of a store: what each does next, and what waits for a commit.
pub(super) struct Clients<'a, C> {
    pub(super) host: &'a Host,
    pub(super) steps: Steps,
    pub(super) chunks: C,
    how: How,
    bytes: Vec<u8>,
    /// Of each client's last append, when it came and how long it is.
    came: Vec<Nanoseconds>,
    lengths: Vec<u64>,
    unsynced: u64,
    /// Who has appended and waits until that is durable.
    groups: Groups<usize>,
    /// With the write cache off each append is durable by itself.
    through: bool,
    measured: Measured,
    /// All that was asked of the drive.
    pub(super) trace: Vec<TraceEntry>,
}

/// Makes durable by itself what was appended to a chunk, with the write cache off: what that asked of the drive, and the zone whose older writes it
/// waits for.
pub(crate) fn make_durable(host: &Host, id: ChunkId) -> Result<(Vec<TraceEntry>, Option<u32>), Stop> {
    let ((), written) = host.took(|store| store.sync_chunk(id))?;
    let places = host.store.places(id).map_err(why)?;
    Ok((written, places.last().map(|place| place.zone)))
}

impl<'a, C: Chunks> Clients<'a, C> {
    /// So many clients, who append `size` bytes at most.
    pub(super) fn new(
        (host, steps): (&'a Host, Steps),
        chunks: C,
        (clients, size): (usize, u64),
        how: How,
        cache: bool,
    ) -> Self {
        Clients {
            host,
            steps,
            chunks,
            how,
            bytes: vec![7; size as usize],
            came: vec![0.0; clients],
            lengths: vec![0; clients],
            unsynced: 0,
            groups: Groups::new(clients),
            through: !cache,
            measured: Measured::default(),
            trace: Vec::new(),
        }
    }

    /// What [`Steps`] knows a client's append by that no group has; those of [`Groups`] are between the clients' and these.
    fn behind(&self, client: usize) -> usize {
        self.came.len() + 2 + client
    }

    fn played(&mut self, commands: &[TraceEntry]) {
        self.measured.turns.add(commands);
        self.measured.flushes += commands.iter().filter(|one| one.op == Op::Flush).count() as u64;
        self.trace.extend_from_slice(commands);
    }

    fn sync(&mut self) -> Result<Vec<TraceEntry>, Stop> {
        self.measured.commits += 1;
        Ok(self.host.took(ChunkStore::sync)?.1)
    }

    /// The client's next append, if there are any left.
    fn append(&mut self, client: usize, now: Nanoseconds) -> Result<(), Stop> {
        let Some(Next { id, bytes: length, mut asked }) = self.chunks.next(self.host, client)? else { return Ok(()) };
        (self.came[client], self.lengths[client]) = (now, length);
        let how = Append { offset: None, durability: Durability::Buffered };
        let bytes = &self.bytes[..length as usize];
        asked.extend(self.host.took(|store| store.append_with(id, bytes, how))?.1);
        let behind = self.behind(client);
        match self.how {
            How::Buffered { sync } => {
                self.unsynced += length;
                if sync.is_some_and(|most| self.unsynced >= most) {
                    self.unsynced = 0;
                    asked.extend(self.sync()?);
                }
                self.played(&asked);
                self.steps.begin(behind, asked, now);
            }
            How::Durable if self.through => {
                let (written, zone) = make_durable(self.host, id)?;
                asked.extend(written);
                self.played(&asked);
                self.steps.begin_in(behind, asked, zone, now);
            }
            How::Durable => {
                self.groups.gather(client, asked);
                self.commit(now)?;
            }
        }
        Ok(())
    }

    /// Writes what has gathered, unless a group is being written.
    fn commit(&mut self, now: Nanoseconds) -> Result<(), Stop> {
        if let Some(asked) = self.groups.write(self.host, &mut self.steps, now)? {
            self.measured.commits += 1;
            self.played(&asked);
        }
        Ok(())
    }

    fn answered(&mut self, client: usize, now: Nanoseconds) {
        self.measured.took.push(now - self.came[client]);
        self.measured.appends += 1;
        self.measured.user += self.lengths[client];
    }

    /// Plays them to their end, and what comes behind.
    pub(super) fn run(&mut self, stopped: &dyn Fn() -> bool) -> Result<Measured, Stop> {
        let clients = self.came.len();
        for client in 0..clients {
            self.steps.begin(client, Vec::new(), client as f64 * TURNAROUND);
        }
        let mut end = 0.0;
        while let Some((who, now)) = self.steps.next() {
            if who < clients {
                self.append(who, now)?;
                continue;
            }
            end = now;
            if let Some(client) = who.checked_sub(self.behind(0)) {
                self.answered(client, now);
                self.steps.begin(client, Vec::new(), now + TURNAROUND);
                continue;
            }
            self.measured.flushes += u64::from(who > clients);
            for (rank, client) in self.groups.ended(who, &mut self.steps, now).into_iter().enumerate() {
                self.answered(client, now);
                self.steps.begin(client, Vec::new(), now + (rank + 1) as f64 * TURNAROUND);
            }
            self.commit(now)?;
            if stopped() {
                return Err(Stop::Interrupted);
            }
        }
        let asked = self.chunks.end(self.host)?;
        if !asked.is_empty() {
            self.measured.commits += 1;
            self.played(&asked);
            self.steps.begin(clients, asked, end);
            while let Some((_, now)) = self.steps.next() {
                end = now;
            }
        }
        let stats = self.steps.stats();
        self.measured.seconds = end / 1e9;
        self.measured.written = self.steps.written();
        self.measured.busy = stats.total.busy();
        self.measured.kinds = [stats.total.seek, stats.total.rotation, stats.total.transfer, stats.total.zone_ops];
        Ok(std::mem::take(&mut self.measured))
    }
}
