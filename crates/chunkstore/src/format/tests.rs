use super::*;
use proptest::prelude::*;

const CHUNK: ChunkId = ChunkId([7; 24]);

fn header(data: u32, offset: u32) -> Header {
    Header { life: 5, at: 9, data, offset, serial: 3, chunk: CHUNK, ..Header::of_append(11) }
}

fn data_record(data: &[u8], offset: u32) -> (Header, Vec<u8>) {
    let mut image = vec![0xee; data_blocks(data.len() as u32) as usize * BLOCK];
    put_data(&mut image, CHUNK, data);
    let header = seal_data(&mut image, header(data.len() as u32, offset));
    (header, image)
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect()
}

/// The promise of the paper's §6.5, and of ours: at most 2 % for appends of 512 KiB to 1 MiB.
#[test]
fn headers_footers_and_padding_cost_two_percent_at_most() {
    for data in (512 << 10..=1u32 << 20).step_by(509) {
        let cost = u64::from(data_blocks(data)) * BLOCK as u64 - u64::from(data);
        assert!(cost * 100 <= u64::from(data) * 2, "{cost} bytes of cost for {data}");
    }
}

#[test]
fn a_byte_that_is_changed_anywhere_is_noticed() {
    let data = bytes(3 * SLICE + 17);
    let (header, image) = data_record(&data, 8192);
    assert!(header.verify(&image[HEADER..]));
    for at in (0..header.length as usize).step_by(61) {
        let mut image = image.clone();
        image[at] ^= 0x10;
        let still = Header::decode(&image, 5, 9).is_ok_and(|header| header.verify(&image[HEADER..]));
        assert!(!still, "byte {at}");
    }
}

#[test]
fn a_record_elsewhere_or_of_another_life_is_none() {
    let (header, image) = data_record(b"hello", 0);
    assert_eq!(Header::decode(&image, 5, 9), Ok(header));
    assert_eq!(Header::decode(&image, 6, 9), Err(NotARecord::Damaged));
    assert_eq!(Header::decode(&image, 5, 8), Err(NotARecord::Damaged));
    assert_eq!(Header::decode(&[0; 4096], 5, 9), Err(NotARecord::Nothing));
    assert_eq!(Header::decode(&image[..50], 5, 9), Err(NotARecord::Nothing));
}

#[test]
fn another_version_is_told_from_damage() {
    let (header, _) = data_record(b"hello", 0);
    for version in [VERSION - 1, VERSION + 1] {
        let mut raw = RawHeader::read_from_bytes(&header.encode()).unwrap();
        raw.version = version.into();
        raw.crc = 0.into();
        raw.crc = crc32c::crc32c(raw.as_bytes()).into();
        assert_eq!(Header::decode(raw.as_bytes(), 5, 9), Err(NotARecord::OfVersion(version)));
    }
}

#[test]
fn a_slice_is_found_and_verified_alone() {
    let data = bytes(5 * SLICE + 100);
    let (_, image) = data_record(&data, 4096);
    for offset in [0u32, 1, 4095, 4096, 20_479, 20_480, 20_579] {
        let from = slice_at(offset);
        let first = offset as usize / SLICE * SLICE;
        let len = (data.len() - first).min(SLICE);
        let slice = check_slice(&image[from..from + len + FOOTER], CHUNK, 4096 + first as u32).unwrap();
        assert_eq!(slice, &data[first..first + len]);
        assert!(check_slice(&image[from..from + len + FOOTER], CHUNK, first as u32).is_none(), "another offset");
        assert!(check_slice(&image[from..from + len + FOOTER], ChunkId([8; 24]), 4096 + first as u32).is_none());
    }
}

#[test]
fn the_kind_of_a_zone_header_says_what_the_zone_is_for() {
    let known: Vec<u8> = (0..=255).filter(|kind| ZoneUse::of_kind(*kind).is_some()).collect();
    assert_eq!(known, (0x10..0x30).collect::<Vec<u8>>(), "no kind of another engine");
    for kind in known {
        assert_eq!(ZoneUse::of_kind(kind).map(ZoneUse::kind), Some(kind));
    }
    assert_eq!(ZoneUse::Cleaner(StreamType::GC).kind(), 0x22);
}

proptest! {
    #[test]
    fn what_is_written_reads_back(len in 1usize..40_000, offset in 0u32..1 << 30, skip in 0usize..7) {
        let data = bytes(len + skip)[skip..].to_vec();
        let (header, image) = data_record(&data, offset);
        prop_assert_eq!(header.blocks(), data_blocks(len as u32));
        prop_assert_eq!(Header::decode(&image, 5, 9), Ok(header));
        prop_assert!(header.verify(&image[HEADER..]));
        let padding = header.length as usize..second_header_at(header.length as usize).unwrap_or(image.len());
        prop_assert!(image[padding].iter().all(|b| *b == 0), "padding is zeros");
        let last = &image[image.len() - BLOCK..];
        let second = second_header(last, 5, 8 + header.blocks());
        let room = image.len() - header.length as usize >= HEADER;
        prop_assert_eq!(second, room.then_some(header));
        prop_assert_eq!(second_header(last, 6, 8 + header.blocks()), None, "of another life");
        prop_assert_eq!(second_header(last, 5, 9 + header.blocks()), None, "elsewhere");
        let mut back = Vec::new();
        for stored in image[HEADER..header.length as usize].chunks(SLICE + FOOTER) {
            back.extend_from_slice(check_slice(stored, CHUNK, offset + back.len() as u32).unwrap());
        }
        prop_assert_eq!(back, data);
    }

    #[test]
    fn the_most_data_of_some_blocks_fits_them_exactly(blocks in 1u32..5000) {
        let most = most_data(blocks);
        prop_assert!(most > 0);
        prop_assert!(data_blocks(most) <= blocks);
        prop_assert!(data_blocks(most + 1) > blocks);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), magic in any::<bool>()) {
        if magic && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&MAGIC);
        }
        if let Ok(header) = Header::decode_anywhere(&bytes) {
            header.verify(&bytes[HEADER..]);
        }
        check_slice(&bytes, CHUNK, 0);
    }
}
