//! The metrics of block images, each with the image's name.

use super::{OfDrive, Page};
use crate::metrics::OfImages;
use imbrex_image::Figures;
use prometheus::proto::MetricType::{self, COUNTER, GAUGE};

/// Nothing of the drive: its store tells that.
fn of_drive(of: &OfImages) -> OfDrive<Vec<Figures>> {
    let OfImages { drive, images } = of.clone();
    let (commands, seconds, zones) = (Vec::new(), Vec::new(), Vec::new());
    OfDrive { drive, commands, seconds, zones, mount: 0, damage: 0, poisoned: false, own: images }
}

/// A figure of each kind of requests of each image.
fn by_kind(images: &[Figures], figure: impl Fn(&imbrex_image::Requests) -> u64) -> Vec<(Vec<String>, f64)> {
    let kinds = images.iter().flat_map(|image| image.requests.iter().map(move |of| (image, of)));
    let one = |(image, of): (&Figures, &imbrex_image::Requests)| {
        (vec![image.name.clone(), of.kind.name().to_owned()], figure(of) as f64)
    };
    kinds.map(one).filter(|(_, figure)| *figure > 0.0).collect()
}

fn limits(images: &[Figures]) -> Vec<(Vec<String>, f64)> {
    let of = |image: &Figures| {
        let limits = image.limits;
        let all = [("used", limits.used), ("iops", limits.iops), ("bandwidth", limits.bandwidth)];
        let name = image.name.clone();
        all.map(move |(which, limit)| Some((vec![name.clone(), which.to_owned()], limit? as f64)))
    };
    images.iter().flat_map(of).flatten().collect()
}

pub(super) fn add(page: &mut Page, drives: &[OfImages]) {
    let drives: &Vec<OfDrive<Vec<Figures>>> = &drives.iter().map(of_drive).collect();
    let took = ("imbrex_image_seconds", "Seconds that requests took, without waits for limits.", 1e9);
    page.add_histograms(drives, took, &["image", "operation"], |d| {
        let all = d.own.iter().flat_map(|image| image.requests.iter().map(move |of| (image, of)));
        all.map(|(image, of)| (vec![image.name.clone(), of.kind.name().to_owned()], &of.nanoseconds)).collect()
    });
    let bytes = (COUNTER, "imbrex_image_bytes_total", "Bytes of requests that succeeded.");
    page.add(drives, bytes, &["image", "operation"], |d| by_kind(&d.own, |of| of.bytes));
    let failed = (COUNTER, "imbrex_image_failed_requests_total", "Requests that ended in an error.");
    page.add(drives, failed, &["image", "operation"], |d| by_kind(&d.own, |of| of.failed));
    let about = (GAUGE, "imbrex_image_limit", "Limits: bytes, requests a second, bytes a second.");
    page.add(drives, about, &["image", "limit"], |d| limits(&d.own));
    type Figure = fn(&Figures) -> Option<f64>;
    let single: [(MetricType, &str, &str, Figure); 7] = [
        (GAUGE, "imbrex_image_size_bytes", "Bytes that the image has for its clients.", |i| Some(i.size as f64)),
        (GAUGE, "imbrex_image_used_bytes", "Bytes of blocks of it as it is now.", |i| {
            i.taken.as_ref().map(|taken| taken.used as f64)
        }),
        (GAUGE, "imbrex_image_kept_bytes", "Bytes of blocks that were kept for its snapshots.", |i| {
            i.taken.as_ref().map(|taken| taken.kept as f64)
        }),
        (GAUGE, "imbrex_image_used_age_seconds", "How old these two are.", |i| {
            i.taken.as_ref().map(|taken| taken.age as f64)
        }),
        (GAUGE, "imbrex_image_snapshots", "Its snapshots.", |i| Some(i.snapshots as f64)),
        (COUNTER, "imbrex_image_waits_total", "Requests that its limits have held back.", |i| Some(i.waits as f64)),
        (COUNTER, "imbrex_image_wait_seconds_total", "Seconds that these have waited.", |i| {
            Some(i.waited as f64 / 1e9)
        }),
    ];
    for (kind, name, help, figure) in single {
        let sample = |image: &Figures| Some((vec![image.name.clone()], figure(image)?));
        page.add(drives, (kind, name, help), &["image"], |d| d.own.iter().filter_map(sample).collect::<Vec<_>>());
    }
}
