//! The whole state as records: what a compacted journal begins with.

use super::inline::{INLINE_PAGE, MAX_INLINE};
use super::{Inode, Meta, Record};

impl Meta {
    /// Records that, applied to [`Meta::new`], give an equal state: zones that were freed and may not be reset yet, all inodes
    /// with their extents, then all names, then what stands in inline space.
    /// It begins and ends with the next serial.
    pub fn snapshot(&self) -> impl Iterator<Item = Record> + '_ {
        let serials = std::iter::once(Record::NextSerial { serial: self.next_serial });
        let forgotten = self.forgotten.iter().map(|(zone, life)| Record::FreedZone { zone: *zone, life: *life });
        let inodes = self.inodes.values().flat_map(|inode| {
            let extents = inode.extents.iter().map(|e| Record::Extent { serial: inode.serial, extent: *e });
            std::iter::once(inode_record(inode)).chain(extents)
        });
        let entries = self.directories.iter().flat_map(|(parent, directory)| {
            let parent = *parent;
            let entry = move |(name, serial): (&super::Name, &u64)| Record::Entry {
                parent,
                name: name.clone(),
                serial: *serial,
            };
            directory.entries.iter().map(entry)
        });
        let inline = self.space.conventional().flat_map(|(addr, len, _)| {
            let pages = self.inline.range(addr, len);
            pages.flat_map(move |(at, page)| {
                let (from, to) = (addr.max(at), (addr + len).min(at + INLINE_PAGE));
                let record = move |(i, piece): (usize, &[u8])| Record::Inline {
                    addr: from + (i * MAX_INLINE) as u64,
                    bytes: piece.to_vec(),
                };
                page[(from - at) as usize..(to - at) as usize].chunks(MAX_INLINE).enumerate().map(record)
            })
        });
        let end = std::iter::once(Record::NextSerial { serial: self.next_serial });
        serials.chain(forgotten).chain(inodes).chain(entries).chain(inline).chain(end)
    }
}

fn inode_record(inode: &Inode) -> Record {
    Record::Inode {
        serial: inode.serial,
        kind: inode.kind,
        created: inode.created,
        modified: inode.modified,
        size: inode.size,
        volatile_size: inode.volatile_size,
        closed: inode.closed,
        allocated: inode.allocated,
    }
}
