//! Every crash of process and power in short workloads, a sample of them in longer ones: see `crash_support` for what must
//! be there afterwards.

use crate::crash_support::{Op, Path};
use crate::crash_support::{Op::*, Scripted, config, plan, zns};
use imbrex_crashkit::{Config, explore, seeds};
use std::sync::{Arc, LazyLock};

fn metadata(_: u64) -> Vec<Op> {
    vec![
        Mkdir("/d"),
        Create("/d/x"),
        Append("/d/x", 300, 1),
        Sync("/d/x"),
        Create("/d/y.sst"),
        Append("/d/y.sst", 5000, 2),
        Close("/d/y.sst"),
        Link("/d/y.sst", "/z.sst"),
        Rename("/d", "/e"),
        SyncDir,
        Create("/e/t"),
        Append("/e/t", 77, 3),
        Rename("/e/t", "/e/x"),
        Unlink("/z.sst"),
        Truncate("/e/y.sst", 4100),
        SyncDir,
        Unlink("/e/y.sst"),
        Unlink("/e/x"),
        Rmdir("/e"),
        SyncDir,
    ]
}

fn logs(_: u64) -> Vec<Op> {
    let mut ops = vec![Create("/1.log")];
    for i in 0..3 {
        ops.extend([Append("/1.log", 700 + i, 1 + i as u8), Sync("/1.log"), Append("/1.log", 3000, 9)]);
    }
    ops.extend([
        Create("/2.log"),
        Append("/2.log", 20_000, 4),
        Append("/2.log", 100, 5),
        Step,
        Sync("/2.log"),
        Append("/2.log", 100, 6),
        Close("/1.log"),
        Create("/3.log"),
        Append("/3.log", 50, 7),
        Sync("/3.log"),
        Close("/2.log"),
        Close("/3.log"),
    ]);
    ops
}

fn long_log(_: u64) -> Vec<Op> {
    let mut ops = vec![Create("/1.log")];
    for i in 0..9 {
        ops.push(Append("/1.log", 60_000 + i, i as u8));
        if i % 4 == 3 {
            ops.push(Sync("/1.log"));
        }
    }
    ops.extend([Close("/1.log"), Reopen("/1.log"), Append("/1.log", 5000, 20), Sync("/1.log")]);
    ops.extend([Append("/1.log", 500, 21), Remount, Reopen("/1.log"), Append("/1.log", 70_000, 22), Close("/1.log")]);
    ops
}

fn tables(_: u64) -> Vec<Op> {
    vec![
        Create("/1.sst"),
        Append("/1.sst", 100_001, 1),
        Sync("/1.sst"),
        Append("/1.sst", 3000, 2),
        Close("/1.sst"),
        Overwrite("/1.sst", 8190, 7),
        Create("/2.sst"),
        Append("/2.sst", 270_000, 3),
        Close("/2.sst"),
        SyncDir,
        Unlink("/1.sst"),
        SyncDir,
        Step,
        Step,
        Create("/3.sst"),
        Append("/3.sst", 40_000, 4),
        Sync("/3.sst"),
        Close("/3.sst"),
        Overwrite("/3.sst", 0, 8),
        Overwrite("/3.sst", 39_990, 9),
    ]
}

fn small(_: u64) -> Vec<Op> {
    let mut ops = vec![];
    for i in 0..3u8 {
        ops.extend([
            Create("/CURRENT.dbtmp"),
            Append("/CURRENT.dbtmp", 16, i),
            Append("/CURRENT.dbtmp", 4200, i + 50),
            Sync("/CURRENT.dbtmp"),
            Append("/CURRENT.dbtmp", 10, i + 100),
            Close("/CURRENT.dbtmp"),
            Rename("/CURRENT.dbtmp", "/CURRENT"),
        ]);
        if i == 1 {
            ops.push(SyncDir);
        }
    }
    ops.extend([Reopen("/CURRENT"), Append("/CURRENT", 100, 77), Sync("/CURRENT"), Truncate("/CURRENT", 20)]);
    ops
}

fn compaction(_: u64) -> Vec<Op> {
    const NAMES: [Path; 6] = ["/a.sst", "/b.log", "/c", "/d.sst", "/e.log", "/f"];
    let mut ops = vec![];
    for round in 0..14usize {
        let name = NAMES[round % NAMES.len()];
        ops.extend([Create(name), Append(name, 2000 + round as u32, round as u8), Sync(name), Close(name)]);
        ops.push(Rename(name, "/moved"));
        if round % 5 == 4 {
            ops.push(SyncDir);
        }
    }
    ops
}

/// Tables that are shorter than they were announced, packed while the drive is at rest, deleted and packed again.
fn packed(_: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    let table =
        |path, n, seed| [Create(path), Preallocate(path, 250_000), Append(path, n, seed), Sync(path), Close(path)];
    ops.extend(table("/1.sst", 120_001, 1));
    ops.extend(table("/2.sst", 20_000, 2));
    ops.extend(table("/3.sst", 5000, 3));
    ops.extend(table("/4.sst", 90_000, 4));
    ops.extend([Overwrite("/2.sst", 8190, 7), Pack, Unlink("/1.sst"), Step, SyncDir, Step]);
    ops.extend(table("/5.sst", 30_000, 5));
    ops.extend([Reopen("/3.sst"), Append("/3.sst", 7000, 8), Pack, Sync("/3.sst"), Close("/3.sst"), Pack]);
    ops.extend([Unlink("/4.sst"), Pack, SyncDir, Remount, Pack, Step, Create("/6.sst"), Append("/6.sst", 9000, 6)]);
    ops
}

#[test]
fn tables_that_are_packed_at_rest_survive() {
    run(Scripted::new(packed), 600);
}

/// Few zones are free, so tables as large as a zone begin behind shorter ones, and go on in the next zone.
fn scarce(_: u64) -> Vec<Op> {
    let mut ops = vec![
        Create("/hole.sst"),
        Append("/hole.sst", 700_000, 9),
        Sync("/hole.sst"),
        Close("/hole.sst"),
        Create("/big.sst"),
        Fill("/big.sst", 3),
        Close("/big.sst"),
        Unlink("/hole.sst"),
        SyncDir,
        Step,
    ];
    let table =
        |path, n, seed| [Create(path), Preallocate(path, 250_000), Append(path, n, seed), Sync(path), Close(path)];
    ops.extend(table("/1.sst", 120_001, 1));
    ops.extend(table("/2.sst", 200_000, 2));
    ops.extend(table("/3.sst", 90_000, 4));
    ops.extend([Unlink("/1.sst"), SyncDir, Step]);
    ops.extend(table("/4.sst", 60_000, 5));
    ops.push(Remount);
    ops.extend(table("/5.sst", 50_000, 6));
    ops.extend([Unlink("/2.sst"), SyncDir, Pack]);
    ops
}

#[test]
fn tables_that_stand_behind_others_where_zones_are_scarce_survive() {
    run(Scripted::new(scarce), 200);
}

fn full(_: u64) -> Vec<Op> {
    vec![
        Create("/keep.log"),
        Append("/keep.log", 1000, 1),
        Sync("/keep.log"),
        Create("/big.sst"),
        Fill("/big.sst", 3),
        Unlink("/big.sst"),
        SyncDir,
        Append("/keep.log", 1000, 2),
        Sync("/keep.log"),
        Create("/new.sst"),
        Append("/new.sst", 300_000, 4),
        Sync("/new.sst"),
        Close("/new.sst"),
    ]
}

/// Logs that are moved together since a table takes all the room there is, grow, are cut, deleted, and moved again with their crumbs.
fn moved_logs(_: u64) -> Vec<Op> {
    const LOGS: [Path; 4] = ["/1.log", "/2.log", "/MANIFEST-1", "/gone.log"];
    let mut ops: Vec<Op> = LOGS.into_iter().map(Create).collect();
    for i in 0..3 {
        ops.extend(LOGS.into_iter().flat_map(|log| [Append(log, 400 + i, 1 + i as u8), Sync(log)]));
    }
    ops.extend([Append("/2.log", 90_000, 9), Close("/gone.log"), Create("/a.sst"), Fill("/a.sst", 3)]);
    ops.extend([
        Unlink("/a.sst"),
        SyncDir,
        Step,
        Append("/1.log", 300, 10),
        Sync("/1.log"),
        Append("/2.log", 5000, 11),
    ]);
    ops.extend([Truncate("/2.log", 70_000), Append("/2.log", 700, 12), Append("/MANIFEST-1", 50, 13)]);
    ops.extend([Sync("/MANIFEST-1"), Unlink("/gone.log"), Create("/b.sst"), Fill("/b.sst", 4), Unlink("/b.sst")]);
    ops.extend([
        SyncDir,
        Sync("/2.log"),
        Append("/1.log", 20, 14),
        Remount,
        Reopen("/2.log"),
        Append("/2.log", 99, 15),
    ]);
    ops.extend([Create("/c.sst"), Fill("/c.sst", 5), Unlink("/c.sst"), SyncDir, Append("/2.log", 99, 16)]);
    ops
}

#[test]
fn logs_that_are_moved_survive() {
    run(Scripted::new(moved_logs), 280);
}

/// The beginning of a log is moved to the zone where its end stands, behind it.
fn moved_behind(_: u64) -> Vec<Op> {
    let write = |log, n, seed| [Append(log, n, seed), Sync(log)];
    let mut ops = vec![Create("/1.log")];
    ops.extend(write("/1.log", 300, 1));
    ops.extend([Close("/1.log"), Create("/2.log")]);
    ops.extend(write("/2.log", 900, 2));
    ops.push(Reopen("/1.log"));
    ops.extend(write("/1.log", 80_000, 3));
    ops.extend([
        Close("/1.log"),
        Close("/2.log"),
        SyncDir,
        Create("/a.sst"),
        Fill("/a.sst", 4),
        Unlink("/a.sst"),
        SyncDir,
    ]);
    ops.push(Reopen("/1.log"));
    ops.extend(write("/1.log", 50, 5));
    ops
}

#[test]
fn a_log_whose_beginning_is_moved_behind_its_end_survives() {
    run(Scripted::new(moved_behind), 350);
}

/// With the drive's write cache on, and off: then nothing that was acknowledged can be lost, but a crash leaves fewer
/// different states, so half as many are looked at. And on drives without conventional zones, with few active ones.
fn run(subject: Arc<Scripted>, states: u64) {
    for seed in seeds(1) {
        let drives = [
            ("write cache on", config(), states),
            ("write cache off", Config { write_cache: false, ..config() }, states / 2),
            ("no conventional zones", Config { conventional: 0, ..config() }, states / 2),
            ("six active zones", zns(), states / 2),
        ];
        for (drive, config, states) in drives {
            if let Err(failure) = explore(&subject, &config, &plan(seed, states)) {
                panic!("{drive}: {failure}");
            }
        }
    }
}

#[test]
fn metadata_survives() {
    run(Scripted::new(metadata), 600);
}

#[test]
fn logs_survive_in_order() {
    let subject = Scripted { script: logs, journal_bytes: 64 << 10, chain: &["/1.log", "/2.log", "/3.log"] };
    run(Arc::new(subject), 600);
}

#[test]
fn a_log_over_several_zones_survives() {
    run(Scripted::new(long_log), 350);
}

#[test]
fn tables_survive() {
    run(Scripted::new(tables), 450);
}

#[test]
fn small_files_survive() {
    run(Scripted::new(small), 600);
}

#[test]
fn compactions_of_the_journal_survive() {
    run(Arc::new(Scripted { script: compaction, journal_bytes: 4 << 10, chain: &[] }), 600);
}

#[test]
fn a_full_drive_survives() {
    run(Scripted::new(full), 200);
}

#[test]
fn one_seed_gives_one_hash() {
    let hash = || explore(&Scripted::new(metadata), &config(), &plan(7, 1)).unwrap().hash;
    assert_eq!(hash(), hash());
}

/// Small files that were cut and go on growing, through handles that come and go.
fn cut_files(_: u64) -> Vec<Op> {
    vec![
        Create("/CURRENT"),
        Append("/CURRENT", 9000, 4),
        Sync("/CURRENT"),
        Truncate("/CURRENT", 100),
        Append("/CURRENT", 5000, 5),
        Close("/CURRENT"),
        SyncRandom("/CURRENT"),
        Truncate("/CURRENT", 4000),
        Reopen("/CURRENT"),
        Append("/CURRENT", 5000, 6),
        Close("/CURRENT"),
        Reopen("/CURRENT"),
        Sync("/CURRENT"),
    ]
}

#[test]
fn small_files_that_are_cut_and_grow_survive() {
    run(Scripted::new(cut_files), 450);
}

/// The same of logs: what is appended after the cut stands behind the frames that were cut off, in the same zone.
fn cut_logs(_: u64) -> Vec<Op> {
    vec![
        Create("/1.log"),
        Append("/1.log", 300, 1),
        Sync("/1.log"),
        Append("/1.log", 9000, 2),
        Truncate("/1.log", 824),
        Append("/1.log", 81_000, 3),
        Append("/1.log", 12_000, 4),
        Step,
        Close("/1.log"),
        Truncate("/1.log", 100),
        Reopen("/1.log"),
        Append("/1.log", 5000, 5),
        Close("/1.log"),
    ]
}

#[test]
fn logs_that_are_cut_and_grow_survive() {
    run(Scripted::new(cut_logs), 450);
}

/// Tables whose last block was overwritten, and so stands in conventional space, when they were cut in it.
fn cut_tables(_: u64) -> Vec<Op> {
    vec![
        Create("/1.sst"),
        Append("/1.sst", 20_000, 1),
        Sync("/1.sst"),
        Close("/1.sst"),
        Overwrite("/1.sst", 17_000, 2),
        Truncate("/1.sst", 17_004),
        Reopen("/1.sst"),
        Append("/1.sst", 9000, 3),
        Sync("/1.sst"),
        Truncate("/1.sst", 16_500),
        Append("/1.sst", 700, 4),
        Sync("/1.sst"),
        Close("/1.sst"),
        Unlink("/1.sst"),
        SyncDir,
        Create("/CURRENT"),
        Append("/CURRENT", 9000, 5),
        Sync("/CURRENT"),
    ]
}

#[test]
fn overwritten_tables_that_are_cut_and_grow_survive() {
    run(Scripted::new(cut_tables), 350);
}

/// Small files that grow beyond the space of small files, one of them under two names, and one that has lost its own.
fn growing_files(_: u64) -> Vec<Op> {
    vec![
        Create("/t"),
        Append("/t", 30_000, 1),
        Sync("/t"),
        Link("/t", "/CURRENT"),
        Append("/t", 35_000, 2),
        Append("/t", 250_000, 3),
        Append("/t", 250_000, 4),
        Append("/t", 250_000, 5),
        Append("/t", 300, 6),
        Sync("/t"),
        Append("/t", 5000, 7),
        Unlink("/CURRENT"),
        SyncDir,
        Create("/x"),
        Append("/x", 20_000, 8),
        Sync("/x"),
        UnlinkHeld("/x", "held:/x"),
        Append("held:/x", 200_000, 9),
        Append("held:/x", 300_000, 9),
        Append("held:/x", 100_000, 9),
        Close("held:/x"),
        SyncDir,
        Close("/t"),
        Reopen("/t"),
        Append("/t", 700, 10),
        Sync("/t"),
    ]
}

/// The moment of it alone, where small space is least: what was synced before must not be gone after it.
fn outgrown(_: u64) -> Vec<Op> {
    vec![
        Create("/t"),
        Append("/t", 20_000, 1),
        Sync("/t"),
        Append("/t", 50_000, 2),
        SyncDir,
        Append("/t", 300, 3),
        Sync("/t"),
    ]
}

/// A file of more names than a frame of the journal has room for.
fn outgrown_of_many_names(_: u64) -> Vec<Op> {
    static NAMES: LazyLock<Vec<String>> =
        LazyLock::new(|| (0..20).map(|i| format!("/{}{i}", "n".repeat(250))).collect());
    let mut ops = vec![Create("/t"), Append("/t", 20_000, 1), Sync("/t")];
    ops.extend(NAMES.iter().map(|name| Link("/t", name)));
    ops.extend([SyncDir, Append("/t", 50_000, 2), Append("/t", 250_000, 3), Append("/t", 250_000, 4)]);
    ops.extend([Append("/t", 250_000, 5), Append("/t", 300, 6), Sync("/t"), Unlink("/t"), SyncDir]);
    ops
}

#[test]
fn small_files_that_outgrow_their_space_survive() {
    run(Scripted::new(growing_files), 350);
    run(Scripted::new(outgrown), 600);
    run(Scripted::new(outgrown_of_many_names), 350);
    // All states: few of them show names that are durable before the bytes they lead to.
    let config = Config { conventional: 0, ..config() };
    if let Err(failure) = explore(&Scripted::new(outgrown), &config, &plan(0, 4000)) {
        panic!("{failure}");
    }
}

/// A log that is cut, its successor that is synced, and then both by turns: what was durable before the cut is not after it, and the
/// successor is durable only after all that stands in the first.
fn cut_log_and_successor(_: u64) -> Vec<Op> {
    vec![
        Create("/1.log"),
        Append("/1.log", 60_000, 1),
        Truncate("/1.log", 100),
        Create("/2.log"),
        Append("/2.log", 300, 2),
        Sync("/2.log"),
        Append("/1.log", 500, 3),
        Sync("/1.log"),
        Append("/1.log", 700, 4),
        Sync("/1.log"),
        Append("/2.log", 900, 5),
        Truncate("/2.log", 400),
        Append("/2.log", 100, 6),
        Sync("/2.log"),
        Append("/1.log", 70_000, 7),
        Sync("/1.log"),
    ]
}

/// The successor has begun, but nothing of it is written, when the first is cut and goes on.
fn cut_under_its_successor(_: u64) -> Vec<Op> {
    vec![
        Create("/1.log"),
        Append("/1.log", 5000, 1),
        Create("/2.log"),
        Append("/2.log", 300, 2),
        Truncate("/1.log", 100),
        Append("/1.log", 900, 3),
        Sync("/2.log"),
        Append("/2.log", 300, 4),
        Close("/2.log"),
        Close("/1.log"),
    ]
}

#[test]
fn logs_that_are_cut_before_their_successors_are_synced_survive() {
    run(Scripted::new(cut_log_and_successor), 450);
    let chain = &["/1.log", "/2.log"];
    run(Arc::new(Scripted { script: cut_under_its_successor, journal_bytes: 64 << 10, chain }), 450);
}

/// Two threads sync one small file, and a third appends to it and cuts it: in each step of one, all of another.
fn small_file_of_two_callers(_: u64) -> Vec<Op> {
    vec![
        Create("/x"),
        SyncDir,
        Append("/x", 5000, 1),
        SyncStart("/x", 1),
        Sync("/x"),
        Append("/x", 700, 2),
        SyncStart("/x", 2),
        SyncStep(2),
        SyncEnd(1),
        Append("/x", 9000, 3),
        SyncEnd(2),
        SyncStart("/x", 1),
        SyncStep(1),
        Append("/x", 300, 4),
        SyncStart("/x", 2),
        SyncStep(2),
        SyncStep(2),
        SyncEnd(1),
        SyncEnd(2),
        SyncStart("/x", 1),
        SyncStep(1),
        Truncate("/x", 200),
        Append("/x", 100, 5),
        SyncEnd(1),
        Append("/x", 100, 6),
        Close("/x"),
        SyncAll,
    ]
}

/// The same of a table, whose last block is padded by each sync, and of which bytes were overwritten.
fn table_of_two_callers(_: u64) -> Vec<Op> {
    vec![
        Create("/1.sst"),
        SyncDir,
        Append("/1.sst", 5000, 1),
        SyncStart("/1.sst", 1),
        SyncStep(1),
        Append("/1.sst", 300, 2),
        SyncStart("/1.sst", 2),
        SyncStep(2),
        SyncEnd(1),
        SyncEnd(2),
        Append("/1.sst", 400, 3),
        SyncStart("/1.sst", 1),
        SyncStep(1),
        Append("/1.sst", 500, 4),
        Sync("/1.sst"),
        SyncEnd(1),
        SyncStart("/1.sst", 1),
        Truncate("/1.sst", 4100),
        SyncStep(1),
        Append("/1.sst", 8000, 5),
        SyncEnd(1),
        SyncStart("/1.sst", 1),
        SyncStep(1),
        Append("/1.sst", 70, 6),
        Close("/1.sst"),
        SyncEnd(1),
        Overwrite("/1.sst", 4000, 7),
    ]
}

/// The same of logs that are in order.
fn logs_of_two_callers(_: u64) -> Vec<Op> {
    vec![
        Create("/1.log"),
        SyncStart("/1.log", 1),
        Append("/1.log", 5000, 1),
        SyncEnd(1),
        Sync("/1.log"),
        Append("/1.log", 60_000, 2),
        SyncStart("/1.log", 1),
        SyncStep(1),
        Truncate("/1.log", 100),
        Create("/2.log"),
        Append("/2.log", 300, 3),
        SyncStart("/2.log", 2),
        SyncStep(2),
        Append("/1.log", 900, 4),
        SyncEnd(1),
        Append("/1.log", 900, 5),
        SyncStart("/1.log", 1),
        SyncStep(1),
        SyncDir,
        SyncEnd(1),
        SyncEnd(2),
        Append("/2.log", 300, 6),
        Sync("/2.log"),
        Sync("/1.log"),
    ]
}

/// A small file goes on as a log while it is synced.
fn outgrown_while_synced(_: u64) -> Vec<Op> {
    vec![
        Create("/t"),
        Append("/t", 20_000, 1),
        Sync("/t"),
        Append("/t", 20_000, 2),
        SyncStart("/t", 1),
        Append("/t", 250_000, 3),
        Append("/t", 250_000, 4),
        SyncStep(1),
        Append("/t", 250_000, 5),
        SyncEnd(1),
        Append("/t", 300, 6),
        Sync("/t"),
    ]
}

#[test]
fn files_that_several_threads_sync_at_once_survive() {
    run(Scripted::new(small_file_of_two_callers), 600);
    run(Scripted::new(table_of_two_callers), 600);
    run(Scripted::new(logs_of_two_callers), 600);
    run(Scripted::new(outgrown_while_synced), 280);
}
