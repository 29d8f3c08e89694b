//! A trace as two pictures, pure: where on the drive commands went over time, and how many bytes a second they moved.
//!
//! Time is the drive's, where it kept any; else commands stand in their order. A million commands are drawn as what they cover of a
//! grid of small squares, so that a picture stays a picture.

use super::scene::{Colour, FAINT, INK, LINE, MARGIN, PAPER, Scene, Shape, plain};
use crate::output::{count, size};
use imbrex_emulator::{Op, TimedEntry};
use std::collections::{BTreeMap, BTreeSet};

/// Squares across, down (places) and down (bytes a second), and pixels of a square.
const ACROSS: u32 = 360;
const DOWN: u32 = 160;
const BARS: u32 = 60;
const SQUARE: u32 = 3;
/// Pixels left of a plot, for its scale.
const SCALE: u32 = 84;

const WRITE: Colour = [46, 110, 190];
const READ: Colour = [226, 133, 32];
const RESET: Colour = [206, 62, 54];
const OTHER: Colour = [61, 160, 92];
const FLUSH: Colour = [150, 110, 190];

/// What is drawn of a trace.
pub struct Trace<'a> {
    /// The drive's name.
    pub drive: &'a str,
    /// Its commands, oldest first.
    pub entries: &'a [TimedEntry],
    /// Bytes of a zone.
    pub zone_size: u64,
    /// Whether the drive's host sees zones.
    pub zoned: bool,
    /// What the drive can do, where its model says so.
    pub fastest: Option<Fastest>,
}

/// Bytes a second that a drive can do at most.
#[derive(Clone, Copy)]
pub struct Fastest {
    /// To where they are kept, at the outer edge. A write that the drive's cache has taken is complete before it got there.
    pub written: f64,
    /// To the host, from the drive's cache.
    pub read: f64,
}

/// Commands on the axis of time.
struct Axis {
    from: f64,
    span: f64,
    timed: bool,
}

impl Axis {
    fn of(entries: &[TimedEntry]) -> Axis {
        let timed = !entries.is_empty() && entries.iter().all(|entry| entry.ended.is_some());
        let mut axis = Axis { from: 0.0, span: 1.0, timed };
        let ends = entries.iter().enumerate().map(|(i, entry)| axis.at(i, entry));
        let (from, to) = ends.fold((f64::INFINITY, 0.0_f64), |(from, to), at| (from.min(at), to.max(at)));
        // What began before the first command was complete is in the picture.
        let begun = entries.iter().filter_map(|entry| entry.began).fold(from, f64::min);
        axis.from = if timed { begun } else { 0.0 };
        axis.span = (to - axis.from).max(1e-9);
        axis
    }

    fn at(&self, i: usize, entry: &TimedEntry) -> f64 {
        if self.timed { entry.ended.unwrap_or(0.0) } else { i as f64 }
    }

    /// The column of a command.
    fn column(&self, i: usize, entry: &TimedEntry) -> u32 {
        let part = (self.at(i, entry) - self.from) / self.span;
        ((part * f64::from(ACROSS)) as u32).min(ACROSS - 1)
    }

    fn title(&self) -> &'static str {
        if self.timed { "seconds of the drive's clock" } else { "commands, in their order: the drive kept no time" }
    }
}

fn colour(op: Op) -> Colour {
    match op {
        Op::Read => READ,
        Op::Write => WRITE,
        Op::Reset => RESET,
        Op::Flush => FLUSH,
        Op::Open | Op::Close | Op::Finish => OTHER,
    }
}

struct Plot {
    shapes: Vec<Shape>,
    top: u32,
    height: u32,
}

const LEFT: u32 = MARGIN + SCALE;
const WIDTH: u32 = ACROSS * SQUARE;

impl Plot {
    fn text(&mut self, x: u32, y: u32, text: impl Into<String>) {
        self.shapes.push(Shape::Text { x, y, text: text.into(), colour: INK });
    }

    fn square(&mut self, column: u32, row: u32, columns: u32, colour: Colour) {
        let (x, y) = (LEFT + column * SQUARE, self.top + row * SQUARE);
        self.shapes.push(Shape::Box { x, y, width: columns * SQUARE, height: SQUARE, colour });
    }

    /// Frame, lines and their labels from the bottom: parts of the height and what stands there.
    fn grid(&mut self, lines: &[(f64, String)]) {
        for (part, label) in lines {
            let y = self.top + ((1.0 - part) * f64::from(self.height)).round() as u32;
            self.shapes.push(Shape::Box { x: LEFT, y, width: WIDTH, height: 1, colour: FAINT });
            let wide = 6 * label.len() as u32;
            self.text((LEFT - 8).saturating_sub(wide), y + 4, label.clone());
        }
        let (left, bottom) = (LEFT - 1, self.top + self.height);
        self.shapes.push(Shape::Box { x: left, y: self.top, width: 1, height: self.height + 1, colour: INK });
        self.shapes.push(Shape::Box { x: left, y: bottom, width: WIDTH + 1, height: 1, colour: INK });
    }

    /// The scale of time below; returns where it ends.
    fn times(&mut self, axis: &Axis) -> u32 {
        let y = self.top + self.height + 14;
        for (at, label) in ticks(axis.from, axis.span) {
            let x = LEFT + (at * f64::from(WIDTH)).round() as u32;
            self.shapes.push(Shape::Box { x, y: self.top + self.height, width: 1, height: 4, colour: INK });
            let wide = 6 * label.len() as u32;
            self.text((x - wide / 2).min(LEFT + WIDTH - wide), y + 2, label);
        }
        self.text(LEFT, y + LINE, axis.title());
        y + LINE
    }
}

/// Round numbers in a range, as parts of it.
fn ticks(from: f64, span: f64) -> Vec<(f64, String)> {
    let raw = span / 6.0;
    let unit = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * unit).into_iter().find(|step| *step >= raw).unwrap_or(raw);
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let first = (from / step).ceil();
    let numbers = (0..=12).map(|i| (first + f64::from(i)) * step).filter(|at| *at <= from + span * 1.0001);
    numbers.map(|at| ((at - from) / span, format!("{at:.digits$}"))).collect()
}

/// The head of a picture: title, and a legend of colours.
fn head(shapes: &mut Vec<Shape>, title: &str, legend: &[(Colour, String)]) -> u32 {
    shapes.push(Shape::Text { x: MARGIN, y: MARGIN + 10, text: plain(title), colour: INK });
    let (mut x, y) = (MARGIN, MARGIN + 10 + LINE);
    for (colour, name) in legend {
        shapes.push(Shape::Box { x, y: y - 9, width: 10, height: 10, colour: *colour });
        shapes.push(Shape::Text { x: x + 16, y, text: name.clone(), colour: INK });
        x += 16 + 6 * name.len() as u32 + 18;
    }
    y + LINE
}

fn finish(plot: Plot, bottom: u32) -> Scene {
    Scene { width: LEFT + WIDTH + MARGIN, height: bottom + MARGIN, paper: PAPER, shapes: plot.shapes }
}

/// Where commands went, over time.
pub fn places(trace: &Trace<'_>) -> Scene {
    let axis = Axis::of(trace.entries);
    let zone_size = trace.zone_size.max(1);
    let ends = |timed: &TimedEntry| {
        let (at, len) = (timed.entry.offset, u64::from(timed.entry.len));
        (at, at.saturating_add(len.saturating_sub(1)))
    };
    // Zones that nothing went to get no room.
    let placed = trace.entries.iter().filter(|timed| timed.entry.op != Op::Flush);
    let touched: BTreeSet<u64> =
        placed.flat_map(|timed| [ends(timed).0, ends(timed).1]).map(|at| at / zone_size).collect();
    let zones: Vec<u64> = touched.into_iter().collect();
    let row = |at: u64| {
        let rank = zones.partition_point(|zone| *zone < at / zone_size) as f64;
        let part = (rank + (at % zone_size) as f64 / zone_size as f64) / zones.len().max(1) as f64;
        DOWN - 1 - ((part * f64::from(DOWN)) as u32).min(DOWN - 1)
    };
    // Whatever came last to a square is seen; resets stay, since they are few.
    let mut squares: BTreeMap<(u32, u32), Colour> = BTreeMap::new();
    let mut counts: BTreeMap<&str, (Colour, u64)> = BTreeMap::new();
    for (i, timed) in trace.entries.iter().enumerate() {
        let entry = &timed.entry;
        counts.entry(entry.op.name()).or_insert((colour(entry.op), 0)).1 += 1;
        let column = axis.column(i, timed);
        let (first, last) = match entry.op {
            Op::Flush => continue,
            _ => (row(ends(timed).0), row(ends(timed).1)),
        };
        for row in last..=first {
            let square = squares.entry((row, column)).or_insert_with(|| colour(entry.op));
            if *square != RESET {
                *square = colour(entry.op);
            }
        }
    }
    let legend: Vec<_> =
        counts.into_iter().map(|(name, (colour, n))| (colour, format!("{name} {}", count(n)))).collect();
    let mut shapes = Vec::new();
    let top =
        head(&mut shapes, &format!("{}: where commands went; zones without any are left out", trace.drive), &legend);
    let mut plot = Plot { shapes, top, height: DOWN * SQUARE };
    let few = zones.len().min(8);
    let lines: Vec<_> = (0..few)
        .map(|i| i * zones.len() / few)
        .filter_map(|rank| {
            let zone = zones.get(rank)?;
            let label = if trace.zoned { format!("zone {zone}") } else { size(zone * zone_size) };
            Some((rank as f64 / zones.len() as f64, label))
        })
        .collect();
    plot.grid(&lines);
    // Neighbours of one colour are one box.
    let mut run: Option<((u32, u32), u32, Colour)> = None;
    for ((row, column), colour) in squares {
        match run.as_mut() {
            Some(((r, c), n, same)) if *r == row && *c + *n == column && *same == colour => *n += 1,
            _ => {
                if let Some(((row, column), n, colour)) = run.replace(((row, column), 1, colour)) {
                    plot.square(column, row, n, colour);
                }
            }
        }
    }
    if let Some(((row, column), n, colour)) = run {
        plot.square(column, row, n, colour);
    }
    let bottom = flushes(&mut plot, trace, &axis);
    finish(plot, bottom)
}

/// Flushes have no place: ticks below the plot's frame. Returns where the scale of time ends.
fn flushes(plot: &mut Plot, trace: &Trace<'_>, axis: &Axis) -> u32 {
    let flushed = trace.entries.iter().enumerate().filter(|(_, timed)| timed.entry.op == Op::Flush);
    let mut columns: Vec<u32> = flushed.map(|(i, timed)| axis.column(i, timed)).collect();
    columns.dedup();
    let y = plot.top + plot.height + 1;
    for column in &columns {
        let x = LEFT + column * SQUARE;
        plot.shapes.push(Shape::Box { x, y, width: SQUARE - 1, height: 5, colour: FLUSH });
    }
    plot.height += 6;
    let bottom = plot.times(axis);
    plot.height -= 6;
    bottom
}

/// When bytes moved: from, to, how many.
type Move = (f64, f64, f64);

/// When the bytes of the commands of a kind moved. A drive moves those of one command after those of another, however many wait, and none
/// faster than it can.
fn moves(trace: &Trace<'_>, axis: &Axis, op: Op, fastest: Option<f64>) -> Vec<Move> {
    let mut free = f64::NEG_INFINITY;
    let wanted = |(_, timed): &(usize, &TimedEntry)| timed.entry.op == op && timed.entry.result == "ok";
    let all = trace.entries.iter().enumerate().filter(wanted);
    all.map(|(i, timed)| {
        let ended = axis.at(i, timed);
        if !axis.timed {
            return (ended, ended, f64::from(timed.entry.len));
        }
        let from = timed.began.unwrap_or(ended).max(free);
        let least = fastest.map_or(0.0, |fastest| f64::from(timed.entry.len) / fastest);
        free = ended.max(from + least);
        (from, free, f64::from(timed.entry.len))
    })
    .collect()
}

/// The bytes that moved in each column.
fn columns(moves: &[Move], axis: &Axis) -> Vec<f64> {
    let mut columns = vec![0.0; ACROSS as usize];
    let wide = axis.span / f64::from(ACROSS);
    let column = |at: f64| (((at - axis.from) / wide) as usize).min(ACROSS as usize - 1);
    for (from, to, bytes) in moves {
        let (first, last) = (column(*from), column(*to));
        for (at, sum) in columns.iter_mut().enumerate().take(last + 1).skip(first) {
            let begins = axis.from + at as f64 * wide;
            let inside = to.min(begins + wide) - from.max(begins);
            // What took no time is in one column.
            let part = if first == last { 1.0 } else { (inside / (to - from)).max(0.0) };
            *sum += bytes * part;
        }
    }
    columns
}

/// Bytes written and read, over time.
pub fn throughput(trace: &Trace<'_>) -> Scene {
    let mut axis = Axis::of(trace.entries);
    let fastest = trace.fastest;
    let series = [(Op::Write, fastest.map(|f| f.written)), (Op::Read, fastest.map(|f| f.read))];
    let moved = series.map(|(op, fastest)| moves(trace, &axis, op, fastest));
    // What the drive's cache has taken last may be on its way when the last command is complete.
    let to = moved.iter().flatten().fold(axis.from + axis.span, |to, (_, at, _)| to.max(*at));
    axis.span = to - axis.from;
    let bytes = moved.each_ref().map(|moves| columns(moves, &axis));
    let mut shapes = Vec::new();
    let sums = moved.each_ref().map(|moves| size(moves.iter().map(|(.., bytes)| *bytes as u64).sum()));
    let legend = [(WRITE, format!("written {}", sums[0])), (READ, format!("read {}", sums[1]))];
    let unit = if axis.timed { "MiB a second of the drive's clock" } else { "MiB in each column" };
    let mut top = head(&mut shapes, &format!("{}: {unit}", trace.drive), &legend);
    let per_mib = if axis.timed { axis.span / f64::from(ACROSS) } else { 1.0 } * 1_048_576.0;
    for (series, colour) in bytes.iter().zip([WRITE, READ]) {
        let rates: Vec<f64> = series.iter().map(|bytes| bytes / per_mib).collect();
        let most = rates.iter().copied().fold(0.0, f64::max).max(1e-9) * 1.05;
        let mut plot = Plot { shapes, top, height: BARS * SQUARE };
        plot.grid(&ticks(0.0, most));
        for (column, rate) in rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0) {
            let height = ((rate / most * f64::from(plot.height)).round() as u32).max(1);
            let (x, y) = (LEFT + column as u32 * SQUARE, plot.top + plot.height - height);
            plot.shapes.push(Shape::Box { x, y, width: SQUARE, height, colour });
        }
        top = plot.times(&axis) + LINE;
        shapes = plot.shapes;
    }
    finish(Plot { shapes, top, height: 0 }, top - LINE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_emulator::TraceEntry;

    fn entry(i: u64, op: Op, offset: u64, len: u32, timed: bool) -> TimedEntry {
        let entry =
            TraceEntry { sequence: i, op, cause: "wal", priority: "normal", zone: 0, offset, len, result: "ok" };
        let at = |ms: f64| timed.then_some((i as f64 + ms) / 1e3);
        TimedEntry { entry, began: at(0.0), ended: at(0.5) }
    }

    fn inside(scene: &Scene) {
        for shape in &scene.shapes {
            let (right, below) = match shape {
                Shape::Box { x, y, width, height, .. } => (x + width, y + height),
                Shape::Text { x, y, text, .. } => (x + 6 * text.len() as u32, *y),
            };
            assert!(
                right <= scene.width && below <= scene.height,
                "{right} {below} of {} {}",
                scene.width,
                scene.height
            );
        }
    }

    fn boxes(scene: &Scene, wanted: Colour) -> Vec<(u32, u32, u32, u32)> {
        let of = |shape: &Shape| match shape {
            // Those of 10 by 10 are the legend's.
            Shape::Box { x, y, width, height, colour } if *colour == wanted && (*width, *height) != (10, 10) => {
                Some((*x, *y, *width, *height))
            }
            _ => None,
        };
        scene.shapes.iter().filter_map(of).collect()
    }

    #[test]
    fn every_command_is_in_the_picture_where_and_when_it_was() {
        let ops = [Op::Write, Op::Write, Op::Read, Op::Reset, Op::Flush, Op::Open];
        for timed in [true, false] {
            let entries: Vec<_> =
                ops.iter().enumerate().map(|(i, op)| entry(i as u64, *op, (i as u64) << 20, 4096, timed)).collect();
            let trace = Trace { drive: "x<y>", entries: &entries, zone_size: 1 << 20, zoned: true, fastest: None };
            let scene = places(&trace);
            inside(&scene);
            let [writes, reads, resets] = [WRITE, READ, RESET].map(|colour| boxes(&scene, colour));
            assert_eq!((writes.len(), reads.len(), resets.len(), boxes(&scene, OTHER).len()), (2, 1, 1, 1));
            assert!(
                writes[0].1 < writes[1].1 && writes[0].0 > writes[1].0,
                "later is right, further is above: {writes:?}"
            );
            assert!(reads[0].0 > writes[0].0 && reads[0].1 < writes[0].1, "{reads:?} {writes:?}");
            assert_eq!(boxes(&scene, FLUSH).len(), 1);
        }
    }

    #[test]
    fn throughput_is_bytes_over_time() {
        // 1 MiB a millisecond is 1,000 MiB a second, in the first half; then nothing but reads of a quarter of that.
        let write = |i| entry(i, Op::Write, i << 20, 1 << 20, true);
        let read = |i| entry(i, Op::Read, i << 20, 1 << 18, true);
        let entries: Vec<_> = (0..3600).map(write).chain((3600..7200).map(read)).collect();
        let trace = Trace { drive: "x", entries: &entries, zone_size: 1 << 28, zoned: false, fastest: None };
        let scene = throughput(&trace);
        inside(&scene);
        let (written, read) = (boxes(&scene, WRITE), boxes(&scene, READ));
        let middle = LEFT + WIDTH / 2;
        assert!((178..=182).contains(&written.len()) && (178..=182).contains(&read.len()));
        assert!(written.iter().all(|bar| bar.0 <= middle) && read.iter().all(|bar| bar.0 + SQUARE >= middle));
        let labels: Vec<&str> = scene
            .shapes
            .iter()
            .filter_map(|shape| if let Shape::Text { text, .. } = shape { Some(text.as_str()) } else { None })
            .collect();
        assert!(labels.contains(&"1000") && labels.contains(&"250") && labels.contains(&"written 3.5G"), "{labels:?}");
    }

    #[test]
    fn no_throughput_is_above_the_drives_own() {
        const MIB: f64 = 1_048_576.0;
        let timed = |i: u64, op, began: f64, ended: f64| {
            let TimedEntry { entry, .. } = entry(i, op, i << 20, 1 << 20, true);
            TimedEntry { entry, began: Some(began), ended: Some(ended) }
        };
        // Four of a megabyte, 5 ms each: a column is a twentieth of that.
        let one_by_one: Vec<_> = (0..4).map(|i| timed(i, Op::Write, i as f64 * 5e-3, (i + 1) as f64 * 5e-3)).collect();
        // 32 at once: all wait for the others.
        let queued: Vec<_> = (0..32).map(|i| timed(i, Op::Read, 0.0, (i + 1) as f64 * 5e-3)).collect();
        // What the cache takes is complete in no time, and moves at the drive's speed all the same; then nothing happens for a second.
        let mut cached: Vec<_> = (0..32).map(|i| timed(i, Op::Write, i as f64 * 1e-4, (i + 1) as f64 * 1e-4)).collect();
        cached.push(timed(32, Op::Read, 1.0, 1.005));
        for entries in [one_by_one, queued, cached] {
            let fastest = Some(Fastest { written: 200.0 * MIB, read: 200.0 * MIB });
            let trace = Trace { drive: "x", entries: &entries, zone_size: 1 << 28, zoned: true, fastest };
            inside(&throughput(&trace));
            let axis = Axis::of(&entries);
            for op in [Op::Write, Op::Read] {
                let moves = moves(&trace, &axis, op, Some(200.0 * MIB));
                let columns = columns(&moves, &axis);
                let most = columns.iter().copied().fold(0.0, f64::max) / (axis.span / f64::from(ACROSS)) / MIB;
                assert!(most < 200.001, "{op:?}: {most} MiB a second");
                let all = entries.iter().filter(|timed| timed.entry.op == op).count() as f64 * MIB;
                assert!((columns.iter().sum::<f64>() - all).abs() < 1.0, "{op:?}: every byte is in the picture");
            }
        }
    }

    #[test]
    fn nothing_and_a_great_many_commands_make_a_picture() {
        for n in [0_u64, 1, 300_000] {
            let op = |i: u64| [Op::Write, Op::Read][(i % 2) as usize];
            let at = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) / 4096 * 4096;
            let entries: Vec<_> = (0..n).map(|i| entry(i, op(i), at(i), 4096, true)).collect();
            let trace = Trace { drive: "x", entries: &entries, zone_size: 1 << 28, zoned: true, fastest: None };
            let (places, throughput) = (places(&trace), throughput(&trace));
            inside(&places);
            inside(&throughput);
            assert!(places.shapes.len() <= (ACROSS * DOWN + 100) as usize);
            assert!(throughput.shapes.len() <= (2 * ACROSS + 100) as usize);
        }
    }
}
