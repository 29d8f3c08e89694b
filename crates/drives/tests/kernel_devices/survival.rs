//! What was acknowledged as durable is there after the machine was killed. `write` appends to a few zones of the device, with
//! flushes, and says on its standard output, after each flush, how far every zone is durable; whoever keeps what it said (the
//! console of a VM) gives it to `verify` on a machine that was started again.
//!
//! Every block holds its own place and the life of its zone, so that bytes that moved, or are left from before a reset, are
//! found out.

use crate::{Tally, open, wipe};
use imbrex_device::{AlignedBuf, Cause, Tag, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

const TAG: Tag = Tag::new(Cause::Check);
/// Zones that are written in turn.
const ZONES: usize = 4;
/// Blocks of a write at most.
const MOST: u64 = 16;
/// More blocks than are ever written between two flushes.
const SOON: u64 = 1600;
const WORD: &str = "durable";

/// Blocks of a zone, from `first` on, in its `life`th life.
fn blocks(device: &dyn ZonedDevice, zone: ZoneId, life: u64, first: u64, n: u64) -> AlignedBuf {
    let size = device.geometry().block as usize;
    let mut buf = AlignedBuf::zeroed(n as usize * size);
    for (i, block) in buf.chunks_mut(size).enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(u64::from(zone.0) << 48 ^ life << 32 ^ (first + i as u64));
        rng.fill(block);
    }
    buf
}

fn zones(device: &dyn ZonedDevice) -> Vec<Zone> {
    let all = report_all(device).unwrap();
    all.into_iter().filter(|zone| zone.state != ZoneState::Conventional).take(ZONES).collect()
}

/// Writes for ever.
pub fn write(path: &str) {
    let device = open(path);
    wipe(&device);
    device.set_write_cache(true).unwrap();
    let block = u64::from(device.geometry().block);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut written: Vec<(Zone, u64, u64)> = zones(&device).into_iter().map(|zone| (zone, 0, 0)).collect();
    loop {
        let (zone, life, done) = &mut written[rng.random_range(0..ZONES)];
        let left = zone.capacity / block - *done;
        if left == 0 {
            device.zone_op(ZoneOp::Reset, zone.id, TAG).unwrap();
            (*life, *done) = (*life + 1, 0);
        } else {
            let n = rng.random_range(1..=MOST).min(left);
            let data = blocks(&device, zone.id, *life, *done, n);
            device.write_at(&data, device.geometry().start(zone.id) + *done * block, TAG).unwrap();
            *done += n;
        }
        if rng.random_range(0..4) == 0 {
            device.flush(TAG).unwrap();
            let all: Vec<String> = written.iter().map(|(z, life, done)| format!("{}:{life}:{done}", z.id)).collect();
            println!("{WORD} {}", all.join(" "));
        }
    }
}

/// The last thing said of each zone: its life and blocks.
fn last_said(text: &str) -> Option<BTreeMap<u32, (u64, u64)>> {
    let whole = |line: &str| {
        let parts = line.strip_prefix(WORD)?.split_whitespace().map(|part| {
            let numbers: Vec<u64> = part.split(':').map_while(|n| n.parse().ok()).collect();
            match numbers[..] {
                [zone, life, done] => Some((zone as u32, (life, done))),
                _ => None,
            }
        });
        parts.collect::<Option<BTreeMap<_, _>>>().filter(|said| said.len() == ZONES)
    };
    // The last line may have been cut in the middle of a number: it does not count.
    let lines: Vec<_> = text.lines().filter_map(whole).collect();
    lines.into_iter().nth_back(1)
}

/// Compares the device with what was said.
pub fn verify(tally: &mut Tally, path: &str, said: &str) {
    let text = std::fs::read_to_string(said).unwrap();
    tally.test(&format!("{path}: what was flushed before the machine was killed is there"), || {
        let said = last_said(&text).expect("the log holds what was durable");
        let device = open(path);
        let block = u64::from(device.geometry().block);
        assert!(said.values().any(|(_, done)| *done > 0), "nothing was written before the kill");
        for zone in zones(&device) {
            let (life, durable) = said[&zone.id.0];
            let wp = zone.wp.unwrap() / block;
            let holds = |life: u64, n: u64| {
                let mut buf = AlignedBuf::zeroed((n * block) as usize);
                for (i, part) in buf.chunks_mut(device.geometry().max_io as usize).enumerate() {
                    let at = device.geometry().start(zone.id) + i as u64 * u64::from(device.geometry().max_io);
                    device.read_at(part, at, TAG).unwrap();
                }
                *buf == *blocks(&device, zone.id, life, 0, n)
            };
            println!("zone {}: {durable} blocks were durable in life {life}, {wp} are there", zone.id);
            // The write that was on its way is anybody's guess. Only a zone that was nearly full can have been reset since.
            let kept = wp >= durable && holds(life, durable);
            let reset = durable + SOON >= zone.capacity / block && holds(life + 1, wp.saturating_sub(MOST));
            assert!(kept || reset, "zone {} lost bytes", zone.id);
        }
    });
}
