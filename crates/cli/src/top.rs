//! `imbrex top`: a drive while somebody uses it: zones, throughput by cause, and the levels of its key-value store.
//!
//! Emulated drives and banded disks keep their counters beside their data, so everything is seen beside the process that has the drive. Kernel
//! devices count nothing by cause: of those only the zones are shown (`IMBREX_METRICS` tells the rest from inside the program).
//! On a terminal the picture is drawn again and again until Ctrl-C; otherwise a line comes for every interval.

use crate::kv::zones as kv;
use crate::output::{Outcome, count, print, size, terminal_width};
use crate::{drive, picture};
use imbrex_emulator::time::TimeStats;
use imbrex_emulator::{Counts, Stats};
use imbrex_kv::ZoneContent;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  imbrex top drive.img\n  imbrex top drive.img --count 10 --interval 5 >> usage.txt"
)]
pub struct Args {
    /// The drive's image, a banded disk as banded:disk.img, or a zoned block device as /dev/sdb.
    drive: String,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// End after this many looks.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print JSON, one line for each look.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write seconds between 0.05 and 3600".into()),
    }
}

/// Lines that zones of a key-value store may take.
const MOST_LINES: usize = 24;

/// What happened in an interval, per second.
struct Rates {
    seconds: f64,
    total: Counts,
    by_cause: BTreeMap<&'static str, Counts>,
    time: Option<Head>,
}

/// What the head of a drive that keeps time did in an interval, in drive seconds.
#[derive(Serialize)]
struct Head {
    elapsed: f64,
    busy: f64,
    seek: f64,
    rotation: f64,
    transfer: f64,
    zone_ops: f64,
    cleaning: f64,
}

impl Head {
    /// Counters that were reset in between say nothing.
    fn between(old: &TimeStats, new: &TimeStats) -> Option<Head> {
        let of = |part: fn(&TimeStats) -> f64| (part(new) - part(old)).max(0.0);
        (new.elapsed > old.elapsed).then(|| Head {
            elapsed: of(|time| time.elapsed),
            busy: of(|time| time.total.busy()),
            seek: of(|time| time.total.seek),
            rotation: of(|time| time.total.rotation),
            transfer: of(|time| time.total.transfer),
            zone_ops: of(|time| time.total.zone_ops),
            cleaning: of(|time| time.total.cleaning),
        })
    }

    fn line(&self) -> String {
        let part = |seconds: f64| format!("{:.0} %", 100.0 * seconds / self.elapsed);
        format!(
            "in {:.2} s of the drive's time its head was busy for {}: seek {}, rotation {}, transfer {}, zone operations {}, cleaning {}",
            self.elapsed,
            part(self.busy),
            part(self.seek),
            part(self.rotation),
            part(self.transfer),
            part(self.zone_ops),
            part(self.cleaning)
        )
    }
}

impl Rates {
    fn between(old: &Stats, new: &Stats, seconds: f64) -> Rates {
        let zero = Counts::default();
        let since = |name: &&'static str, counts: &Counts| counts.since(old.by_cause.get(name).unwrap_or(&zero));
        let by_cause = new.by_cause.iter().map(|(name, counts)| (*name, since(name, counts)));
        let busy = by_cause.filter(|(_, counts)| counts.fields().iter().any(|(_, n)| *n > 0)).collect();
        Rates { seconds: seconds.max(0.001), total: new.total.since(&old.total), by_cause: busy, time: None }
    }

    fn timed(self, old: Option<&TimeStats>, new: Option<&TimeStats>) -> Rates {
        Rates { time: old.zip(new).and_then(|(old, new)| Head::between(old, new)), ..self }
    }

    fn per_second(&self, n: u64) -> u64 {
        (n as f64 / self.seconds).round() as u64
    }

    fn row(&self, name: &str, c: &Counts) -> String {
        let bytes = |n| format!("{}/s", size(self.per_second(n)));
        let rate = |n| count(self.per_second(n));
        format!(
            "{name:<12} {:>11} {:>11} {:>10} {:>10} {:>9} {:>8} {:>7}",
            bytes(c.bytes_written),
            bytes(c.bytes_read),
            rate(c.writes),
            rate(c.reads),
            rate(c.flushes),
            rate(c.zone_resets),
            count(c.errors + c.rule_violations)
        )
    }

    fn table(&self) -> String {
        let mut lines = vec![format!(
            "{:<12} {:>11} {:>11} {:>10} {:>10} {:>9} {:>8} {:>7}",
            "cause", "written", "read", "writes/s", "reads/s", "flushes/s", "resets/s", "failed"
        )];
        lines.extend(self.by_cause.iter().map(|(name, counts)| self.row(name, counts)));
        lines.push(self.row("all", &self.total));
        lines.extend(self.time.as_ref().map(|head| format!("\n{}", head.line())));
        lines.join("\n")
    }

    fn line(&self) -> String {
        let c = &self.total;
        let busiest = self.by_cause.iter().max_by_key(|(_, c)| c.bytes_written + c.bytes_read);
        format!(
            "written {}/s, read {}/s, {} commands/s, {} flushes/s, {} resets/s, failed {}, most by {}",
            size(self.per_second(c.bytes_written)),
            size(self.per_second(c.bytes_read)),
            count(self.per_second(c.writes + c.reads)),
            count(self.per_second(c.flushes)),
            count(self.per_second(c.zone_resets)),
            count(c.errors + c.rule_violations),
            busiest.map_or("nobody", |(name, _)| name)
        ) + &self.time.as_ref().map_or_else(String::new, |head| format!("; {}", head.line()))
    }

    fn json(&self) -> Value {
        json!({ "seconds": self.seconds, "total": self.total, "by_cause": self.by_cause, "time": self.time })
    }
}

pub fn run(args: Args) -> Outcome {
    let live = std::io::stdout().is_terminal() && !args.json;
    let stop = Arc::new(AtomicBool::new(false));
    if live {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, stop.clone()).map_err(crate::output::Failure::failed)?;
        }
    }
    let screen = live.then(Screen::new);
    let done = watch(&args, live, &stop);
    drop(screen);
    done
}

fn watch(args: &Args, live: bool, stop: &AtomicBool) -> Outcome {
    let mut before = drive::counted(&args.drive)?;
    let mut when = Instant::now();
    let mut looks = 0;
    while args.count.is_none_or(|most| looks < most) {
        if !pause(Duration::from_secs_f64(args.interval), stop) {
            return Ok(());
        }
        let now = drive::counted(&args.drive)?;
        let seconds = when.elapsed().as_secs_f64();
        when = Instant::now();
        let both = now.stats.as_ref().zip(before.stats.as_ref());
        let rates = both.map(|(new, old)| Rates::between(old, new, seconds));
        let rates = rates.map(|rates| rates.timed(before.time.as_ref(), now.time.as_ref()));
        show(args, rates.as_ref(), now.holder, live)?;
        before = now;
        looks += 1;
    }
    Ok(())
}

/// False: it is time to go.
fn pause(time: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    false
}

fn show(args: &Args, rates: Option<&Rates>, holder: Option<u32>, live: bool) -> Outcome {
    let (zones, zone_size) = drive::look(&args.drive)?;
    let pairs = drive::pairs(&args.drive);
    let user = holder.map_or("nobody that says so has it open".into(), |pid| format!("process {pid} has it open"));
    if args.json {
        let mut facts = json!({ "drive": args.drive, "in_use_by": holder, "zones": picture::states(&zones).into_iter().collect::<BTreeMap<_, _>>() });
        if let Some(rates) = rates {
            facts["rates"] = rates.json();
        }
        if let Some(pairs) = &pairs {
            let fields = |zone: &ZoneContent| (zone.zone.to_string(), kv::fields(zone));
            facts["pairs"] = pairs.iter().map(fields).collect::<serde_json::Map<_, _>>().into();
        }
        return print(facts);
    }
    if live {
        let colour = std::env::var_os("NO_COLOR").is_none();
        let picture = picture::draw(&zones, zone_size, terminal_width().unwrap_or(80), colour);
        let none = || "this device counts nothing by cause; IMBREX_METRICS asks the program that uses it".to_owned();
        let table = rates.map_or_else(none, Rates::table);
        // What is drawn of a large store would not stand on the screen.
        let drawn = |pairs: &[ZoneContent]| Some(kv::draw(pairs)).filter(|drawn| drawn.lines().count() <= MOST_LINES);
        let pairs = pairs.map(|pairs| format!("\n\n{}\n{}", kv::levels(&pairs), drawn(&pairs).unwrap_or_default()));
        // From the upper left corner, each line to its end, and nothing of the last picture below.
        let page = format!("{}: {user}; Ctrl-C ends\n\n{picture}\n\n{table}{}", args.drive, pairs.unwrap_or_default());
        return print(format_args!("\x1b[H{}\x1b[K\x1b[J", page.replace('\n', "\x1b[K\n")));
    }
    let states: Vec<String> =
        picture::states(&zones).into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    let line = rates.map_or_else(String::new, |rates| format!("{}; ", rates.line()));
    let pairs = pairs.map_or_else(String::new, |pairs| format!("; pairs: {}", kv::levels(&pairs)));
    print(format_args!("{}: {line}{}; {user}{pairs}", args.drive, states.join(", ")))
}

/// The terminal's other screen, so that what stood there before comes back.
struct Screen;

impl Screen {
    fn new() -> Screen {
        // A terminal that goes away ends the command at its next line.
        let _ = print("\x1b[?1049h\x1b[?25l\x1b[2J");
        Screen
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = print("\x1b[?25h\x1b[?1049l");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::{AlignedBuf, Cause, ZonedDevice};
    use imbrex_emulator::time::Pace;
    use imbrex_emulator::{Config, Emulator, Overrides};

    #[test]
    fn rates_are_what_happened_in_between() {
        let emulator = Emulator::memory(&Config::tiny()).unwrap();
        let at = u64::from(emulator.geometry().zones - 1) * emulator.geometry().zone_size;
        let write = |i: u64| emulator.write_at(&AlignedBuf::zeroed(8192), at + i * 8192, Cause::Wal.into()).unwrap();
        write(0);
        let old = emulator.stats();
        (1..5).for_each(write);
        let rates = Rates::between(&old, &emulator.stats(), 2.0);
        assert_eq!(rates.by_cause.keys().collect::<Vec<_>>(), [&"wal"]);
        says(&rates.line(), &["written 16K/s", "2 commands/s", "failed 0", "most by wal"]);
        says(&rates.table(), &["16K/s", "wal"]);
        assert_eq!(rates.json()["total"]["writes"], 4);
        assert!(rates.json()["time"].is_null());
    }

    #[test]
    fn what_the_head_did_is_what_it_did_in_between() {
        let over = Overrides { capacity: Some(1 << 30), scale: Some(64), ..Overrides::default() };
        let emulator = Emulator::memory(&Config::named("hgst-hsh721414al", &over).unwrap()).unwrap();
        emulator.keep_own_time(Pace::Account).unwrap();
        let read = |at: u64| emulator.read_at(&mut AlignedBuf::zeroed(4096), at, Cause::UserRead.into()).unwrap();
        let (counts, none) = (emulator.stats(), emulator.time().unwrap());
        read(512 << 20);
        let one = emulator.time().unwrap();
        (0..10).for_each(|i| read(i * 7 % 10 * (100 << 20)));
        let many = emulator.time().unwrap();
        let rates = |old, new| Rates::between(&counts, &counts, 1.0).timed(Some(old), Some(new));
        let head = rates(&one, &many).time.unwrap();
        assert!((head.elapsed - (many.elapsed - one.elapsed)).abs() < 1e-12 && head.busy <= head.elapsed);
        assert!((head.seek + head.rotation + head.transfer - head.busy).abs() < 1e-9 && head.seek > 0.0);
        says(&rates(&none, &many).line(), &["most by nobody; in 0.00 s of the drive's time", "seek"]);
        assert!(rates(&many, &one).time.is_none() && rates(&one, &one).time.is_none());
    }

    fn says(text: &str, parts: &[&str]) {
        parts.iter().for_each(|part| assert!(text.contains(part), "{text} lacks {part}"));
    }
}
