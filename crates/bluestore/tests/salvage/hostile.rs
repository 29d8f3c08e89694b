//! Headers with the right checksum, and fields that somebody has made up.

use crate::support::config;
use crate::{BLOCK, LOST, Scratch, TAG, WHOLE, drive_on, pairs_of, worked_with};
use imbrex_bluestore::salvage::Salvage;
use imbrex_bluestore::{CollectionId, Head, ObjectId, Pair, Taker};
use imbrex_device::{AlignedBuf, Drive, Result, ZoneState, report_all};
use imbrex_emulator::Emulator;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where the pieces of a header begin, and bytes of each.
const PIECES: usize = 68;
const A_PIECE: usize = 24;

/// Makes no room for sizes that it is told.
#[derive(Default)]
struct Bounded {
    now: Option<Head>,
    at: u64,
    bytes: u64,
    all: BTreeSet<ObjectId>,
}

impl Taker for Bounded {
    fn collection(&mut self, _: CollectionId, _: u8) -> Result<()> {
        Ok(())
    }

    fn begin(&mut self, head: &Head) -> Result<()> {
        assert!(self.now.is_none() && head.size <= 1 << 40);
        assert!(self.all.insert(head.id.clone()), "{} came twice", head.id);
        (self.now, self.at) = (Some(head.clone()), 0);
        Ok(())
    }

    fn bytes(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let end = at + bytes.len() as u64;
        assert!(at >= self.at && end <= self.now.as_ref().unwrap().size, "in order, and within the object");
        (self.at, self.bytes) = (end, self.bytes + bytes.len() as u64);
        Ok(())
    }

    fn omap_header(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn omap(&mut self, _: Vec<Pair>) -> Result<()> {
        Ok(())
    }

    fn doubt(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn again(&mut self) -> Result<()> {
        panic!("nobody changes anything");
    }

    fn end(&mut self) -> Result<()> {
        self.now.take().unwrap();
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize
}

/// Some field of a header becomes another, and its checksum that of what it says then.
fn forge(header: &mut [u8], random: &mut ChaCha8Rng) {
    let (length, pieces) = (number(header, 12), number(header, 20));
    if pieces == 0 || length > header.len() || length < PIECES + A_PIECE * pieces {
        return;
    }
    let piece = PIECES + A_PIECE * random.random_range(0..pieces);
    let behind = PIECES + A_PIECE * pieces;
    let (at, len) = match random.random_range(0..12) {
        0 | 1 => (piece, 8),
        2 | 3 => (piece + 8, 8),
        4 | 5 => (piece + 16, 4),
        6 | 7 => (piece + 20 + random.random_range(0..4), 1),
        // The number of pieces, the group and the mount.
        8 => ([(20, 4), (32, 8), (64, 4)])[random.random_range(0..3)],
        // Checksums and names.
        _ => (random.random_range(behind..length), 1),
    };
    let value: u64 = match random.random_range(0..6) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX >> random.random_range(1..64),
        3 => random.random_range(0..200),
        4 => header[at].wrapping_add(1).into(),
        _ => random.random(),
    };
    let end = (at + len).min(length);
    header[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
    header[16..20].fill(0);
    let crc = crc32c::crc32c(&header[..length]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn headers_that_somebody_has_made_up_cost_no_more_than_what_they_tell_of() {
    let (_, drive) = drive_on(&config());
    drop(worked_with(&drive));
    let (pairs, device) = (pairs_of(&drive), drive.device.as_ref());
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let (mut objects, mut strange) = (0, 0);
    for round in 0..60 {
        let other = Drive { device: Arc::new(Emulator::memory(&config()).unwrap()), survivor: None };
        for zone in report_all(device).unwrap() {
            let Some(wp) = zone.wp.filter(|wp| *wp > 0 && zone.state != ZoneState::Conventional) else { continue };
            let mut bytes = AlignedBuf::zeroed(wp as usize);
            device.read_at(&mut bytes, device.geometry().start(zone.id), TAG.into()).unwrap();
            for at in (0..bytes.len()).step_by(BLOCK).filter(|at| at % BLOCK == 0) {
                let forged = bytes[at..].starts_with(b"IMBXruns") && random.random_bool(0.4);
                (0..if forged { 1 + round % 3 } else { 0 }).for_each(|_| forge(&mut bytes[at..], &mut random));
            }
            other.device.write_at(&bytes, device.geometry().start(zone.id), TAG.into()).unwrap();
        }
        for (pairs, choice) in [(&[][..], LOST), (&pairs, LOST), (&pairs, WHOLE)] {
            let scratch = Arc::new(Scratch::default());
            let mut salvage = Salvage::walk(other.device.clone(), scratch, None, &mut |_, _| {}).unwrap();
            pairs.iter().for_each(|(family, key, value)| salvage.add(*family, key, value).unwrap());
            let mut taken = Bounded::default();
            let told = salvage.read(choice, &mut taken).unwrap();
            assert_eq!((told.objects, told.bytes), (taken.all.len() as u64, taken.bytes), "round {round}");
            // What a compressed blob stands for is more than it takes.
            assert!(told.bytes < 64 << 20, "{told:?}");
            objects += told.objects;
            strange += u64::from(told.objects > 3);
        }
    }
    assert!(objects > 300 && strange > 20, "{objects} {strange}");
}
