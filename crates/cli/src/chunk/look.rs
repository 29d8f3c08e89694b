//! Looks at a store, which leave the drive as it is: ls, stat, df, check, scrub.

use super::{Df, Ls, Scrub, Stat, Store, which};
use crate::fs::progress;
use crate::output::{Failure, Outcome, count, number_of, print, print_json, size, table};
use imbrex_chunkstore::{ChunkId, ChunkInfo, ChunkStore, StreamType};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Chunks of which the engine is asked at a time.
const PAGE: usize = 4096;
/// Bytes that a scrub verifies between two looks at the clock.
const STEP: u64 = 4 << 20;

fn state(info: &ChunkInfo) -> &'static str {
    if info.sealed { "sealed" } else { "open" }
}

fn facts(store: &ChunkStore, info: &ChunkInfo) -> Value {
    let of = store.name_of(info.id);
    json!({ "id": info.id.to_string(), "len": info.len, "stream": store.stream_name(info.stream), "sealed": info.sealed,
            "records": info.records, "zones": info.zones, "name": of.as_ref().map(|of| &*of.name),
            "place": of.as_ref().map(|of| of.place), "of": of.as_ref().map(|of| of.chunks) })
}

/// The name of a chunk as people read it; empty where it has none.
fn name(store: &ChunkStore, info: &ChunkInfo) -> String {
    match store.name_of(info.id) {
        None => String::new(),
        Some(of) if of.chunks == 1 => format!("  {}", of.name),
        Some(of) => format!("  {} ({} of {})", of.name, of.place + 1, of.chunks),
    }
}

/// By name.
fn ls_names(store: &ChunkStore, args: &Ls) -> Outcome {
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut after: Option<String> = None;
    let mut all = Vec::new();
    while left > 0 {
        let page = store.names(after.as_deref(), prefix, PAGE.min(usize::try_from(left).unwrap_or(PAGE)));
        let Some(last) = page.last() else { break };
        after = Some(last.name.to_string());
        left -= page.len() as u64;
        for found in page {
            let ids = store.named(&found.name)?;
            if args.store.json {
                let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                all.push(json!({ "name": &*found.name, "len": found.len, "sealed": found.sealed, "chunks": ids }));
            } else if args.long {
                let first = ids.first().map(ToString::to_string).unwrap_or_default();
                let more = if ids.len() > 1 { format!(" and {} more", ids.len() - 1) } else { String::new() };
                print(format_args!("{:>12}  {}  {first}{more}", found.len, found.name))?;
            } else {
                print(&found.name)?;
            }
        }
    }
    if args.store.json { print_json(&json!({ "names": all })) } else { Ok(()) }
}

pub(super) fn ls(args: Ls) -> Outcome {
    let store = args.store.look()?;
    if args.names || args.prefix.is_some() {
        return ls_names(&store, &args);
    }
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut after = args.after;
    let mut all = Vec::new();
    while left > 0 {
        let page = store.list(after, PAGE.min(usize::try_from(left).unwrap_or(PAGE)));
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        left -= page.len() as u64;
        if args.store.json {
            all.extend(page.iter().map(|info| facts(&store, info)));
            continue;
        }
        let lines: Vec<String> = page.iter().map(|info| line(&store, info, &args)).collect();
        print(lines.join("\n"))?;
    }
    if !args.store.json {
        return Ok(());
    }
    let next = after.filter(|after| !store.list(Some(*after), 1).is_empty());
    print_json(&json!({ "chunks": all, "next": next.map(|id| id.to_string()) }))
}

fn line(store: &ChunkStore, info: &ChunkInfo, args: &Ls) -> String {
    if args.ids {
        return info.id.to_string();
    }
    let name = name(store, info);
    if !args.long {
        return format!("{}{name}", info.id);
    }
    format!(
        "{} {:>10} {:8} {:6} {:>14} in {}{name}",
        info.id,
        info.len,
        store.stream_name(info.stream),
        state(info),
        number_of(info.records.into(), "record"),
        number_of(info.zones.into(), "zone")
    )
}

pub(super) fn df(args: Df) -> Outcome {
    let store = args.store.look()?;
    let (space, stats) = (store.space(), store.stats());
    let score = args.score.then(|| store.fragmentation());
    if args.store.json {
        let mut all = json!({ "total": space.total, "live": space.live, "free": space.free, "dead": space.dead,
                              "chunks": stats.chunks, "free_zones": stats.free_zones, "utilisation": stats.utilisation });
        if let Some(score) = score {
            all["fragmentation"] = score.into();
        }
        return print_json(&all);
    }
    let percent = if space.total == 0 { 100.0 } else { space.live as f64 * 100.0 / space.total as f64 };
    let mut rows = vec![
        ("size", size(space.total)),
        ("chunks", format!("{} of {} ({percent:.1} %)", count(stats.chunks), size(space.live))),
        ("free", size(space.free)),
        ("free when cleaned", size(space.dead)),
    ];
    if let Some(score) = score {
        rows.push(("fragmentation", format!("{score:.3} (of the zone of an average live byte, this part is dead)")));
    }
    print(table(&rows))
}

/// The part of the datazones at which so many hundredths of them are no fuller, in per cent.
fn quantile(utilisation: &[u16], hundredths: usize) -> Option<f64> {
    let last = utilisation.len().checked_sub(1)?;
    utilisation.get(last * hundredths / 100).map(|thousandths| f64::from(*thousandths) / 10.0)
}

pub(super) fn stat(args: Stat) -> Outcome {
    let store = args.store.look()?;
    let Some(id) = &args.id else { return stat_store(&store, args.store.json) };
    let ids = which::which(&store, id)?;
    if ids.len() > 1 && args.store.json {
        let all = ids.iter().map(|id| Ok(facts(&store, &store.stat(*id)?)));
        return print_json(&json!({ "name": id, "chunks": all.collect::<Result<Vec<_>, Failure>>()? }));
    }
    ids.into_iter().try_for_each(|id| stat_chunk(&store, id, args.store.json))
}

fn stat_chunk(store: &ChunkStore, id: ChunkId, as_json: bool) -> Outcome {
    let (info, places) = (store.stat(id)?, store.places(id)?);
    if as_json {
        let mut all = facts(store, &info);
        all["limit"] = store.chunk_limit(info.stream).into();
        let place = |p: &imbrex_chunkstore::Place| json!({ "offset": p.offset, "len": p.len, "zone": p.zone, "at": p.at, "records": p.records });
        all["places"] = places.iter().map(place).collect();
        return print_json(&all);
    }
    let limit = count(u64::from(store.chunk_limit(info.stream)));
    print(table(&[
        ("chunk", format!("{id}{}", name(store, &info))),
        ("size", number_of(info.len.into(), "byte")),
        ("stream", format!("{} ({limit} bytes a chunk at most)", store.stream_name(info.stream))),
        ("state", state(&info).into()),
        ("records", info.records.to_string()),
    ]))?;
    for place in places {
        let at = place.at.map_or("lost".into(), |at| format!("byte {at}"));
        print(format_args!(
            "at {:>10}  {} in {}, zone {}, {at}",
            place.offset,
            number_of(place.len.into(), "byte"),
            number_of(place.records.into(), "record"),
            place.zone
        ))?;
    }
    Ok(())
}

fn stat_store(store: &ChunkStore, as_json: bool) -> Outcome {
    let (volume, report, stats) = (store.volume(), store.open_report(), store.stats());
    let uuid: String = volume.uuid().iter().map(|b| format!("{b:02x}")).collect();
    let metazones = store.zones().iter().filter(|z| z.usage.is_none()).count();
    let streams: Vec<(String, u32)> = (0..StreamType::MOST as u8)
        .filter_map(StreamType::new)
        .map(|stream| (store.stream_name(stream), store.chunk_limit(stream)))
        .take_while(|(_, limit)| *limit > 0)
        .collect();
    let (lost, scrubbed) = (store.lost(), store.scrubbed());
    let quantiles = [10, 50, 90].map(|part| quantile(&stats.utilisation, part));
    if as_json {
        let limits: serde_json::Map<String, Value> =
            streams.iter().map(|(name, limit)| (name.clone(), (*limit).into())).collect();
        return print_json(&json!({
            "uuid": uuid, "mounts": volume.mount() - 1, "clean": report.clean, "damage": report.damage,
            "checkpoint": report.checkpoint, "scanned_zones": report.scanned_zones, "recovered_records": report.records,
            "chunks": stats.chunks, "index_bytes": stats.index_bytes, "limits": limits,
            "zones": { "meta": metazones, "free": stats.free_zones, "opened": stats.opened_zones,
                       "activated": stats.activated_zones, "closed": stats.closed_zones, "garbage": stats.garbage_zones },
            "lost": lost.iter().map(|l| json!({ "zone": Some(l.zone).filter(|zone| *zone != imbrex_chunkstore::Lost::NOWHERE),
                                                "id": l.id.to_string(), "offset": l.offset, "len": (!l.open).then_some(l.len) }))
                .collect::<Vec<_>>(),
            "scrub": { "passes": scrubbed.passes, "bytes": scrubbed.bytes, "next": scrubbed.next.map(|id| id.to_string()),
                       "damaged": scrubbed.damaged.iter()
                           .map(|d| json!({ "zone": d.zone, "id": d.id.to_string(), "offset": d.offset, "len": d.len }))
                           .collect::<Vec<_>>() },
            "utilisation": { "p10": quantiles[0], "p50": quantiles[1], "p90": quantiles[2] },
        }));
    }
    let limits: Vec<String> =
        streams.iter().map(|(name, limit)| format!("{name} {}", count(u64::from(*limit)))).collect();
    let full = |q: Option<f64>| q.map_or("-".into(), |q| format!("{q:.1}"));
    print(table(&[
        ("volume", uuid),
        ("mounts", count(volume.mount() - 1)),
        (
            "last use ended",
            if report.clean { "cleanly" } else { "without being closed; the next opening recovers it" }.into(),
        ),
        ("damage", if report.damage.is_empty() { "none".into() } else { report.damage.join("; ") }),
        ("chunks", count(stats.chunks)),
        ("bytes a chunk", limits.join(", ")),
        (
            "zones",
            format!(
                "{} free, {} opened, {} activated, {} closed, {} garbage, {metazones} meta",
                stats.free_zones, stats.opened_zones, stats.activated_zones, stats.closed_zones, stats.garbage_zones
            ),
        ),
        (
            "live in zones",
            format!(
                "{} % in the median one, {} % to {} % in eight of ten",
                full(quantiles[1]),
                full(quantiles[0]),
                full(quantiles[2])
            ),
        ),
        ("index", size(stats.index_bytes)),
        (
            "scrub",
            format!(
                "{} whole passes, {} of this one; {}",
                count(scrubbed.passes),
                size(scrubbed.bytes),
                number_of(scrubbed.damaged.len() as u64, "damaged record")
            ),
        ),
    ]))?;
    for one in lost {
        match one.open {
            true => print(format_args!("lost: {}, nobody knows how many bytes from {} on", one.id, one.offset))?,
            false => print(format_args!("lost: {}, {} bytes at {} (zone {})", one.id, one.len, one.offset, one.zone))?,
        }
    }
    for one in scrubbed.damaged {
        print(format_args!("damaged: {}, in the {} bytes at {} (zone {})", one.id, one.len, one.offset, one.zone))?;
    }
    Ok(())
}

/// Ends a command that has looked for damage.
fn judge(found: &[String], as_json: bool) -> Outcome {
    if !as_json {
        for problem in found {
            print(problem)?;
        }
    }
    match found.len() {
        0 => Ok(()),
        n => Err(Failure::damage(format!(
            "{}; copy out what is whole with `imbrex chunk get`, and what is not as it is with --rescue",
            number_of(n as u64, "problem")
        ))),
    }
}

pub(super) fn check(args: Store) -> Outcome {
    let store = args.look()?;
    let bar = ProgressBar::new(0);
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut report = store.check(|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    report.problems.splice(0..0, store.open_report().damage.iter().cloned());
    if args.json {
        print_json(&json!({ "problems": report.problems, "chunks": report.chunks, "records": report.records,
                            "bytes": report.bytes }))?;
    } else if report.problems.is_empty() {
        print(format_args!(
            "{}: nothing is wrong ({}, {}, {} verified)",
            args.drive,
            number_of(report.chunks, "chunk"),
            number_of(report.records, "record"),
            size(report.bytes)
        ))?;
    }
    judge(&report.problems, args.json)
}

pub(super) fn scrub(args: Scrub) -> Outcome {
    let store = args.store.look()?;
    let most = args.bytes.unwrap_or(u64::MAX);
    let bar = progress(store.space().live.min(most));
    let began = Instant::now();
    let (mut after, mut bytes, mut problems) = (args.after, 0, Vec::new());
    loop {
        let step = store.scrub(after, STEP.min(most.saturating_sub(bytes)))?;
        bytes += step.bytes;
        bar.set_position(bytes);
        problems.extend(step.problems);
        after = step.next;
        if after.is_none() || bytes >= most {
            break;
        }
        if let Some(rate) = args.rate {
            let due = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    bar.finish_and_clear();
    let next = after.filter(|after| !store.list(Some(*after), 1).is_empty()).map(|id| id.to_string());
    if args.store.json {
        print_json(&json!({ "problems": problems, "bytes": bytes, "next": next }))?;
    } else if problems.is_empty() {
        let rest = next.map_or("all".into(), |next| format!("go on with --after {next}"));
        print(format_args!("{}: nothing is wrong in {} ({rest})", args.store.drive, size(bytes)))?;
    }
    judge(&problems, args.store.json)
}
