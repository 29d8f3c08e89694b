//! Metrics in Prometheus's text format, for programs that use drives through this library and cannot be asked themselves.
//!
//! The environment variable `IMBREX_METRICS` says where: an address (`127.0.0.1:9899`, or only `9899` or `:9899`, which is on
//! loopback too) is served over HTTP; a path (`/var/lib/node_exporter/imbrex.prom`, anything with a slash in it) is a file that
//! is replaced every ten seconds and at each unmount. Where that cannot be had there is one warning, and the program goes on
//! without. Drives are watched, not held: metrics never keep one from being given back.

mod render;
mod serve;
mod textfile;

use imbrex_bluefs::{BlueFs, Metrics};
use imbrex_chunkstore::{ChunkStore, Metrics as ChunkMetrics};
use imbrex_image::Images;
use imbrex_kv::{Kv, Metrics as PairMetrics};
use imbrex_store::{Metrics as ObjectMetrics, Store};
use imbrex_zones::Volume;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

/// The environment variable.
pub(crate) const VARIABLE: &str = "IMBREX_METRICS";

static START: Once = Once::new();
static DRIVES: Mutex<Vec<((u64, Engine), Watch)>> = Mutex::new(Vec::new());

/// What images had when they were closed, for the last words of their store.
static LAST_IMAGES: Mutex<Vec<OfImages>> = Mutex::new(Vec::new());

/// The engines that there are, and images, which stand on one: several may have a drive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Files,
    Chunks,
    Pairs,
    Objects,
    Images,
}

/// Figures of the images of a drive.
#[derive(Clone)]
struct OfImages {
    drive: String,
    images: Vec<imbrex_image::Figures>,
}

/// Watches what is open on a drive.
#[derive(Clone)]
enum Watch {
    Files(imbrex_bluefs::Watch),
    Chunks(imbrex_chunkstore::Watch),
    Pairs(imbrex_kv::Watch),
    Objects(imbrex_store::Watch),
    Images(String, imbrex_image::Watch),
}

impl Watch {
    fn is_open(&self) -> bool {
        match self {
            Watch::Files(watch) => watch.is_open(),
            Watch::Chunks(watch) => watch.is_open(),
            Watch::Pairs(watch) => watch.is_open(),
            Watch::Objects(watch) => watch.is_open(),
            Watch::Images(_, watch) => watch.is_open(),
        }
    }

    fn figures(&self) -> Figures {
        match self {
            Watch::Files(watch) => Figures { files: watch.figures().into_iter().collect(), ..Figures::default() },
            Watch::Chunks(watch) => Figures { chunks: watch.figures().into_iter().collect(), ..Figures::default() },
            Watch::Pairs(watch) => Figures { pairs: watch.figures().into_iter().collect(), ..Figures::default() },
            Watch::Objects(watch) => Figures { objects: watch.figures().into_iter().collect(), ..Figures::default() },
            Watch::Images(drive, watch) => {
                let of = |images| OfImages { drive: drive.clone(), images };
                Figures { images: watch.figures().map(of).into_iter().collect(), ..Figures::default() }
            }
        }
    }

    fn at_close(&self, say: impl FnOnce(Figures) + Send + 'static) {
        match self {
            Watch::Files(watch) => watch.at_close(|last| say(Figures { files: vec![last], ..Figures::default() })),
            Watch::Chunks(watch) => watch.at_close(|last| say(Figures { chunks: vec![last], ..Figures::default() })),
            Watch::Pairs(watch) => watch.at_close(|last| say(Figures { pairs: vec![last], ..Figures::default() })),
            Watch::Objects(watch) => watch.at_close(|last| {
                let images = last_images().extract_if(.., |of| of.drive == last.drive).collect();
                say(Figures { objects: vec![last], images, ..Figures::default() });
            }),
            // Their store says it for them.
            Watch::Images(..) => {}
        }
    }
}

/// Figures of drives, by what is open on them.
#[derive(Default)]
struct Figures {
    files: Vec<Metrics>,
    chunks: Vec<ChunkMetrics>,
    pairs: Vec<PairMetrics>,
    objects: Vec<ObjectMetrics>,
    images: Vec<OfImages>,
}

impl Figures {
    fn is_empty(&self) -> bool {
        // Images have a store.
        self.files.is_empty() && self.chunks.is_empty() && self.pairs.is_empty() && self.objects.is_empty()
    }

    fn extend(&mut self, more: Figures) {
        self.files.extend(more.files);
        self.chunks.extend(more.chunks);
        self.pairs.extend(more.pairs);
        self.objects.extend(more.objects);
        self.images.extend(more.images);
    }
}

/// Where metrics go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Address(SocketAddr),
    File(PathBuf),
}

/// Understands the variable; a sentence where it makes no sense.
fn target(text: &str) -> Result<Target, String> {
    if text.contains('/') {
        let path = std::path::absolute(text).map_err(|e| format!("{e}; write an absolute path"))?;
        return match path.file_name() {
            Some(_) if !text.ends_with('/') => Ok(Target::File(path)),
            _ => Err("names a directory; write the path of a file in it, as /path/imbrex.prom".into()),
        };
    }
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(Target::Address(SocketAddr::from(([127, 0, 0, 1], port))));
    }
    let local = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    local.parse().map(Target::Address).map_err(|_| {
        "is neither an address and a port (127.0.0.1:9899) nor a path with a slash (/path/imbrex.prom)".into()
    })
}

/// The body of the fuzz target for [`VARIABLE`]: panics where a text is neither understood nor refused with a sentence.
#[doc(hidden)]
pub fn fuzz_metrics_variable(text: &str) {
    match target(text) {
        Ok(Target::Address(address)) => assert_eq!(target(&address.to_string()), Ok(Target::Address(address))),
        Ok(Target::File(path)) => assert!(path.is_absolute() && path.file_name().is_some()),
        Err(sentence) => assert!(!sentence.is_empty()),
    }
}

/// A file system was opened: it is among the metrics from now on, if somebody wants any.
pub(crate) fn opened(fs: &BlueFs) {
    watch((fs.volume(), Engine::Files), || Watch::Files(fs.watch()));
}

/// The same of a chunk store.
pub(crate) fn chunks_opened(store: &ChunkStore) {
    watch((store.volume(), Engine::Chunks), || Watch::Chunks(store.watch()));
}

/// The same of a key-value store.
pub(crate) fn pairs_opened(store: &Kv) {
    watch((store.volume(), Engine::Pairs), || Watch::Pairs(store.watch()));
}

/// The same of an object store.
pub(crate) fn objects_opened(store: &Store) {
    watch((store.volume(), Engine::Objects), || Watch::Objects(store.watch()));
}

/// The same of its images.
pub(crate) fn images_opened(store: &Store, images: &Images) {
    objects_opened(store);
    let drive = store.volume().name().to_string();
    last_images().retain(|of| of.drive != drive);
    watch((store.volume(), Engine::Images), || Watch::Images(drive, images.watch()));
}

/// Images of a drive are about to be closed.
pub(crate) fn images_closing(drive: &str, images: &Images) {
    if std::env::var_os(VARIABLE).is_none_or(|v| v.is_empty()) {
        return;
    }
    match images.figures() {
        Ok(images) => {
            let mut all = last_images();
            all.retain(|of| of.drive != drive);
            all.push(OfImages { drive: drive.to_owned(), images });
        }
        Err(error) => tracing::debug!(%error, "images have no last figures"),
    }
}

fn last_images() -> MutexGuard<'static, Vec<OfImages>> {
    LAST_IMAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch((volume, engine): (&Volume, Engine), watch: impl FnOnce() -> Watch) {
    let Some(wanted) = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) else { return };
    let watch = watch();
    // The same mount is given out to everybody who opens the drive.
    let key = (Arc::as_ptr(volume.device()).cast::<()>() as u64, engine);
    let mut drives = DRIVES.lock().unwrap_or_else(PoisonError::into_inner);
    drives.retain(|(_, watch)| watch.is_open());
    if drives.iter().any(|(other, _)| *other == key) {
        return;
    }
    drives.push((key, watch.clone()));
    drop(drives);
    let wanted = wanted.to_string_lossy();
    let target = target(&wanted);
    START.call_once(|| {
        let started = target.clone().and_then(|target| match target {
            Target::Address(address) => serve::start(address),
            Target::File(path) => textfile::start(path),
        });
        if let Err(why) = started {
            tracing::warn!("{VARIABLE}={wanted} {why}; going on without metrics");
        }
    });
    if let Ok(Target::File(path)) = target {
        watch.at_close(move |figures| textfile::last_words(&path, figures));
    }
}

/// The figures of every drive that is open.
fn figures() -> Figures {
    let drives: Vec<Watch> = {
        let mut drives = DRIVES.lock().unwrap_or_else(PoisonError::into_inner);
        drives.retain(|(_, watch)| watch.is_open());
        drives.iter().map(|(_, watch)| watch.clone()).collect()
    };
    let mut all = Figures::default();
    drives.iter().for_each(|watch| all.extend(watch.figures()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_on_loopback_unless_told_otherwise() {
        let address = |text: &str| match target(text) {
            Ok(Target::Address(address)) => address.to_string(),
            other => panic!("{text}: {other:?}"),
        };
        for text in ["9899", ":9899", "localhost:9899", "127.0.0.1:9899"] {
            assert_eq!(address(text), "127.0.0.1:9899");
        }
        assert_eq!(address("0.0.0.0:1"), "0.0.0.0:1");
        assert_eq!(address("[::1]:9899"), "[::1]:9899");
        assert_eq!(target("/x/y.prom"), Ok(Target::File("/x/y.prom".into())));
        assert!(matches!(target("./y.prom"), Ok(Target::File(path)) if path.is_absolute()));
        for nonsense in ["", "metrics", "host:9899", "127.0.0.1", "99999", "/x/"] {
            assert!(target(nonsense).is_err(), "{nonsense}");
        }
    }
}
