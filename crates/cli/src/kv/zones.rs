//! What key-value stores have in their zones, as text, JSON and a picture: which level, which partition, and how much of it counts.

use super::Store;
use crate::engine::Named;
use crate::output::{count, number_of};
use crate::picture::{Content, Contents, share};
use imbrex_kv::{Holds, Kv, ZoneContent};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Zones in a row of the text.
const ROW: usize = 16;
const LEGEND: &str = "M metadata, L log, 0 to f level, B bottom, - no zone of the store\n\
                      then a, b, … partition in the order of keys, or * window of a level; then how full the zone is of what counts";

/// Kinds of a picture; levels come behind.
const KINDS: [&str; 3] = ["metadata", "log", "bottom"];

/// The letter of a partition, by its place in the order of keys.
fn letter(part: usize) -> char {
    ('a'..='z').chain('A'..='Z').nth(part).unwrap_or('+')
}

/// What stands beside the level.
fn mark(zone: &ZoneContent) -> Option<char> {
    if zone.window { Some('*') } else { zone.part.map(letter) }
}

fn level(zone: &ZoneContent) -> char {
    match zone.holds {
        Holds::Metadata => 'M',
        Holds::Log => 'L',
        Holds::Tables(None) => 'B',
        Holds::Tables(Some(level)) => char::from_digit(level.into(), 16).unwrap_or('?'),
    }
}

/// Draws the rows that have a zone of the store.
pub fn draw(zones: &[ZoneContent]) -> String {
    let last = zones.last().map_or(0, |zone| zone.zone as usize + 1);
    let mut cells = vec!["-  ".to_owned(); last];
    for zone in zones {
        cells[zone.zone as usize] =
            format!("{}{}{}", level(zone), mark(zone).unwrap_or(' '), share(zone.live, zone.capacity));
    }
    let rows = cells.chunks(ROW).enumerate().filter(|(_, row)| row.iter().any(|cell| !cell.starts_with('-')));
    let rows = rows.map(|(at, row)| format!("{:>6}  {}", at * ROW, row.join(" ")));
    let rows: Vec<String> = rows.map(|row| row.trim_end().to_owned()).collect();
    format!("{}\n{LEGEND}", rows.join("\n"))
}

/// What a zone holds, for a list.
pub fn describe(zone: &ZoneContent) -> String {
    let mut text = match zone.holds {
        Holds::Metadata => return "metadata".into(),
        Holds::Log => "log".into(),
        Holds::Tables(None) => "bottom".into(),
        Holds::Tables(Some(level)) => format!("level {level}"),
    };
    if let Some(part) = zone.part {
        text += &format!(", partition {}", count(part as u64));
    }
    if zone.window {
        text += ", in the window";
    }
    let percent = (zone.live as f64 / zone.written.max(1) as f64 * 100.0).round().min(100.0);
    format!("{text}, {percent} % of what is written counts")
}

/// A phrase for each kind of zone: how many there are, and how much of them counts. Levels come from the newest down to the bottom.
pub fn levels(zones: &[ZoneContent]) -> String {
    let mut kinds: BTreeMap<(u8, String), (u64, u64, u64)> = BTreeMap::new();
    for zone in zones {
        let kind = match zone.holds {
            Holds::Log => (0, "log".to_owned()),
            Holds::Tables(Some(level)) => (level.saturating_add(1), format!("level {level}")),
            Holds::Tables(None) => (u8::MAX - 1, "bottom".to_owned()),
            Holds::Metadata => (u8::MAX, "metadata".to_owned()),
        };
        let (zones, live, written) = kinds.entry(kind).or_default();
        (*zones, *live, *written) = (*zones + 1, *live + zone.live, *written + zone.written);
    }
    let phrase = |((_, name), (zones, live, written)): (&(u8, String), &(u64, u64, u64))| {
        let percent = (*live as f64 / (*written).max(1) as f64 * 100.0).round().min(100.0);
        let counts = if name == "metadata" { String::new() } else { format!(", {percent} % of it counts") };
        format!("{name} in {}{counts}", number_of(*zones, "zone"))
    };
    kinds.iter().map(phrase).collect::<Vec<_>>().join("; ")
}

/// The same as fields.
pub fn fields(zone: &ZoneContent) -> Value {
    let (holds, level) = match zone.holds {
        Holds::Metadata => ("metadata", Value::Null),
        Holds::Log => ("log", Value::Null),
        Holds::Tables(None) => ("tables", "bottom".into()),
        Holds::Tables(Some(level)) => ("tables", level.into()),
    };
    json!({ "holds": holds, "level": level, "partition": zone.part, "window": zone.window, "tables": zone.tables,
            "live": zone.live, "written": zone.written, "capacity": zone.capacity })
}

/// Zones of the store of a drive, where it has one that nobody uses.
pub fn contents(drive: &str) -> Option<Contents> {
    if imbrex_drives::Locator::is_memory(drive) {
        return None;
    }
    let store: Kv = Store { named: Named::of(drive) }.look().ok()?;
    Some(coloured(&store.zones().ok()?))
}

fn coloured(zones: &[ZoneContent]) -> Contents {
    let kind = |zone: &ZoneContent| match zone.holds {
        Holds::Metadata => 0,
        Holds::Log => 1,
        Holds::Tables(None) => 2,
        Holds::Tables(Some(level)) => KINDS.len() + usize::from(level),
    };
    let content = |zone: &ZoneContent| {
        let (live, written) = (zone.live, zone.written);
        (zone.zone, Content { kind: kind(zone), live, written, letter: zone.part.map(letter), framed: zone.window })
    };
    let levels = zones.iter().map(|zone| kind(zone) + 1).max().unwrap_or(0).saturating_sub(KINDS.len());
    let names = KINDS.iter().map(|name| (*name).to_owned()).chain((0..levels).map(|level| format!("level {level}")));
    let mut notes = Vec::new();
    if zones.iter().any(|zone| zone.part.is_some()) {
        notes.push("letters are partitions in the order of keys".to_owned());
    }
    if zones.iter().any(|zone| zone.window) {
        notes.push("a frame is the window of a level".to_owned());
    }
    Contents { kinds: names.collect(), zones: zones.iter().map(content).collect(), notes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(zone: u32, holds: Holds, live: u64) -> ZoneContent {
        ZoneContent { zone, holds, part: None, live, written: 80, capacity: 80, tables: 1, window: false }
    }

    fn zones() -> Vec<ZoneContent> {
        vec![
            zone(2, Holds::Metadata, 80),
            zone(3, Holds::Log, 20),
            ZoneContent { part: Some(27), ..zone(4, Holds::Tables(Some(0)), 40) },
            ZoneContent { window: true, ..zone(17, Holds::Tables(Some(12)), 1) },
            zone(18, Holds::Tables(None), 0),
        ]
    }

    #[test]
    fn each_zone_has_its_level_its_partition_and_how_full_it_is() {
        let text = draw(&zones());
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "     0  -   -   M █ L ▂ 0B▄ -   -   -   -   -   -   -   -   -   -   -");
        assert_eq!(rows[1], "    16  -   c*▁ B ·");
        // Most of a large drive is not the store's.
        assert_eq!(draw(&[zone(50_000, Holds::Log, 20)]), format!(" 50000  L ▂\n{LEGEND}"));
        assert_eq!(draw(&[]), format!("\n{LEGEND}"));
        assert_eq!((letter(0), letter(25), letter(51), letter(52)), ('a', 'z', 'Z', '+'));
    }

    #[test]
    fn lists_and_programs_get_the_same() {
        let all = zones();
        assert_eq!(describe(&all[0]), "metadata");
        assert_eq!(describe(&all[2]), "level 0, partition 27, 50 % of what is written counts");
        assert_eq!(describe(&all[3]), "level 12, in the window, 1 % of what is written counts");
        let level = |at: usize| fields(&all[at])["level"].clone();
        assert_eq!((level(1), level(3), level(4)), (Value::Null, 12.into(), "bottom".into()));
        assert_eq!((&fields(&all[2])["partition"], &fields(&all[2])["holds"]), (&27.into(), &"tables".into()));
    }

    #[test]
    fn a_picture_has_a_colour_for_each_level() {
        let contents = coloured(&zones());
        assert_eq!(contents.kinds.len(), 3 + 13);
        let kind = |zone: u32| contents.kinds[contents.zones[&zone].kind].as_str();
        assert_eq!([2, 3, 4, 17, 18].map(kind), ["metadata", "log", "level 0", "level 12", "bottom"]);
        assert_eq!((contents.zones[&4].letter, contents.zones[&17].framed), (Some('B'), true));
        assert_eq!((contents.notes.len(), coloured(&zones()[..2]).notes.len()), (2, 0));
    }
}
