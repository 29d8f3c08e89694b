//! What rows of `chunk-write` make of each other: ratios, and charts.

use super::super::chart::{Axis, Chart, Series, Shape};
use super::super::result::{Figure, Ratio};
use super::super::virtual_clock::Nanoseconds;
use super::super::{Run, kernel_chunks};
use super::{Cell, DRIVE, Engine, KIB, MIB, SIZES, Span, Written};

const EXT4: [Engine; 2] = [Engine::Packed, Engine::Scattered];

/// All of them; `written`: when the drives of rows were written, and in which zones.
pub(super) fn all(run: &mut Run, written: &[(Cell, Written)]) {
    zones_over_time(run, written);
    ratios(run);
    for span in Span::ALL {
        [false, true].into_iter().for_each(|cache| chart(run, span, cache));
    }
}

fn rate(run: &Run, cell: Cell) -> Option<f64> {
    run.measured(&cell.name())?.figures.get("MB/s").copied()
}

fn ratios(run: &mut Run) {
    for cache in [false, true] {
        for span in Span::ALL {
            let mut compare = |over: Engine, under: Engine, size: u64, how: &str| {
                let at = |engine| Cell { engine, span, cache, size };
                let theirs = run.measured(&at(under).name())?.figures.get(&format!("MB/s{how}")).copied();
                let (ours, theirs) = (rate(run, at(over))?, theirs?);
                let name = format!("{}: MB/s over those of {}{how}", at(over).name(), under.name());
                let mut ratio = Ratio::of(name, &[ours / theirs])?;
                if size == MIB && span == Span::SixTb {
                    ratio.goal = goal(over, under, how, cache);
                    let papers = !cache && over == Engine::Durable && EXT4.contains(&under);
                    ratio.paper = papers.then(|| Figure::new(1.3, "", "SMRSTORE, section 6.1"));
                }
                run.outcome.ratios.push(ratio);
                Some(())
            };
            compare(Engine::Durable, Engine::OneZone, MIB, "");
            for size in SIZES {
                for over in [Engine::Durable, Engine::Long] {
                    // Packed beside scattered, and both durabilities.
                    for under in EXT4 {
                        for (how, _) in kernel_chunks::HOW {
                            compare(over, under, size, &format!(" {how}"));
                        }
                    }
                }
                compare(Engine::Durable, Engine::F2fs, size, "");
                compare(Engine::Durable, Engine::Xfs, size, "");
            }
        }
    }
}

/// What is to be reached: 1.3 times ext4 that promises as much, as in the paper, and 1.6 times where its files are scattered, as the paper's may
/// have been; and with long commands and the write cache off as much as where it promises less.
fn goal(over: Engine, under: Engine, how: &str, cache: bool) -> Option<f64> {
    let durable = how.contains(kernel_chunks::HOW[0].0);
    match (over, under, durable) {
        (Engine::Durable, Engine::Packed, true) => Some(1.3),
        (Engine::Durable, Engine::Scattered, true) => Some(1.6),
        (Engine::Long, Engine::Packed, false) if !cache => Some(1.0),
        _ => None,
    }
}

/// As SMRSTORE's Figures 5 and 15: which zones are written in the first seconds.
fn zones_over_time(run: &mut Run, written: &[(Cell, Written)]) {
    const SECONDS: f64 = 3.0;
    for engine in [Engine::Durable, Engine::OneZone, Engine::F2fs, Engine::Xfs] {
        let asked = Cell { engine, span: Span::SixTb, cache: false, size: MIB };
        let Some((_, writes)) = written.iter().find(|(cell, writes)| *cell == asked && !writes.is_empty()) else {
            continue;
        };
        let first = writes.iter().map(|(_, zone)| *zone).min().unwrap_or(0);
        let point = |(at, zone): &(Nanoseconds, u32)| (at / 1e9, f64::from(zone - first));
        let points = writes.iter().map(point).filter(|(at, _)| *at < SECONDS).collect();
        run.outcome.charts.push(Chart {
            file: format!("zones-{}", engine.name().to_lowercase().replace(' ', "-")),
            title: format!(
                "Zones that are written, {}: appends of 1 MiB of 16 at once, write cache off ({DRIVE})",
                engine.name()
            ),
            x: Axis::even("seconds"),
            y: Axis::even("zone, from the first that is written"),
            shape: Shape::Points(vec![Series { name: "a write of users' bytes".into(), points }]),
        });
    }
}

fn chart(run: &mut Run, span: Span, cache: bool) {
    let line = |engine: Engine| {
        let point = |size: u64| Some((size as f64 / KIB as f64, rate(run, Cell { engine, span, cache, size })?));
        Series { name: engine.name().into(), points: SIZES.into_iter().filter_map(point).collect() }
    };
    let series: Vec<Series> = Engine::ALL.into_iter().map(line).filter(|line| line.points.len() > 1).collect();
    if series.is_empty() {
        return;
    }
    let on = if cache { "on" } else { "off" };
    run.outcome.charts.push(Chart {
        file: format!("write-{}-cache-{on}", span.name().replace(' ', "-")),
        title: format!("Appends of 16 at once, {}, write cache {on} ({DRIVE})", span.name()),
        x: Axis::log("KiB an append"),
        y: Axis::even("MB/s"),
        shape: Shape::Lines(series),
    });
}
