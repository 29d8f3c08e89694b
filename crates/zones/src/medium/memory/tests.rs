//! Tests: what is claimed, left behind, damaged.

use super::*;
use imbrex_device::heap_region;

fn key(file: u64, logical: u64) -> SegmentKey {
    SegmentKey { owner: 1, file, life: 3, logical }
}

fn copy(region: &Arc<dyn Region>) -> Vec<u8> {
    // SAFETY: single-threaded test; the region is valid for its length.
    unsafe { std::slice::from_raw_parts(region.base().as_ptr(), region.len()) }.to_vec()
}

#[test]
fn bytes_round_trip_behind_any_front() {
    for front in [0, 512, 4096, 4160] {
        let region = heap_region(&vec![0; 256 << 10]);
        let memory = SegmentMemory::new(region.clone(), 16 << 10);
        let segment = memory.claim(key(9, 100), front, 32 << 10, Hurry::Soon).unwrap();
        let data: Vec<u8> = (0..segment.capacity() as u32).map(|i| (i % 251) as u8).collect();
        let mut done = 0;
        while done < data.len() {
            let n = segment.append(&data[done..data.len().min(done + 777)]);
            assert!(n > 0);
            done += n;
        }
        assert_eq!(segment.append(b"x"), 0);
        let mut out = vec![0; data.len()];
        assert_eq!(segment.read(0, &mut out), data.len());
        assert_eq!(out, data);
        assert_eq!(segment.read(5000, &mut out[..10]), 10);
        assert_eq!(out[..10], data[5000..5010]);
        let left = parse(&copy(&region));
        assert_eq!(left, vec![LeftSegment { key: key(9, 100), bytes: data, lost: 0 }]);
        drop(segment);
        assert!(parse(&copy(&region)).is_empty());
    }
}

#[test]
fn the_label_that_a_region_goes_with_is_read_back_or_not_at_all() {
    let region = heap_region(&vec![0; 256 << 10]);
    let memory = SegmentMemory::new(region.clone(), 16 << 10);
    assert_eq!(label_of(&copy(&region)), None, "it was not told");
    for generation in [0, 1, 77, (1 << 40) - 1] {
        memory.goes_with(generation);
        assert_eq!(label_of(&copy(&region)), Some(generation));
    }
    memory.goes_with(77);
    for bit in 0..64 {
        let mut flipped = copy(&region);
        flipped[24 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(label_of(&flipped), None, "bit {bit}");
    }
    let mut older = copy(&region);
    older[8] = 2;
    assert_eq!(label_of(&older), None);
    assert_eq!(label_of(&older[..20]), None);
}

#[test]
fn a_loss_of_power_is_noted_for_each_tenant() {
    let region = heap_region(&vec![0; 256 << 10]);
    let memory = SegmentMemory::new(region.clone(), 16 << 10);
    for tenants in [0, u16::MAX, 0b110, 0] {
        memory.note_power_loss(tenants);
        assert_eq!(power_losses(&copy(&region)), tenants);
    }
    memory.note_power_loss(0b110);
    for bit in 16..64 {
        let mut flipped = copy(&region);
        flipped[32 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(power_losses(&flipped), 0, "bit {bit}");
    }
    assert_eq!(power_losses(&copy(&region)[..36]), 0);
}

#[test]
fn memory_is_shared_fairly_and_given_back() {
    let memory = SegmentMemory::new(heap_region(&vec![0; 1 << 20]), 16 << 10);
    let front = 512;
    let mut segments = Vec::new();
    while let Some(segment) = memory.claim(key(segments.len() as u64, 0), front, 256 << 10, Hurry::Soon) {
        segments.push(segment);
    }
    let (used, all) = memory.usage();
    assert_eq!(used, all - 2);
    for _ in 0..2 {
        let journal = memory.claim(key(0, 0), front, 256 << 10, Hurry::Log);
        segments.push(journal.expect("nobody else gets the journal's"));
    }
    assert_eq!(memory.usage().0, all);
    assert!(memory.claim(key(0, 0), front, 256 << 10, Hurry::Log).is_none());
    assert!(segments.len() > all / 3, "late comers get single units");
    segments.clear();
    assert_eq!(memory.usage().0, 0);
}

#[test]
fn a_segment_has_room_for_a_byte_however_small_a_unit_is() {
    for (front, units) in [(4096, 4), (4160, 4), (4096, 32), (4160, 32)] {
        let memory = SegmentMemory::new(heap_region(&vec![0; (units + 4) * (4096 + DESCRIPTOR)]), 4096);
        let mut segments = Vec::new();
        while let Some(segment) = memory.claim(key(segments.len() as u64, 0), front, 4096, Hurry::Soon) {
            assert!(segment.capacity() > 0 && segment.append(b"x") == 1);
            segments.push(segment);
        }
        let (used, all) = memory.usage();
        assert!(
            !segments.is_empty() && all - used - memory.kept((front as usize + 1).div_ceil(4096)) < 2,
            "{used} of {all}"
        );
        segments.clear();
        assert_eq!(memory.usage().0, 0);
    }
}

#[test]
fn a_flipped_bit_costs_its_segment_and_is_told() {
    for front in [512u32, 576] {
        let region = heap_region(&vec![0; 128 << 10]);
        let memory = SegmentMemory::new(region.clone(), 16 << 10);
        let [hurt, whole] = [0, 5000].map(|at| memory.claim(key(1, at), front, 1, Hurry::Soon).unwrap());
        let data: Vec<u8> = (0..5000).map(|i| (i % 251) as u8).collect();
        for segment in [&hurt, &whole] {
            data.chunks(333).for_each(|piece| assert_eq!(segment.append(piece), piece.len()));
        }
        let good = copy(&region);
        let spared = LeftSegment { key: key(1, 5000), bytes: data.clone(), lost: 0 };
        assert_eq!(parse(&good).len(), 2);
        for at in (0..5000).step_by(7) {
            let mut bad = good.clone();
            bad[memory.data + front as usize + at] ^= 1 << (at % 8);
            let lost = LeftSegment { key: key(1, 0), bytes: Vec::new(), lost: 5000 };
            assert_eq!(parse(&bad), vec![lost, spared.clone()], "byte {at}");
        }
        // Length and checksum themselves.
        for bit in 0..64 {
            let mut bad = good.clone();
            bad[MEM_ALIGN + 48 + bit / 8] ^= 1 << (bit % 8);
            let left = parse(&bad);
            assert_eq!((left[0].key, left[0].bytes.len(), left.len()), (key(1, 0), 0, 2), "bit {bit}");
            assert_eq!(left[1], spared, "bit {bit}");
        }
    }
}

#[test]
fn regions_of_other_versions_are_not_read() {
    let region = heap_region(&vec![0; 128 << 10]);
    let memory = SegmentMemory::new(region.clone(), 16 << 10);
    let segment = memory.claim(key(1, 0), 512, 1, Hurry::Soon).unwrap();
    segment.append(b"hello");
    assert!(!is_of_another_version(&copy(&region)) && parse(&copy(&region)).len() == 1);
    for version in [VERSION - 1, VERSION + 1] {
        let mut other = copy(&region);
        other[8] = version as u8;
        assert!(is_of_another_version(&other) && parse(&other).is_empty());
    }
}

#[test]
fn damaged_descriptors_are_left_out_not_believed() {
    let region = heap_region(&vec![0; 128 << 10]);
    let memory = SegmentMemory::new(region.clone(), 16 << 10);
    let segment = memory.claim(key(1, 0), 512, 1, Hurry::Soon).unwrap();
    segment.append(b"hello");
    let whole = copy(&region);
    assert_eq!(parse(&whole).len(), 1);
    for bit in 0..(MEM_ALIGN + DESCRIPTOR) * 8 {
        let mut bad = whole.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        for segment in parse(&bad) {
            assert!(segment.key == key(1, 0) || segment.bytes.is_empty(), "bit {bit}");
        }
    }
    for cut in [0, 3, 24, 4096, 5000, whole.len() - 1] {
        parse(&whole[..cut]);
    }
}
