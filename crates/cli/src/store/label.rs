//! `imbrex store label`: what a store says of itself.

use super::named::Named;
use super::open;
use crate::engine::uri_of;
use crate::output::{Failure, Outcome, hexadecimal, print, print_json, size, table};
use imbrex_device::Drive;
use imbrex_drives::{OpenOptions, SCHEME, parse_uri};
use imbrex_store::Label;
use serde_json::json;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    named: Named,
    /// Give a key a value.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Take a key away.
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
}

/// Opens the drive alone, for reading.
pub(super) fn drive(named: &str) -> Result<Drive, Failure> {
    let locator = match named.strip_prefix(SCHEME) {
        Some(_) => parse_uri(&uri_of(named)?, &["db"])?.locator,
        None => named.to_owned(),
    };
    Ok(imbrex_drives::open(&locator, &OpenOptions { read_only: true, ..OpenOptions::default() })?)
}

pub(super) fn run(args: &Args) -> Outcome {
    let mut changes = Vec::new();
    for pair in &args.set {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("{pair:?} is no pair; write it as KEY=VALUE")))?;
        changes.push((key.to_owned(), Some(value.to_owned())));
    }
    changes.extend(args.unset.iter().map(|key| (key.clone(), None)));
    let (label, geometry) = if changes.is_empty() {
        let drive = drive(&args.named.drive)?;
        (Label::read(&drive)?, drive.device.geometry().clone())
    } else {
        let store = open(&args.named)?;
        (store.set_label(&changes)?, store.volume().geometry().clone())
    };
    let (uuid, bytes) = (hexadecimal(&label.volume), u64::from(geometry.zones) * geometry.zone_size);
    let db = label.db.map(|db| hexadecimal(&db.volume));
    if args.named.json {
        return print_json(
            &json!({ "kind": "object store", "volume": uuid, "drive_bytes": bytes, "made": label.made, "metadata_volume": db, "pairs": label.pairs }),
        );
    }
    let mut rows = vec![
        ("kind", "object store".to_owned()),
        ("volume", uuid),
        ("drive", size(bytes)),
        ("made", super::ago(label.made)),
    ];
    rows.extend(db.map(|db| ("metadata", format!("on another drive, volume {db}"))));
    rows.extend(label.pairs.iter().map(|(key, value)| (&key[..], value.escape_debug().to_string())));
    print(table(&rows))
}
