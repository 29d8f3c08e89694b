//! Emulated drives in memory, served as zoned block devices of the kernel: every rule and fault as a program gets to know it. A program of
//! its own, since it needs root and the ublk driver, as the VM of `scripts/test-kernel` has them. Ends with "N passed, N failed".

use imbrex_device::{AlignedBuf, ZoneId};
use imbrex_emulator::{Config, Emulator};
use imbrex_ublk::{Control, Served, Server, existing};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;

const O_DIRECT: i32 = 0o40000;
const O_DSYNC: i32 = 0o10000;
const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const ENODATA: i32 = 61;
const EOVERFLOW: i32 = 75;
const ETOOMANYREFS: i32 = 109;
const EREMOTEIO: i32 = 121;

/// A drive, its device, and the device opened past the page cache.
struct Host {
    drive: Emulator,
    control: Control,
    server: Server,
    path: PathBuf,
    file: File,
}

/// 64 zones of 1 MiB, 4 of them conventional, 8 may be open.
fn smr() -> Config {
    Config { max_io: 1 << 20, ..Config::tiny() }
}

/// Like ZNS: zones of 1 MiB with 768 KiB of capacity, 3 open, 4 active, no reads above the write pointer.
fn zns() -> Config {
    Config {
        conventional: 0,
        zone_capacity: 768 << 10,
        max_open: Some(3),
        max_active: Some(4),
        reads_cross_zones: false,
        reads_above_wp: false,
        ..smr()
    }
}

impl Host {
    fn new(config: &Config) -> Host {
        let drive = Emulator::memory(config).unwrap();
        let mut control = Control::open().unwrap();
        let served = Served::new(Arc::new(drive.clone()), config.conventional).unwrap();
        let server = Server::start(&mut control, served, 32).unwrap();
        let path = server.path();
        let file = File::options().read(true).write(true).custom_flags(O_DIRECT).open(&path).unwrap();
        Host { drive, control, server, path, file }
    }

    /// Ends the server; nothing is left of the device.
    fn end(mut self) {
        drop(self.file);
        let id = self.server.device().id;
        assert!(self.server.end(&mut self.control, false).unwrap());
        assert!(!existing().contains(&id) && !self.path.exists());
    }

    /// The number of the error, or 0.
    fn write(&self, at: u64, blocks: u64) -> i32 {
        let mut bytes = AlignedBuf::zeroed((blocks * BLOCK) as usize);
        bytes.fill((at / BLOCK) as u8 | 1);
        number(self.file.write_all_at(&bytes, at))
    }

    fn read(&self, at: u64, blocks: u64) -> Result<AlignedBuf, i32> {
        let mut bytes = AlignedBuf::zeroed((blocks * BLOCK) as usize);
        match number(self.file.read_exact_at(&mut bytes, at)) {
            0 => Ok(bytes),
            number => Err(number),
        }
    }

    /// What `blkzone` says of operations on one zone, or on all: nothing where all went well.
    fn op(&self, op: &str, zone: Option<u64>) -> String {
        let mut blkzone = Command::new("blkzone");
        blkzone.arg(op);
        if let Some(zone) = zone {
            blkzone.args(["-o", &(zone * 2048).to_string(), "-c", "1"]);
        }
        String::from_utf8(blkzone.arg(&self.path).output().unwrap().stderr).unwrap()
    }

    /// The state of a zone as `blkzone report` prints it, as `oi`, and its write pointer in bytes from the zone's start.
    fn state(&self, zone: u64) -> (String, u64) {
        let args = ["report", "-o", &(zone * 2048).to_string(), "-c", "1"];
        let output = Command::new("blkzone").args(args).arg(&self.path).output().unwrap();
        let line = String::from_utf8(output.stdout).unwrap();
        let after = |what: &str| line.split_once(what).unwrap_or_else(|| panic!("{line}")).1;
        let cond = after("zcond:").split_once('(').unwrap().1.split_once(')').unwrap().0.to_owned();
        let wp = after("wptr 0x").split(' ').next().unwrap();
        // Of a dead zone it is no place.
        (cond, u64::from_str_radix(wp, 16).unwrap().wrapping_mul(512))
    }

    fn setting(&self, name: &str) -> String {
        let device = self.path.file_name().unwrap().to_str().unwrap();
        fs::read_to_string(format!("/sys/block/{device}/queue/{name}")).unwrap().trim().to_owned()
    }

    fn violations(&self) -> u64 {
        self.drive.stats().total.rule_violations
    }
}

fn number(done: std::io::Result<()>) -> i32 {
    done.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0)
}

/// The drive refused it, or the kernel saw first that it would.
#[track_caller]
fn refused(number: i32) {
    assert!(number == EREMOTEIO || number == EIO, "{number}");
}

fn what_the_kernel_knows_is_the_drives() {
    for (config, open, active, conventional) in [(smr(), "8", "0", 4), (zns(), "3", "4", 0)] {
        for (block, cache) in [(4096, true), (512, false)] {
            let host = Host::new(&Config { block, write_cache: cache, ..config.clone() });
            assert_eq!(host.setting("zoned"), "host-managed");
            assert_eq!(host.setting("nr_zones"), "64");
            assert_eq!(host.setting("chunk_sectors"), "2048");
            assert_eq!(
                (host.setting("max_open_zones"), host.setting("max_active_zones")),
                (open.into(), active.into())
            );
            assert_eq!(host.setting("logical_block_size"), block.to_string());
            assert_eq!(
                (host.setting("max_hw_sectors_kb"), host.setting("max_sectors_kb")),
                ("1024".into(), "1024".into())
            );
            assert_eq!(host.setting("write_cache"), if cache { "write back" } else { "write through" });
            let report = Command::new("blkzone").arg("report").arg(&host.path).output().unwrap();
            let report = String::from_utf8(report.stdout).unwrap();
            assert_eq!(report.lines().count(), 64);
            assert_eq!(report.lines().filter(|line| line.contains("CONVENTIONAL")).count(), conventional);
            let sequential = report.lines().nth(9).unwrap();
            let capacity = config.zone_capacity / 512;
            assert!(sequential.contains(&format!("len 0x000800, cap 0x{capacity:06x}")), "{sequential}");
            host.end();
        }
    }
}

/// As many zones as a disk of 14 TB has, and commands of 20 KiB: a report of all zones is one request, longer than any command of the drive.
fn a_drive_of_many_zones_is_reported_whole() {
    const ZONES: u64 = 52_156;
    const ZONE: u64 = 64 << 10;
    let config = Config { zone_size: ZONE, zone_capacity: ZONE, capacity: ZONES * ZONE, max_io: 20 << 10, ..smr() };
    let host = Host::new(&config);
    assert_eq!((host.setting("nr_zones"), host.setting("max_sectors_kb")), (ZONES.to_string(), "20".into()));
    let report = Command::new("blkzone").arg("report").arg(&host.path).output().unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    let starts = report.lines().filter_map(|line| line.trim_start().strip_prefix("start: 0x")?.split(',').next());
    let starts: Vec<u64> = starts.map(|start| u64::from_str_radix(start, 16).unwrap()).collect();
    assert!(starts.iter().copied().eq((0..ZONES).map(|zone| zone * ZONE / 512)), "{} zones", starts.len());
    assert_eq!(report.lines().filter(|line| line.contains("CONVENTIONAL")).count(), 4);
    // The kernel cuts by the drive's commands; where a user lets it ask for more, the server does.
    let writes = || host.drive.stats().total.writes;
    assert_eq!((host.write(9 * ZONE, 15), writes()), (0, 3));
    let device = host.path.file_name().unwrap().to_str().unwrap();
    fs::write(format!("/sys/block/{device}/queue/max_sectors_kb"), "64").unwrap();
    assert_eq!((host.write(10 * ZONE, 15), writes()), (0, 6));
    assert!(host.read(10 * ZONE, 15).unwrap().iter().all(|byte| *byte == (160 | 1)));
    assert_eq!(host.violations(), 0);
    host.end();
}

fn writes_go_to_the_write_pointer_and_nowhere_else() {
    let host = Host::new(&zns());
    let at = 2 * MIB;
    assert_eq!(host.write(at, 2), 0);
    assert_eq!(host.state(2), ("oi".into(), 8192));
    refused(host.write(at, 1));
    refused(host.write(at + 3 * BLOCK, 1));
    refused(host.write(at + 2 * BLOCK, 191));
    assert_eq!(host.state(2), ("oi".into(), 8192));
    // What was refused makes nothing worse.
    assert_eq!(host.write(at + 2 * BLOCK, 190), 0);
    assert_eq!(host.state(2).0, "fu");
    refused(host.write(at + 192 * BLOCK, 1));
    refused(host.write(4 * MIB - BLOCK, 2));
    assert_eq!(host.read(at, 192).unwrap()[BLOCK as usize], 1);
    host.end();
}

fn reads_above_the_write_pointer_go_by_the_drive() {
    let host = Host::new(&zns());
    assert_eq!(host.write(MIB, 1), 0);
    assert_eq!(host.read(MIB, 2).err(), Some(EREMOTEIO));
    assert_eq!(host.read(5 * MIB, 1).err(), Some(EREMOTEIO));
    assert_eq!(host.read(MIB, 1).unwrap()[0], 1);
    host.end();
    let host = Host::new(&smr());
    assert_eq!(host.write(9 * MIB, 1), 0);
    let read = host.read(9 * MIB - BLOCK, 3).unwrap();
    assert_eq!((read[0], read[4096], read[8192]), (0, 1, 0), "and across zones");
    assert_eq!(host.violations(), 0);
    host.end();
}

fn limits_of_open_and_active_zones_hold() {
    let host = Host::new(&zns());
    for zone in 0..3 {
        assert_eq!(host.op("open", Some(zone)), "");
    }
    assert_eq!(host.write(3 * MIB, 1), ETOOMANYREFS);
    assert!(host.op("open", Some(3)).contains("Too many references"));
    for zone in 0..2 {
        assert_eq!((host.write(zone * MIB, 1), host.op("close", Some(zone))), (0, String::new()));
    }
    assert_eq!((host.op("report", Some(3)), host.write(3 * MIB, 1)), (String::new(), 0));
    assert_eq!(host.write(4 * MIB, 1), EOVERFLOW);
    assert!(host.op("open", Some(4)).contains("Value too large"));
    assert_eq!((host.op("finish", Some(0)), host.op("report", Some(4)), host.write(4 * MIB, 1)), Default::default());
    host.end();
}

fn operations_go_by_the_state_of_the_zone() {
    let states: [(&str, &[&str], [bool; 4]); 5] = [
        ("em", &[], [true, false, true, true]),
        ("oi", &["write"], [true; 4]),
        ("oe", &["open"], [true; 4]),
        ("cl", &["write", "close"], [true; 4]),
        ("fu", &["finish"], [false, false, true, true]),
    ];
    let host = Host::new(&smr());
    for (state, make, works) in states {
        for (op, works) in ["open", "close", "finish", "reset"].into_iter().zip(works) {
            assert_eq!(host.op("reset", Some(9)), "");
            for step in make {
                let done =
                    if *step == "write" { host.write(9 * MIB, 1) == 0 } else { host.op(step, Some(9)).is_empty() };
                assert!(done, "{step}");
            }
            assert_eq!(host.state(9).0, state);
            assert_eq!(host.op(op, Some(9)).is_empty(), works, "{op} of a zone that is {state}");
            let after = match (op, state) {
                _ if !works => state,
                ("open", _) => "oe",
                ("close", "oe") | ("reset", _) => "em",
                ("close", _) => "cl",
                _ => "fu",
            };
            assert_eq!(host.state(9).0, after, "{op} of a zone that is {state}");
        }
    }
    for op in ["open", "close", "finish", "reset"] {
        assert_ne!(host.op(op, Some(1)), "", "{op} of a conventional zone");
    }
    host.end();
}

fn a_reset_of_all_zones_is_one() {
    let host = Host::new(&smr());
    assert_eq!((host.write(MIB, 1), host.write(5 * MIB, 4), host.write(63 * MIB, 256)), (0, 0, 0));
    assert_eq!(host.op("finish", Some(7)), "");
    let all = Command::new("blkzone").args(["reset", "-o", "0"]).arg(&host.path).output().unwrap();
    assert!(all.status.success(), "{}", String::from_utf8_lossy(&all.stderr));
    assert!([5, 7, 63].into_iter().all(|zone| host.state(zone).0 == "em"));
    assert_eq!(host.read(MIB, 1).unwrap()[0], 1, "conventional zones keep their bytes");
    assert_eq!(host.violations(), 0);
    host.end();
}

fn conventional_zones_are_written_anywhere() {
    let host = Host::new(&smr());
    assert_eq!((host.write(2 * MIB + 5 * BLOCK, 3), host.write(2 * MIB + 6 * BLOCK, 1)), (0, 0));
    // Over a zone's end, which only the emulator's image knows of.
    assert_eq!(host.write(2 * MIB - 2 * BLOCK, 4), 0);
    assert_eq!((host.state(2).0, host.violations()), ("nw".into(), 0));
    host.end();
}

fn flushes_and_durable_writes_reach_the_medium() {
    for cache in [true, false] {
        let host = Host::new(&Config { write_cache: cache, ..smr() });
        let durable = File::options().write(true).custom_flags(O_DIRECT | O_DSYNC).open(&host.path).unwrap();
        let bytes = AlignedBuf::zeroed(8192);
        let flushes = || host.drive.stats().total.flushes;
        let before = flushes();
        assert_eq!(number(durable.write_all_at(&bytes, 20 * MIB)), 0);
        assert_eq!(flushes() > before, cache);
        assert_eq!(host.write(20 * MIB + 8192, 1), 0);
        let left = |drive: &Emulator| {
            let lost = drive.after_power_loss_choosing(&mut |_| 0).unwrap();
            imbrex_device::report_all(&lost).unwrap()[20].wp.unwrap()
        };
        assert_eq!(left(&host.drive), if cache { 8192 } else { 12288 });
        let before = flushes();
        host.file.sync_data().unwrap();
        assert_eq!((left(&host.drive), flushes() > before), (12288, cache));
        drop(durable);
        host.end();
    }
}

fn faults_have_the_numbers_that_disks_give_them() {
    let host = Host::new(&smr());
    let at = 10 * MIB;
    assert_eq!(host.write(at, 8), 0);
    host.drive.faults().media_error(at + 4 * BLOCK, 1);
    assert_eq!((host.read(at, 8).err(), host.read(at + 4 * BLOCK, 1).err()), (Some(ENODATA), Some(ENODATA)));
    assert!(host.read(at, 4).is_ok() && host.read(at + 5 * BLOCK, 3).is_ok());
    // A write that stops half way: who asks where the zone ends goes on there.
    host.drive.faults().fail_write(1, 2);
    assert_eq!(host.write(at + 8 * BLOCK, 4), EIO);
    assert_eq!(host.state(10).1, 10 * BLOCK);
    assert_eq!(host.write(at + 10 * BLOCK, 1), 0);
    host.drive.faults().fail_flushes(1);
    assert_eq!((number(host.file.sync_data()), number(host.file.sync_data())), (EIO, 0));
    host.drive.faults().host_full(true);
    assert_eq!(host.write(at + 11 * BLOCK, 1), ENOSPC);
    host.drive.faults().host_full(false);
    assert_eq!((host.state(10).1, host.write(at + 11 * BLOCK, 1)), (11 * BLOCK, 0));
    assert_eq!(host.violations(), 0, "none of it is the host's fault");
    host.end();
}

fn dead_zones_are_told() {
    let host = Host::new(&smr());
    assert_eq!((host.write(11 * MIB, 4), host.write(12 * MIB, 4)), (0, 0));
    host.drive.faults().make_read_only(ZoneId(11)).unwrap();
    host.drive.faults().make_offline(ZoneId(12)).unwrap();
    assert_eq!((host.state(11).0, host.state(12).0), ("ro".into(), "of".into()));
    refused(host.write(11 * MIB + 4 * BLOCK, 1));
    assert!(host.read(11 * MIB, 4).is_ok());
    assert_ne!(host.op("reset", Some(11)), "");
    assert_eq!(host.read(12 * MIB, 1).err(), Some(EREMOTEIO));
    assert_eq!((host.op("reset", Some(13)), host.write(13 * MIB, 1)), (String::new(), 0), "the others live");
    assert_eq!(host.violations(), 0);
    host.end();
}

fn a_drive_that_fails_altogether_says_so() {
    let host = Host::new(&smr());
    let before = host.write(30 * MIB, 1);
    for zone in 0..64 {
        host.drive.faults().make_offline(ZoneId(zone)).unwrap();
    }
    assert_eq!((before, host.read(0, 1).err(), host.read(30 * MIB, 1).err()), (0, Some(EREMOTEIO), Some(EREMOTEIO)));
    refused(host.write(0, 1));
    refused(host.write(31 * MIB, 1));
    host.end();
}

/// Writers of different zones and readers at once: every byte is where it belongs, and no rule is broken.
fn many_at_once_break_no_rule() {
    let host = Host::new(&smr());
    std::thread::scope(|scope| {
        for zone in 4..12 {
            let host = &host;
            scope.spawn(move || {
                for block in 0..64 {
                    assert_eq!(host.write(zone * MIB + block * 4 * BLOCK, 4), 0);
                    assert!(host.read(zone * MIB, block * 4 + 1).is_ok());
                }
            });
        }
    });
    for zone in 4..12u64 {
        let all = host.read(zone * MIB, 256).unwrap();
        assert!((0..256).all(|block| all[block * 4096] == ((zone * 256 + block as u64 / 4 * 4) as u8 | 1)));
    }
    assert_eq!(host.violations(), 0);
    host.end();
}

fn two_drives_are_two_devices() {
    let (one, other) = (Host::new(&smr()), Host::new(&zns()));
    assert_ne!(one.path, other.path);
    assert_eq!((one.write(5 * MIB, 1), other.state(5).0), (0, "em".into()));
    one.end();
    assert_eq!(other.write(5 * MIB, 1), 0);
    other.end();
}

/// It is taken away while it is in use: what comes later fails, and nothing hangs.
fn a_device_in_use_can_be_taken_away() {
    let mut host = Host::new(&smr());
    assert_eq!(host.write(5 * MIB, 1), 0);
    let id = host.server.device().id;
    host.server.end(&mut host.control, true).unwrap();
    let mut bytes = AlignedBuf::zeroed(4096);
    assert_ne!(number(host.file.read_exact_at(&mut bytes, 5 * MIB)), 0);
    assert_ne!(number(host.file.write_all_at(&bytes, 5 * MIB + 4096)), 0);
    assert_eq!(imbrex_device::report_all(&host.drive).unwrap()[5].wp, Some(4096));
    drop(host.file);
    assert!(host.control.remove(id, false).unwrap());
}

fn main() -> ExitCode {
    let tests: &[(&str, fn())] = &[
        ("what the kernel knows is the drive's", what_the_kernel_knows_is_the_drives),
        ("a drive of many zones is reported whole", a_drive_of_many_zones_is_reported_whole),
        ("writes go to the write pointer and nowhere else", writes_go_to_the_write_pointer_and_nowhere_else),
        ("reads above the write pointer go by the drive", reads_above_the_write_pointer_go_by_the_drive),
        ("limits of open and active zones hold", limits_of_open_and_active_zones_hold),
        ("operations go by the state of the zone", operations_go_by_the_state_of_the_zone),
        ("a reset of all zones is one", a_reset_of_all_zones_is_one),
        ("conventional zones are written anywhere", conventional_zones_are_written_anywhere),
        ("flushes and durable writes reach the medium", flushes_and_durable_writes_reach_the_medium),
        ("faults have the numbers that disks give them", faults_have_the_numbers_that_disks_give_them),
        ("dead zones are told", dead_zones_are_told),
        ("a drive that fails altogether says so", a_drive_that_fails_altogether_says_so),
        ("many at once break no rule", many_at_once_break_no_rule),
        ("two drives are two devices", two_drives_are_two_devices),
        ("a device in use can be taken away", a_device_in_use_can_be_taken_away),
    ];
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in tests {
        let ok = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("{} ublk: {name}", if ok { "ok    " } else { "FAILED" });
        *(if ok { &mut passed } else { &mut failed }) += 1;
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
