//! Every rule and fault as the kernel gets to know it, on emulated drives, without a kernel.

use super::*;
use imbrex_emulator::{Config, Emulator};
use std::cell::RefCell;

const BLOCK: u64 = 4096;

/// A request's bytes, in memory.
#[derive(Default)]
struct Memory(RefCell<Vec<u8>>);

impl Data for Memory {
    fn take(&self, from: u64, out: &mut [u8]) -> io::Result<()> {
        match self.0.borrow().get(from as usize..).and_then(|rest| rest.get(..out.len())) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => return Err(ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }
    fn give(&self, from: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.borrow_mut();
        let room = all.get_mut(from as usize..).unwrap_or_default();
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }
}

struct Host {
    drive: Emulator,
    served: Served,
}

/// 64 zones of 1 MiB, 4 of them conventional, 8 may be open.
fn host(change: impl FnOnce(&mut Config)) -> Host {
    let mut config = Config { max_io: 1 << 20, ..Config::tiny() };
    change(&mut config);
    let drive = Emulator::memory(&config).unwrap();
    let served = Served::new(Arc::new(drive.clone()), config.conventional).unwrap();
    Host { drive, served }
}

fn smr() -> Host {
    host(|_| {})
}

/// Like ZNS: zones of 1 MiB with 768 KiB of capacity, 3 open, 4 active, no reads above the write pointer.
fn zns() -> Host {
    host(|config| {
        *config = Config {
            conventional: 0,
            zone_capacity: 768 << 10,
            max_open: Some(3),
            max_active: Some(4),
            reads_cross_zones: false,
            reads_above_wp: false,
            ..config.clone()
        };
    })
}

impl Host {
    fn zone(&self, zone: u64) -> u64 {
        zone * self.served.geometry().zone_size
    }

    fn ask(&self, op: Op, at: u64, bytes: Vec<u8>) -> Result<(Answer, Vec<u8>), Errno> {
        let data = Memory(RefCell::new(bytes));
        let len = match op {
            Op::Report { .. } => 0,
            _ => data.0.borrow().len() as u64,
        };
        let mut buffer = AlignedBuf::zeroed(self.served.command() as usize);
        let answer = self.served.run(&Request { op, at, len }, &data, &mut buffer)?;
        Ok((answer, data.0.into_inner()))
    }

    fn write(&self, at: u64, blocks: u64) -> Result<Answer, Errno> {
        let bytes = vec![(at / BLOCK) as u8 | 1; (blocks * BLOCK) as usize];
        self.ask(Op::Write { durable: false }, at, bytes).map(|(answer, _)| answer)
    }

    fn append(&self, zone: u64, blocks: u64) -> Result<u64, Errno> {
        let bytes = vec![zone as u8; (blocks * BLOCK) as usize];
        self.ask(Op::Append { durable: false }, self.zone(zone), bytes).map(|(answer, _)| answer.written_at)
    }

    fn read(&self, at: u64, blocks: u64) -> Result<Vec<u8>, Errno> {
        self.ask(Op::Read, at, vec![0xee; (blocks * BLOCK) as usize]).map(|(_, bytes)| bytes)
    }

    fn op(&self, op: ZoneOp, zone: u64) -> Result<Answer, Errno> {
        self.ask(Op::Zone(op), self.zone(zone), Vec::new()).map(|(answer, _)| answer)
    }

    fn report(&self, from: u64, zones: u32) -> Result<Vec<BlkZone>, Errno> {
        let room = (zones as usize).min(1 << 20) * size_of::<BlkZone>();
        let (answer, bytes) = self.ask(Op::Report { zones }, self.zone(from), vec![0; room])?;
        let whole = bytes[..answer.bytes as usize].chunks_exact(size_of::<BlkZone>());
        Ok(whole.map(|zone| <BlkZone as zerocopy::FromBytes>::read_from_bytes(zone).unwrap()).collect())
    }

    /// Condition and write pointer in sectors from the zone's start.
    fn state(&self, zone: u64) -> (u8, u64) {
        let [seen] = self.report(zone, 1).unwrap()[..] else { panic!() };
        (seen.cond, seen.wp.wrapping_sub(seen.start))
    }

    fn violations(&self) -> u64 {
        self.drive.stats().total.rule_violations
    }
}

fn desc(op_flags: u32, count: u32, start_sector: u64) -> IoDesc {
    IoDesc { op_flags, count, start_sector, addr: 0 }
}

#[test]
fn requests_are_understood_and_what_no_zoned_drive_does_is_not() {
    let parse = |op, count, start| Request::parse(&desc(op, count, start));
    let request = |op, at, len| Ok(Request { op, at, len });
    assert_eq!(parse(0, 8, 16), request(Op::Read, 8192, 4096));
    assert_eq!(parse(1 | 1 << 13, 8, 16), request(Op::Write { durable: true }, 8192, 4096));
    assert_eq!(parse(1 | 1 << 11, 8, 16), request(Op::Write { durable: false }, 8192, 4096));
    assert_eq!(parse(2, 0, 0), request(Op::Flush, 0, 0));
    assert_eq!(parse(2, 0, u64::MAX), request(Op::Flush, 0, 0), "its place says nothing");
    assert_eq!(parse(13, 8, 2048), request(Op::Append { durable: false }, 1 << 20, 4096));
    assert_eq!(parse(14, 0, 0), request(Op::ResetAll, 0, 0));
    for (number, op) in [(10, ZoneOp::Open), (11, ZoneOp::Close), (12, ZoneOp::Finish), (15, ZoneOp::Reset)] {
        assert_eq!(parse(number, 2048, 2048), request(Op::Zone(op), 1 << 20, 0));
    }
    assert_eq!(parse(18, 99, 2048), request(Op::Report { zones: 99 }, 1 << 20, 0));
    for unknown in [3, 4, 5, 6, 9, 16, 17, 19, 0xff] {
        assert_eq!(parse(unknown, 8, 0), Err(Errno::OPNOTSUPP));
    }
    for place in [u64::MAX, u64::MAX / 512 + 1, u64::MAX / 512] {
        assert_eq!(parse(0, u32::MAX, place), Err(Errno::INVAL));
    }
}

#[test]
fn drives_that_linux_cannot_have_are_told_apart() {
    let fits = |change: &dyn Fn(&mut Config)| {
        let mut config = Config::tiny();
        change(&mut config);
        Served::new(Arc::new(Emulator::memory(&config).unwrap()), config.conventional)
            .map(|served| (served.command(), served.limit()))
    };
    assert_eq!(fits(&|config| config.max_io = 96 << 10), Ok((96 << 10, 96 << 10)));
    assert_eq!(fits(&|config| config.max_io = (8 << 20) + 4096), Ok((1 << 20, 1 << 20)), "no more than a zone");
    assert_eq!(fits(&|config| config.conventional = 64), Err(Unfit::NotZoned));
    let odd = |config: &mut Config| {
        *config = Config { zone_size: 3 << 20, zone_capacity: 3 << 20, capacity: 63 << 20, ..config.clone() };
    };
    assert_eq!(fits(&odd), Err(Unfit::ZoneSize));
    let short = |config: &mut Config| *config = Config { block: 512, max_io: 2048, ..config.clone() };
    assert_eq!(fits(&short), Err(Unfit::SmallCommands));
    // A report of all zones is one request.
    let many = |zones: u64| {
        fits(&move |config: &mut Config| {
            (config.max_io, config.zone_size, config.zone_capacity) = (8192, 8192, 8192);
            config.capacity = zones * config.zone_size;
        })
    };
    assert_eq!((many(128), many(129)), (Ok((8192, 8192)), Ok((8192, 12288))));
    assert_eq!((many(65_536), many(65_537)), (Ok((8192, 4 << 20)), Err(Unfit::ManyZones(65_536))));
}

#[test]
fn a_request_longer_than_the_drives_commands_is_several_commands() {
    // 4,096 zones: a report of them has 256 KiB.
    let host = host(|config| (config.max_io, config.capacity) = (16 << 10, 4096 << 20));
    let commands = || {
        let total = host.drive.stats().total;
        (total.reads, total.writes, total.flushes)
    };
    let bytes: Vec<u8> = (0..100 << 10).map(|at: u32| (at / 4096) as u8).collect();
    let (first, second) = (host.zone(9), host.zone(10));
    assert_eq!(host.ask(Op::Write { durable: true }, first, bytes.clone()).unwrap().0.bytes, 100 << 10);
    assert_eq!(commands(), (0, 7, 1), "six of 16 KiB and one of 4 KiB");
    assert_eq!(host.ask(Op::Read, first, vec![0xee; 100 << 10]).unwrap().1, bytes);
    assert_eq!(commands(), (7, 7, 1));
    assert_eq!(
        host.ask(Op::Append { durable: false }, first, bytes.clone()).unwrap().0.written_at,
        first + (100 << 10)
    );
    assert_eq!(host.read(first + (100 << 10), 25).unwrap(), bytes);
    assert_eq!(host.report(0, u32::MAX).unwrap().len(), 4096);
    // Where one of its commands fails, the request does, and the zone says what was written.
    host.drive.faults().fail_write(3, 0);
    assert_eq!(host.ask(Op::Write { durable: false }, second, bytes), Err(Errno::IO));
    assert_eq!(host.state(10), (2, 2 * 32));
    host.drive.faults().media_error(first + 5 * BLOCK, 1);
    assert_eq!((host.read(first, 25), host.read(first, 4).unwrap().len()), (Err(Errno::NODATA), 16 << 10));
    assert_eq!((host.write(second, 65), host.violations()), (Err(Errno::INVAL), 0));
}

#[test]
fn what_is_written_is_read_and_reported() {
    let host = smr();
    let at = host.zone(5);
    assert_eq!(host.write(at, 3), Ok(Answer { bytes: 3 * 4096, written_at: 0 }));
    assert_eq!(host.read(at, 3).unwrap(), vec![(at / BLOCK) as u8 | 1; 3 * 4096]);
    assert_eq!(host.read(at + 2 * BLOCK, 2).unwrap()[4096..], [0; 4096], "above the write pointer");
    assert_eq!(host.state(5), (0x2, 24));
    let all = host.report(0, 1000).unwrap();
    assert_eq!(all.len(), 64);
    let first = BlkZone { len: 2048, wp: u64::MAX, kind: 1, capacity: 2048, ..BlkZone::default() };
    assert_eq!(all[0], first);
    let fifth = BlkZone { start: 5 * 2048, wp: 5 * 2048 + 24, kind: 2, cond: 2, ..first };
    assert_eq!((all[5], host.report(5, 1).unwrap()), (fifth, vec![fifth]));
    assert_eq!(host.report(60, u32::MAX).unwrap().len(), 4);
    assert_eq!((host.report(64, 1), host.violations()), (Err(Errno::REMOTEIO), 0));
    let (_, inside) = host.ask(Op::Report { zones: 1 }, host.zone(5) + 4096, vec![0; 64]).unwrap();
    assert_eq!(inside, fifth.as_bytes(), "a place in a zone is that zone");
    // No room at all, and room for less than asked for.
    assert_eq!(host.ask(Op::Report { zones: 1 }, 0, Vec::new()), Err(Errno::IO));
    assert_eq!(host.ask(Op::Report { zones: 3 }, 0, vec![0; 64]).unwrap().0.bytes, 64);
}

#[test]
fn a_capacity_below_the_zones_size_is_reported() {
    let host = zns();
    let [zone] = host.report(3, 1).unwrap()[..] else { panic!() };
    assert_eq!((zone.len, zone.capacity, zone.cond, zone.wp), (2048, 1536, 1, 3 * 2048));
    host.write(host.zone(3), 192).unwrap();
    assert_eq!(host.state(3), (0xe, 2048), "a full zone's write pointer is behind it");
}

#[test]
fn writes_that_break_a_rule_are_refused_and_counted() {
    let host = zns();
    let at = host.zone(2);
    host.write(at, 2).unwrap();
    let refused = [
        host.write(at, 1),
        host.write(at + 3 * BLOCK, 1),
        host.write(at + 2 * BLOCK, 191),
        host.write(at + 200 * BLOCK, 60),
        host.write(host.zone(64), 1),
        host.read(at + 2 * BLOCK, 1).map(|_| Answer::default()),
        host.read(host.zone(3), 1).map(|_| Answer::default()),
    ];
    assert!(refused.iter().all(|answer| *answer == Err(Errno::REMOTEIO)), "{refused:?}");
    assert_eq!((host.violations(), host.state(2)), (7, (2, 16)));
    host.write(at + 2 * BLOCK, 190).unwrap();
    assert_eq!(host.write(at + 192 * BLOCK, 1), Err(Errno::REMOTEIO), "full");
    // More than the largest request never gets to the drive.
    assert_eq!(host.write(host.zone(5), 1025), Err(Errno::INVAL));
    assert_eq!(host.violations(), 8);
    assert_eq!(host.ask(Op::Read, 0, vec![0; 512]), Err(Errno::REMOTEIO), "half a block");
}

#[test]
fn limits_of_open_and_active_zones_have_numbers_of_their_own() {
    let host = zns();
    for zone in 0..3 {
        host.op(ZoneOp::Open, zone).unwrap();
    }
    assert_eq!(host.write(host.zone(3), 1), Err(Errno::TOOMANYREFS));
    assert_eq!(host.op(ZoneOp::Open, 3), Err(Errno::TOOMANYREFS));
    assert_eq!(host.append(3, 1), Err(Errno::TOOMANYREFS));
    for zone in 0..2 {
        host.write(host.zone(zone), 1).unwrap();
        host.op(ZoneOp::Close, zone).unwrap();
    }
    host.write(host.zone(3), 1).unwrap();
    assert_eq!(host.write(host.zone(4), 1), Err(Errno::OVERFLOW));
    assert_eq!(host.append(4, 1), Err(Errno::OVERFLOW));
    assert_eq!(host.op(ZoneOp::Open, 4), Err(Errno::OVERFLOW));
    host.op(ZoneOp::Finish, 0).unwrap();
    host.write(host.zone(4), 1).unwrap();
}

#[test]
fn operations_go_by_the_state_of_the_zone() {
    use ZoneOp::*;
    type Make<'a> = &'a dyn Fn(&Host) -> Result<Answer, Errno>;
    let states: [(&str, Make<'_>, [bool; 4]); 5] = [
        ("empty", &|_| Ok(Answer::default()), [true, false, true, true]),
        ("implicitly open", &|host| host.write(host.zone(9), 1), [true; 4]),
        ("explicitly open", &|host| host.op(Open, 9), [true; 4]),
        ("closed", &|host| host.write(host.zone(9), 1).and_then(|_| host.op(Close, 9)), [true; 4]),
        ("full", &|host| host.op(Finish, 9), [false, false, true, true]),
    ];
    for (name, make, works) in states {
        for (op, works) in [Open, Close, Finish, Reset].into_iter().zip(works) {
            let host = smr();
            make(&host).unwrap();
            let expected = if works { Ok(Answer::default()) } else { Err(Errno::REMOTEIO) };
            assert_eq!(host.op(op, 9), expected, "{op:?} of a zone that is {name}");
            let after = match op {
                _ if !works => host.state(9).0,
                Open => 3,
                Close if name == "explicitly open" => 1,
                Close => 4,
                Finish => 0xe,
                Reset => 1,
            };
            assert_eq!(host.state(9).0, after, "{op:?} of a zone that is {name}");
        }
    }
    let host = smr();
    for op in [Open, Close, Finish, Reset] {
        assert_eq!(host.op(op, 1), Err(Errno::REMOTEIO), "conventional");
        assert_eq!(host.op(op, 64), Err(Errno::REMOTEIO), "behind the end");
        assert_eq!(host.ask(Op::Zone(op), 4096, Vec::new()), Err(Errno::REMOTEIO), "in a zone");
    }
}

#[test]
fn appends_say_where_they_were_written() {
    let host = zns();
    assert_eq!([host.append(7, 2), host.append(7, 1)], [Ok(host.zone(7)), Ok(host.zone(7) + 2 * BLOCK)]);
    assert_eq!(host.read(host.zone(7) + BLOCK, 2).unwrap(), vec![7; 8192]);
    assert_eq!(host.append(7, 190), Err(Errno::REMOTEIO), "more than there is room for");
    assert_eq!(host.append(7, 189), Ok(host.zone(7) + 3 * BLOCK));
    assert_eq!(
        (host.append(7, 1), host.state(8)),
        (Err(Errno::REMOTEIO), (1, 0)),
        "full, and the next zone is another one"
    );
    assert_eq!(host.ask(Op::Append { durable: false }, host.zone(7) + BLOCK, vec![0; 4096]), Err(Errno::REMOTEIO));
    assert_eq!(host.append(64, 1), Err(Errno::REMOTEIO));
    // Zones whose size is their capacity end where the next one begins.
    let host = smr();
    host.write(host.zone(63) - 256 * BLOCK, 256).unwrap();
    assert_eq!((host.append(62, 1), host.state(63)), (Err(Errno::REMOTEIO), (1, 0)));
    assert_eq!(host.append(2, 1), Err(Errno::REMOTEIO), "conventional");
}

#[test]
fn a_reset_of_all_zones_leaves_conventional_and_dead_ones() {
    let host = smr();
    host.write(host.zone(1), 1).unwrap();
    for zone in [4, 5, 6, 63] {
        host.write(host.zone(zone), 2).unwrap();
    }
    host.op(ZoneOp::Finish, 5).unwrap();
    host.drive.faults().make_read_only(ZoneId(6)).unwrap();
    host.drive.faults().make_offline(ZoneId(7)).unwrap();
    host.ask(Op::ResetAll, 0, Vec::new()).unwrap();
    let conds: Vec<u8> = host.report(0, 64).unwrap().iter().map(|zone| zone.cond).collect();
    assert_eq!(conds[..8], [0, 0, 0, 0, 1, 1, 0xd, 0xf]);
    assert!(conds[8..].iter().all(|cond| *cond == 1));
    assert_eq!(host.read(host.zone(1), 1).unwrap()[0], 1, "what stands in conventional zones stays");
    assert_eq!(host.violations(), 0);
}

#[test]
fn conventional_zones_are_written_anywhere() {
    let host = smr();
    host.write(host.zone(2) + 5 * BLOCK, 3).unwrap();
    host.write(host.zone(2) + 6 * BLOCK, 1).unwrap();
    assert_eq!(host.read(host.zone(2) + 7 * BLOCK, 1).unwrap(), vec![0x05 | 1; 4096]);
    assert_eq!((host.state(2).0, host.violations()), (0, 0));
    host.drive.faults().make_offline(ZoneId(2)).unwrap();
    let [dead] = host.report(2, 1).unwrap()[..] else { panic!() };
    assert_eq!((dead.kind, dead.cond), (1, 0xf), "it stays of its kind");
}

#[test]
fn faults_have_the_numbers_that_disks_give_them() {
    let host = smr();
    let at = host.zone(10);
    host.write(at, 8).unwrap();
    host.drive.faults().media_error(at + 4 * BLOCK, 1);
    assert_eq!(host.read(at, 8), Err(Errno::NODATA));
    host.read(at, 4).unwrap();
    host.drive.faults().fail_write(1, 2);
    assert_eq!(host.write(at + 8 * BLOCK, 4), Err(Errno::IO));
    assert_eq!(host.state(10).1, 80, "two blocks of it were written");
    host.drive.faults().fail_flushes(1);
    assert_eq!(host.ask(Op::Flush, 0, Vec::new()), Err(Errno::IO));
    host.ask(Op::Flush, 0, Vec::new()).unwrap();
    host.drive.faults().host_full(true);
    assert_eq!(host.write(at + 10 * BLOCK, 1), Err(Errno::NOSPC));
    host.drive.faults().clear();
    host.drive.faults().make_read_only(ZoneId(10)).unwrap();
    assert_eq!((host.write(at + 10 * BLOCK, 1), host.append(10, 1)), (Err(Errno::REMOTEIO), Err(Errno::REMOTEIO)));
    assert_eq!((host.op(ZoneOp::Reset, 10), host.state(10).0), (Err(Errno::REMOTEIO), 0xd));
    host.read(at, 8).unwrap();
    host.drive.faults().make_offline(ZoneId(10)).unwrap();
    assert_eq!((host.read(at, 1), host.append(10, 1)), (Err(Errno::REMOTEIO), Err(Errno::REMOTEIO)));
    assert_eq!(host.violations(), 0, "none of it is the host's fault");
}

#[test]
fn durable_writes_and_flushes_reach_the_medium() {
    for cache in [true, false] {
        let host = host(|config| config.write_cache = cache);
        let at = host.zone(20);
        host.ask(Op::Write { durable: true }, at, vec![1; 8192]).unwrap();
        host.ask(Op::Append { durable: true }, at, vec![2; 4096]).unwrap();
        host.write(at + 3 * BLOCK, 1).unwrap();
        let lost = host.drive.after_power_loss_choosing(&mut |_| 0).unwrap();
        let kept = imbrex_device::report_all(&lost).unwrap()[20].wp.unwrap();
        assert_eq!(kept, if cache { 3 * BLOCK } else { 4 * BLOCK });
        host.ask(Op::Flush, 0, Vec::new()).unwrap();
        let kept = host.drive.after_power_loss_choosing(&mut |_| 0).unwrap();
        assert_eq!(imbrex_device::report_all(&kept).unwrap()[20].wp, Some(4 * BLOCK));
    }
}

#[test]
fn a_request_claims_what_it_changes() {
    let host = smr();
    let claims = |op, at, len| host.served.claims(&Request { op, at, len });
    let (zone, write) = (host.zone(1), Op::Write { durable: false });
    assert!(claims(Op::Read, 5 * zone, 4096).is_empty() && claims(Op::Flush, 0, 0).is_empty());
    assert_eq!(claims(write, 5 * zone + 8192, 4096), 5 * zone..6 * zone);
    assert_eq!(claims(write, 4096, 8192), 4096..12288, "conventional");
    assert_eq!(claims(write, 4 * zone - 4096, 8192), 4 * zone - 4096..5 * zone, "the drive refuses that");
    assert_eq!(claims(Op::Append { durable: false }, 6 * zone, 4096), 6 * zone..7 * zone);
    assert_eq!(claims(Op::Zone(ZoneOp::Open), 6 * zone, 0), 6 * zone..7 * zone);
    assert_eq!(claims(Op::ResetAll, 0, 0), 0..u64::MAX);
    assert!(claims(write, u64::MAX - 4096, 4096).end >= u64::MAX - 4096);
}

/// Requests as a broken kernel might send them: nothing panics, and the drive stays whole.
#[test]
fn no_request_breaks_the_server() {
    let host = zns();
    let mut buffer = AlignedBuf::zeroed(host.served.command() as usize);
    let mut random = 88172645463325252u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..20_000 {
        let (op, count, start) = (next() as u32, next(), next());
        // Mostly in the neighbourhood of what is sensible.
        let op = if op & 3 == 0 { op } else { (op % 20) | ((op >> 16 & 1) << 13) };
        let count = if count & 7 == 0 { count as u32 } else { count as u32 % 4096 / 8 * 8 };
        let start = if start & 7 == 0 { start } else { start % (66 * 2048) / 8 * 8 };
        let Ok(request) = Request::parse(&desc(op, count, start)) else { continue };
        let claims = host.served.claims(&request);
        assert!(claims.start <= claims.end);
        let data = Memory(RefCell::new(vec![7; (request.len as usize).clamp(64, 1 << 20)]));
        if let Ok(answer) = host.served.run(&request, &data, &mut buffer) {
            assert!(u64::from(answer.bytes) <= request.len.max(1 << 20));
        }
    }
    assert_eq!(host.report(0, 64).unwrap().len(), 64);
}
