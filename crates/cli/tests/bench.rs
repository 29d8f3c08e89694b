//! `imbrex bench`: the short form of every experiment, which checks that everything runs and not how fast; and bad input.

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::{Place, done, fails, place};

/// Where `make build` leaves the plug-ins.
const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../build");

/// Whether `make build` left what it builds of these sources: `make test` says so when it runs these a second time.
fn built() -> bool {
    let built = std::env::var_os("IMBREX_TEST_BUILT").is_some();
    if !built {
        println!("nothing to run before `make build`: set IMBREX_TEST_BUILT=1 after it");
    }
    built
}

/// Whether experiments on RocksDB can run.
fn rocksdb() -> bool {
    if built() {
        let there = Path::new(BUILD).join("librocksdb_imbrex.so").exists()
            && Command::new("db_bench").arg("--version").output().is_ok_and(|out| out.status.success());
        assert!(there, "run `make build`, and install rocksdb-tools");
    }
    built()
}

/// Rows of stock stores: `make bench` builds the programs that drive them.
const STOCK: &[&str] = &["LevelDB on bluefs", "RocksDB on bluefs"];

/// Runs the short form and gives the result that it left. `may_not_run`: rows that this machine may lack something for.
fn short(at: &Place, name: &str, may_not_run: &[&str]) -> Value {
    let out = at.host(name);
    // On a disk: what a modelled drive does with its time is the same everywhere.
    let work = at.host("work");
    std::fs::create_dir(&work).unwrap();
    done(at.run(&["bench", "run", name, "--short", "--out", &out, "--work", &work, "--build", BUILD]));
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0, "{name} leaves something behind");
    let report = std::fs::read_to_string(format!("{out}/report.html")).unwrap();
    let result: Value = serde_json::from_str(&std::fs::read_to_string(format!("{out}/result.json")).unwrap()).unwrap();
    assert_eq!(result["complete"], true);
    assert!(report.contains("<svg") && report.contains("Short form"), "{name}");
    for chart in result["charts"].as_array().unwrap() {
        let png = std::fs::read(format!("{out}/{}.png", chart["file"].as_str().unwrap())).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
    }
    for row in result["rows"].as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        // XFS needs root and FUSE; the VM's kernel says what it can.
        let may = may_not_run.iter().any(|part| name.contains(part));
        assert!(row["not_run"].is_null() || may, "{row}");
    }
    for model in result["config"]["models"].as_object().unwrap().values() {
        assert_eq!(model.as_str().unwrap().len(), 16);
    }
    result
}

fn row<'a>(result: &'a Value, name: &str) -> &'a Value {
    let rows = result["rows"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no row {name:?}"))
}

#[test]
fn calibration_has_every_profile_with_its_figures() {
    let at = place();
    let result = short(&at, "calibration", &[]);
    for (profile, published) in
        [("hgst-hsh721414al", 170.0), ("hitachi-hua72303", 120.0), ("seagate-st8000as0022", 140.0)]
    {
        let row = row(&result, &format!("{profile}: whole drive in order"));
        assert_eq!(row["paper"]["value"], published);
        let ours = row["figures"]["average, MiB/s"].as_f64().unwrap();
        assert!((ours / published - 1.0).abs() < 0.05, "{row}");
        // What the time went into is all of it.
        let kinds = row["seconds"].as_object().unwrap().values().map(|seconds| seconds.as_f64().unwrap());
        assert!((kinds.sum::<f64>() / row["device_seconds"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{row}");
    }
    // Drawn anew it is the same.
    let report = std::fs::read(at.host("calibration/report.html")).unwrap();
    std::fs::remove_file(at.host("calibration/report.html")).unwrap();
    done(at.run(&["bench", "draw", &at.host("calibration")]));
    assert!(report == std::fs::read(at.host("calibration/report.html")).unwrap());
    let ratio = result["ratios"][0]["median"].as_f64().unwrap();
    assert!((1.3..1.5).contains(&ratio), "{ratio}");
}

#[test]
fn interleave_writes_as_much_with_short_turns_as_with_long_ones() {
    let result = short(&place(), "interleave", &[]);
    assert_eq!(result["rows"].as_array().unwrap().len(), 72);
    let depth = |row: &Value| row["queue_depth"].as_f64().unwrap();
    assert!(result["rows"].as_array().unwrap().iter().all(|row| (0.9..=2.01).contains(&depth(row))));
    for zones in ["1 zone", "55 zones"] {
        let bytes =
            |turn: &str| row(&result, &format!("{zones}, {turn} a turn, write cache off"))["bytes_drive"].clone();
        assert_eq!(bytes("64 KiB"), bytes("64 MiB"));
        assert!(bytes("64 KiB").as_u64().unwrap() > 0);
    }
}

#[test]
fn log_placement_has_a_ratio_for_each_place_but_one_zone() {
    let result = short(&place(), "log-placement", &[]);
    assert_eq!(result["rows"].as_array().unwrap().len(), 16);
    let ratios = result["ratios"].as_array().unwrap();
    assert_eq!(ratios.len(), 15);
    let of = |name: &str| {
        let ratio = ratios.iter().find(|ratio| ratio["name"].as_str().unwrap().ends_with(name)).unwrap();
        ratio["median"].as_f64().unwrap()
    };
    assert!((1.9..2.1).contains(&of("2 zones in turn")) && of("each 64 KiB further on") > 10.0);
}

#[test]
fn chunks_are_written_and_read_by_as_many_at_once_as_the_paper_has() {
    let at = place();
    let written = short(&at, "chunk-write", &["ext4"]);
    assert_eq!(written["rows"].as_array().unwrap().len(), 2 * 2 * 6 * 6 + 2 * 2 * 6 + 2 * 2 * 4);
    // One stream, by what opening and closing zones and framing leave: durable and buffered, on both parts of the drive.
    let streams = written["ratios"].as_array().unwrap().iter().filter(|ratio| ratio["goal"] == 0.97);
    let streams: Vec<f64> = streams.map(|ratio| ratio["median"].as_f64().unwrap()).collect();
    assert!(streams.len() == 4 && streams.iter().all(|part| (0.2..1.0).contains(part)), "{streams:?}");
    for cache in ["on", "off"] {
        let of = |engine: &str| row(&written, &format!("{engine}, 64 KiB, whole drive, write cache {cache}"));
        for engine in ["this store", "one zone", "this store, buffered"] {
            let row = of(engine);
            assert_eq!(row["bytes_user"], row["operations"].as_u64().unwrap() * 16 * 4048, "{row}");
            assert!(row["write_amplification"].as_f64().unwrap() > 1.0, "{row}");
        }
        let turn = |engine: &str| of(engine)["figures"]["KiB a turn"].as_f64().unwrap();
        assert!(turn("one zone") > turn("this store"));
    }
    ext4_did_its_share(&written);
    files_are_packed_or_scattered(&written);
    let read = short(&place(), "chunk-read", &["ext4"]);
    ext4_did_its_share(&read);
    assert_eq!(read["rows"].as_array().unwrap().len(), 2 * 3 * 6);
    let rate = |span: &str| row(&read, &format!("this store, 4 KiB, {span}"))["figures"]["reads/s"].as_f64().unwrap();
    assert!(rate("6 TB") > rate("whole drive"), "the way is shorter");
}

#[test]
fn what_opening_reads_is_told_part_by_part_and_processor_time_is_measured() {
    let opened = short(&place(), "chunk-recovery", &["ext4"]);
    assert_eq!(opened["rows"].as_array().unwrap().len(), 12);
    let ext4 = row(&opened, "ext4 on CMR, measured");
    if ext4["not_run"].is_null() {
        let figure = |name: &str| ext4["figures"][name].as_f64().unwrap();
        let parts = ["s, mount: journal", "s, names and lengths of all chunks", "s, scan"].map(figure);
        assert!(parts[0] > 0.0 && parts[2] > 0.0, "{parts:?}");
        assert!((parts.iter().sum::<f64>() - ext4["device_seconds"].as_f64().unwrap()).abs() < 1e-6, "{ext4}");
        assert!(ext4["bytes_read"].as_u64().unwrap() >= 10 << 20, "{ext4}");
    } else {
        assert!(imbrex_bench::baseline::check(imbrex_bench::baseline::FileSystem::Ext4).is_err(), "{ext4}");
    }
    let whole = row(&opened, "the paper's case, extrapolated");
    let parts = whole["figures"].as_object().unwrap().iter().filter(|(name, _)| name.starts_with("s, "));
    let parts: f64 = parts.map(|(_, seconds)| seconds.as_f64().unwrap()).sum();
    assert!((parts - whole["device_seconds"].as_f64().unwrap()).abs() < 1e-6, "{whole}");
    assert!(whole["write_amplification"].as_f64().unwrap() > 1.0);
    // Who does not know where the metazones are reads the head of every zone first.
    let seconds = |name: &str| row(&opened, name)["device_seconds"].as_f64().unwrap();
    let heads = seconds("the head of every zone, one after another");
    let anywhere = seconds("the paper's case where metazones may be anywhere, extrapolated");
    assert!(
        heads > 0.0 && (anywhere - heads - seconds("the paper's case, extrapolated")).abs() < 1e-6,
        "{anywhere} {heads}"
    );
    let cpu = short(&place(), "chunk-cpu", &["ext4"]);
    assert_eq!(cpu["rows"].as_array().unwrap().len(), 4);
    for what in ["appends", "reads"] {
        let ext4 = row(&cpu, &format!("{what} of 1 MiB, ext4 on CMR"));
        if ext4["not_run"].is_null() {
            assert!(ext4["figures"]["CPU seconds a GiB, without the drive's own"].as_f64().unwrap() > 0.0, "{ext4}");
        } else {
            assert!(imbrex_bench::baseline::check(imbrex_bench::baseline::FileSystem::Ext4).is_err(), "{ext4}");
        }
    }
    assert!(row(&cpu, "appends of 1 MiB")["figures"]["CPU seconds a GiB"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_key_value_store_is_measured_alone_on_drives_in_memory() {
    let cpu = short(&place(), "kv-cpu", &["RocksDB on tmpfs"]);
    assert_eq!(cpu["rows"].as_array().unwrap().len(), 12);
    let ours = row(&cpu, "1024 B, 2 threads: kv on memory");
    assert!(ours["figures"]["gets: CPU us each"].as_f64().unwrap() > 0.0, "{ours}");
    let opened = short(&place(), "kv-reopen", &[]);
    let full = row(&opened, "memtable 256 MiB, 80 GB loaded, killed with a full log");
    assert!(full["bytes_read"].as_u64().unwrap() > 0 && full["invalid"].is_null(), "{full}");
    let paced = short(&place(), "kv-paced", &[]);
    let ours = row(&paced, "ring, 70 % full, overwritten, paced");
    assert!(ours["figures"]["paced: a put, s, longest"].as_f64().unwrap() > 0.0 && ours["invalid"].is_null(), "{ours}");
    let put = short(&place(), "kv-smrdb", STOCK);
    let rate = |name: &str| row(&put, name)["figures"]["puts/s"].as_f64().unwrap();
    // Each sync is a turn of the drive or more.
    assert!(rate("in order, 4 KiB, synced every 1") < 130.0);
    assert!(rate("in order, 4 KiB, synced every 100") > 10.0 * rate("in order, 4 KiB, synced every 1"));
}

#[test]
fn the_key_value_store_is_measured_beside_others_on_drives_in_memory() {
    for (name, policies) in [("kv-ycsb", "gear as in the paper"), ("kv-gear", "ring")] {
        let result = short(&place(), name, STOCK);
        assert!(row(&result, policies)["device_seconds"].as_f64().unwrap() > 0.0);
    }
    let works = short(&place(), "kv-workloads", STOCK);
    for side in ["ring", "LevelDB on bluefs", "RocksDB on bluefs, tight limits"] {
        let row = row(&works, &format!("60 % full, half is deleted: {side}"));
        if row["not_run"].is_null() {
            // Each has as many pairs as it should, and says so of nothing else.
            assert!(row["invalid"].is_null() && row["operations"].as_u64().unwrap() > 100, "{row}");
        }
    }
}

#[test]
fn the_object_store_keeps_old_bytes_by_sharing_and_by_copies() {
    let result = short(&place(), "store-ec", &[]);
    assert_eq!(result["rows"].as_array().unwrap().len(), 2 * (1 + 2 * 4));
    for at in ["zones", "in place"] {
        for pool in ["EC 4+2", "EC 5+1"] {
            let of = |how: &str, figure: &str| {
                row(&result, &format!("{pool}, {how}, {at}"))["figures"][figure].as_f64().unwrap()
            };
            let [written, read] =
                ["bytes written, each", "bytes read, each"].map(|figure| move |how: &str| of(how, figure));
            // A copy is a block that is read, and one that is written.
            assert!(written("copied") > written("shared") + 3500.0, "{pool}, {at}");
            assert!(read("shared") < 500.0 && read("copied") > 3500.0, "{pool}, {at}");
            assert!((2000.0..read("copied")).contains(&read("shared, stripes read")), "{pool}, {at}");
            let flushes = |how: &str| row(&result, &format!("{pool}, {how}, {at}"))["flushes"].as_u64().unwrap();
            assert!(flushes("each copy durable first") >= 512 && flushes("copied") < 100, "{pool}, {at}");
        }
        let copies = row(&result, &format!("3 copies, {at}"));
        assert!(copies["operations"] == 512 && copies["invalid"].is_null(), "{copies}");
    }
}

#[test]
fn images_are_measured_beside_a_disk_and_become_sequential_again() {
    let result = short(&place(), "images", &[]);
    assert_eq!(result["rows"].as_array().unwrap().len(), 28);
    let of = |name: &str, figure: &str| row(&result, name)["figures"][figure].as_f64().unwrap();
    for image in [
        "image of 75 % of the drive, overwritten at random",
        "image in place of 75 % of the disk, overwritten at random",
    ] {
        let mb = |what: &str| of(&format!("{what}: {image}"), "MB/s");
        assert!(mb("reads in order, optimized") > 2.0 * mb("reads in order"), "{image}");
    }
    for (image, moves) in [("image, empty drive", false), ("image of 75 % of the drive, overwritten at random", true)] {
        let name = format!("writes of 4 KiB: {image}");
        assert_eq!(of(&name, "bytes moved, each") > 1000.0, moves, "{image}");
        // A write that is deferred is in the journal, and then where it stays.
        let row = row(&result, &name);
        assert!(row["bytes_drive"].as_u64().unwrap() > row["bytes_user"].as_u64().unwrap(), "{row}");
    }
    // All rows that are compared with the disk's, but for those of an hour.
    assert_eq!(result["ratios"].as_array().unwrap().len(), 24);
}

#[test]
fn an_image_is_used_while_it_is_cleaned() {
    let result = short(&place(), "images-paced", &[]);
    let of = |name: &str| row(&result, name)["figures"]["MB moved"].as_f64().unwrap();
    let [quiet, cleaned] =
        ["nothing is cleaned: image written in order", "while it is cleaned: image overwritten at random"].map(of);
    assert!(cleaned > quiet && cleaned > 0.0, "{quiet} and {cleaned} MB");
}

#[test]
fn objects_by_the_million_are_made_divided_listed_cloned_and_opened() {
    let result = short(&place(), "store-objects", &[]);
    assert_eq!(result["rows"].as_array().unwrap().len(), 11);
    let of = |name: &str| row(&result, name)["figures"]["objects"].as_f64().unwrap();
    let made = of("1,000,000 objects of 4 KiB, 16 at once");
    for name in ["divided", "listed"] {
        assert_eq!(of(&format!("a collection of 1,000,000 objects is {name}")), made);
    }
    for with in ["4,000,000 objects, killed", "40,000 objects of 4 MiB as well, power lost"] {
        let opening = row(&result, &format!("opening with {with}"));
        assert!(opening["figures"]["seconds of the drive"].as_f64().unwrap() > 0.0, "{opening}");
    }
    let clone = row(&result, "a clone of an object of 4 MiB");
    assert!(clone["bytes_drive"].as_u64().unwrap() < 1 << 20, "its data are written: {clone}");
}

/// Fails unless ext4 ran where this machine has what it needs, and did what the short form asks for.
fn ext4_did_its_share(result: &Value) {
    let ext4 = imbrex_bench::baseline::check(imbrex_bench::baseline::FileSystem::Ext4);
    let rows = result["rows"].as_array().unwrap().iter();
    for row in rows.filter(|row| row["name"].as_str().unwrap().contains("ext4")) {
        if row["not_run"].is_null() {
            did_its_share(result, row);
        } else {
            assert!(ext4.is_err(), "{row}");
        }
    }
}

fn did_its_share(result: &Value, row: &Value) {
    assert_eq!(row["operations"], 16, "{row}");
    let bytes = if result["experiment"] == "chunk-read" { &row["bytes_read"] } else { &row["bytes_drive"] };
    assert!(bytes.as_u64().unwrap() >= 16 * 4096 && row["figures"]["MB/s"].as_f64().unwrap() > 0.0, "{row}");
}

/// Fails unless ext4's files lie side by side in the rows that say so, and all over the part of the drive in the others.
fn files_are_packed_or_scattered(written: &Value) {
    for (cache, size) in ["on", "off"].into_iter().flat_map(|cache| [(cache, "64 KiB"), (cache, "1 MiB")]) {
        let of = |how: &str| row(written, &format!("ext4 on CMR, {how}, {size}, 6 TB, write cache {cache}"));
        if of("packed")["not_run"].is_null() && of("scattered")["not_run"].is_null() {
            let figure = |how: &str, name: &str| of(how)["figures"][name].as_f64().unwrap();
            // The short form has file systems of 4 GiB.
            let over = |how| figure(how, "GB over which files lie");
            assert!(over("packed") < 2.2 && over("scattered") > 3.8, "{} {}", over("packed"), over("scattered"));
            let apart = |how| figure(how, "GB from a file to the next of its job");
            assert!(apart("scattered") > 10.0 * apart("packed"), "{} {}", apart("packed"), apart("scattered"));
        }
    }
    let ratios = written["ratios"].as_array().unwrap().iter();
    let goals: Vec<_> = ratios.filter(|ratio| ratio["name"].as_str().unwrap().contains("ext4")).collect();
    let of = |goal: f64| goals.iter().filter(|ratio| ratio["goal"] == goal).count();
    if !goals.is_empty() {
        // Both states of the write cache where as much is promised; long commands with it off.
        assert_eq!((of(1.3), of(1.6), of(1.0)), (2, 2, 1));
        assert!(goals.len() == 2 * 2 * 6 * 2 * 2 * 2, "{}", goals.len());
    }
}

/// A drive is full with the seal that makes it so: what chunks that are open hold then is up to a zone more or less, of 24.
const OPEN: f64 = 1.0 / 24.0;

#[test]
fn four_streams_fill_a_drive_and_hold_it_full_while_chunks_die() {
    let result = short(&place(), "chunk-multistream", &["ext4"]);
    // The kernel's file systems have rows at 80 % there, and those of Table 3's number in flight at 80 and 90 % with the write cache off; those of long commands are with it off, too.
    assert_eq!(result["rows"].as_array().unwrap().len(), 3 * 2 * 2 * 2 + 2 * 2 + 2 * 2 + 3 * 2);
    for load in ["the paper's rate", "as fast as it goes"] {
        let of = |engine: &str| row(&result, &format!("{engine}, 80 % full, {load}, write cache off"));
        let (many, few) = (of("this store"), of("this store, 10 under way as in Table 3"));
        assert_eq!(
            (many["figures"]["appends under way"].clone(), few["figures"]["appends under way"].clone()),
            (32.0.into(), 10.0.into())
        );
        let median = |row: &Value| row["figures"]["ms an append, deleting, median"].as_f64().unwrap();
        assert!(load == "the paper's rate" || median(few) < median(many), "{} {}", median(few), median(many));
    }
    for percent in [80, 90, 95] {
        for load in ["the paper's rate, write cache off", "as fast as it goes, write cache on"] {
            let of = |engine: &str| row(&result, &format!("{engine}, {percent} % full, {load}"));
            let over = |engine: &str| of(engine)["figures"]["capacities written over"].as_f64().unwrap();
            let bytes = |engine: &str| of(engine)["bytes_user"].as_f64().unwrap();
            assert!(over("this store") >= 0.2 && over("one zone") >= 0.2, "{percent} {load}");
            let apart = bytes("one zone") / bytes("this store");
            assert!((apart - 1.0).abs() < OPEN, "{percent} {load}: {apart}");
            assert!(of("this store")["write_amplification"].as_f64().unwrap() > 1.0);
            // Files of the kernel's, where this machine can have them: both phases wrote what they shall, and chunks went.
            if percent == 80 && of("ext4 on CMR")["not_run"].is_null() {
                assert!(over("ext4 on CMR") >= 0.5, "{percent} {load}");
                let figures = &of("ext4 on CMR")["figures"];
                assert!(figures["chunks deleted a second"].as_f64().unwrap() > 0.0, "{figures}");
                assert!(figures["MB/s, clean"].as_f64().unwrap() > 0.0, "{figures}");
            }
        }
    }
}

#[test]
fn each_strategy_of_placement_and_each_way_to_choose_victims_has_a_row() {
    let placed = short(&place(), "chunk-placement", &[]);
    let rows = placed["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 11);
    let bytes: Vec<f64> = rows.iter().map(|row| row["bytes_user"].as_f64().unwrap()).collect();
    assert!(bytes.iter().all(|n| (n / bytes[0] - 1.0).abs() < OPEN), "{bytes:?}");
    let cleaned = short(&place(), "chunk-lifetime", &[]);
    assert_eq!(cleaned["rows"].as_array().unwrap().len(), 3 * 3 * 5);
}

/// Fails unless all rows of the kind did the same work for the user, and the drive counted no broken rule.
fn same_work(result: &Value, part: &str) {
    let rows = result["rows"].as_array().unwrap().iter();
    let rows: Vec<&Value> =
        rows.filter(|row| row["name"].as_str().unwrap().contains(part) && row["not_run"].is_null()).collect();
    assert!(rows.len() > 1, "{part}");
    for row in rows {
        assert_eq!(row["operations"], 20_000, "{}", row["name"]);
        assert_eq!(row["bytes_user"], 20_000 * 420, "{row}");
        // Logs that were deleted while they waited in memory, the kernel's or bluefs', are never written; tables are compressed by half.
        let name = &row["name"];
        assert!(row["bytes_drive"].as_u64().unwrap() > 20_000 * 420 / 3, "{name}");
        assert!(row["wall_seconds"].as_f64().unwrap() > 0.0, "{row}");
        let flags = row["flags"].as_array().map_or(&[][..], Vec::as_slice);
        assert!(!flags.iter().any(|flag| flag.as_str().unwrap().contains("rule of the drive")), "{row}");
    }
}

/// Fails unless every row was replayed, near to what was measured, with changes; and ratios between them know what those do.
fn replayed(result: &Value) {
    for row in result["rows"].as_array().unwrap().iter().filter(|row| row["not_run"].is_null()) {
        let replayed = &row["replayed"];
        assert!(replayed["commands"].as_u64().unwrap() > 100 && replayed["forgotten"] == 0, "{row}");
        let (measured, busy) = (replayed["measured"].as_f64().unwrap(), replayed["busy"].as_f64().unwrap());
        // In the short form the host's pauses are minutes of the drive, and a drive-managed one cleans in them, behind the last command as well.
        let most = if row["drive"].as_str().unwrap().starts_with("seagate-st8000as0022") { 0.9 } else { 0.5 };
        assert!((busy / measured - 1.0).abs() < most, "{}: {busy} of {measured}", row["name"]);
        assert!(replayed["changes"].as_array().unwrap().len() > 10, "{row}");
    }
    for ratio in result["ratios"].as_array().unwrap() {
        assert!(ratio["swings"].as_array().unwrap().len() > 10, "{ratio}");
    }
    assert!(result["charts"].as_array().unwrap().iter().any(|chart| chart["file"] == "sensitivity-1"));
}

#[test]
fn without_a_program_rows_do_not_run_and_say_which() {
    let at = place();
    for (name, count, package) in [
        ("bluefs-async", 10, "rocksdb-tools"),
        ("bluefs-sync", 17, "rocksdb-tools"),
        ("kernel-write-amplification", 2, "setpriv"),
    ] {
        let (out, work) = (at.host(name), at.host(""));
        let args = ["bench", "run", name, "--short", "--out", &out, "--work", &work, "--build", BUILD];
        // The tree has its scripts, and nothing else is found.
        std::fs::create_dir_all(BUILD).unwrap();
        done(at.command(&args).env("PATH", at.host("nowhere")).output().unwrap());
        let result: Value =
            serde_json::from_str(&std::fs::read_to_string(format!("{out}/result.json")).unwrap()).unwrap();
        assert_eq!(result["complete"], true, "{name}");
        let rows = result["rows"].as_array().unwrap();
        assert_eq!(rows.len(), count, "{name}");
        for row in rows {
            assert!(row["not_run"].as_str().unwrap().contains(package), "{row}");
        }
    }
}

#[test]
fn bluefs_async_has_a_row_for_each_step() {
    if !rocksdb() {
        return;
    }
    let result = short(&place(), "bluefs-async", &["XFS", "ext4"]);
    assert_eq!(result["rows"].as_array().unwrap().len(), 10);
    same_work(&result, "");
    replayed(&result);
    let first = row(&result, "bluefs, first version: WAL in conventional zones, synchronous");
    let ours = row(&result, "bluefs, asynchronous, cache by block");
    // An insert is a write of a block there, and a part of one here.
    assert!(first["write_amplification"].as_f64() > ours["write_amplification"].as_f64());
    assert_eq!((&first["rule"], &ours["rule"]), (&"fewer operations, real mechanics".into(), &"all scaled".into()));
}

#[test]
fn bluefs_space_counts_zones() {
    if !rocksdb() {
        return;
    }
    let result = short(&place(), "bluefs-space", &[]);
    same_work(&result, "tuned");
    let files = &result["ratios"][0];
    assert!(files["goal"].as_f64().unwrap() < 1.0 && files["median"].as_f64().unwrap() <= 1.0, "{files}");
    for row in result["rows"].as_array().unwrap() {
        let zones = row["figures"]["zones not empty"].as_f64().unwrap();
        let efficiency = row["space_efficiency"].as_f64().unwrap();
        assert!(zones >= 1.0 && efficiency > 0.0 && efficiency <= 1.0, "{row}");
    }
}

#[test]
fn hdd_tuning_has_both_settings_and_does_the_same_work() {
    if !rocksdb() {
        return;
    }
    let result = short(&place(), "hdd-tuning", &["XFS"]);
    assert_eq!(result["rows"].as_array().unwrap().len(), 6);
    same_work(&result, "");
    for settings in ["default settings", "the paper's settings"] {
        let seeks =
            &row(&result, &format!("bluefs on HM-SMR, {settings}"))["figures"]["seeks/s for reads at full size"];
        assert!(seeks.as_f64().unwrap() >= 0.0, "{settings}: {seeks}");
    }
    let of = |name: &str| row(&result, name)["settings"]["db_bench"].as_str().unwrap().to_owned();
    assert!(of("bluefs on HM-SMR, default settings").contains("--compaction_readahead_size=0 "));
    assert!(of("bluefs on HM-SMR, the paper's settings").contains("--compaction_readahead_size=32768 "));
}

#[test]
fn leveldb_bluefs_fills_and_reads() {
    if !built() {
        return;
    }
    assert!(Path::new(BUILD).join("leveldb_bench").exists(), "run `bindings/leveldb/build.sh build tests`");
    let result = short(&place(), "leveldb-bluefs", &["XFS"]);
    let bytes = |name: &str| row(&result, &format!("{name}, bluefs"))["bytes_user"].clone();
    assert_eq!((bytes("fillrandom"), bytes("readrandom")), ((3000 * 4112).into(), Value::Null));
    for part in ["fillrandom", "fillseq", "readrandom", "readseq"] {
        let theirs = row(&result, &format!("{part}, XFS on CMR with the same mechanics"));
        let ours = row(&result, &format!("{part}, bluefs"));
        let same = ["operations", "bytes_user"].iter().all(|what| theirs[what] == ours[what]);
        assert!(!theirs["not_run"].is_null() || same, "{theirs}");
    }
    assert_eq!(row(&result, "readrandom, bluefs")["operations"], 500);
    // Of the drive's work a row of reads has what was done while it read, and so have its replays.
    for part in ["readrandom", "readseq"] {
        let row = row(&result, &format!("{part}, bluefs"));
        assert!(row["bytes_drive"].as_u64().unwrap() < 3000 * 4112 / 4, "{row}");
        assert!(row["replayed"]["commands"].as_u64().unwrap() < 2000, "{row}");
        assert!(!row["replayed"]["changes"].as_array().unwrap().is_empty(), "{row}");
    }
    assert!(row(&result, "fillseq, bluefs")["figures"]["operations/s"].as_f64().unwrap() > 0.0);
}

#[test]
fn bluefs_sync_pays_one_flush_an_insert() {
    if !rocksdb() {
        return;
    }
    let result = short(&place(), "bluefs-sync", &["XFS", "ext4"]);
    assert_eq!(result["rows"].as_array().unwrap().len(), 17);
    // What kernels' file systems do is compared with the same inserts, each of them synced.
    for row in result["rows"].as_array().unwrap().iter().filter(|row| row["not_run"].is_null()) {
        assert_eq!((&row["operations"], &row["bytes_user"]), (&200.into(), &(200 * 420).into()), "{row}");
        assert!(row["flushes"].as_u64().unwrap() >= 200, "{row}");
    }
    for cache in ["on", "off"] {
        // The length of a log in a zone that is not prepared stands in the journal: a second flush.
        for place in ["sequential zones, not prepared", "conventional zones"] {
            let row = row(&result, &format!("bluefs, WAL in {place}, write cache {cache}"));
            assert_eq!(row["operations"], 200, "{row}");
            let flushes = row["figures"]["flushes an insert"].as_f64().unwrap();
            assert!((2.0..2.6).contains(&flushes), "{row}");
        }
        let row = row(&result, &format!("bluefs, WAL in sequential zones, prepared, write cache {cache}"));
        assert_eq!(row["operations"], 200, "{row}");
        let flushes = row["figures"]["flushes an insert"].as_f64().unwrap();
        // Opening and closing flush, too: one or two score.
        assert!((1.0..1.4).contains(&flushes), "{row}");
        assert!(row["latency"]["wal"]["commands"].as_u64().unwrap() >= 200, "{row}");
        assert!(row["device_seconds"].as_f64().unwrap() > 0.0, "{row}");
        let ratios = result["ratios"].as_array().unwrap();
        let ratio = |part: &str| {
            let name = |ratio: &&Value| ratio["name"].as_str().unwrap().contains(part);
            ratios.iter().filter(name).find(|ratio| ratio["name"].as_str().unwrap().contains(&format!("cache {cache}")))
        };
        let halved = ratio("flushes over those of").unwrap();
        assert!(
            (1.6..2.2).contains(&halved["median"].as_f64().unwrap()) && halved["paper"]["value"] == 2.0,
            "{halved}"
        );
        // A log in conventional zones is written twice: another amount of work.
        let apart = ratio("against bluefs, WAL in conventional zones").unwrap();
        assert!(apart["flags"].to_string().contains("scheduling artefact"), "{apart}");
    }
}

#[test]
fn an_interrupted_run_keeps_what_there_is_and_leaves_nothing_running() {
    if !rocksdb() {
        return;
    }
    let at = place();
    let (out, work) = (at.host("out"), at.host("work"));
    std::fs::create_dir(&work).unwrap();
    // Each row takes a minute.
    let args =
        ["bench", "run", "bluefs-async", "--only", "asynchronous", "--out", &out, "--work", &work, "--build", BUILD];
    let mut command = at.command(&args);
    let mut child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    // It runs when db_bench has written something to its drive.
    let database = || {
        let dir = std::fs::read_dir(&work).unwrap().flatten().next()?.path();
        let listed = std::fs::read_to_string(dir.join("stderr")).ok()?;
        listed.contains("thread 0").then_some(dir)
    };
    while database().is_none() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let sentence = fails(child.wait_with_output().unwrap(), 1);
    assert!(sentence.contains("partial"), "{sentence}");
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
    let left = Command::new("pgrep").args(["-f", &work]).output().unwrap();
    assert!(left.stdout.is_empty(), "{left:?}");
    let result: Value = serde_json::from_str(&std::fs::read_to_string(format!("{out}/result.json")).unwrap()).unwrap();
    assert_eq!(result["complete"], false);
}

#[test]
fn results_that_should_be_the_same_are_compared_and_marked_where_they_are_not() {
    let at = place();
    let (first, second) = (at.host("first"), at.host("second"));
    for (out, scale) in [(&first, "1/64"), (&second, "1/32")] {
        let only = ["--only", "1 zone, 64 MiB a turn, write cache off", "--scale", scale, "--no-sensitivity"];
        done(at.run(&[&["bench", "run", "interleave", "--out", out], only.as_slice()].concat()));
    }
    let read = |dir: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(format!("{dir}/result.json")).unwrap()).unwrap()
    };
    let said = done(at.run(&["bench", "compare", &first, &second]));
    assert!(said.contains("0.0 % apart") && !said.contains("DIFFERS"), "{said}");
    let agreement = read(&first)["agreement"].clone();
    assert_eq!(agreement, read(&second)["agreement"]);
    assert_eq!((&agreement["results"][0]["scale"], &agreement["results"][1]["scale"]), (&64.into(), &32.into()));
    assert_eq!(read(&first)["invalid"].as_array().unwrap().len(), 0);
    // One that is a tenth faster.
    let mut other = read(&second);
    let rate = &mut other["rows"][0]["figures"]["MiB/s"];
    *rate = (rate.as_f64().unwrap() * 1.1).into();
    std::fs::write(format!("{second}/result.json"), other.to_string()).unwrap();
    done(at.run(&["bench", "compare", &first, &second, "--dry-run"]));
    assert_eq!(read(&first)["agreement"], agreement);
    let above = at.host("");
    let json: Value = serde_json::from_str(&done(at.run(&["bench", "compare", &above, "--json"]))).unwrap();
    assert_eq!(json[0]["lines"][0]["agrees"], false);
    let marked = read(&first);
    assert_eq!(marked["rows"][0]["invalid"].as_array().unwrap().len(), 1, "{marked}");
    assert!(std::fs::read_to_string(format!("{first}/report.html")).unwrap().contains("10.0 %"));
    // What there is to compare.
    for (args, says) in [(vec![first.as_str()], "at least two"), (vec![&second, "/no/such/place"], "bench run")] {
        let sentence = fails(at.run(&[&["bench", "compare"], args.as_slice()].concat()), 1);
        assert!(sentence.contains(says), "{sentence}");
    }
    fails(at.run(&["bench", "compare"]), 2);
    let sentence = fails(at.run(&["bench", "run", "all", "--agreement", "--out", &at.host("series")]), 2);
    assert!(sentence.contains("one experiment"), "{sentence}");
}

#[test]
fn stopped_with_a_file_system_mounted_it_takes_everything_down() {
    if !rocksdb() {
        return;
    }
    if let Err(why) = imbrex_bench::baseline::check(imbrex_bench::baseline::FileSystem::Xfs) {
        println!("not run: {why}");
        return;
    }
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let at = place();
        let (out, work) = (at.host("out"), at.host("work"));
        std::fs::create_dir(&work).unwrap();
        let only = ["--only", "XFS on CMR with", "--out", &out, "--work", &work, "--build", BUILD];
        let mut command = at.command(&[&["bench", "run", "bluefs-async"], only.as_slice()].concat());
        let mut child =
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        // What db_bench says of its first second is in a file beside the mount.
        let runs = || {
            std::fs::read_dir(&work).unwrap().flatten().any(|dir| {
                std::fs::read_to_string(dir.path().join("stderr")).is_ok_and(|said| said.contains("thread 0"))
            })
        };
        while !runs() {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let here = |table: &str| table.lines().filter(|line| line.contains(&work)).count();
        let mounts = || here(&std::fs::read_to_string("/proc/mounts").unwrap());
        let loops = || here(&String::from_utf8(Command::new("losetup").arg("-a").output().unwrap().stdout).unwrap());
        assert!(mounts() >= 2 && loops() == 1, "it is mounted while it runs");
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        let sentence = fails(child.wait_with_output().unwrap(), 1);
        assert!(sentence.contains("partial"), "{sentence}");
        assert_eq!((mounts(), loops()), (0, 0));
        assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
        let left = Command::new("pgrep").args(["-f", &work]).output().unwrap();
        assert!(left.stdout.is_empty(), "{left:?}");
        let result: Value =
            serde_json::from_str(&std::fs::read_to_string(format!("{out}/result.json")).unwrap()).unwrap();
        assert_eq!(result["complete"], false);
        assert!(std::fs::read_to_string(format!("{out}/report.html")).unwrap().contains("partial"));
    }
}

#[test]
fn a_row_whose_file_system_cannot_be_had_says_not_run_and_why() {
    if !rocksdb() {
        return;
    }
    let at = place();
    // Everything that it needs but mkfs.xfs; a user who is not root lacks more.
    let (out, path) = (at.host("out"), at.host("path"));
    std::fs::create_dir(&path).unwrap();
    for program in ["db_bench", "setpriv", "losetup", "mount"] {
        let place = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
        let place = String::from_utf8(place.stdout).unwrap();
        std::os::unix::fs::symlink(place.trim(), format!("{path}/{program}")).unwrap();
    }
    let args = [
        "bench",
        "run",
        "hdd-tuning",
        "--short",
        "--only",
        "XFS",
        "--out",
        &out,
        "--work",
        &at.host(""),
        "--build",
        BUILD,
    ];
    let said = done(at.command(&args).env("PATH", &path).output().unwrap());
    let result: Value = serde_json::from_str(&std::fs::read_to_string(format!("{out}/result.json")).unwrap()).unwrap();
    assert_eq!(result["complete"], true);
    let rows = result["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert!(row["not_run"].as_str().unwrap().starts_with("needs "), "{row}");
    }
    assert!(said.contains("not run: needs ") && said.lines().count() > rows.len(), "{said}");
    assert!(std::fs::read_to_string(format!("{out}/report.html")).unwrap().contains("not run: needs "));
}

/// Which kernel the VM has, where there is one: `make test` has the stable one, which has no Zoned XFS, `make test-long` the newer one.
fn vm() -> Option<String> {
    let kernel = std::env::var("IMBREX_TEST_VM").ok();
    if kernel.is_none() {
        println!("nothing to run: scripts/test sets IMBREX_TEST_VM where there is a VM");
    }
    kernel
}

#[test]
fn kernel_write_amplification_counts_what_the_kernel_counts() {
    let Some(kernel) = vm() else { return };
    let may_not_run: &[&str] = if kernel == "newer" { &[] } else { &["Zoned XFS"] };
    let result = short(&place(), "kernel-write-amplification", may_not_run);
    let row = row(&result, "bluefs, 20 % full");
    let (user, drive) = (row["bytes_user"].as_u64().unwrap(), row["bytes_drive"].as_u64().unwrap());
    assert!(user > 3 << 20 && drive > user, "{row}");
}

#[test]
fn kernel_writes_and_reads_of_zoned_xfs_are_played_on_the_model() {
    if vm().is_none_or(|kernel| kernel != "newer") {
        return;
    }
    // The machine itself may have no ublk.
    let result = short(&place(), "zoned-file-systems", &["Zoned XFS, in real time"]);
    let row = row(&result, "Zoned XFS: synchronous inserts, one thread, nearly empty");
    // Each is on the drive before the next one begins.
    assert_eq!(row["operations"], 31);
    assert!(row["flushes"].as_u64().unwrap() >= 31 && row["bytes_drive"].as_u64().unwrap() >= 31 * 4096, "{row}");
    assert!(row["wall_seconds"].as_f64().unwrap() > 0.0, "{row}");
    let row = "Zoned XFS, 64 KiB, 6 TB, write cache off";
    let result = named("chunk-write", row);
    assert!(result["rows"][0]["not_run"].is_null(), "{result}");
    did_its_share(&result, &result["rows"][0]);
}

/// The short form of an experiment with these rows alone, which it leaves out unless they are named.
fn named(experiment: &str, rows: &str) -> Value {
    let at = place();
    let out = at.host("rows");
    done(at.run(&["bench", "run", experiment, "--short", "--only", rows, "--out", &out, "--build", BUILD]));
    serde_json::from_str(&std::fs::read_to_string(format!("{out}/result.json")).unwrap()).unwrap()
}

/// These short forms take the VM minutes.
#[test]
fn kernel_writes_of_f2fs_are_played_on_the_model_and_hold_a_drive_full_while_chunks_die() {
    if vm().is_none_or(|kernel| kernel != "newer") {
        return;
    }
    for (experiment, rows) in [("chunk-write", 2 * 2 * 6), ("chunk-read", 2 * 6)] {
        let result = named(experiment, "F2FS");
        assert_eq!(result["rows"].as_array().unwrap().len(), rows);
        result["rows"].as_array().unwrap().iter().for_each(|row| did_its_share(&result, row));
    }
    let result = named("chunk-multistream", "F2FS, 80 % full, as fast as it goes");
    assert_eq!(result["rows"].as_array().unwrap().len(), 2);
    for row in result["rows"].as_array().unwrap() {
        let (figures, resets) = (&row["figures"], row["zone_resets"].as_f64().unwrap());
        assert!(figures["capacities written over"].as_f64().unwrap() >= 1.2, "{row}");
        assert!(figures["chunks deleted a second"].as_f64().unwrap() > 0.0 && resets > 0.0, "{row}");
        let written = figures["bytes written for each of a file, clean"].as_f64().unwrap();
        assert!((1.0..1.2).contains(&written), "{row}");
        assert!(figures["WA of cleaning"].as_f64().unwrap() >= 1.0, "{row}");
    }
}

#[test]
fn without_the_source_tree_the_vms_rows_say_so() {
    let at = place();
    let out = at.host("out");
    done(at.run(&["bench", "run", "kernel-write-amplification", "--build", &at.host(""), "--out", &out]));
    let result: Value = serde_json::from_str(&std::fs::read_to_string(format!("{out}/result.json")).unwrap()).unwrap();
    assert_eq!(result["complete"], true);
    for row in result["rows"].as_array().unwrap() {
        assert!(row["not_run"].as_str().unwrap().contains("source tree"), "{row}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_what_there_is() {
    let at = place();
    let out = at.host("out");
    let list = done(at.run(&["bench", "list"]));
    let json: Value = serde_json::from_str(&done(at.run(&["bench", "list", "--json"]))).unwrap();
    assert_eq!(list.lines().count(), json.as_array().unwrap().len());
    for experiment in json.as_array().unwrap() {
        let name = experiment["name"].as_str().unwrap();
        let sentence = fails(at.run(&["bench", "run", &format!("{name}x"), "--out", &out]), 2);
        assert!(sentence.contains(&format!("the nearest are {name} and ")), "{sentence}");
    }
    for (args, code, says) in [
        (vec!["calibration", "--scale", "0"], 2, "1/64"),
        (vec!["calibration", "--repeat", "0"], 2, "1..=100"),
        (vec!["calibration", "--speed", "0"], 2, "as 0.5"),
        (vec!["bluefs-async", "--scale", "1/1", "--work", "/no/such/place"], 1, "--work"),
        (vec!["calibration", "--only", "no such row"], 1, "its rows are"),
        (vec!["all", "--only", "hgst"], 2, "one experiment"),
    ] {
        let sentence = fails(at.run(&[&["bench", "run"], args.as_slice(), &["--out", &out]].concat()), code);
        assert!(sentence.contains(says), "{sentence:?} lacks {says:?}");
    }
    assert!(!Path::new(&out).exists());
    let sentence = fails(at.run(&["bench", "draw", &at.host("")]), 1);
    assert!(sentence.contains("bench run"), "{sentence}");
    at.file("result.json", "{\"experiment\": 3}");
    fails(at.run(&["bench", "draw", &at.host("")]), 1);
    let kept = at.file("kept", "mine");
    let sentence = fails(at.run(&["bench", "run", "interleave", "--short", "--out", &kept]), 1);
    assert!(sentence.contains("--force"), "{sentence}");
    // Several are refused before the first begins.
    for several in [["all", "--short"], ["calibration", "--agreement"]] {
        let sentence = fails(at.run(&[&["bench", "run"], &several[..], &["--out", &kept]].concat()), 1);
        assert!(sentence.contains("--force"), "{sentence}");
    }
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "mine");
}
