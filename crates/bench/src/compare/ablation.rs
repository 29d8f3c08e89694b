//! What each of bluefs' ideas is worth: the switches that turn it off, against the default, interleaved in one run on drives
//! in memory without time model, so that what is compared is commands and copies, not seeks (BlueFS §5.3, §5.5).

use super::spread;
use crate::ablation::open;
use imbrex_bluefs::{BlueFs, CreateOptions, Error};
use serde_json::{Value, json};
use std::time::Instant;

/// Bytes of a put of 20 B and 400 B as RocksDB appends it.
const PUT: usize = 443;

/// What is measured: its name, how often, and the operations a second on a drive that is mounted with these switches.
struct Row {
    name: &'static str,
    switch: &'static str,
    measure: fn(&BlueFs) -> Result<f64, Error>,
}

const ROWS: &[Row] = &[
    Row { name: "wal=unbuffered, puts", switch: "wal=unbuffered", measure: puts },
    Row { name: "wal=conventional, puts", switch: "wal=conventional", measure: puts },
    Row { name: "wal=first, puts", switch: "wal=first", measure: puts },
    Row { name: "wal=first, synced puts", switch: "wal=first", measure: synced_puts },
    Row { name: "cache-policy=fifo, random reads", switch: "cache-policy=fifo", measure: reads },
];

fn rate(operations: usize, began: Instant) -> f64 {
    operations as f64 / began.elapsed().as_secs_f64()
}

fn append(fs: &BlueFs, operations: usize, sync: bool) -> Result<f64, Error> {
    let mut log = fs.create("/000001.log", CreateOptions::default())?;
    let put = [7u8; PUT];
    let began = Instant::now();
    for _ in 0..operations {
        log.append(&put)?;
        if sync {
            log.sync()?;
        }
    }
    log.close()?;
    Ok(rate(operations, began))
}

fn puts(fs: &BlueFs) -> Result<f64, Error> {
    append(fs, 100_000, false)
}

fn synced_puts(fs: &BlueFs) -> Result<f64, Error> {
    append(fs, 10_000, true)
}

/// Reads of 4 KiB here and there in tables of twice the cache's size, nine of ten in the tenth that was written first.
fn reads(fs: &BlueFs) -> Result<f64, Error> {
    const TABLES: u64 = 20;
    const TABLE: u64 = 3_200_000;
    let piece = vec![7u8; TABLE as usize];
    for n in 0..TABLES {
        let mut table = fs.create(&format!("/{n:06}.sst"), CreateOptions::default())?;
        table.append(&piece)?;
        table.close()?;
    }
    let tables = (0..TABLES).map(|n| fs.open_read(&format!("/{n:06}.sst"))).collect::<Result<Vec<_>, _>>()?;
    let mut out = [0u8; 4096];
    // Numerical Recipes' generator: the same places in every run.
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let operations = 50_000;
    let began = Instant::now();
    for _ in 0..operations {
        let table = if next(10) > 0 { next(TABLES / 10) } else { next(TABLES) };
        if let Some(table) = tables.get(table as usize) {
            table.read_at(next(TABLE / 4096 - 1) * 4096, &mut out)?;
        }
    }
    Ok(rate(operations, began))
}

fn compare(row: &Row, pairs: usize) -> Result<Value, Error> {
    let drive = "imbrex://mem:?profile=hgst-hsh721414al&size=4G&zone-size=64M&conventional=8&cache=32M";
    let (mut with, mut without, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let switched = || (row.measure)(&open(&format!("{drive}&{}", row.switch))?);
        let default = || (row.measure)(&BlueFs::open_uri(drive)?);
        // Who is first changes from pair to pair.
        let (a, b) = if pair % 2 == 0 {
            let b = default()?;
            (switched()?, b)
        } else {
            (switched()?, default()?)
        };
        with.push(a);
        without.push(b);
        ratios.push(a / b);
    }
    let (median, smallest, largest) = spread(&ratios);
    Ok(
        json!({ "name": format!("{} against the default", row.name), "unit": "x", "median": median, "smallest": smallest,
               "largest": largest, "switched_ops": with, "default_ops": without }),
    )
}

/// All switches.
pub fn rows(pairs: usize) -> Vec<Value> {
    let row =
        |row: &Row| compare(row, pairs).unwrap_or_else(|why| json!({ "name": row.name, "not_run": why.to_string() }));
    ROWS.iter().map(row).collect()
}
