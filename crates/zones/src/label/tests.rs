use super::*;
use proptest::prelude::*;

fn sample() -> Label {
    Label {
        uuid: *b"0123456789abcdef",
        geometry: LabelGeometry { block: 4096, zones: 24, zone_size: 1 << 20, conventional: 4 },
        generation: 7,
        mount: 3,
        power: 11,
        tenants: vec![
            TenantRecord {
                name: "bluefs".into(),
                root: vec![1, 2, 3],
                budget: Budget::keeping(1, 2),
                ..TenantRecord::default()
            },
            TenantRecord {
                name: "kv-2".into(),
                root_generation: 9,
                budget: Budget::keeping(0, 1).at_least(4).at_most(9),
                ..TenantRecord::default()
            },
        ],
        owners: (0..24).map(|i| [LABEL, 1, 2, NOBODY][i % 4]).collect(),
    }
}

fn at_generation(generation: u64) -> Result<Label, LabelError> {
    Ok(Label { generation, ..sample() })
}

/// Puts the right checksum on bytes that a test has changed.
fn seal(bytes: &mut [u8]) {
    let crc = checksum(bytes);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

fn damaged(change: impl FnOnce(&mut Vec<u8>)) -> Result<Label, LabelError> {
    let mut bytes = sample().encode();
    change(&mut bytes);
    seal(&mut bytes);
    Label::decode(&bytes)
}

prop_compose! {
    fn any_tenant()(
        tail in "[a-z0-9-]{0,30}",
        root in prop::collection::vec(any::<u8>(), 0..=MAX_ROOT),
        (metadata, cleaning, least, most) in (0..1u32 << 30, 0..1u32 << 30, 0..1u32 << 30, any::<u32>()),
        (slots, root_generation) in any::<(u8, u64)>(),
    ) -> TenantRecord {
        let least = metadata + cleaning + least;
        let budget = Budget { least, most: most.max(least), metadata, cleaning, slots };
        TenantRecord { name: tail, root, budget, root_generation }
    }
}

prop_compose! {
    fn any_label()(
        mut tenants in prop::collection::vec(any_tenant(), 0..=MAX_TENANTS),
        owners in prop::collection::vec(any::<u8>(), 1..300),
        uuid in any::<[u8; 16]>(),
        numbers in any::<(u64, u64, u32, bool, u16, u8)>(),
    ) -> Label {
        let (generation, mount, power, small, blocks, conventional) = numbers;
        let block = if small { 512 } else { 4096 };
        // A two-character prefix makes the names differ.
        for (i, t) in tenants.iter_mut().enumerate() {
            t.name.insert_str(0, &format!("{i:02}"));
        }
        let count = tenants.len() as u8;
        let owners: Vec<u8> = owners.into_iter().map(|o| if o == LABEL { o } else { o % (count + 1) }).collect();
        let zones = owners.len() as u32;
        let geometry = LabelGeometry {
            block,
            zones,
            zone_size: u64::from(block) * (1 + u64::from(blocks)),
            conventional: u32::from(conventional).min(zones),
        };
        Label { uuid, geometry, generation, mount, power, tenants, owners }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(label in any_label(), tail in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut bytes = label.encode();
        prop_assert_eq!(bytes.len(), Label::encoded_len(label.geometry.zones));
        bytes.extend_from_slice(&tail);
        prop_assert_eq!(Label::decode(&bytes), Ok(label));
    }

    #[test]
    fn a_torn_write_is_never_taken_for_a_label(new in any_label(), cut in any::<prop::sample::Index>()) {
        // The new copy over the old one, cut at some block of 512 bytes.
        let mut old = Label { generation: new.generation ^ 1, mount: new.mount ^ 1, ..new.clone() };
        for owner in &mut old.owners {
            *owner = if *owner == LABEL { NOBODY } else { LABEL };
        }
        let (a, b) = (new.encode(), old.encode());
        let cut = 512 * cut.index(a.len() / 512);
        let mut torn = b.clone();
        torn[..cut].copy_from_slice(&a[..cut]);
        match Label::decode(&torn) {
            Ok(label) => prop_assert!(cut == 0 && label == old),
            Err(e) => prop_assert!(matches!(e, LabelError::Corrupt(_))),
        }
    }

    #[test]
    fn decoding_survives_anything(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        early in prop::collection::vec((0usize..HEADER + TENANT, any::<u8>()), 0..12),
        len in any::<prop::sample::Index>(),
        sealed in any::<bool>(),
    ) {
        let mut bytes = sample().encode();
        for (at, with) in edits { let at = at.index(bytes.len()); bytes[at] = with; }
        for (at, with) in early { bytes[at] = with; }
        if sealed { seal(&mut bytes); } else { bytes.truncate(len.index(bytes.len())); }
        // What decodes has no other encoding than what was there.
        if let Ok(label) = Label::decode(&bytes) {
            prop_assert_eq!(label.encode(), bytes);
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let good = sample().encode();
    let mut bytes = good.clone();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        match Label::decode(&bytes) {
            Err(LabelError::NotALabel) => assert!(bit < MAGIC.len() * 8, "bit {bit}"),
            Err(LabelError::Corrupt(_)) => assert!(bit >= MAGIC.len() * 8, "bit {bit}"),
            other => panic!("bit {bit}: {other:?}"),
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(bytes, good);
}

#[test]
fn the_bytes_stay_where_the_document_draws_them() {
    let bytes = sample().encode();
    assert_eq!(bytes.len(), 15_256 + 24);
    assert_eq!(&bytes[..8], b"IMBXLABL");
    assert_eq!(&bytes[8..12], &4u32.to_le_bytes());
    assert_eq!(&bytes[12..16], &(15_280u32).to_le_bytes());
    assert_eq!(&bytes[20..24], &2u32.to_le_bytes());
    assert_eq!(&bytes[24..40], b"0123456789abcdef");
    assert_eq!(&bytes[40..48], &7u64.to_le_bytes());
    assert_eq!(&bytes[48..56], &3u64.to_le_bytes());
    assert_eq!(&bytes[56..64], &(1u64 << 20).to_le_bytes());
    assert_eq!(&bytes[64..68], &4096u32.to_le_bytes());
    assert_eq!(&bytes[68..72], &24u32.to_le_bytes());
    assert_eq!(&bytes[72..76], &4u32.to_le_bytes());
    assert_eq!(&bytes[76..80], &11u32.to_le_bytes());
    assert_eq!(&bytes[80..86], b"bluefs");
    assert_eq!((bytes[112], bytes[113], &bytes[114..116]), (6, 4, &3u16.to_le_bytes()[..]));
    for (at, number) in [3, u32::MAX, 1, 2].into_iter().enumerate() {
        assert_eq!(&bytes[116 + 4 * at..120 + 4 * at], &number.to_le_bytes());
    }
    assert_eq!(&bytes[140..143], &[1, 2, 3]);
    assert_eq!(&bytes[80 + 1084..80 + 1088], b"kv-2");
    assert_eq!(&bytes[15_256..15_260], &[LABEL, 1, 2, NOBODY]);
    // The checksum of this very label, so that the format cannot drift unnoticed.
    assert_eq!(u32::from_le_bytes(bytes[16..20].try_into().unwrap()), GOLDEN_CRC);
}

const GOLDEN_CRC: u32 = 3_321_122_551;

#[test]
fn what_is_no_label_says_so() {
    for bytes in [&[][..], &MAGIC[..], &[0; 4096], &[0xff; 20_000]] {
        assert_eq!(Label::decode(bytes), Err(LabelError::NotALabel));
    }
}

#[test]
fn a_label_says_how_long_it_is_before_it_is_read_whole() {
    let bytes = sample().encode();
    assert_eq!(Label::claimed_len(&bytes[..HEADER]), Some(bytes.len()));
    assert_eq!(Label::claimed_len(&bytes[..HEADER - 1]), None);
    assert_eq!(Label::claimed_len(&[0; 4096]), None);
    let claim = |length: u32| {
        let mut bytes = bytes.clone();
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        Label::claimed_len(&bytes)
    };
    assert_eq!((claim(0), claim(79), claim(80), claim(u32::MAX)), (None, None, Some(80), None));
}

#[test]
fn another_version_is_told_from_damage() {
    for version in [WITHOUT_POWER - 1, VERSION + 1] {
        let other = |length: Option<u32>| {
            let mut bytes = sample().encode();
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            if let Some(length) = length {
                bytes[12..16].copy_from_slice(&length.to_le_bytes());
            }
            bytes
        };
        let mut sealed = other(None);
        seal(&mut sealed);
        assert_eq!(Label::decode(&sealed), Err(LabelError::OfVersion { version }));
        // Longer than what was read: its checksum cannot be known.
        assert_eq!(Label::decode(&other(Some(1 << 20))), Err(LabelError::OfVersion { version }));
        // A version that its checksum does not confirm, and lengths that no version has.
        assert!(matches!(Label::decode(&other(None)), Err(LabelError::Corrupt(_))));
        assert!(matches!(Label::decode(&other(Some(u32::MAX))), Err(LabelError::Corrupt(_))));
        assert!(matches!(Label::decode(&other(Some(8))), Err(LabelError::Corrupt(_))));
    }
}

#[test]
fn a_sealed_label_that_makes_no_sense_is_refused() {
    let cases: &[(&str, usize, u8)] = &[
        ("version 0", 8, 0),
        ("fifteen tenants", 20, 15),
        ("a third tenant that is all zeros", 20, 3),
        ("one tenant fewer than there are records", 20, 1),
        ("block size", 64, 1),
        ("other number of zones", 68, 23),
        ("more conventional zones than zones", 72, 25),
        ("power in a version that has none", 8, 3),
        ("zone size not whole blocks", 56, 1),
        ("longer name than there is room", 112, 33),
        ("a name with a zero in it", 112, 7),
        ("a name that is cut", 112, 5),
        ("capital letter", 80, b'B'),
        ("not UTF-8", 80, 0xff),
        ("root too long", 115, 5),
        ("a budget that keeps more than its least", 116, 2),
        ("something behind a root", 144, 1),
        ("owner that does not exist", 15_259, 3),
        ("owner that no label can have", 15_259, 0xfe),
    ];
    for &(what, at, value) in cases {
        let got = damaged(|bytes| bytes[at] = value);
        assert!(matches!(got, Err(LabelError::Corrupt(_))), "{what}: {got:?}");
    }
    let same_name = damaged(|bytes| bytes.copy_within(80..80 + TENANT, 80 + TENANT));
    assert_eq!(same_name, Err(LabelError::Corrupt("two tenants share a name")));
    // The unchanged label passes, so each change above is what made it fail.
    assert_eq!(damaged(|_| ()), Ok(sample()));
}

#[test]
fn the_version_before_is_read_and_knows_nothing_of_power() {
    let old = damaged(|bytes| {
        bytes[8] = 3;
        bytes[76] = 0;
    });
    assert_eq!(old, Ok(Label { power: 0, ..sample() }));
}

#[test]
fn a_label_tells_whether_the_drive_has_had_power_since() {
    let epoch = |first| [first, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5];
    assert!(sample().had_power(epoch(11)) && !sample().had_power(epoch(12)));
    assert!(!Label { power: 0, ..sample() }.had_power(epoch(0)), "nobody knows");
}

#[test]
#[should_panic(expected = "checked before it is written")]
fn a_label_that_could_not_be_read_back_is_never_written() {
    let mut label = sample();
    label.tenants[0].name = "x".repeat(33);
    label.encode();
}

#[test]
fn the_newer_copy_wins_and_the_other_is_repaired() {
    let chosen = |a, b| Label::choose(a, b).map(|c| (c.label.generation, c.copy, c.repair_other));
    assert_eq!(chosen(at_generation(5), at_generation(5)), Ok((5, 0, false)));
    assert_eq!(chosen(at_generation(5), at_generation(6)), Ok((6, 1, true)));
    assert_eq!(chosen(at_generation(6), at_generation(5)), Ok((6, 0, true)));
    for bad in [LabelError::NotALabel, LabelError::Corrupt("x")] {
        assert_eq!(chosen(at_generation(5), Err(bad.clone())), Ok((5, 0, true)));
        assert_eq!(chosen(Err(bad), at_generation(5)), Ok((5, 1, true)));
    }
    // The same generation twice, with other words: the first counts and the second is made equal.
    let other = Label { mount: 99, ..sample() };
    assert_eq!(Label::choose(Ok(sample()), Ok(other)), Ok(Chosen { label: sample(), copy: 0, repair_other: true }));
}

#[test]
fn without_a_valid_copy_the_error_that_knows_most_is_given() {
    let of = |version| LabelError::OfVersion { version };
    let ranked = [LabelError::NotALabel, LabelError::Corrupt("x"), of(7)];
    for (i, a) in ranked.iter().enumerate() {
        for (j, b) in ranked.iter().enumerate() {
            assert_eq!(Label::choose(Err(a.clone()), Err(b.clone())), Err(ranked[i.max(j)].clone()));
        }
    }
    assert_eq!(Label::choose(Err(of(7)), Err(of(8))), Err(of(8)));
    // Another program has begun to write: this one keeps its hands off.
    assert_eq!(Label::choose(at_generation(5), Err(of(7))), Err(of(7)));
    assert_eq!(Label::choose(Err(of(7)), at_generation(5)), Err(of(7)));
    // Behind a band table a band may hold anything, an old label, too.
    assert_eq!(Label::choose(Err(LabelError::Bands), at_generation(5)), Err(LabelError::Bands));
    assert_eq!(
        Label::decode(b"IMBXBAND and more than enough bytes for the header of a label, which is 80 of them"),
        Err(LabelError::Bands)
    );
}
