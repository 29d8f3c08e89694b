//! The object store as an engine of a volume, and as its user opens it.

use crate::db::{self, Db};
use crate::keeper::{Keeper, KeeperOptions, MetadataIn};
use crate::label::Label;
use crate::pace::{self, Turn};
use crate::pair;
use imbrex_bluestore::{BUDGET, BlueStore, Checksum, Compression, Damage, Layout, Mend, NAME, Repaired, Report, Usage};
use imbrex_device::{Code, Drive, Error, Geometry, Result};
use imbrex_drives::{Locator, OpenOptions, parse_uri};
use imbrex_zones::shell::{self, Beside, Engine, Opened, Opener, Rest, Shell, Start, UriOption};
use imbrex_zones::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
use std::ops::Deref;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

/// The store's decoded records have such a part of the memory of `cache=`, beside it.
const RECORDS: u64 = 16;
/// Of a drive with the metadata of another one such a part gathers at most before it is packed, but this much in any case.
const PART: u64 = 64;
const LEAST: u64 = 256 << 10;
/// How often the maintenance thread looks whether anything waits.
const LOOK: Duration = Duration::from_secs(2);

/// How a store is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The object store's own. Its cache takes a sixteenth of the other's memory, whatever this says of it.
    pub store: imbrex_bluestore::Options,
    /// Those of the key-value store that has its metadata. RocksDB takes the sizes of memtable and cache from here.
    pub metadata: imbrex_kv::Options,
    /// What keeps its metadata, which is decided when the drive is formatted; `None`: what the drive has.
    pub metadata_in: Option<MetadataIn>,
    /// The drive with the metadata, where that is another one.
    pub db: Option<Db>,
    /// How the volume is opened, and that of the metadata.
    pub volume: VolumeOptions,
    /// The drive is only looked at, so nothing is done that could be left. An opening with `read-only=on` sets it.
    pub look: bool,
}

/// Figures of an open store, and those that every engine has.
pub type Metrics = shell::Metrics<Usage>;
/// Figures that do not keep a store open.
pub type Watch = shell::Watch<Usage>;

pub(crate) struct ObjectStore {
    store: BlueStore,
    metadata: Keeper,
    volume: Volume,
    /// The volume of the metadata, where that is another drive's.
    db: Option<Beside>,
    damage: Vec<String>,
    /// It was opened to be repaired.
    repairs: bool,
    /// All is scrubbed once in so long.
    scrub: Option<Duration>,
}

/// What the maintenance thread keeps in mind.
#[derive(Default)]
pub(crate) struct Chores {
    /// Bytes that were deferred when it looked last, and changes of counts that waited.
    waiting: (u64, u64),
    /// When it looked last.
    looked: Option<Instant>,
    /// What users had done when it looked last.
    activity: u64,
    /// Nothing is cleaned before, unless zones run short; `None`: there was nothing to do.
    rests_until: Option<Instant>,
    /// Nothing is scrubbed before.
    scrubs_from: Option<Instant>,
}

impl Engine for ObjectStore {
    const TENANT: &'static str = NAME;
    const OPTIONS: &'static [UriOption<Options>] = &[
        ("memtable", |o, given| {
            given.size(64 << 10..=64 << 30).map(|bytes| o.metadata.memtable_bytes = bytes as usize)
        }),
        ("cache", |o, given| given.size(0..=1 << 50).map(|bytes| o.metadata.cache_bytes = bytes)),
        ("metadata", |o, given| given.one_of(&MetadataIn::WORDS).map(|which| o.metadata_in = Some(which))),
        ("db", |o, given| Db::of_option(given.value).map(|db| o.db = Some(db))),
        ("defer-below", |o, given| given.size(0..=256 << 10).map(|bytes| o.store.defer_below = bytes)),
        ("compression", |o, given| {
            let how = Compression::of_name(given.value);
            how.map(|how| o.store.compression = how).ok_or_else(|| format!("{given} is not off, lz4 or zstd"))
        }),
        ("checksum", |o, given| {
            let how = Checksum::of_name(given.value);
            how.map(|how| o.store.checksum = how).ok_or_else(|| format!("{given} is neither crc32c nor xxh3"))
        }),
        ("nearfull", |o, given| given.number(1..=100).map(|percent| o.store.near_full = percent)),
        ("full", |o, given| given.number(1..=100).map(|percent| o.store.full = percent)),
        ("max-slowdown", |o, given| given.number(1.05..=100.0).map(|factor| o.store.max_slowdown = factor)),
        ("pack-from", |o, given| given.size(0..=1 << 30).map(|bytes| o.store.pack_from = bytes)),
        ("layout", |o, given| {
            let layout = Layout::of_name(given.value);
            layout.map(|layout| o.store.layout = layout).ok_or_else(|| format!("{given} is neither zones nor in-place"))
        }),
        ("min-alloc", |o, given| given.size(4 << 10..=1 << 20).map(|bytes| o.store.min_alloc = Some(bytes as u32))),
        ("overwrites", |o, given| given.one_of(&[("anywhere", false), ("home", true)]).map(|home| o.store.home = home)),
        ("repair", |o, given| given.on().map(|on| o.store.repair = on)),
        ("scrub", |o, given| {
            let period = pace::period(given.value);
            let period =
                period.ok_or_else(|| format!("{given} is neither off nor a number of days, as 7d, or hours, as 12h"));
            period.map(|period| o.store.scrub = period)
        }),
    ];
    type Options = Options;
    type Error = Error;
    type Figures = Usage;
    type Chores = Chores;

    fn opened() -> &'static Opened<ObjectStore> {
        static OPENED: LazyLock<Opened<ObjectStore>> = LazyLock::new(Opened::default);
        &OPENED
    }

    fn volume_options(options: &mut Options) -> &mut VolumeOptions {
        &mut options.volume
    }

    fn look(options: &mut Options) {
        // Who only looks has nothing to gain from packing and merges.
        options.volume.exec = Exec::Inline;
        options.look = true;
    }

    fn format(drive: &Drive) -> Result<()> {
        format(drive, MetadataIn::default(), None, false)
    }

    fn format_for(drive: &Drive, options: &Options) -> Result<()> {
        let which = options.metadata_in.unwrap_or_default();
        match &options.db {
            Some(db) => pair::format([drive, &db.drive()?], which, None, false),
            None => format(drive, which, None, false),
        }
    }

    fn open(start: Start<ObjectStore>) -> Result<ObjectStore> {
        let Options { mut store, mut metadata, metadata_in, db, volume, look } = start.options;
        store.attended |= volume.exec != Exec::Inline;
        let db = db::open(&start.tenant, db.as_ref(), &volume, look)?;
        metadata.volume = volume;
        store.cache = metadata.cache_bytes / RECORDS;
        // Deferred bytes that stay in the memtable until they are packed are never written to a table, and not read from one.
        store.pack_from = store.pack_from.min(metadata.memtable_bytes as u64 / 4);
        let volume = start.tenant.volume().clone();
        let keeps = db.as_ref().map_or(&volume, Beside::volume);
        store.elsewhere = db.is_some();
        if store.elsewhere {
            // What gathers has to have room there.
            let most = (u64::from(keeps.geometry().zones) * keeps.least_capacity() / PART).max(LEAST);
            (store.pack_from, store.gather) = (store.pack_from.min(most), store.gather.min(2 * most));
        }
        let made = Label::has_begun(&start.tenant);
        let keeper = KeeperOptions { asked: metadata_in, kv: metadata, look, made, objects: volume.clone() };
        let (metadata, damage) = Keeper::open(keeps, keeper)?;
        let (scrub, repairs) = (store.scrub, store.repair);
        let store = BlueStore::open(&start.tenant, metadata.key_value(), store)?;
        store.attended_by(start.maintenance);
        Label::begin(&start.tenant, now())?;
        Ok(ObjectStore { store, metadata, volume, db, damage, repairs, scrub })
    }

    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn damage(&self) -> &[String] {
        &self.damage
    }

    fn figures(&self) -> Usage {
        self.store.usage()
    }

    fn step(&self) -> Result<bool> {
        let db_step = || self.db.as_ref().map_or(Ok(false), |db| db.volume().step());
        Ok(self.store.pack()? || db_step()?)
    }

    fn wants_thread(&self) -> bool {
        // Who repairs is alone.
        !self.repairs
    }

    /// Cleans. Now and then it makes durable what nobody waits for, and packs deferred bytes to which nothing came since the last look. Then it scrubs.
    fn chore(&self, chores: &mut Chores) -> Option<Rest> {
        let is_over = |until: Option<Instant>| until.is_none_or(|until| until <= Instant::now());
        if is_over(chores.rests_until) || self.store.is_short_of_zones() {
            chores.rests_until = self.clean().map(|rest| Instant::now() + rest);
        }
        if chores.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            chores.looked = Some(Instant::now());
            self.look_after(chores)?;
        }
        if is_over(chores.scrubs_from) {
            let rest = self.scrub(chores).map_or(LOOK, |took| took * pace::REST);
            chores.scrubs_from = Some(Instant::now() + rest);
        }
        let next = chores.rests_until.into_iter().chain(chores.scrubs_from).min();
        let time = next.map_or(LOOK, |next| next.saturating_duration_since(Instant::now())).min(LOOK);
        Some(Rest { time, until_rung: true })
    }

    fn close(&self) -> Result<()> {
        let scrub = self.store.scrubbed();
        // A restart goes on there.
        let saved = if scrub.is_under_way { self.store.save_scrub() } else { Ok(()) };
        let synced = saved.and_then(|()| self.store.sync());
        self.metadata.close();
        if let Some(db) = &self.db
            && let Err(error) = db.end(synced.is_ok())
        {
            tracing::warn!(%error, "the shared memory of the metadata's drive could not be given up");
        }
        synced
    }
}

impl ObjectStore {
    /// Cleans a little. How long to rest then; `None`: there was nothing to do.
    fn clean(&self) -> Option<Duration> {
        self.store.clean_a_step().unwrap_or_else(|error| {
            tracing::warn!(%error, "cleaning failed");
            None
        })
    }

    /// What waits goes on. `None`: the store takes no more.
    fn look_after(&self, chores: &mut Chores) -> Option<()> {
        let Usage { deferred, uncounted, .. } = self.store.usage();
        let quiet = (deferred, uncounted) == std::mem::replace(&mut chores.waiting, (deferred, uncounted));
        let done =
            if quiet && (deferred > 0 || uncounted > 0) { self.store.pack().map(drop) } else { self.store.sync() };
        if let Err(error) = done {
            tracing::warn!(%error, "what was queued could not be made durable");
            if error.code() == Code::Poisoned {
                return None;
            }
        }
        Some(())
    }

    /// Does a step of the scrub, if it is its turn. Returns how long that took.
    fn scrub(&self, chores: &mut Chores) -> Option<Duration> {
        let activity = self.store.activity();
        let quiet = std::mem::replace(&mut chores.activity, activity) == activity && !self.store.is_waited_for();
        let (began, now) = (Instant::now(), now());
        let usage = self.store.usage();
        match pace::turn(self.scrub?, now, &self.store.scrubbed(), usage.stored + usage.deferred) {
            Turn::Scrubs => {}
            Turn::WhenQuiet if quiet => {}
            Turn::WhenQuiet | Turn::Nobodys => return None,
        }
        let done = self.store.scrub_step(pace::STEP, now);
        // What it has written down was no user's.
        chores.activity = self.store.activity();
        match done {
            Ok(_) => Some(began.elapsed()),
            Err(error) => {
                tracing::warn!(%error, "scrubbing failed");
                None
            }
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Formats a drive for an object store, and what keeps its metadata.
fn format(drive: &Drive, metadata: MetadataIn, uuid: Option<[u8; 16]>, force: bool) -> Result<()> {
    metadata.check()?;
    let tenants = Store::tenants_with(metadata, drive.device.geometry());
    Volume::format(drive, &FormatOptions { uuid, tenants, force })
}

/// An opening. Where it names a drive for the metadata, both are looked at before anything is written.
#[derive(Default)]
struct Opening {
    /// What the process knows the drive by.
    key: Option<String>,
    open: OpenOptions,
}

impl Opening {
    fn of(uri: &str, more: &[(&str, &str)]) -> Result<Opening> {
        let mut parsed = parse_uri(uri, &shell::names::<ObjectStore>())?;
        for (name, value) in more {
            parsed.options.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
        }
        let open = parsed.open_options()?;
        let key = (!Locator::is_memory(&parsed.locator)).then(|| imbrex_drives::key(&parsed.locator));
        Ok(Opening { key, open })
    }
}

impl Opener<ObjectStore> for Opening {
    fn tune(&mut self, options: &mut Options) {
        options.db.iter_mut().for_each(|db| db.opens_as(&self.open));
    }

    fn prepare(&mut self, drive: &Drive, options: &Options) -> Result<()> {
        let Options { db, volume, look, .. } = options;
        db.as_ref().map_or(Ok(()), |db| db::prepare(db, drive, self.key.as_deref(), volume, *look))
    }
}

/// An open object store. Clones are the same one. When the last is dropped all that was queued is made durable, and the drive is given back.
#[derive(Clone)]
pub struct Store(Shell<ObjectStore>);

impl Deref for Store {
    type Target = BlueStore;
    fn deref(&self) -> &BlueStore {
        &self.0.store
    }
}

impl Store {
    /// Formats a drive for an object store alone.
    ///
    /// # Errors
    /// `Unusable` where the drive holds something and `force` is not set, or is too small.
    pub fn format(drive: &Drive, uuid: Option<[u8; 16]>, force: bool) -> Result<()> {
        format(drive, MetadataIn::default(), uuid, force)
    }

    /// The same with the metadata where `metadata` says.
    ///
    /// # Errors
    /// Those of [`Store::format`]; a sentence where RocksDB cannot be loaded.
    pub fn format_with(drive: &Drive, metadata: MetadataIn, uuid: Option<[u8; 16]>, force: bool) -> Result<()> {
        format(drive, metadata, uuid, force)
    }

    /// What a URI asks for to keep the metadata.
    ///
    /// # Errors
    /// `Misuse` where the URI makes no sense.
    pub fn metadata_of(uri: &str) -> Result<MetadataIn> {
        shell::options_of::<ObjectStore>(uri).map(|options| options.metadata_in.unwrap_or_default())
    }

    /// What the label of a drive says for an object store, which may be beside other engines: the key-value store for its metadata, and its own zones.
    pub fn tenants(geometry: &Geometry) -> Vec<TenantSpec> {
        Self::tenants_with(MetadataIn::default(), geometry)
    }

    /// The same with the metadata where `metadata` says.
    pub fn tenants_with(metadata: MetadataIn, geometry: &Geometry) -> Vec<TenantSpec> {
        vec![metadata.spec(geometry), TenantSpec { name: NAME.into(), budget: BUDGET }]
    }

    /// Formats a drive for an object store, and another one for its metadata. Where a loss of power cuts it off, it can be repeated without `force`.
    ///
    /// # Errors
    /// Those of [`Store::format_with`], for either drive. Where a drive holds something nothing is changed on both.
    pub fn format_apart(
        objects: &Drive,
        db: &Drive,
        metadata: MetadataIn,
        uuids: Option<[[u8; 16]; 2]>,
        force: bool,
    ) -> Result<()> {
        pair::format([objects, db], metadata, uuids, force)
    }

    /// What the labels say of two drives for an object store and its metadata, each of which may have other engines, too. [`Store::pair`] is behind the formatting.
    pub fn tenants_apart(metadata: MetadataIn, db: &Geometry) -> [Vec<TenantSpec>; 2] {
        pair::tenants(metadata, db)
    }

    /// Two drives that were formatted with [these](Store::tenants_apart) tenants name each other from here on. What a store had there before is lost.
    ///
    /// # Errors
    /// Those of the drives.
    pub fn pair(objects: &Drive, db: &Drive) -> Result<()> {
        pair::link(objects, db)
    }

    /// The drive that a URI names for the metadata.
    ///
    /// # Errors
    /// `Misuse` where the URI makes no sense; those of that drive.
    pub fn db_of(uri: &str) -> Result<Option<Drive>> {
        let db = shell::options_of::<ObjectStore>(uri)?.db;
        db.map(|db| db.drive()).transpose()
    }

    /// What keeps its metadata.
    pub fn metadata_in(&self) -> MetadataIn {
        self.0.metadata.which()
    }

    /// Opens the store of a volume that is open already, which may have other engines. Once: to open it again the volume has to be opened anew.
    ///
    /// # Errors
    /// Those of [`Store::open`]; `Unusable`, too, where it has been opened on this volume before.
    pub fn open_on(volume: &Volume, options: Options) -> Result<Store> {
        Shell::open_tenant(volume.tenant(NAME)?, options).map(Store)
    }

    /// Opens the store on a drive.
    ///
    /// # Errors
    /// Those of the drive; a drive without an object store.
    pub fn open(drive: Drive, options: Options) -> Result<Store> {
        Shell::open_drive(drive, options, false, &mut Opening::default()).map(Store)
    }

    /// Opens the store of a drive that a URI names, as `imbrex:///data/drive.img?memtable=256M`, or hands out the one that this process has open. `more`: options that
    /// count where the URI does not give them; `("format", "on")` formats a drive that is not.
    ///
    /// # Errors
    /// Those of [`Store::open`]; `Misuse` where the URI makes no sense.
    pub fn open_uri(uri: &str, more: &[(&str, &str)]) -> Result<Store> {
        Shell::open_uri(uri, more, &mut Opening::of(uri, more)?).map(Store)
    }

    /// The volume of its metadata, where that is another drive's.
    pub fn db(&self) -> Option<&Volume> {
        self.0.db.as_ref().map(Beside::volume)
    }

    /// The volume that it is on.
    pub fn volume(&self) -> &Volume {
        &self.0.volume
    }

    /// Figures that do not keep it open.
    pub fn watch(&self) -> Watch {
        self.0.watch()
    }

    /// [`BlueStore::check`], and what the key-value store finds wrong with its tables, its log and the drive's labels, or RocksDB with its tables and bluefs with its files.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn check_all(&self, deep: bool) -> Result<Report> {
        let mut report = self.check(deep)?;
        report.wrong.extend(self.0.metadata.check()?);
        if self.0.db.is_some() {
            // Who keeps the metadata has looked at the labels of its own drive.
            report.wrong.extend(self.volume().check_labels()?);
        }
        Ok(report)
    }

    /// Reads all that lives, now and in one go, and compares it with its checksums. `progress` is told of bytes, as they are read. Returns all that is known to be damaged.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn scrub(&self, mut progress: impl FnMut(u64)) -> Result<Vec<Damage>> {
        self.scrub_anew();
        loop {
            let over = self.scrub_step(pace::STEP, now())?;
            progress(self.scrubbed().read);
            if over {
                break;
            }
        }
        self.sync()?;
        self.damaged()
    }

    /// [`BlueStore::repair`] of a store that was opened with `repair=on`. Where the opening has found damage of the metadata nothing is deleted. `quick`: only records of zones and sums.
    ///
    /// # Errors
    /// Those of [`BlueStore::repair`].
    pub fn repair(&self, quick: bool) -> Result<Repaired> {
        let mend = match (quick, self.damage().is_empty()) {
            (true, _) => Mend::Zones,
            (false, true) => Mend::All,
            (false, false) => Mend::Keeping,
        };
        (**self).repair(mend)
    }

    /// Sentences of damage that the opening found.
    pub fn damage(&self) -> &[String] {
        &self.0.damage
    }
}
