use super::names::Member;
use super::*;
use proptest::prelude::*;

fn group(zone: u32, start: u32, lens: &[u32]) -> GroupEntry {
    let mut end = start;
    let records = lens.iter().enumerate().map(|(i, len)| {
        end += len;
        RecordIndex { end, at: i as u32 * 3 + 1 }
    });
    GroupEntry { zone, start, records: records.collect() }
}

fn named(name: &str, number: u64, members: impl Iterator<Item = Member>) -> NameEntry {
    NameEntry { name: name.into(), number, members: members.collect() }
}

fn an_entry() -> impl Strategy<Value = Entry> {
    let id = any::<[u8; 24]>().prop_map(ChunkId);
    let stream = (0u8..16).prop_map(|n| StreamType::new(n).unwrap());
    let lens = proptest::collection::vec(1u32..5000, 1..9);
    (0..11, id, any::<u64>(), stream, any::<u32>(), lens).prop_map(|(kind, id, serial, stream, n, lens)| match kind {
        0 => Entry::Create { id, serial, stream },
        1 => Entry::Seal { id, serial, len: n },
        2 => Entry::Delete { id, serial },
        3 => Entry::ZoneTaken { zone: n, life: serial, usage: ZoneUse::Cleaner(stream) },
        4 => Entry::ZoneClosed { zone: n, life: serial, tail: 9 },
        5 => Entry::ZoneTold { zone: n, life: serial, tail: 9 },
        6 => Entry::Told { id, serial, group: group(7, n / 2, &lens) },
        9 => Entry::Lost(Mark { id, serial, offset: n / 2, len: 9, zone: 7, lost: true }),
        7 => Entry::Unnamed { name: format!("dir/{n}").into(), number: serial },
        8 => {
            Entry::Named(named(&format!("märz/{n}"), serial, lens.iter().map(|n| Member { id, serial: u64::from(*n) })))
        }
        _ => Entry::Moved { id, serial, from: n, to: group(7, n / 2, &lens) },
    })
}

proptest! {
    #[test]
    fn entries_read_back_and_a_cut_one_is_none(all in proptest::collection::vec(an_entry(), 0..9), cut in 1usize..20) {
        for entry in all {
            let mut record = Vec::new();
            entry.encode(&mut record);
            prop_assert_eq!(Entry::decode(&record), Some(entry));
            prop_assert_eq!(Entry::decode(&record[..record.len() - cut.min(record.len())]), None);
            prop_assert_eq!(Entry::decode(&[&record[..], &[0; 8]].concat()), None);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..13) {
        Part::decode(&bytes);
        if bytes.len() > 8 {
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&[kind, 1, 2, 0]);
            bytes[4..8].copy_from_slice(&len.to_le_bytes());
        }
        Entry::decode(&bytes);
        if bytes.len() > 8 {
            bytes[..8].copy_from_slice(&[kind % 6, 0, 0, 0, 1, 0, 0, 0]);
        }
        Part::decode(&bytes);
    }
}

#[test]
fn a_part_reads_back_whole_or_not_at_all() {
    let groups = vec![group(4, 0, &[10, 20]), group(9, 30, &[5])];
    let stream = StreamType::GC;
    let chunks: Vec<_> = [(1, groups), (2, vec![])]
        .into_iter()
        .map(|(n, groups)| ChunkEntry {
            id: ChunkId::of_number(n),
            serial: n * 100,
            len: groups.last().map_or(0, |g| g.records.last().unwrap().end),
            stream,
            sealed: n == 2,
            end: if n == 2 { ChunkEnd::Lost } else { ChunkEnd::Unread },
            groups,
        })
        .collect();
    let mut writer = PartWriter::default();
    for c in &chunks {
        let groups = c.groups.iter().map(|g| (g.zone, g.start, &g.records[..]));
        writer.chunk((c.id, c.serial, c.len, c.stream, c.sealed, c.end), groups);
    }
    let payload = writer.finish();
    assert_eq!(Part::decode(&payload), Some(Part::Chunks(chunks)));
    assert!((0..payload.len()).all(|cut| Part::decode(&payload[..cut]).is_none()));
    let zones = vec![ZoneEntry {
        zone: 3,
        tail: 77,
        life: 8,
        state: ZoneState::Closed,
        usage: ZoneUse::Data(StreamType::DATA),
        unread: 12,
    }];
    writer.zone(&zones[0]);
    assert_eq!(Part::decode(&writer.finish()), Some(Part::Zones(zones)));
}

#[test]
fn names_read_back_whole_or_not_at_all() {
    let member = |n| Member { id: ChunkId::of_number(n), serial: n };
    let all = [named("a", 7, (1..4).map(member)), named("photos/märz.jpg", 9, std::iter::once(member(9)))];
    let mut writer = PartWriter::default();
    all.iter().for_each(|entry| writer.name(entry));
    let payload = writer.finish();
    let sizes: usize = all.iter().map(|entry| NameEntry::bytes(entry.name.len(), entry.members.len())).sum();
    assert_eq!(payload.len(), 8 + sizes);
    assert_eq!(Part::decode_names(&payload), Some(all.to_vec()));
    assert_eq!(Part::decode(&payload), Some(Part::Names(all.to_vec())));
    assert!((0..payload.len()).all(|cut| Part::decode(&payload[..cut]).is_none()));
    // A name that is none, and one that stands for nothing, are not taken.
    for wrong in [named("../up", 1, std::iter::once(member(1))), named("a", 1, std::iter::empty())] {
        let mut writer = PartWriter::default();
        writer.name(&wrong);
        assert_eq!(Part::decode(&writer.finish()), None, "{wrong:?}");
        let mut payload = Vec::new();
        Entry::Named(wrong).encode(&mut payload);
        assert_eq!(Entry::decode(&payload), None);
    }
}
