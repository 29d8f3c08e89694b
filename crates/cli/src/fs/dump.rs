//! `imbrex fs dump`: the metadata of a file system as JSON, a line for each thing, so that a drive of any size needs no memory for all of it.
//! docs/operations.md describes the lines.

use super::Mount;
use super::look::kind_name;
use crate::output::{Failure, Outcome, hexadecimal, written};
use imbrex_bluefs::{BlueFs, Holds, Node, Stretch, ZonePlace};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};

/// Goes up when a field is taken away or means something else; new fields may come without that.
const VERSION: u32 = 1;
/// Files and directories that are asked for at a time.
const PAGE: usize = 256;

/// A 64-bit number that need not be exact in a reader's floating-point numbers otherwise.
fn life(life: u64) -> String {
    format!("{life:016x}")
}

fn head(fs: &BlueFs) -> Value {
    let (volume, report, space) = (fs.volume(), fs.mount_report(), fs.space());
    let (geometry, journal) = (volume.geometry(), fs.journal_place());
    let zones: Vec<Value> = journal.zones.iter().map(|(zone, of)| json!({ "zone": zone, "life": life(*of) })).collect();
    json!({
        "imbrex_fs_dump": VERSION,
        "uuid": hexadecimal(&volume.uuid()), "mounts": volume.mount() - 1,
        "clean": report.clean, "power_lost": report.power_lost, "replayed_bytes": report.replayed_bytes, "damage": report.damage,
        "geometry": { "zones": geometry.zones, "zone_size": geometry.zone_size, "block_size": geometry.block },
        "space": { "total": space.total, "free": space.free, "small_total": space.small_total, "small_free": space.small_free },
        "journal": { "generation": journal.generation, "zones": zones },
    })
}

fn node(node: &Node) -> Value {
    let a = &node.attributes;
    let stretch = |s: &Stretch| {
        json!({ "logical": s.logical, "bytes": s.len, "address": s.address, "framed": s.framed,
                "zone": s.zone.map(|(zone, _)| zone), "life": s.zone.map(|(_, of)| life(of)) })
    };
    json!({ "file": a.serial, "kind": kind_name(a.kind), "paths": node.paths, "links": a.links, "size": a.size,
            "allocated": a.allocated, "modified_ns": a.modified,
            "extents": node.extents.iter().map(stretch).collect::<Vec<_>>() })
}

fn zone(place: &ZonePlace) -> Value {
    let (holds, of, pieces) = match place.holds {
        None => (None, None, 0),
        Some(Holds::Journal { life }) => (Some("journal"), Some(life), 0),
        Some(Holds::Files { life, pieces }) => (Some("files"), Some(life), pieces),
    };
    json!({ "zone": place.zone.id.0, "state": place.zone.state.name(), "capacity": place.zone.capacity,
            "write_pointer": place.zone.wp, "holds": holds, "life": of.map(life), "pieces": pieces })
}

fn write(fs: &BlueFs, out: &mut impl Write) -> Result<io::Result<()>, Failure> {
    let zones = fs.zone_places()?;
    Ok((|| {
        let mut line = |value: Value| writeln!(out, "{value}");
        line(head(fs))?;
        let (mut after, mut files) = (None, 0_u64);
        loop {
            let page = fs.nodes(after, PAGE);
            let Some(last) = page.last() else { break };
            after = Some(last.attributes.serial);
            files += page.len() as u64;
            page.iter().map(node).try_for_each(&mut line)?;
        }
        zones.iter().map(zone).try_for_each(&mut line)?;
        line(json!({ "end": { "files": files, "zones": zones.len() } }))?;
        out.flush()
    })())
}

pub(super) fn dump(args: &Mount) -> Outcome {
    let fs = args.look()?;
    written(write(&fs, &mut BufWriter::new(io::stdout().lock()))?)
}
