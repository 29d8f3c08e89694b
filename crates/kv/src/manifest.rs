//! What the metadata log says of a store: which tables there are and where, where the write-ahead log stands, and how the keys are divided.
//!
//! A record of the log is a list of *notes*, which count together or not at all. A snapshot is the list of notes that makes the whole state.

use crate::order::Order;
use std::collections::BTreeMap;

/// Version of the notes.
const VERSION: u8 = 1;

/// A table of sorted changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableInfo {
    pub id: u64,
    pub space: u16,
    pub level: u8,
    /// Of the tables of a level, which share zones.
    pub group: u32,
    pub zone: u32,
    pub life: u64,
    /// In bytes from the zone's start.
    pub at: u64,
    pub len: u64,
    pub entries: u64,
    pub deletes: u64,
    /// Bytes that its deletes hide, about.
    pub hidden: u64,
    pub seqs: (u64, u64),
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
    /// Changes of keys before this one are elsewhere by now.
    pub from: Option<Vec<u8>>,
}

impl TableInfo {
    /// The smallest key of which the table still has changes, at the least.
    pub fn first(&self) -> &[u8] {
        self.from.as_deref().unwrap_or(&self.smallest)
    }

    /// Whether a key may be in what counts of it.
    pub fn covers(&self, order: &dyn Order, key: &[u8]) -> bool {
        order.compare(self.first(), key).is_le() && order.compare(key, &self.largest).is_le()
    }
}

/// A zone of the write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalZone {
    pub zone: u32,
    pub life: u64,
    /// Position of the first byte.
    pub position: u64,
}

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The name of the order of a space's keys.
    Space {
        space: u16,
        order: String,
    },
    Table(TableInfo),
    /// A table is gone.
    Gone(u64),
    /// Changes of keys before this one are elsewhere.
    From {
        id: u64,
        key: Vec<u8>,
    },
    WalZone(WalZone),
    /// Changes in records before this one are in tables: its position, and the number of its first change.
    Front {
        position: u64,
        seq: u64,
    },
    /// Where the partitions of a space begin, but for the first.
    Bounds {
        space: u16,
        bounds: Vec<Vec<u8>>,
    },
    /// The next table gets at least this number.
    Next(u64),
}

/// The state that the log tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub spaces: BTreeMap<u16, String>,
    pub tables: BTreeMap<u64, TableInfo>,
    pub bounds: BTreeMap<u16, Vec<Vec<u8>>>,
    /// The oldest first.
    pub wal: Vec<WalZone>,
    pub front: (u64, u64),
    pub next: u64,
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }
}

impl Note {
    fn write(&self, out: &mut Vec<u8>) {
        let mut w = Writer(out);
        match self {
            Note::Space { space, order } => w.u8(1).u16(*space).bytes(order.as_bytes()),
            Note::Table(t) => {
                w.u8(2).u64(t.id).u16(t.space).u8(t.level).u32(t.group).u32(t.zone).u64(t.life).u64(t.at).u64(t.len);
                w.u64(t.entries).u64(t.deletes).u64(t.hidden).u64(t.seqs.0).u64(t.seqs.1);
                w.bytes(&t.smallest)
                    .bytes(&t.largest)
                    .u8(t.from.is_some().into())
                    .bytes(t.from.as_deref().unwrap_or(&[]))
            }
            Note::Gone(id) => w.u8(3).u64(*id),
            Note::From { id, key } => w.u8(4).u64(*id).bytes(key),
            Note::WalZone(z) => w.u8(5).u32(z.zone).u64(z.life).u64(z.position),
            Note::Front { position, seq } => w.u8(6).u64(*position).u64(*seq),
            Note::Bounds { space, bounds } => {
                w.u8(7).u16(*space).u32(bounds.len() as u32);
                for bound in bounds {
                    w.bytes(bound);
                }
                &mut w
            }
            Note::Next(id) => w.u8(8).u64(*id),
        };
    }

    fn read(r: &mut Reader<'_>) -> Option<Note> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        Some(match r.u8()? {
            1 => Note::Space { space: r.u16()?, order: text(r.bytes()?)? },
            2 => Note::Table(TableInfo {
                id: r.u64()?,
                space: r.u16()?,
                level: r.u8()?,
                group: r.u32()?,
                zone: r.u32()?,
                life: r.u64()?,
                at: r.u64()?,
                len: r.u64()?,
                entries: r.u64()?,
                deletes: r.u64()?,
                hidden: r.u64()?,
                seqs: (r.u64()?, r.u64()?),
                smallest: r.bytes()?.to_vec(),
                largest: r.bytes()?.to_vec(),
                from: {
                    let there = r.u8()? == 1;
                    let key = r.bytes()?;
                    there.then(|| key.to_vec())
                },
            }),
            3 => Note::Gone(r.u64()?),
            4 => Note::From { id: r.u64()?, key: r.bytes()?.to_vec() },
            5 => Note::WalZone(WalZone { zone: r.u32()?, life: r.u64()?, position: r.u64()? }),
            6 => Note::Front { position: r.u64()?, seq: r.u64()? },
            7 => {
                let (space, count) = (r.u16()?, r.u32()?);
                // Not by the count: each bound is at least there.
                let bounds = (0..count).map(|_| r.bytes().map(<[u8]>::to_vec)).collect::<Option<_>>()?;
                Note::Bounds { space, bounds }
            }
            8 => Note::Next(r.u64()?),
            _ => return None,
        })
    }
}

/// Writes a record of these notes.
pub(crate) fn record(notes: &[Note], out: &mut Vec<u8>) {
    out.push(VERSION);
    notes.iter().for_each(|note| note.write(out));
}

/// The notes of a record; `None`: it is none.
pub(crate) fn notes(record: &[u8]) -> Option<Vec<Note>> {
    let (version, rest) = record.split_first()?;
    let mut reader = Reader(rest);
    let mut notes = Vec::new();
    while *version == VERSION && !reader.0.is_empty() {
        notes.push(Note::read(&mut reader)?);
    }
    (*version == VERSION).then_some(notes)
}

impl Manifest {
    /// What a note says.
    pub fn apply(&mut self, note: Note) {
        match note {
            Note::Space { space, order } => drop(self.spaces.insert(space, order)),
            Note::Table(table) => {
                self.next = self.next.max(table.id.saturating_add(1));
                self.tables.insert(table.id, table);
            }
            Note::Gone(id) => drop(self.tables.remove(&id)),
            Note::From { id, key } => {
                if let Some(table) = self.tables.get_mut(&id) {
                    table.from = Some(key);
                }
            }
            Note::WalZone(zone) if !self.wal.iter().any(|known| (known.zone, known.life) == (zone.zone, zone.life)) => {
                // A snapshot may know it already, and that its bytes are in tables: what is not logged yet is in the snapshot, too, and comes behind it.
                let at = self.wal.partition_point(|other| other.position <= zone.position);
                self.wal.insert(at, zone);
                self.drop_wal();
            }
            Note::WalZone(_) => {}
            Note::Front { position, seq } => {
                self.front = (self.front.0.max(position), self.front.1.max(seq));
                self.drop_wal();
            }
            Note::Bounds { space, bounds } => drop(self.bounds.insert(space, bounds)),
            Note::Next(id) => self.next = self.next.max(id),
        }
    }

    /// Strikes off the log's zones that end before its front.
    fn drop_wal(&mut self) {
        // Where a zone ends, the next one begins; of the last nobody knows.
        let gone = self.wal.windows(2).take_while(|pair| pair[1].position <= self.front.0).count();
        self.wal.drain(..gone);
    }

    /// Hands all of it to `each`, in lists of notes that are not long.
    pub fn snapshot(&self, each: &mut dyn FnMut(&[Note])) {
        for (space, order) in &self.spaces {
            each(&[Note::Space { space: *space, order: order.clone() }]);
        }
        for (space, bounds) in &self.bounds {
            each(&[Note::Bounds { space: *space, bounds: bounds.clone() }]);
        }
        self.tables.values().for_each(|table| each(&[Note::Table(table.clone())]));
        self.wal.iter().for_each(|zone| each(&[Note::WalZone(*zone)]));
        each(&[Note::Front { position: self.front.0, seq: self.front.1 }, Note::Next(self.next)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(id: u64) -> TableInfo {
        TableInfo {
            id,
            space: 0,
            level: 1,
            group: 3,
            zone: 4,
            life: 5,
            at: 4096,
            len: 100,
            entries: 7,
            deletes: 2,
            hidden: 9,
            seqs: (1, 8),
            smallest: b"a".to_vec(),
            largest: b"z".to_vec(),
            from: (id % 2 == 1).then(|| b"k".to_vec()),
        }
    }

    fn read(records: &[Vec<u8>]) -> Manifest {
        let mut manifest = Manifest::default();
        let all = records.iter().flat_map(|record| notes(record).expect("notes"));
        all.for_each(|note| manifest.apply(note));
        manifest
    }

    fn written(notes: &[Note]) -> Vec<u8> {
        let mut out = Vec::new();
        record(notes, &mut out);
        out
    }

    #[test]
    fn a_snapshot_makes_the_same_state() {
        let mut manifest = Manifest::default();
        let wal = |zone, position| WalZone { zone, life: 1, position };
        let all = [
            Note::Space { space: 0, order: "bytes".into() },
            Note::Bounds { space: 0, bounds: vec![b"m".to_vec(), vec![]] },
            Note::Table(table(1)),
            Note::Table(table(2)),
            Note::Table(table(3)),
            Note::Gone(3),
            Note::From { id: 2, key: b"c".to_vec() },
            Note::WalZone(wal(9, 0)),
            Note::WalZone(wal(10, 100)),
            Note::WalZone(wal(11, 200)),
            Note::Front { position: 150, seq: 12 },
        ];
        all.iter().cloned().for_each(|note| manifest.apply(note));
        assert_eq!((manifest.next, manifest.front, manifest.wal.len()), (4, (150, 12), 2));
        assert_eq!(manifest.tables[&2].first(), b"c");
        assert_eq!(read(&[written(&all)]), manifest);
        let mut snapshot = Vec::new();
        manifest.snapshot(&mut |notes| snapshot.push(written(notes)));
        assert_eq!(read(&snapshot), manifest);
    }

    #[test]
    fn notes_that_a_snapshot_knows_change_nothing() {
        let mut manifest = Manifest::default();
        let wal = |zone, position| Note::WalZone(WalZone { zone, life: 1, position });
        let all = [
            wal(9, 0),
            Note::Table(table(1)),
            Note::Table(table(2)),
            wal(10, 100),
            Note::From { id: 2, key: b"c".to_vec() },
            Note::Gone(1),
            Note::Front { position: 120, seq: 7 },
        ];
        all.iter().cloned().for_each(|note| manifest.apply(note));
        let mut snapshot = Vec::new();
        manifest.snapshot(&mut |notes| snapshot.push(written(notes)));
        for from in 0..all.len() {
            let records: Vec<_> = snapshot.iter().cloned().chain([written(&all[from..])]).collect();
            assert_eq!(read(&records), manifest, "from note {from} on");
        }
    }

    #[test]
    fn a_cut_record_is_none() {
        let out = written(&[Note::Table(table(1))]);
        for n in 2..out.len() {
            assert_eq!(notes(&out[..n]), None, "{n}");
        }
        assert_eq!(notes(&[]), None);
        assert_eq!(notes(&[9, 9]), None);
    }
}
