use super::*;

fn opening(number: u64) -> Opening {
    Opening { number, token: number * 100 }
}

const OBJECTS: [u8; 16] = [1; 16];
const METADATA: [u8; 16] = [2; 16];

/// Both drives, as an opening leaves them that ends behind so many of its steps.
fn raised(both: Both, token: u64, steps: u32) -> Both {
    let ((uuid, link), (other, back)) = (both.objects, both.metadata);
    let next = Opening { number: next_number(&both), token };
    let noted = Back { opening: link.opening, next: Some(next), ..back };
    let link = if steps < 2 { link } else { Link { opening: next, ..link } };
    let back = match steps {
        0 => back,
        1 | 2 => noted,
        _ => Back { opening: next, next: None, ..back },
    };
    Both { objects: (uuid, link), metadata: (other, back) }
}

fn formatted() -> Both {
    let link = Link { volume: METADATA, opening: opening(0) };
    let back = Back { volume: OBJECTS, opening: opening(0), next: None };
    Both { objects: (OBJECTS, link), metadata: (METADATA, back) }
}

/// Openings that end anywhere leave drives that fit; and a copy of one of them fits no more as soon as a later opening has ended its steps.
#[test]
fn a_crash_between_the_steps_locks_nobody_out_and_no_older_copy_is_taken() {
    for ends in 0..4u32.pow(4) {
        let steps = (0..4).map(|n| ends / 4u32.pow(n) % 4);
        let (mut now, mut earlier) = (formatted(), vec![formatted()]);
        for (n, steps) in steps.enumerate() {
            now = raised(now, 1000 + n as u64, steps);
            assert!(agree(&now).is_ok(), "{ends}, {n}: {now:?}");
            if steps == 3 {
                for old in &earlier {
                    let (objects, metadata) = (old.objects, old.metadata);
                    assert_eq!(agree(&Both { objects, ..now }), Err(Apart::OldObjects), "{ends}, {n}: {old:?} {now:?}");
                    assert_eq!(
                        agree(&Both { metadata, ..now }),
                        Err(Apart::OldMetadata),
                        "{ends}, {n}: {old:?} {now:?}"
                    );
                }
            }
            earlier.push(now);
        }
    }
}

#[test]
fn other_drives_and_copies_that_went_their_own_ways_are_told_apart() {
    let both = raised(formatted(), 5, 3);
    let (own, back) = (both.objects.1, both.metadata.1);
    let other = Both { objects: (OBJECTS, Link { volume: [3; 16], ..own }), ..both };
    assert_eq!(agree(&other), Err(Apart::OtherMetadata));
    let other = Both { metadata: (METADATA, Back { volume: [3; 16], ..back }), ..both };
    assert_eq!(agree(&other), Err(Apart::OtherObjects));
    // Copies of both, each opened once.
    let (one, another) = (raised(both, 6, 3), raised(both, 7, 3));
    assert_eq!(agree(&Both { objects: one.objects, metadata: another.metadata }), Err(Apart::Forked));
    assert_eq!(agree(&Both { objects: another.objects, metadata: raised(both, 6, 1).metadata }), Err(Apart::Forked));
    assert!(agree(&one).is_ok() && agree(&another).is_ok());
}

#[test]
fn what_a_drive_says_of_the_other_comes_back_and_a_flipped_bit_does_not() {
    for next in [None, Some(opening(9))] {
        let back = Back { volume: [7; 16], opening: opening(8), next };
        let bytes = back.encode();
        assert_eq!((bytes.len(), Back::decode(&bytes)), (LEN, Some(back)));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Back::decode(&bad), None, "bit {bit}");
        }
        assert!((0..bytes.len()).all(|len| Back::decode(&bytes[..len]).is_none()));
        // Sealed, and of no sense.
        for (at, byte) in [(4, 9), (5, 2), (0, b'x')] {
            let mut bad = bytes.clone();
            bad[at] = byte;
            let crc = crc32c::crc32c(&bad[..LEN - 4]);
            bad[LEN - 4..].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Back::decode(&bad), None, "{at}");
        }
    }
}
