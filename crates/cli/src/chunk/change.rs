//! What changes a store, but for bytes: format, seal, rm, clean, salvage.

use super::{Clean, Format, Ids, Name, Salvage, Store, recovery_bar, what, which};
use crate::engine::uri_of;
use crate::fs::progress;
use crate::output::{Failure, Outcome, count, number_of, print, print_json, size};
use imbrex_bluefs::BlueFs;
use imbrex_chunkstore::{ChunkId, ChunkStore, Durability, FormatOptions, Relabel, Relabelled, uri_options};
use imbrex_drives::{SCHEME, parse_uri};
use imbrex_zones::TenantSpec;
use serde_json::json;
use std::time::Duration;

/// Bytes that are moved between two looks at the clock.
const STEP: u64 = 16 << 20;

pub(super) fn format(args: Format) -> Outcome {
    let locator = match args.drive.starts_with(SCHEME) {
        true => parse_uri(&args.drive, &uri_options())?.locator,
        false => args.drive.clone(),
    };
    let streams = args.streams.join(",");
    let own: &[(&str, &str)] = if streams.is_empty() { &[] } else { &[("streams", &streams)] };
    let uri = uri_of(&args.drive)?;
    let open = imbrex_drives::OpenOptions { survivor: false, as_it_is: true, ..Default::default() };
    let drive = imbrex_drives::open(&locator, &open)?;
    // What makes no sense is said before anything is destroyed.
    ChunkStore::check_uri(&uri, own, &drive)?;
    let fs = TenantSpec { name: imbrex_bluefs::TENANT.into(), budget: imbrex_bluefs::BUDGET };
    let options = FormatOptions { uuid: None, force: args.force };
    if args.with_fs {
        // A file system has a use of its own for conventional zones.
        ChunkStore::format_shared(&drive, &options, vec![fs])?;
        drop(drive);
    } else {
        drop(ChunkStore::format_alone(drive, &options)?);
    }
    if args.with_fs && !imbrex_drives::Locator::is_memory(&locator) {
        // So that a drive that is too small for both is refused now.
        BlueFs::open_uri_with(&uri_of(&locator)?, &[("cache", "1M")])?.sync_all()?;
    }
    if !imbrex_drives::Locator::is_memory(&locator) {
        // Its kinds of streams are kept from now on.
        ChunkStore::open_uri_with(&uri, own)?.close()?;
    }
    let space = Store::of(&args.drive).look()?.space();
    if args.json {
        let shared = if args.with_fs { json!(["bluefs"]) } else { json!([]) };
        return print_json(
            &json!({ "drive": args.drive, "total": space.total, "free": space.free, "shared_with": shared }),
        );
    }
    let shared = if args.with_fs { ", shared with a file system" } else { "" };
    print(format_args!("{}: formatted, {} for chunks{shared}", args.drive, size(space.total)))
}

/// All of them are there, before the first is changed.
fn open_all(args: &Ids) -> Result<(ChunkStore, Vec<ChunkId>), Failure> {
    let store = args.store.open()?;
    let ids = which::all(&store, &args.ids)?;
    Ok((store, ids))
}

pub(super) fn seal(args: Ids) -> Outcome {
    let (store, ids) = open_all(&args)?;
    let mut sealed = Vec::new();
    for id in &ids {
        let len = store.seal_with(*id, Durability::Buffered)?;
        sealed.push(json!({ "id": id.to_string(), "len": len }));
    }
    store.close()?;
    if args.store.json { print_json(&json!({ "sealed": sealed })) } else { Ok(()) }
}

pub(super) fn rm(args: Ids) -> Outcome {
    let (store, mut ids) = open_all(&args)?;
    ids.sort_unstable();
    ids.dedup();
    which::whole(&store, &ids)?;
    let bar = progress(ids.len() as u64);
    for id in &ids {
        store.delete_with(*id, Durability::Buffered)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    store.close()?;
    if args.store.json { print_json(&json!({ "removed": ids.len() })) } else { Ok(()) }
}

pub(super) fn name(args: Name) -> Outcome {
    let store = args.store.open()?;
    if args.off {
        store.unname(&args.name)?;
    } else {
        let ids = which::all(&store, &args.chunks)?;
        store.name(&[(&args.name, &ids)], args.replace)?;
    }
    store.close()?;
    if !args.store.json {
        return Ok(());
    }
    let ids = if args.off { Vec::new() } else { store.named(&args.name)? };
    print_json(&json!({ "name": args.name, "chunks": ids.iter().map(ToString::to_string).collect::<Vec<_>>() }))
}

pub(super) fn clean(args: Clean) -> Outcome {
    let store = args.store.open()?;
    let before = store.space();
    let most = args.bytes.unwrap_or(u64::MAX);
    // No more than this can be worth it.
    let bar = progress(before.dead.max(1).min(most));
    let mut moved = 0;
    while moved < most {
        let step = store.clean(STEP.min(most - moved))?;
        if step == 0 {
            break;
        }
        moved += step;
        bar.inc(step);
    }
    bar.finish_and_clear();
    store.close()?;
    let (zones, after) = (store.stats().cleaned_zones, store.space());
    if args.store.json {
        return print_json(&json!({ "moved": moved, "zones": zones, "free": after.free, "dead": after.dead }));
    }
    print(format_args!(
        "{}: {} moved, {} freed; {} free now",
        args.store.drive,
        size(moved),
        number_of(zones, "zone"),
        size(after.free)
    ))
}

pub(super) fn salvage(args: Salvage) -> Outcome {
    let how = match (args.volume, args.relabel) {
        (Some(volume), _) => Relabel::Volume(volume),
        (None, true) => Relabel::Only,
        (None, false) => Relabel::No,
    };
    let options = if args.dry_run { args.store.as_a_look() } else { Vec::new() };
    let bar = recovery_bar();
    bar.enable_steady_tick(Duration::from_millis(200));
    let opened = args.store.open_with(options, |uri, options| {
        ChunkStore::salvage_uri(uri, options, how, |step, done, all| {
            bar.set_message(what(step));
            bar.set_length(all);
            bar.set_position(done);
        })
    });
    bar.finish_and_clear();
    let store = opened?;
    let (report, chunks) = (store.open_report().clone(), store.stats().chunks);
    if !args.dry_run {
        store.close()?;
    }
    let uuid = |new: Relabelled| uuid::Uuid::from_bytes(new.store.volume).to_string();
    if args.store.json {
        return print_json(&json!({
            "chunks": chunks, "records": report.records, "zones": report.scanned_zones, "damage": report.damage,
            "volume": report.relabelled.map(uuid), "kept_zones": report.relabelled.map(|new| new.kept),
        }));
    }
    if let Some(new) = report.relabelled {
        print(format_args!("the label was made anew, of volume {}", uuid(new)))?;
        if new.kept > 0 {
            let kept = count(u64::from(new.kept));
            print(format_args!(
                "{kept} written zones are not this store's, or nobody can tell whose they are: they stay as they are, and other engines on the drive have theirs again"
            ))?;
        }
    }
    if report.relabelled.is_some() && report.scanned_zones == 0 && report.damage.is_empty() {
        return print(format_args!(
            "{}; journal and checkpoints are whole, so all is as it was",
            number_of(chunks, "chunk")
        ));
    }
    let (records, zones) = (number_of(report.records, "record"), number_of(report.scanned_zones, "zone"));
    print(format_args!("{} of {records} in {zones}", number_of(chunks, "chunk")))?;
    report.damage.iter().try_for_each(print)?;
    print(
        "what was deleted may be back, and chunks are open that were sealed, where the journal did not say so any more",
    )
}
