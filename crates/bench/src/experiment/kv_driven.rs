//! Stores that are given the same operations, one after the other: the key-value store in this process, and stock LevelDB and RocksDB on bluefs in a program of
//! their own, which is told each operation and answers (`bindings/common/driven/driven.h`). Unless a plan says otherwise all run by one rule: what a put leads to in
//! the background is done before the next operation, or before the put itself, and nothing goes on beside a read. So what the drive does meanwhile is for that
//! read, and how fast the machine is changes nothing.

use super::child::Running;
use super::hosts::{preload, workplace};
use super::kv_stock::{BITS, OWN, Shape, rocks_options};
use super::kv_store::{CACHE, KEY, LOOK, MIB, Store};
use super::result::Row;
use super::rocks::Pace;
use super::{Options, Stop};
use imbrex_device::{Zone, ZoneState};
use imbrex_emulator::{Config, Counts, Emulator, Observer};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command};

/// What of the drive's work is for reads of users, by its cause. bluefs has all reads of tables among these, those of compactions, too.
const READS: [&str; 2] = ["user_read", "readahead"];

/// What the drive has done until a moment.
#[derive(Clone, Default)]
pub(super) struct Spent {
    /// Seconds that it was busy.
    pub(super) seconds: f64,
    /// Seconds by its clock.
    pub(super) elapsed: f64,
    /// Those of these for users' reads, and how many commands they were.
    pub(super) user: f64,
    pub(super) user_reads: u64,
    /// Seconds by cause.
    pub(super) by_cause: BTreeMap<&'static str, f64>,
    pub(super) counts: Counts,
}

impl Spent {
    /// What it has done since another moment.
    pub(super) fn since(&self, other: &Spent) -> Spent {
        let by_cause = self.by_cause.iter().filter_map(|(cause, seconds)| {
            let spent = seconds - other.by_cause.get(cause).copied().unwrap_or(0.0);
            (spent > 0.0).then_some((*cause, spent))
        });
        Spent {
            seconds: self.seconds - other.seconds,
            elapsed: self.elapsed - other.elapsed,
            user: self.user - other.user,
            user_reads: self.user_reads - other.user_reads,
            by_cause: by_cause.collect(),
            counts: self.counts.since(&other.counts),
        }
    }
}

/// A store that is driven.
pub(super) trait Side {
    /// Puts a value that cannot be compressed, and has so many bytes.
    fn put(&mut self, key: &[u8; KEY as usize], value: usize, sync: bool) -> Result<(), Stop>;
    fn delete(&mut self, key: &[u8; KEY as usize]) -> Result<(), Stop>;
    /// Bytes of the value.
    fn get(&mut self, key: &[u8; KEY as usize]) -> Result<Option<usize>, Stop>;
    /// Reads so many pairs.
    fn scan(&mut self, key: &[u8; KEY as usize], pairs: u64) -> Result<(), Stop>;
    /// Reads all pairs in order. Returns how many there are.
    fn all(&mut self) -> Result<u64, Stop>;
    /// Returns once nothing is left to do.
    fn settle(&mut self) -> Result<(), Stop>;
    /// What the drive has done.
    fn spent(&self) -> Result<Spent, Stop>;
    /// Whatever is wrong with it.
    fn check(&self) -> Result<Vec<String>, Stop>;
    /// Zones in use, and most of them so far.
    fn zones(&self) -> (u32, u32);
    /// What a row has beside the times.
    fn fill(&self, row: &mut Row);
}

/// Fills in what of the zones in use is live, which have so many bytes.
pub(super) fn space(row: &mut Row, side: &dyn Side, live: u64, zone: u64) {
    let (now, peak) = side.zones();
    let of = |zones: u32| live as f64 / (f64::from(zones) * zone as f64).max(1.0);
    row.figures.extend(
        [
            ("zones, peak", f64::from(peak)),
            ("zones, at the end", f64::from(now)),
            ("live over peak", of(peak)),
            ("live over zones, at the end", of(now)),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
}

fn why(error: impl std::fmt::Display) -> Stop {
    Stop::Failed(error.to_string())
}

impl Side for Store {
    fn put(&mut self, key: &[u8; KEY as usize], value: usize, sync: bool) -> Result<(), Stop> {
        self.put_value(key, value, sync)
    }

    fn delete(&mut self, key: &[u8; KEY as usize]) -> Result<(), Stop> {
        self.delete_key(key)
    }

    fn get(&mut self, key: &[u8; KEY as usize]) -> Result<Option<usize>, Stop> {
        Ok(self.kv.get(key).map_err(why)?.map(|value| value.len()))
    }

    fn scan(&mut self, key: &[u8; KEY as usize], pairs: u64) -> Result<(), Stop> {
        let mut iter = self.kv.iter().map_err(why)?;
        iter.seek(key).map_err(why)?;
        (1..pairs).try_for_each(|_| iter.advance().map_err(why))
    }

    fn all(&mut self) -> Result<u64, Stop> {
        Ok(self.scan_all()?.0)
    }

    fn settle(&mut self) -> Result<(), Stop> {
        while self.kv.step().map_err(why)? {}
        Ok(())
    }

    fn spent(&self) -> Result<Spent, Stop> {
        let at = self.at();
        let user_reads = self.drive.stats().by_cause.get("user_read").map_or(0, |counts| counts.reads);
        let user = at.by_cause.get("user_read").copied().unwrap_or(0.0);
        let by_cause = at.by_cause;
        // Its clock stands while the drive has nothing to do.
        Ok(Spent { seconds: at.seconds, elapsed: at.seconds, user, user_reads, by_cause, counts: at.counts })
    }

    fn check(&self) -> Result<Vec<String>, Stop> {
        self.kv.check().map_err(why)
    }

    fn zones(&self) -> (u32, u32) {
        let now = self.kv.figures().zones.0;
        (now, self.peak().max(now))
    }

    fn fill(&self, row: &mut Row) {
        row.figures.insert("runs that a key is in at most".to_owned(), self.kv.figures().depth as f64);
        self.tell(row);
    }
}

/// A stock store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stock {
    LevelDb,
    RocksDb,
}

/// What a stock store is made with. Sizes are those that it gets: they are divided already.
pub(super) struct Plan {
    pub(super) store: Stock,
    pub(super) memtable: u64,
    pub(super) table: u64,
    /// What the sizes of bluefs's own are divided by, and the cache.
    pub(super) scale: u32,
    /// What the sizes of its commands are divided by.
    pub(super) io_scale: u32,
    /// How its drive keeps time. Where that is real, puts run ahead of compactions as far as the store lets them.
    pub(super) pace: Pace,
}

impl Plan {
    /// Bytes of the survivor: with two memtables it is as much memory as ring has with one and a larger survivor.
    fn survivor(&self) -> u64 {
        ((3 * self.memtable).max(16 * MIB) - self.memtable) / 4096 * 4096
    }

    /// What a row says of memory.
    pub(super) fn memory(&self) -> String {
        let own = match self.store {
            Stock::LevelDb => format!(", {} KiB of it in LevelDB", (OWN / u64::from(self.scale)) >> 10),
            Stock::RocksDb => String::new(),
        };
        format!(
            "at this scale two memtables of {} KiB, cache {} KiB{own}, survivor {} KiB",
            self.memtable >> 10,
            (CACHE / u64::from(self.scale)) >> 10,
            self.survivor() >> 10
        )
    }

    fn command(&self, uri: &str, options: &Options) -> Result<Command, Stop> {
        let scale = u64::from(self.scale);
        let (name, libraries): (_, &[&str]) = match self.store {
            Stock::LevelDb => ("leveldb_driven", &[]),
            Stock::RocksDb => ("rocksdb_driven", &["librocksdb_imbrex.so"]),
        };
        let path = options.build.join(name);
        if !path.exists() {
            let text = format!(
                "{} is not there; `bindings/{{leveldb,rocksdb}}/build.sh build tests` makes it",
                path.display()
            );
            return Err(Stop::Failed(text));
        }
        let mut command = Command::new(path);
        let (own, own_bits) = match self.store {
            Stock::LevelDb => {
                command.args([format!("--write-buffer={}", self.memtable), format!("--file-size={}", self.table)]);
                (format!("--cache={}", OWN / scale), format!("--filter={BITS}"))
            }
            Stock::RocksDb => {
                let sizes = rocks_options(Shape::Tight, (self.memtable, self.table), self.scale);
                let sizes: Vec<String> = sizes.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
                command.arg(format!("--options={}", sizes.join(";")));
                (format!("--cache_size={}", CACHE / scale), format!("--bloom_bits={BITS}"))
            }
        };
        if self.pace != Pace::Account {
            command.arg("--beside=1");
        }
        command.args([own, own_bits, "--db=/bench".into()]);
        command.arg(if self.store == Stock::LevelDb { format!("--uri={uri}") } else { format!("--fs_uri={uri}") });
        command.env("LD_PRELOAD", preload(&options.build, libraries)?);
        Ok(command)
    }
}

/// A stock store on bluefs, in a program that is told what to do. Dropped, the program is ended.
pub(super) struct Driven {
    running: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    observer: Observer,
    /// What reads of users took of the drive, and how many commands.
    user: (f64, u64),
    /// Puts and deletes, and most zones in use when it was looked.
    changes: u64,
    peak: u32,
    /// The program's flags.
    told: String,
    memory: String,
    _dir: tempfile::TempDir,
}

impl Driven {
    /// A new store on a new drive.
    pub(super) fn new(plan: &Plan, config: &Config, options: &Options) -> Result<Driven, Stop> {
        let dir = workplace(&options.work)?;
        let image = dir.path().join("drive.img");
        drop(Emulator::create(&image, config, false).map_err(why)?);
        let scale = u64::from(plan.scale);
        let own = if plan.store == Stock::LevelDb { OWN } else { CACHE };
        let uri = format!(
            "imbrex://{}?format=on&{}&io-scale={}&journal={}&survivor-size={}&cache={}",
            image.display(),
            plan.pace.options(),
            plan.io_scale,
            (16 * MIB / scale).max(64 << 10),
            plan.survivor(),
            (CACHE - own) / scale
        );
        let mut command = plan.command(&uri, options)?;
        command.env("IMBREX_SHM_DIR", dir.path());
        let words = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
        let told = words.filter(|arg| !arg.contains("uri=")).collect::<Vec<_>>().join(" ");
        let (running, input, output) = Running::start_asked(&command, dir.path())?;
        let observer = Observer::open(&image).map_err(why)?;
        let output = BufReader::new(output);
        let memory = plan.memory();
        let mut driven =
            Driven { running, input, output, observer, user: (0.0, 0), changes: 0, peak: 0, told, memory, _dir: dir };
        // What makes the database belongs to nobody.
        driven.ask("rest")?;
        Ok(driven)
    }

    /// Tells the program an operation. Returns the number in its answer, and whether something waits.
    fn ask(&mut self, operation: &str) -> Result<(Option<u64>, bool), Stop> {
        let mut answer = String::new();
        let asked = self.input.write_all(format!("{operation}\n").as_bytes());
        let got = asked.and_then(|()| self.output.read_line(&mut answer));
        let words: Vec<&str> = answer.split_whitespace().collect();
        match (words.as_slice(), got) {
            (["ok", number, waits], Ok(_)) => Ok((number.parse().ok(), *waits == "1")),
            (["none", _, waits], Ok(_)) => Ok((None, *waits == "1")),
            _ => {
                let complaints = self.running.complaints();
                Err(Stop::Failed(format!("{operation}: {} {}", answer.trim(), complaints.trim())))
            }
        }
    }

    /// The same of one that reads for a user.
    fn read(&mut self, operation: &str) -> Result<Option<u64>, Stop> {
        let before = self.reads()?;
        let (number, waits) = self.ask(operation)?;
        let after = self.reads()?;
        self.user.0 += after.0 - before.0;
        self.user.1 += after.1 - before.1;
        if waits {
            // LevelDB compacts what was searched in vain too often.
            self.ask("rest")?;
        }
        Ok(number)
    }

    /// Looks now and then how many zones are in use.
    fn look(&mut self) {
        self.changes += 1;
        if self.changes.is_multiple_of(LOOK) {
            self.peak = self.peak.max(self.in_use());
        }
    }

    /// Zones that are not empty.
    fn in_use(&self) -> u32 {
        let used = |zone: &&Zone| !matches!(zone.state, ZoneState::Empty | ZoneState::Conventional);
        self.observer.zones().iter().filter(used).count() as u32
    }

    /// Seconds and commands of all that counts as reading.
    fn reads(&self) -> Result<(f64, u64), Stop> {
        let (time, stats) = (self.observer.time().map_err(why)?, self.observer.stats());
        let seconds = |cause: &str| time.as_ref().and_then(|time| time.by_cause.get(cause)).map_or(0.0, |of| of.busy());
        let commands = |cause: &str| stats.by_cause.get(cause).map_or(0, |counts| counts.reads);
        Ok((READS.iter().map(|cause| seconds(cause)).sum(), READS.iter().map(|cause| commands(cause)).sum()))
    }
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Side for Driven {
    fn put(&mut self, key: &[u8; KEY as usize], value: usize, sync: bool) -> Result<(), Stop> {
        self.ask(&format!("put {} {value} {}", hex(key), u8::from(sync)))?;
        self.look();
        Ok(())
    }

    fn delete(&mut self, key: &[u8; KEY as usize]) -> Result<(), Stop> {
        self.ask(&format!("rm {} 0", hex(key)))?;
        self.look();
        Ok(())
    }

    fn get(&mut self, key: &[u8; KEY as usize]) -> Result<Option<usize>, Stop> {
        Ok(self.read(&format!("get {}", hex(key)))?.map(|bytes| bytes as usize))
    }

    fn scan(&mut self, key: &[u8; KEY as usize], pairs: u64) -> Result<(), Stop> {
        self.read(&format!("scan {} {pairs}", hex(key))).map(|_| ())
    }

    fn all(&mut self) -> Result<u64, Stop> {
        self.read("all")?.ok_or_else(|| "the program does not say how many pairs there are".into())
    }

    fn settle(&mut self) -> Result<(), Stop> {
        self.ask("rest").map(|_| ())
    }

    fn spent(&self) -> Result<Spent, Stop> {
        let time = self.observer.time().map_err(why)?.ok_or("the drive kept no time")?;
        let by_cause = time.by_cause.iter().map(|(cause, of)| (*cause, of.busy())).collect();
        Ok(Spent {
            seconds: time.total.busy(),
            elapsed: time.elapsed,
            user: self.user.0,
            user_reads: self.user.1,
            by_cause,
            counts: self.observer.stats().total,
        })
    }

    fn check(&self) -> Result<Vec<String>, Stop> {
        Ok(Vec::new())
    }

    fn fill(&self, row: &mut Row) {
        row.settings.insert("program".into(), self.told.clone());
        row.settings.insert("memory".into(), self.memory.clone());
    }

    fn zones(&self) -> (u32, u32) {
        let now = self.in_use();
        (now, self.peak.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_as_digits_and_moments_are_told_apart() {
        assert_eq!(hex(b"u\0\xff"), "7500ff");
        let at = |seconds: f64, user: f64, reads| Spent {
            seconds,
            user,
            user_reads: reads,
            by_cause: BTreeMap::from([("user_read", user), ("flush", seconds - user)]),
            ..Spent::default()
        };
        let since = at(5.0, 3.0, 9).since(&at(4.0, 2.0, 4));
        assert_eq!((since.seconds, since.user, since.user_reads), (1.0, 1.0, 5));
        // What had no more is not there.
        assert_eq!(since.by_cause, BTreeMap::from([("user_read", 1.0)]));
    }

    #[test]
    fn memory_is_as_much_as_of_ring() {
        for memtable in [MIB, 4 * MIB, 80 * MIB] {
            let plan =
                Plan { store: Stock::LevelDb, memtable, table: memtable, scale: 64, io_scale: 64, pace: Pace::Account };
            let ring = memtable + (3 * memtable).max(16 * MIB);
            assert_eq!(2 * memtable + plan.survivor(), ring);
        }
    }
}
