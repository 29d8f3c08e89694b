//! How long a commit waits for others that could share its turns and its flush (`group-commit-delay`): what that trades, turns for latency, and why the
//! default is not to wait. Measured on the [virtual clock](super::virtual_clock) with the drive's write cache on; with it off each append is durable by itself.

use super::chunk_write::{DRIVE, TURNAROUND};
use super::virtual_clock::{Groups, Host, Nanoseconds, Steps, Turns};
use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, Options, StreamType};
use imbrex_emulator::Profile;

const BUFFERED: Append = Append { offset: None, durability: Durability::Buffered };
const CLIENTS: usize = 16;
/// What [`Steps`] knows the end of a wait by; [`Groups`] has two numbers before it.
const WAITED: usize = CLIENTS + 2;
const ZONES: u32 = 96;
/// Appends that are not measured, in which zones are opened, and those that are.
const FIRST: usize = 200;
const MEASURED: usize = 1600;

#[derive(Clone, Copy, Debug)]
struct Load {
    /// Bytes of an append.
    size: usize,
    /// What a client does between an answer and its next append, half of it or half as much again.
    think: Nanoseconds,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    rate: f64,
    milliseconds: f64,
    turn: f64,
    commit: f64,
}

fn play(load: Load, wait: Nanoseconds) -> Measured {
    let profile = Profile::named(DRIVE).unwrap();
    let host = Host::packed(&profile, ZONES, true, Options::default()).unwrap();
    for client in 0..CLIENTS {
        let id = ChunkId::of_number(client as u64);
        host.store.create_with(id, StreamType::GC, Durability::Buffered).unwrap();
    }
    host.store.sync().unwrap();
    // As on a clean drive, in its middle.
    let middle = profile.capacity / profile.zone_size / 2;
    let places = (0..u64::from(ZONES)).map(|zone| (middle + zone) * profile.zone_size).collect();
    let mut steps = Steps::new(&profile, true, places).unwrap();
    let bytes = vec![7; load.size];
    let (mut groups, mut waiting) = (Groups::new(CLIENTS), false);
    let mut came = [0.0; CLIENTS];
    let (mut answers, mut took, mut began, mut commits) = (0, 0.0, 0.0, 0u64);
    let mut turns = Turns::default();
    for client in 0..CLIENTS {
        steps.begin(client, Vec::new(), client as f64 * (TURNAROUND + load.think / CLIENTS as f64));
    }
    while let Some((who, now)) = steps.next() {
        let mut ready = false;
        match who {
            WAITED => ready = true,
            client if client < CLIENTS => {
                came[client] = now;
                let append =
                    |store: &ChunkStore| store.append_with(ChunkId::of_number(client as u64), &bytes, BUFFERED);
                groups.gather(client, host.took(append).unwrap().1);
            }
            group => {
                for (rank, client) in groups.ended(group, &mut steps, now).into_iter().enumerate() {
                    answers += 1;
                    match answers {
                        FIRST => (began, commits, turns) = (now, 0, Turns::default()),
                        n if n > FIRST => took += now - came[client],
                        _ => {}
                    }
                    // Not all at once again.
                    let part = 0.5 + f64::from((answers as u32).wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
                    steps.begin(client, Vec::new(), now + (rank + 1) as f64 * TURNAROUND + load.think * part);
                }
            }
        }
        if answers >= FIRST + MEASURED {
            let n = (answers - FIRST) as f64;
            let seconds = (now - began) / 1e9;
            return Measured {
                rate: n * load.size as f64 / 1e6 / seconds,
                milliseconds: took / n / 1e6,
                turn: turns.bytes as f64 / 1024.0 / turns.turns.max(1) as f64,
                commit: n / commits.max(1) as f64,
            };
        }
        // Who finds no group being written writes the next one, and waits first.
        if groups.is_due() && !waiting && !ready && wait > 0.0 {
            waiting = true;
            steps.begin(WAITED, Vec::new(), now + wait);
        } else if groups.is_due() && (ready || wait <= 0.0) {
            waiting = false;
            let commands = groups.write(&host, &mut steps, now).unwrap().unwrap();
            turns.add(&commands);
            commits += 1;
        }
    }
    panic!("clients go on for ever");
}

/// Whoever waits gets longer turns, and nobody gets anything from them.
#[test]
fn the_default_of_commit_wait_is_the_best_of_those_measured() {
    for (what, size, think) in
        [("1 MiB, at once", 1 << 20, 0.0), ("64 KiB, at once", 64 << 10, 0.0), ("64 KiB, after 0.4 s", 64 << 10, 4e8)]
    {
        let of = |milliseconds: f64| {
            let m = play(Load { size, think }, milliseconds * 1e6);
            println!(
                "{what}, group-commit-delay {milliseconds}: {:.1} MB/s, {:.1} ms an append, {:.0} KiB a turn, {:.1} appends a commit",
                m.rate, m.milliseconds, m.turn, m.commit
            );
            m
        };
        let default = of(Options::default().group_commit_delay.as_secs_f64() * 1e3);
        for other in [2.0, 10.0, 50.0].map(of) {
            assert!(default.milliseconds < other.milliseconds * 1.02, "{what}: {default:?} {other:?}");
            assert!(default.rate > other.rate * 0.97, "{what}: {default:?} {other:?}");
        }
    }
}
