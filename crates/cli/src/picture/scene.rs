//! A picture of a drive's zones as shapes: pure. [`super::svg`] and [`super::png`] paint them.

use super::{Content, Contents, Tally, size_line};
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
/// Of kinds of contents, by number; the first again where there are more.
const KINDS: [Colour; 8] = [
    [133, 88, 176],
    [24, 128, 138],
    [224, 150, 36],
    [178, 74, 120],
    [108, 142, 52],
    [52, 92, 168],
    [150, 108, 72],
    [96, 104, 120],
];

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

/// Squares of a picture at most: where a drive has more zones, a square is several.
const SQUARES: usize = 6_000;

/// Columns and pixels of so many squares: few become large ones, many small ones.
fn grid(squares: usize) -> (u32, u32) {
    let columns = ((squares as f64 * 1.8).sqrt().ceil() as u32).max(16);
    let cell = (WIDE / columns).clamp(3, 28);
    (columns.max(640 / cell), cell)
}

/// What the font has of a text.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// The colour of a kind of contents.
fn of_kind(kind: usize) -> Colour {
    KINDS[kind % KINDS.len()]
}

/// The same, mostly white.
fn pale(colour: Colour) -> Colour {
    colour.map(|part| (u16::from(part) * 2 / 7 + 182) as u8)
}

/// A part of a side in pixels; what there is at all has two, so that it is seen.
fn part_of(side: u32, part: u64, whole: u64) -> u32 {
    let share = part as f64 / whole.max(1) as f64;
    if share > 0.0 { ((share * f64::from(side)).round() as u32).clamp(2, side) } else { 0 }
}

/// Bytes of one sort in the zones of a square, and the average of their colours.
#[derive(Default)]
struct Sort {
    bytes: u64,
    sums: [u128; 3],
}

impl Sort {
    fn add(&mut self, bytes: u64, colour: Colour) {
        self.bytes += bytes;
        for (sum, part) in self.sums.iter_mut().zip(colour) {
            *sum += u128::from(part) * u128::from(bytes);
        }
    }

    fn colour(&self) -> Colour {
        self.sums.map(|sum| u8::try_from(sum / u128::from(self.bytes.max(1))).unwrap_or(u8::MAX))
    }
}

/// What the zones of a square hold. It fills from the bottom: what is of use, above it what is of no more use. Zones that died stand at its top.
#[derive(Default)]
struct Square {
    live: Sort,
    stale: Sort,
    dead: Sort,
    capacity: u64,
}

impl Square {
    fn of(zones: &[Zone], contents: Option<&Contents>) -> Square {
        let mut square = Square::default();
        for zone in zones {
            square.capacity += zone.capacity;
            let written = zone.wp.unwrap_or(0).min(zone.capacity);
            let content = contents.and_then(|contents| contents.zones.get(&zone.id.0));
            match (zone.state, content) {
                (ZoneState::ReadOnly | ZoneState::Offline, _) => square.dead.add(zone.capacity, DEAD),
                (_, Some(content)) => {
                    let colour = of_kind(content.kind);
                    square.live.add(content.live.min(content.written), colour);
                    square.stale.add(content.written.saturating_sub(content.live), pale(colour));
                }
                (ZoneState::Conventional, None) => square.live.add(zone.capacity, CONVENTIONAL),
                (ZoneState::Full, None) => square.live.add(zone.capacity, FULL),
                (ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen, None) => square.live.add(written, OPEN),
                (ZoneState::Empty | ZoneState::Closed, None) => square.live.add(written, PART),
            }
        }
        square
    }

    fn draw(&self, x: u32, y: u32, side: u32, shapes: &mut Vec<Shape>) {
        let mut paint = |y, height, colour| {
            if height > 0 {
                shapes.push(Shape::Box { x, y, width: side, height, colour });
            }
        };
        let written = part_of(side, self.live.bytes + self.stale.bytes, self.capacity);
        let live = part_of(side, self.live.bytes, self.capacity).min(written);
        paint(y, side, FAINT);
        if self.stale.bytes > 0 {
            paint(y + side - written, written, self.stale.colour());
        }
        paint(y + side - live, live, self.live.colour());
        paint(y, part_of(side, self.dead.bytes, self.capacity), DEAD);
    }
}

/// Pixels of the sides of a square in which there is room for a letter, or for a frame.
const ROOM: u32 = 12;
const FRAME: u32 = 2;

/// What tells a zone from others of its kind, at its lower end, and a frame.
fn adorn(content: &Content, capacity: u64, (x, y, side): (u32, u32, u32), shapes: &mut Vec<Shape>) {
    if side < ROOM {
        return;
    }
    if let Some(letter) = content.letter {
        // What is of use is dark, and the letter is nine pixels high.
        let dark = part_of(side, content.live.min(content.written), capacity) >= ROOM;
        let colour = if dark { PAPER } else { INK };
        shapes.push(Shape::Text { x: x + (side - 6) / 2, y: y + side - 3, text: letter.into(), colour });
    }
    if content.framed {
        let (right, below) = (x + side - FRAME, y + side - FRAME);
        for (x, y, width, height) in
            [(x, y, side, FRAME), (x, below, side, FRAME), (x, y, FRAME, side), (right, y, FRAME, side)]
        {
            shapes.push(Shape::Box { x, y, width, height, colour: INK });
        }
    }
}

/// Draws zones of `zone_size` bytes; where their contents are known, by kind, filled as far as they are of use.
pub fn scene(drive: &str, zones: &[Zone], zone_size: u64, contents: Option<&Contents>) -> Scene {
    let each = zones.len().div_ceil(SQUARES).max(1);
    let squares = zones.len().div_ceil(each);
    let (columns, cell) = grid(squares);
    let side = cell - u32::from(cell > 4);
    let rows = (squares as u32).div_ceil(columns).max(1);
    let width = columns * cell + 2 * MARGIN;
    let mut shapes = Vec::new();
    let text = |x, y, text: String| Shape::Text { x, y, text, colour: INK };
    shapes.push(text(MARGIN, MARGIN + 10, plain(drive)));
    let mut sizes = size_line(zones, zone_size);
    if each > 1 {
        sizes += &format!("; a square is {each} of them, {}", size(each as u64 * zone_size));
    }
    shapes.push(text(MARGIN, MARGIN + 10 + LINE, sizes));
    let top = MARGIN + 10 + 2 * LINE;
    for (i, group) in zones.chunks(each).enumerate() {
        let (x, y) = (MARGIN + i as u32 % columns * cell, top + i as u32 / columns * cell);
        let square = Square::of(group, contents);
        square.draw(x, y, side, &mut shapes);
        if let ([zone], Some(contents)) = (group, contents)
            && let Some(content) = contents.zones.get(&zone.id.0)
        {
            adorn(content, zone.capacity, (x, y, side), &mut shapes);
        }
    }
    let bottom = top + rows * cell + 12;
    let lines = legend(zones, contents, &mut shapes, bottom, width);
    Scene { width, height: bottom + lines * LINE + MARGIN, paper: PAPER, shapes }
}

/// Draws the legend; returns how many lines it takes.
fn legend(zones: &[Zone], contents: Option<&Contents>, shapes: &mut Vec<Shape>, top: u32, width: u32) -> u32 {
    let known = |zone: &&Zone| contents.is_some_and(|contents| contents.zones.contains_key(&zone.id.0));
    let others: Vec<Zone> = zones.iter().filter(|zone| !known(zone)).copied().collect();
    let tally = Tally::of(&others);
    let n = |state| tally.get(state);
    let open = n(ZoneState::ImplicitlyOpen) + n(ZoneState::ExplicitlyOpen);
    let dead = n(ZoneState::ReadOnly) + n(ZoneState::Offline);
    let mut items = Vec::new();
    if let Some(contents) = contents {
        for (kind, name) in contents.kinds.iter().enumerate() {
            let of = contents.zones.values().filter(|content| content.kind == kind);
            items.push((of_kind(kind), name.as_str(), of.count() as u64));
        }
        // What it says is more than how full they are.
        items.retain(|(.., number)| *number > 0);
    }
    items.extend([
        (CONVENTIONAL, "conventional", n(ZoneState::Conventional)),
        (FAINT, "empty", n(ZoneState::Empty)),
        (OPEN, "open", open),
        (PART, "partly written, closed", n(ZoneState::Closed)),
        (FULL, "full", n(ZoneState::Full)),
        (DEAD, "read-only or offline", dead),
    ]);
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
    let how = match contents {
        None => String::from("a square fills from the bottom"),
        Some(contents) => {
            let live = contents.zones.values().map(|content| content.live).sum();
            format!("{} of use; what is pale is of no more use", size(live))
        }
    };
    let text = format!("{} written in sequential zones; {how}", size(written));
    let notes = contents.map_or(&[][..], |contents| &contents.notes);
    for text in [text].into_iter().chain(notes.iter().cloned()) {
        line += 1;
        shapes.push(Shape::Text { x: MARGIN, y: top + line * LINE + 11, text, colour: INK });
    }
    line + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::ZoneId;

    fn texts(picture: &Scene) -> Vec<&str> {
        let texts = picture.shapes.iter().filter_map(|shape| match shape {
            Shape::Text { text, .. } => Some(text.as_str()),
            Shape::Box { .. } => None,
        });
        texts.collect()
    }

    /// Where boxes of a colour are, how large, and without the legend's.
    fn boxes(picture: &Scene, wanted: Colour) -> Vec<(u32, u32, u32, u32)> {
        let of = |shape: &Shape| match shape {
            Shape::Box { x, y, width, height, colour } if *colour == wanted => Some((*x, *y, *width, *height)),
            _ => None,
        };
        let mut boxes: Vec<_> = picture.shapes.iter().filter_map(of).collect();
        boxes.pop();
        boxes
    }

    #[test]
    fn every_zone_is_in_the_picture_whatever_its_size() {
        for (zones, each) in
            [(1, 1), (64, 1), (5_000, 1), (6_000, 1), (6_001, 2), (52_156, 9), (74_508, 13), (1 << 20, 175)]
        {
            let zone = Zone { id: ZoneId(0), state: ZoneState::Closed, capacity: 80, wp: Some(1) };
            let picture = scene("x", &vec![zone; zones], 80, None);
            let squares = boxes(&picture, PART);
            assert_eq!(squares.len(), zones.div_ceil(each));
            // Wide enough to be seen, all at the bottom of their squares.
            assert!(squares.iter().all(|(.., width, height)| *width >= 9 && *height >= 2), "{squares:?}");
            let told = texts(&picture).iter().any(|text| text.contains("a square is"));
            assert_eq!(told, each > 1);
            if each > 1 {
                let line = format!("; a square is {each} of them, {}", size(each as u64 * 80));
                assert!(texts(&picture).iter().any(|text| text.ends_with(&line)), "{:?}", texts(&picture));
            }
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

    #[test]
    fn a_square_of_several_zones_is_what_they_hold() {
        let zone = |state, wp| Zone { id: ZoneId(0), state, capacity: 100, wp: Some(wp) };
        let (empty, full) = (zone(ZoneState::Empty, 0), zone(ZoneState::Full, 100));
        let mut zones = vec![empty; 12_000];
        // Two squares in full; half of one; one in which a zone died, one with a block.
        zones[..4].fill(full);
        zones[4] = full;
        zones[6] = zone(ZoneState::Offline, 0);
        zones[8] = zone(ZoneState::ImplicitlyOpen, 1);
        let picture = scene("x", &zones, 100, None);
        let side = boxes(&picture, FAINT)[0].3;
        let heights = |colour| boxes(&picture, colour).iter().map(|(.., height)| *height).collect::<Vec<_>>();
        assert_eq!(heights(FULL), [side, side, side / 2]);
        assert_eq!(heights(DEAD), [side / 2]);
        assert_eq!(heights(OPEN), [2]);
        // Half in blue and half in grey are neither.
        zones[1].state = ZoneState::Conventional;
        let mixed = [0, 1, 2].map(|i| ((u16::from(FULL[i]) + u16::from(CONVENTIONAL[i])) / 2) as u8);
        let shapes = scene("x", &zones, 100, None).shapes;
        assert!(
            shapes
                .iter()
                .any(|s| matches!(s, Shape::Box { colour, height, .. } if *colour == mixed && *height == side))
        );
    }

    #[test]
    fn contents_colour_zones_and_fill_them_as_far_as_they_are_of_use() {
        let zone = |id| Zone { id: ZoneId(id), state: ZoneState::Full, capacity: 100, wp: Some(100) };
        let mut zones: Vec<Zone> = (0..6).map(zone).collect();
        zones[5].state = ZoneState::Offline;
        let content = |kind, live| Content { kind, live, written: 100, letter: None, framed: false };
        let all = [(0, content(0, 100)), (1, content(1, 50)), (2, content(1, 0)), (5, content(1, 100))];
        let kinds = vec!["a".into(), "b".into(), "none".into()];
        let contents = Contents { kinds, zones: all.into(), notes: vec!["a note".into()] };
        let picture = scene("x", &zones, 100, Some(&contents));
        let heights = |wanted: Colour| -> Vec<u32> {
            let of = |shape: &Shape| match shape {
                Shape::Box { width, height, colour, .. } if *colour == wanted && *width > 10 => Some(*height),
                _ => None,
            };
            picture.shapes.iter().filter_map(of).collect()
        };
        let side = heights(FULL)[0];
        assert_eq!(heights(of_kind(0)), [side]);
        assert_eq!(heights(of_kind(1)), [(f64::from(side) / 2.0).round() as u32], "half of one, nothing of the other");
        assert_eq!(heights(pale(of_kind(1))), [side, side]);
        assert_eq!((heights(FULL).len(), heights(DEAD).len()), (2, 1), "of two zones nobody knows, and one is dead");
        let last = picture.shapes.iter().rev().find_map(|shape| match shape {
            Shape::Text { text, y, .. } => Some((text.as_str(), *y < picture.height)),
            Shape::Box { .. } => None,
        });
        assert_eq!(last, Some(("a note", true)));
        let texts = texts(&picture);
        assert!(texts.contains(&"a 1") && texts.contains(&"b 3") && texts.contains(&"full 2"), "{texts:?}");
        assert!(texts.iter().all(|text| !text.contains("none")), "{texts:?}");
        assert!(texts.iter().any(|text| text.contains("250 of use")), "{texts:?}");
    }

    #[test]
    fn letters_and_frames_are_in_their_squares_where_there_is_room() {
        let zone = |id| Zone { id: ZoneId(id), state: ZoneState::Full, capacity: 100, wp: Some(100) };
        let content = |live, letter, framed| Content { kind: 0, live, written: 100, letter, framed };
        let all = [(0, content(100, Some('q'), false)), (1, content(5, Some('z'), true))];
        let contents = Contents { kinds: vec!["a".into()], zones: all.into(), notes: Vec::new() };
        let drawn = |zones: u32| scene("x", &(0..zones).map(zone).collect::<Vec<_>>(), 100, Some(&contents));
        let few = drawn(6);
        let letter = |wanted: &str| {
            let of = |shape: &Shape| match shape {
                Shape::Text { text, colour, .. } if text == wanted => Some(*colour),
                _ => None,
            };
            few.shapes.iter().find_map(of)
        };
        // White on what is dark, dark on what is pale.
        assert_eq!((letter("q"), letter("z")), (Some(PAPER), Some(INK)));
        let frame = |scene: &Scene| {
            scene.shapes.iter().filter(|shape| matches!(shape, Shape::Box { colour, .. } if *colour == INK)).count()
        };
        assert_eq!(frame(&few), 4);
        let many = drawn(6_000);
        assert!(frame(&many) == 0 && texts(&many).iter().all(|text| *text != "q"), "squares of a few pixels");
    }
}
