//! The four streams on F2FS and Zoned XFS, for `chunk-multistream`: played in the kernel VM by `imbrex bench streams`, on a zoned `null_blk` that keeps what is written
//! in memory, so zones and chunks are so many times smaller; then what the kernel asked of that device is played on the model, its zones evenly over
//! the whole stroke.
//!
//! Where a zone is so many times smaller, opening, closing and resetting it takes so many times less there: for a byte it is what it is on the drive.

use super::super::blocktrace::{Command, Drive, Order, play_over_time};
use super::super::hosts::workplace;
use super::super::result::Row;
use super::super::streams::{Answer, Both};
use super::super::{Run, Stop};
use super::streams::{Asked, Cleaned, OverTime, Phase, Played};
use super::zoned::{in_the_vm, load};
use super::{Kernel, Ran, drive_name};
use imbrex_emulator::time::Parameter;
use imbrex_emulator::{Op, Profile};

/// What is played in the VM.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Zones and chunks are so many times smaller.
    part: u64,
    zones: u64,
    /// What is written over, in capacities.
    over: f64,
    /// Milliseconds after which the device answers: about what an append takes on a disk. What comes meanwhile gathers as it would there.
    late: u32,
}

impl Size {
    /// Of so many zones a file system keeps some for itself and chunks that are open take others; about 96 are left, as for the store.
    fn of(short: bool) -> Size {
        let (part, zones, over, late) = if short { (64, 104, 1.2, 1) } else { (16, 160, 2.0, 10) };
        Size { part, zones, over, late }
    }
}

/// Bytes of memory that a row takes: the VM's, which has the device.
pub(super) const MEMORY: u64 = 6 << 30;

/// The drive with zones so many times smaller, on which what is done to one takes so many times less.
fn smaller(profile: &Profile, part: u64) -> Profile {
    let of_zones = |name: &str| matches!(name, "zone_open_ms" | "zone_close_ms" | "zone_finish_ms" | "zone_reset_ms");
    let shrink = |one: &Parameter| {
        let value = if of_zones(&one.name) { one.value / part as f64 } else { one.value };
        Parameter { value, ..one.clone() }
    };
    let parameters = profile.parameters.iter().map(shrink).collect();
    Profile { zone_size: profile.zone_size / part, parameters, ..profile.clone() }
}

/// When the drive had answered everything that the VM's device had up to `moment`.
fn by_the_drive(moments: &[(f64, f64)], moment: f64) -> f64 {
    let behind = moments.partition_point(|(vm, _)| *vm <= moment);
    behind.checked_sub(1).and_then(|last| moments.get(last)).map_or(0.0, |(_, drive)| *drive)
}

/// What the VM noted of F2FS's cleaner: seconds, dirty segments, calls in the foreground and behind. A line that is cut off ends it.
fn cleaner(text: &str) -> Vec<Cleaned> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let at = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let (dirty_segments, foreground, behind) = (number()?, number()?, number()?);
        Some(Cleaned { at, dirty_segments, calls: foreground.checked_add(behind)? })
    };
    text.lines().map_while(line).collect()
}

/// One phase on the model; `cleaned` is what was noted in it.
fn phase(drive: Drive, answer: Answer, commands: &[Command], cleaned: &[Cleaned], place: impl Fn(u64) -> u64) -> Phase {
    let (ran, moments) = play_over_time(drive, commands, Order::AsAnswered, place);
    let bytes = answer.over_time.iter().map(|(at, bytes)| (by_the_drive(&moments, answer.began + at), *bytes));
    let cleaned = cleaned.iter().map(|one| Cleaned { at: by_the_drive(&moments, one.at), ..*one });
    let over_time = OverTime { bytes: bytes.collect(), cleaned: cleaned.collect() };
    let ran = Ran { operations: answer.appends, payload: answer.payload, ..ran };
    Phase { ran, bytes: answer.bytes, deleted: answer.deleted, over_time }
}

fn resets(commands: &[Command]) -> u64 {
    commands.iter().filter(|one| one.op == Op::Reset).count() as u64
}

/// The row, and what happened when.
pub(super) fn streams(run: &Run, profile: &Profile, kernel: Kernel, asked: Asked) -> Result<(Row, OverTime), Stop> {
    if asked.paced {
        return Err(Stop::Failed(
            "it cleans while its device idles, and how much one in a VM idles says nothing of a disk; it is played as fast as it goes".into(),
        ));
    }
    let Size { part, zones, over, late } = Size::of(run.options.short);
    let dir = workplace(&run.options.work)?;
    let percent = (asked.filled * 100.0).round() as u32;
    let what = format!("{}:{part}:{percent}:{over}", if asked.cache { 64 } else { 0 });
    let conventional = in_the_vm(run, kernel, dir.path(), late, ["streams".to_owned(), zones.to_string(), what])?;
    let (both, commands): (Both, Vec<Command>) = load(dir.path(), "streams")?;
    let small = smaller(profile, part);
    // Its own tables are where the drive begins, all others evenly over the zones that are left.
    let first = u64::from(profile.conventional_zones);
    let all = profile.capacity / profile.zone_size - first;
    let count = zones.saturating_sub(conventional).max(1);
    let place = |zone: u64| match zone.checked_sub(conventional) {
        Some(rank) => (first + rank * all / count) * profile.zone_size,
        None => zone * small.zone_size,
    };
    let began = both.deleting.began;
    let (filling, behind) = commands.split_at(commands.partition_point(|one| one.issued < began));
    let cleaned = cleaner(&std::fs::read_to_string(dir.path().join("streams.cleaning")).unwrap_or_default());
    let (before, after) = cleaned.split_at(cleaned.partition_point(|one| one.at < began));
    let drive = || Drive::of(&small, asked.cache, small.zone_size, conventional);
    let clean = phase(drive()?, both.clean, filling, before, place);
    let deleting = phase(drive()?, both.deleting, behind, after, place);
    let settings = vec![
        (
            "smaller than the store's rows",
            format!(
                "{} zones of {} MiB count as capacity, of {zones}, {conventional} of them conventional; chunks {part} times shorter, and what is done to a zone takes {part} times less",
                both.capacity / small.zone_size,
                small.zone_size >> 20,
            ),
        ),
        ("an append", "with fdatasync".into()),
        ("clock", "virtual: what the kernel of the VM asked of its device, again".into()),
        ("device in the VM", format!("null_blk; it answers after {late} ms")),
    ];
    let played = Played { clean, deleting, capacity: both.capacity, settings };
    let mut row = played.row(&drive_name(kernel, profile));
    row.zone_resets = Some(resets(&commands));
    let each = |phase: &Phase| phase.ran.written as f64 / phase.bytes.max(1) as f64;
    row.figures.insert("bytes written for each of a file, clean".into(), each(&played.clean));
    row.figures.insert("WA of cleaning".into(), each(&played.deleting));
    row.figures.insert(
        "bytes read for each of a file, deleting".into(),
        played.deleting.ran.read as f64 / played.deleting.bytes.max(1) as f64,
    );
    Ok((row, played.over_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_to_a_zone_takes_as_long_for_a_byte_as_on_the_drive() {
        let whole = Profile::named("seagate-st20000nm001j").unwrap();
        let small = smaller(&whole, 16);
        let of = |profile: &Profile, name: &str| {
            profile.parameters.iter().find(|one| one.name == name).map(|one| one.value).unwrap()
        };
        assert_eq!((small.zone_size, small.capacity), (whole.zone_size / 16, whole.capacity));
        for name in ["zone_open_ms", "zone_close_ms", "zone_finish_ms", "zone_reset_ms"] {
            assert!(of(&whole, name) > 0.0);
            assert_eq!(of(&small, name), of(&whole, name) / 16.0, "{name}");
        }
        let others = |profile: &Profile| -> Vec<f64> {
            let kept = profile.parameters.iter().filter(|one| !one.name.starts_with("zone_"));
            kept.map(|one| one.value).collect()
        };
        assert_eq!(others(&small), others(&whole));
    }

    #[test]
    fn what_f2fs_says_of_its_cleaner_is_understood_up_to_where_it_is_cut_off() {
        let said = cleaner("12.34 40 1 2\n13.35 44 1 3 \n14.");
        assert_eq!(
            said,
            [(12.34, 40, 3), (13.35, 44, 4)].map(|(at, dirty_segments, calls)| Cleaned { at, dirty_segments, calls })
        );
        assert!(cleaner("").is_empty() && cleaner("cat: no such file\n12 1 1 1").is_empty());
    }

    #[test]
    fn an_append_is_answered_once_the_drive_has_what_the_vm_had() {
        let moments = [(10.0, 0.5), (10.2, 0.5), (11.0, 2.0)];
        let at = |moment| by_the_drive(&moments, moment);
        assert_eq!([at(9.0), at(10.0), at(10.9), at(11.0), at(99.0)], [0.0, 0.5, 0.5, 2.0, 2.0]);
    }
}
