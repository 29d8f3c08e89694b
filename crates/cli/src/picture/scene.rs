//! A picture of a drive's zones as shapes: pure. [`super::svg`] and [`super::png`] paint them.

use super::{Tally, size_line};
use crate::output::{count, size};
use imbrex_device::{Zone, ZoneState};

/// A colour, red, green and blue.
pub type Colour = [u8; 3];

pub const PAPER: Colour = [255, 255, 255];
pub const INK: Colour = [38, 42, 51];
pub const FAINT: Colour = [232, 234, 239];
const CONVENTIONAL: Colour = [92, 126, 201];
const FULL: Colour = [70, 84, 108];
const PART: Colour = [120, 140, 170];
const OPEN: Colour = [61, 160, 92];
const DEAD: Colour = [206, 62, 54];

/// What is drawn, in pixels from the upper left corner.
pub enum Shape {
    Box {
        x: u32,
        y: u32,
        width: u32,
        height: u32,
        colour: Colour,
    },
    /// ASCII, `y` is its base line. 6 pixels a character.
    Text {
        x: u32,
        y: u32,
        text: String,
        colour: Colour,
    },
}

/// All of a picture.
pub struct Scene {
    pub width: u32,
    pub height: u32,
    pub paper: Colour,
    pub shapes: Vec<Shape>,
}

/// Pixels round everything.
pub const MARGIN: u32 = 20;
/// Pixels of a line of text.
pub const LINE: u32 = 18;
/// Pixels that the zones are wide at most.
const WIDE: u32 = 1200;

/// Columns and pixels of a cell for this many zones: small drives get large cells, large ones small ones.
fn grid(zones: usize) -> (u32, u32) {
    let columns = ((zones as f64 * 1.8).sqrt().ceil() as u32).max(16);
    let cell = (WIDE / columns).clamp(3, 28);
    (columns.max(640 / cell), cell)
}

/// The colours of a zone: of what is written, and of the rest.
fn colours(zone: &Zone) -> (Colour, Colour) {
    match zone.state {
        ZoneState::Conventional => (CONVENTIONAL, CONVENTIONAL),
        ZoneState::ReadOnly | ZoneState::Offline => (DEAD, DEAD),
        ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen => (OPEN, FAINT),
        ZoneState::Full => (FULL, FULL),
        ZoneState::Empty | ZoneState::Closed => (PART, FAINT),
    }
}

/// What the font has of a text.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// Draws zones of `zone_size` bytes.
pub fn scene(drive: &str, zones: &[Zone], zone_size: u64) -> Scene {
    let (columns, cell) = grid(zones.len());
    let gap = u32::from(cell > 4);
    let rows = (zones.len() as u32).div_ceil(columns).max(1);
    let width = columns * cell + 2 * MARGIN;
    let mut shapes = Vec::new();
    let text = |x, y, text: String| Shape::Text { x, y, text, colour: INK };
    shapes.push(text(MARGIN, MARGIN + 10, plain(drive)));
    shapes.push(text(MARGIN, MARGIN + 10 + LINE, size_line(zones, zone_size)));
    let top = MARGIN + 10 + 2 * LINE;
    for (i, zone) in zones.iter().enumerate() {
        let (x, y) = (MARGIN + i as u32 % columns * cell, top + i as u32 / columns * cell);
        let side = cell - gap;
        let (written, rest) = colours(zone);
        shapes.push(Shape::Box { x, y, width: side, height: side, colour: rest });
        let share = zone.wp.unwrap_or(0) as f64 / zone.capacity.max(1) as f64;
        // What was written at all is seen.
        let height = if share > 0.0 { ((share * f64::from(side)).round() as u32).clamp(1, side) } else { 0 };
        if height > 0 && written != rest {
            shapes.push(Shape::Box { x, y: y + side - height, width: side, height, colour: written });
        }
    }
    let bottom = top + rows * cell + 12;
    let lines = legend(zones, &mut shapes, bottom, width);
    Scene { width, height: bottom + lines * LINE + MARGIN, paper: PAPER, shapes }
}

/// Draws the legend; returns how many lines it takes.
fn legend(zones: &[Zone], shapes: &mut Vec<Shape>, top: u32, width: u32) -> u32 {
    let tally = Tally::of(zones);
    let n = |state| tally.get(state);
    let open = n(ZoneState::ImplicitlyOpen) + n(ZoneState::ExplicitlyOpen);
    let dead = n(ZoneState::ReadOnly) + n(ZoneState::Offline);
    let items = [
        (CONVENTIONAL, "conventional", n(ZoneState::Conventional)),
        (FAINT, "empty", n(ZoneState::Empty)),
        (OPEN, "open", open),
        (PART, "partly written, closed", n(ZoneState::Closed)),
        (FULL, "full", n(ZoneState::Full)),
        (DEAD, "read-only or offline", dead),
    ];
    let (mut x, mut line) = (MARGIN, 0);
    for (colour, name, number) in items {
        let text = format!("{name} {}", count(number));
        let wide = 16 + 6 * text.len() as u32 + 18;
        if x > MARGIN && x + wide > width - MARGIN {
            (x, line) = (MARGIN, line + 1);
        }
        let y = top + line * LINE;
        shapes.push(Shape::Box { x, y: y + 2, width: 10, height: 10, colour });
        shapes.push(Shape::Text { x: x + 16, y: y + 11, text, colour: INK });
        x += wide;
    }
    let written: u64 = zones.iter().filter_map(|zone| zone.wp).sum();
    let text = format!("{} written in sequential zones; a zone fills from the bottom", size(written));
    shapes.push(Shape::Text { x: MARGIN, y: top + (line + 1) * LINE + 11, text, colour: INK });
    line + 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::ZoneId;

    #[test]
    fn every_zone_is_in_the_picture_whatever_its_size() {
        for zones in [1, 64, 5_000, 74_508] {
            let zone = Zone { id: ZoneId(0), state: ZoneState::Closed, capacity: 80, wp: Some(1) };
            let picture = scene("x", &vec![zone; zones], 80);
            let marks = picture.shapes.iter().filter(|s| matches!(s, Shape::Box { colour, .. } if *colour == PART));
            // One for the legend.
            assert_eq!(marks.count(), zones + 1);
            for shape in &picture.shapes {
                let (right, below) = match shape {
                    Shape::Box { x, y, width, height, .. } => (x + width, y + height),
                    Shape::Text { x, y, text, .. } => (x + 6 * text.len() as u32, *y),
                };
                assert!(right <= picture.width && below <= picture.height, "{zones}: {right}, {below}");
            }
            assert!(picture.width < 1400 && picture.height < 1400, "{} {}", picture.width, picture.height);
        }
    }
}
