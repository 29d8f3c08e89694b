//! The zones of a drive as a picture: in a terminal one character for a zone, or for several where there are many; in a file,
//! every zone a square. And its commands over time.

mod chart;
mod png;
mod scene;
mod svg;

pub use chart::{Fastest, Trace};

use crate::output::{Failure, Outcome, count, number_of, size};
use imbrex_device::{Zone, ZoneState};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most rows of the picture.
const ROWS: usize = 24;
const EMPTY: char = '·';
const FULL: char = '█';
const CONVENTIONAL: char = '=';
const DEAD: char = '!';
/// An eighth to seven eighths written.
const PARTS: [char; 7] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇'];

/// How many zones are in each state.
#[derive(Default)]
struct Tally([u64; 8]);

impl Tally {
    fn of(zones: &[Zone]) -> Tally {
        let mut tally = Tally::default();
        zones.iter().for_each(|zone| tally.0[zone.state as usize] += 1);
        tally
    }
    fn get(&self, state: ZoneState) -> u64 {
        self.0[state as usize]
    }
}

/// Draws zones of `zone_size` bytes, `width` characters wide; `colour` for a terminal.
pub fn draw(zones: &[Zone], zone_size: u64, width: usize, colour: bool) -> String {
    let width = width.clamp(16, 400);
    // Empty zones behind the last one in use say nothing; what is in use gets their room.
    let used = zones.iter().rposition(|zone| zone.state != ZoneState::Empty).map_or(0, |last| last + 1);
    let per_cell = used.div_ceil(width * ROWS).max(1);
    let shown = used.next_multiple_of(per_cell * width).min(zones.len());
    let mut text = String::new();
    for row in zones[..shown].chunks(per_cell * width) {
        let cells: Vec<(char, &str)> = row.chunks(per_cell).map(cell).collect();
        text.push_str(&paint(&cells, colour));
        text.push('\n');
    }
    if shown < zones.len() {
        let behind = (zones.len() - shown) as u64;
        text.push_str(&format!("{EMPTY} … {} more empty zones\n", count(behind)));
    }
    text.push_str(&legend(zones, zone_size, per_cell));
    text
}

/// The character and colour of a group of zones.
fn cell(zones: &[Zone]) -> (char, &'static str) {
    let any = |wanted: fn(ZoneState) -> bool| zones.iter().any(|zone| wanted(zone.state));
    let colour = match () {
        _ if any(|state| matches!(state, ZoneState::ReadOnly | ZoneState::Offline)) => return (DEAD, "31"),
        _ if zones.iter().all(|zone| zone.state == ZoneState::Conventional) => return (CONVENTIONAL, "34"),
        _ if any(ZoneState::is_open) => "32",
        _ => "",
    };
    let (written, capacity) = zones.iter().fold((0u128, 0u128), |(written, capacity), zone| {
        (written + u128::from(zone.wp.unwrap_or(0)), capacity + u128::from(zone.capacity))
    });
    (level(written, capacity), colour)
}

fn level(part: u128, whole: u128) -> char {
    match part {
        0 => EMPTY,
        _ if part == whole => FULL,
        _ => PARTS[(part * 8 / whole.max(1)).clamp(1, 7) as usize - 1],
    }
}

/// A part of a zone as a character: full from 15 sixteenths on.
pub fn share(part: u64, whole: u64) -> char {
    let (part, whole) = (u128::from(part), u128::from(whole));
    level(if part * 16 >= whole * 15 { whole } else { part }, whole)
}

/// A row; runs of one colour share their escape codes.
fn paint(cells: &[(char, &str)], colour: bool) -> String {
    let mut text = String::new();
    let mut now = "";
    for (character, wanted) in cells {
        if colour && *wanted != now {
            text.push_str(&format!("\x1b[{}m", if wanted.is_empty() { "0" } else { wanted }));
            now = wanted;
        }
        text.push(*character);
    }
    if !now.is_empty() {
        text.push_str("\x1b[0m");
    }
    text
}

/// How many zones are in each state, by its name.
pub fn states(zones: &[Zone]) -> Vec<(&'static str, u64)> {
    let tally = Tally::of(zones);
    ZoneState::ALL.into_iter().map(|state| (state.name(), tally.get(state))).collect()
}

/// How many zones there are, and of what size.
fn size_line(zones: &[Zone], zone_size: u64) -> String {
    format!("{} of {}", number_of(zones.len() as u64, "zone"), size(zone_size))
}

/// What is in zones, where somebody knows.
#[derive(Default)]
pub struct Contents {
    /// Kinds of what is there, by number.
    pub kinds: Vec<String>,
    /// By number of the zone.
    pub zones: BTreeMap<u32, Content>,
    /// What letters and frames say.
    pub notes: Vec<String>,
}

impl Contents {
    /// What another engine has in other zones is there, too.
    pub fn and(mut self, other: Contents) -> Contents {
        let before = self.kinds.len();
        self.kinds.extend(other.kinds);
        self.zones.extend(other.zones.into_iter().map(|(zone, of)| (zone, Content { kind: before + of.kind, ..of })));
        self.notes.extend(other.notes);
        self
    }
}

/// What is in a zone.
#[derive(Clone, Copy)]
pub struct Content {
    /// One of the [`Contents::kinds`].
    pub kind: usize,
    /// Bytes that are of use.
    pub live: u64,
    /// Bytes that are written.
    pub written: u64,
    /// What tells it from others of its kind.
    pub letter: Option<char>,
    /// It is one of those that a frame is round.
    pub framed: bool,
}

/// Draws the zones of a drive into a file, whose name says as what.
pub fn save(path: &Path, drive: &str, zones: &[Zone], zone_size: u64, contents: Option<&Contents>) -> Outcome {
    paint_to(path, &scene::scene(drive, zones, zone_size, contents))
}

/// Draws a trace into a directory: places and throughput over time, as SVG and PNG. Returns the files.
pub fn plot(directory: &Path, trace: &Trace<'_>) -> Result<Vec<PathBuf>, Failure> {
    std::fs::create_dir_all(directory)
        .map_err(|e| Failure::failed(format!("{}: {e}; draw somewhere else", directory.display())))?;
    let mut files = Vec::new();
    for (name, scene) in [("places", chart::places(trace)), ("throughput", chart::throughput(trace))] {
        for kind in ["svg", "png"] {
            let path = directory.join(format!("{name}.{kind}"));
            paint_to(&path, &scene)?;
            files.push(path);
        }
    }
    Ok(files)
}

fn paint_to(path: &Path, picture: &scene::Scene) -> Outcome {
    let bytes = match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("svg") => svg::paint(picture).into_bytes(),
        Some("png") => png::paint(picture).map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?,
        _ => {
            let sentence = format!("{}: pictures are PNG or SVG; end the name in .png or .svg", path.display());
            return Err(Failure::usage(sentence));
        }
    };
    std::fs::write(path, bytes)
        .map_err(|e| Failure::failed(format!("{}: {e}; write the picture somewhere else", path.display())))
}

fn legend(zones: &[Zone], zone_size: u64, per_cell: usize) -> String {
    let tally = Tally::of(zones);
    let n = |state| count(tally.get(state));
    let implicit = tally.get(ZoneState::ImplicitlyOpen);
    let explicit = tally.get(ZoneState::ExplicitlyOpen);
    let written: u64 = zones.iter().filter_map(|zone| zone.wp).sum();
    let unit = match per_cell {
        1 => format!("one zone of {}", size(zone_size)),
        _ => format!("{per_cell} zones of {}", size(zone_size)),
    };
    let mut parts = vec![
        format!("{CONVENTIONAL} conventional {}", n(ZoneState::Conventional)),
        format!("{EMPTY} empty {}", n(ZoneState::Empty)),
        format!("{}–{} partly written", PARTS[0], PARTS[6]),
        format!("(open {}, closed {})", count(implicit + explicit), n(ZoneState::Closed)),
        format!("{FULL} full {}", n(ZoneState::Full)),
    ];
    let (read_only, offline) = (tally.get(ZoneState::ReadOnly), tally.get(ZoneState::Offline));
    if read_only + offline > 0 {
        parts.push(format!("{DEAD} read-only {read_only}, offline {offline}"));
    }
    format!(
        "each character is {unit}; {}, {} written in sequential ones\n{}",
        number_of(zones.len() as u64, "zone"),
        size(written),
        parts.join("  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::ZoneId;

    fn zone(state: ZoneState, wp: u64) -> Zone {
        Zone { id: ZoneId(0), state, capacity: 80, wp: (state != ZoneState::Conventional).then_some(wp) }
    }

    #[test]
    fn each_state_has_its_character() {
        use ZoneState::*;
        let zones = [
            zone(Conventional, 0),
            zone(Empty, 0),
            zone(ImplicitlyOpen, 1),
            zone(Closed, 40),
            zone(ExplicitlyOpen, 79),
            zone(Full, 80),
            zone(ReadOnly, 5),
            zone(Offline, 0),
        ];
        let text = draw(&zones, 80, 16, false);
        assert_eq!(text.lines().next().unwrap(), "=·▁▄▇█!!");
        for part in ["one zone of 80", "8 zones", "conventional 1", "open 2, closed 1", "full 1", "offline 1"] {
            assert!(text.contains(part), "{text} lacks {part:?}");
        }
        let colours = draw(&zones, 80, 16, true);
        assert!(colours.contains("\x1b[34m=") && colours.contains("\x1b[31m!!\x1b[0m"), "{colours:?}");
    }

    #[test]
    fn many_zones_fit_and_empty_ones_take_no_room() {
        let mut zones = vec![zone(ZoneState::Empty, 0); 52_156];
        zones[..524].fill(zone(ZoneState::Conventional, 0));
        zones[524] = zone(ZoneState::Full, 80);
        let text = draw(&zones, 256 << 20, 80, false);
        assert!(text.lines().count() < 12 && text.contains("more empty zones"), "{text}");
        zones[52_000] = zone(ZoneState::Closed, 1);
        let text = draw(&zones, 256 << 20, 80, false);
        assert!(text.lines().count() <= ROWS + 3);
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        assert!(draw(&[], 1, 80, false).contains("0 zones"));
    }

    #[test]
    fn a_group_is_full_only_when_all_of_it_is() {
        let full = [zone(ZoneState::Full, 80), zone(ZoneState::Full, 80)];
        assert_eq!(cell(&full).0, FULL);
        assert_eq!(cell(&[full[0], zone(ZoneState::Closed, 79)]).0, '▇');
        assert_eq!(cell(&[full[0], zone(ZoneState::Conventional, 0)]).0, '▄');
        assert_eq!(cell(&[full[0], zone(ZoneState::Offline, 0)]).0, DEAD);
    }
}
