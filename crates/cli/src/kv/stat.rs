//! `imbrex kv stat`: what a store has, and how well it uses its zones.

use super::Stat;
use crate::output::{Failure, Outcome, count, number_of, print, print_json, size, table};
use imbrex_kv::{Figures, Kv, Make};
use serde_json::json;

/// Pairs of all spaces, and bytes of their keys and values.
struct Counted {
    pairs: u64,
    bytes: u64,
}

impl Counted {
    /// Reads all of them.
    fn of(store: &Kv) -> Result<Counted, Failure> {
        let mut counted = Counted { pairs: 0, bytes: 0 };
        counted.add(store)?;
        for (name, order) in store.spaces() {
            counted.add(&store.space(&name, &order, Make::Never)?)?;
        }
        Ok(counted)
    }

    fn add(&mut self, space: &Kv) -> Outcome {
        let mut iter = space.iter()?;
        iter.seek_to_first()?;
        while let Some((key, value)) = iter.get() {
            (self.pairs, self.bytes) = (self.pairs + 1, self.bytes + (key.len() + value.len()) as u64);
            iter.advance()?;
        }
        Ok(())
    }
}

/// A part of what the zones in use can hold; `None`: none is in use.
fn of_zones(figures: &Figures, bytes: u64) -> Option<f64> {
    (figures.capacity_used > 0).then(|| bytes as f64 / figures.capacity_used as f64)
}

/// What the store has done, by level; the bottom is the last.
fn since_made(figures: &Figures) -> serde_json::Value {
    let done = &figures.since_made;
    let (bottom, levels) = done.written.split_last().map_or((&(0, 0), &[][..]), |(bottom, levels)| (bottom, levels));
    let used = levels.iter().rposition(|level| *level != (0, 0)).map_or(0, |last| last + 1);
    let shown = levels.iter().take(used.max(figures.levels.len().saturating_sub(1))).chain([bottom]);
    let level = |(flushed, merged): &(u64, u64)| json!({ "flushed": flushed, "merged": merged, "write_amplification": done.amplification(flushed + merged) });
    let written: u64 = done.written.iter().map(|(flushed, merged)| flushed + merged).sum();
    json!({
        "puts": done.puts,
        "deletes": done.deletes,
        "put_bytes": done.put_bytes,
        "gets": done.gets,
        "levels": shown.map(level).collect::<Vec<_>>(),
        "write_amplification": done.amplification(written),
        "steps_of_merges": done.steps,
        "stalls": { "number": done.stalls, "seconds": done.stalled.as_secs_f64(), "longest": done.longest_stall.as_secs_f64() },
    })
}

pub(super) fn stat(args: &Stat) -> Outcome {
    let store = args.store.look()?;
    let figures = store.figures();
    let counted = args.count.then(|| Counted::of(&store)).transpose()?;
    let valid = figures.levels.iter().map(|level| level.1).sum();
    let (valid, live) = (of_zones(&figures, valid), counted.as_ref().map(|counted| of_zones(&figures, counted.bytes)));
    if args.store.named.json {
        let level = |(tables, bytes, entries): &(u64, u64, u64)| json!({ "tables": tables, "bytes": bytes, "entries": entries });
        let levels: Vec<_> = figures.levels.iter().map(level).collect();
        return print_json(&json!({
            "levels": levels,
            "memory": figures.memory,
            "log": figures.log,
            "zones": { "used": figures.zones.0, "used_bytes": figures.capacity_used, "free": figures.zones.1 },
            "space_efficiency": { "tables": valid, "pairs": live.flatten() },
            "pairs": counted.as_ref().map(|counted| json!({ "number": counted.pairs, "bytes": counted.bytes })),
            "deleted_ranges": figures.ranges,
            "partitions": figures.partitions,
            "slices": figures.depth,
            "merges": figures.merges,
            "since_made": since_made(&figures),
        }));
    }
    // What lies in no level is the last.
    let mut names: Vec<String> = (0..figures.levels.len()).map(|n| format!("level {n}")).collect();
    names.iter_mut().next_back().into_iter().for_each(|last| *last = "bottom".into());
    let level = |(tables, bytes, entries): &(u64, u64, u64)| {
        format!("{}, {}, {} changes", number_of(*tables, "table"), size(*bytes), count(*entries))
    };
    let mut rows: Vec<(&str, String)> =
        names.iter().map(String::as_str).zip(figures.levels.iter().map(level)).collect();
    rows.push(("in memory", size(figures.memory)));
    rows.push(("log", size(figures.log)));
    rows.push(("zones", format!("{} used, {} free", count(figures.zones.0.into()), count(figures.zones.1.into()))));
    let percent = |part: f64| format!("{:.1} % of the zones in use", 100.0 * part);
    rows.extend(valid.map(|valid| ("tables fill", percent(valid))));
    if let Some(counted) = counted {
        rows.push(("pairs", format!("{}, {} of keys and values", count(counted.pairs), size(counted.bytes))));
        rows.extend(live.flatten().map(|live| ("pairs fill", percent(live))));
    }
    if figures.ranges > 0 {
        rows.push(("deleted ranges", count(figures.ranges as u64)));
    }
    rows.push(("partitions", count(figures.partitions as u64)));
    rows.push(("slices", format!("{} have a key at most", count(figures.depth as u64))));
    if figures.merges > 0 {
        rows.push(("merges", format!("{} under way", count(figures.merges as u64))));
    }
    let done = &figures.since_made;
    rows.push((
        "put so far",
        format!("{} of {}; {} deleted", size(done.put_bytes), number_of(done.puts, "pair"), count(done.deletes)),
    ));
    let written: u64 = done.written.iter().map(|(flushed, merged)| flushed + merged).sum();
    if let Some(times) = done.amplification(written) {
        rows.push((
            "tables written",
            format!("{}, {times:.2} times what was put, in {}", size(written), number_of(done.steps, "merge step")),
        ));
    }
    if done.stalls > 0 {
        let longest = done.longest_stall.as_secs_f64();
        rows.push((
            "puts held back",
            format!(
                "{} times, {:.1} s together, {longest:.1} s the longest",
                count(done.stalls),
                done.stalled.as_secs_f64()
            ),
        ));
    }
    print(table(&rows))
}
