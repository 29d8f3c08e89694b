//! What `imbrex drive info` says of a zoned block device of the kernel.

use crate::output::{Failure, Outcome, count, print, print_json, size, table};
use imbrex_device::banded::SequentialOnly;
use imbrex_device::kernel::{Access, KernelDevice};
use imbrex_device::{Cause, ZonedDevice};
use serde_json::{Value, json};
use std::path::Path;

/// Opens a device to look at it beside whoever has it.
pub fn observe(path: &Path) -> Result<KernelDevice, Failure> {
    Ok(KernelDevice::open(path, Access::Observe)?)
}

/// `imbrex drive info /dev/sdb`.
pub fn info(path: &Path, as_json: bool) -> Outcome {
    let device = observe(path)?;
    if as_json {
        return print_json(&facts(path, &device)?);
    }
    let (about, geometry) = (device.about(), device.geometry());
    let capacity = device.zone_capacity()?;
    let limit = |limit: Option<std::num::NonZeroU32>| limit.map_or("no limit".into(), |n| n.to_string());
    let unknown = || "unknown".to_owned();
    let mut rows = vec![
        ("drive", path.display().to_string()),
        ("model", about.model.unwrap_or_else(unknown)),
        ("serial", about.serial.unwrap_or_else(unknown)),
        ("capacity", size(geometry.size())),
        ("zones", format!("{} of {}", count(u64::from(geometry.zones)), size(geometry.zone_size))),
        ("conventional", crate::drive::conventional(about.conventional, bands(&device))),
        ("zone capacity", size(capacity)),
        ("block", size(u64::from(geometry.block))),
        ("largest command", size(u64::from(geometry.max_io))),
        ("open limit", limit(geometry.max_open)),
        ("active limit", limit(geometry.max_active)),
        ("rotational", if geometry.rotational { "yes" } else { "no" }.into()),
        ("in use by", about.in_use_by.map_or("nobody that says so".into(), |pid| format!("process {pid}"))),
    ];
    rows.extend(about.advice.into_iter().map(|advice| (advice.subject, advice.sentence)));
    print(table(&rows))
}

/// Sequential zones that a band table makes of the device's conventional ones.
fn bands(device: &KernelDevice) -> Option<u32> {
    let zone_size = device.geometry().zone_size;
    let size = u64::from(device.about().conventional) * zone_size;
    SequentialOnly::seen(size, zone_size, |buf, at| device.read_at(buf, at, Cause::Other.into()).is_ok())
}

fn facts(path: &Path, device: &KernelDevice) -> Result<Value, Failure> {
    let (about, geometry) = (device.about(), device.geometry());
    let advice: Vec<Value> = about
        .advice
        .iter()
        .map(|advice| json!({ "subject": advice.subject, "good": advice.good, "sentence": advice.sentence }))
        .collect();
    Ok(json!({
        "path": path.display().to_string(),
        "kernel_name": about.kernel_name,
        "model": about.model,
        "serial": about.serial,
        "capacity": geometry.size(),
        "zones": geometry.zones,
        "zone_size": geometry.zone_size,
        "zone_capacity": device.zone_capacity()?,
        "conventional": about.conventional,
        "bands": bands(device),
        "block": geometry.block,
        "logical_block": about.logical_block,
        "physical_block": about.physical_block,
        "max_io": geometry.max_io,
        "max_open": geometry.max_open,
        "max_active": geometry.max_active,
        "rotational": geometry.rotational,
        "write_cache": device.write_cache()?,
        "in_use_by": about.in_use_by,
        "advice": advice,
    }))
}
