//! The drive with the metadata of a store, where that is another one: how it is named, opened and closed.

use crate::keeper::MetadataIn;
use crate::pair::{self, Link};
use imbrex_bluestore::NAME;
use imbrex_device::{Drive, Error, Result};
use imbrex_drives::{OpenOptions, SCHEME};
use imbrex_zones::shell::{Beside, BesideOptions};
use imbrex_zones::{Tenant, Volume, VolumeOptions};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The drive with the metadata of a store. Clones are the same one. It is one opening's.
#[derive(Clone)]
pub struct Db {
    /// What it was named by; empty: it was handed over.
    locator: String,
    open: OpenOptions,
    held: Arc<Mutex<Held>>,
}

/// What an opening has of it so far.
enum Held {
    Nothing,
    Drive(Drive),
    Open(Beside),
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Db({:?})", self.locator)
    }
}

/// Text in which `%26` stands for `&`, and so on. `None`: what stands behind a `%` is no such number, or the bytes are no text.
fn unescape(text: &str) -> Option<String> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<2>()?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(out).ok()
}

impl Db {
    /// The drive of a path, or of what stands behind `imbrex://`: the value of an option of a URI, where `%26` stands for `&` and `%25` for `%`.
    ///
    /// # Errors
    /// A sentence where it makes no sense.
    pub fn of_option(value: &str) -> std::result::Result<Db, String> {
        let text = unescape(value).ok_or_else(|| {
            format!("db={value}: what stands behind % are not two hexadecimal digits; write %25 for % itself")
        })?;
        let locator = text.strip_prefix(SCHEME).unwrap_or(&text);
        if locator.is_empty() || locator == "on" {
            return Err("db names no drive; write db=/path/to/drive".into());
        }
        Ok(Db { locator: locator.into(), open: OpenOptions::default(), held: Arc::new(Mutex::new(Held::Nothing)) })
    }

    /// A value for the option `db` of a URI: the drive that is named so.
    pub fn option_of(locator: &str) -> String {
        let escape = |c: char| match c {
            '&' => "%26".into(),
            '%' => "%25".into(),
            c => c.to_string(),
        };
        locator.chars().map(escape).collect()
    }

    /// A drive that somebody has opened.
    pub fn of_drive(drive: Drive) -> Db {
        let held = Arc::new(Mutex::new(Held::Drive(drive)));
        Db { locator: String::new(), open: OpenOptions::default(), held }
    }

    /// The drive, opened for reading only: for a salvage.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn look(&self) -> Result<Drive> {
        match &*self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            Held::Drive(drive) => Ok(drive.clone()),
            _ => imbrex_drives::open(&self.locator, &OpenOptions { read_only: true, ..OpenOptions::default() }),
        }
    }

    /// It is opened as the drive of the objects is.
    pub(crate) fn opens_as(&mut self, open: &OpenOptions) {
        self.open = OpenOptions { as_it_is: false, ..*open };
    }

    fn take(&self) -> Held {
        std::mem::replace(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner), Held::Nothing)
    }

    fn set(&self, held: Held) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }

    /// The drive, which is opened where it is not. It stays with this.
    pub(crate) fn drive(&self) -> Result<Drive> {
        let drive = match self.take() {
            Held::Drive(drive) => drive,
            held => {
                drop(held);
                imbrex_drives::open(&self.locator, &self.open)?
            }
        };
        self.set(Held::Drive(drive.clone()));
        Ok(drive)
    }

    /// Whether it is the drive that the process knows by this key.
    fn is(&self, key: &str) -> bool {
        !self.locator.is_empty() && imbrex_drives::key(&self.locator) == key
    }

    /// Opens its volume, after a look whether it goes with that of the objects.
    fn open(&self, objects: &Volume, link: &Link, options: &VolumeOptions, look: bool) -> Result<Beside> {
        let check = |volume: &Volume| pair::check(objects, link, volume).map(drop);
        let drive = match self.take() {
            Held::Open(open) => {
                check(open.volume())?;
                return Ok(open);
            }
            Held::Drive(drive) => Some(drive),
            Held::Nothing => None,
        };
        let key = (drive.is_none()).then(|| imbrex_drives::key(&self.locator));
        // One store of a process has it, whatever keeps the metadata.
        let tenant = MetadataIn::default().tenant();
        let beside = BesideOptions { tenant, key: key.as_deref(), look, volume: options.clone() };
        let drive = || drive.map_or_else(|| imbrex_drives::open(&self.locator, &self.open), Ok);
        Beside::open(beside, drive, &check)
    }
}

/// Before the drive of the objects is opened, which `key` stands for: whether both go together. `None`: the drive is nobody else's.
pub(crate) fn prepare(db: &Db, drive: &Drive, key: Option<&str>, options: &VolumeOptions, look: bool) -> Result<()> {
    if key.is_some_and(|key| db.is(key)) {
        let sentence = "it was named for its own metadata; name another drive as db=";
        return Err(Error::misuse(&drive.device.identity().name, sentence));
    }
    // What cannot be opened says why when it is; and what is not whole yet may be about to be formatted.
    let Ok(volume) = pair::look(drive) else { return Ok(()) };
    let Ok(tenant) = volume.tenant(NAME) else { return Ok(()) };
    if tenant.root().is_empty() {
        return Ok(());
    }
    let Some(link) = pair::link_of(&tenant, true)? else { return Ok(()) };
    let open = db.open(&volume, &link, options, look)?;
    db.set(Held::Open(open));
    Ok(())
}

/// The volume with the metadata of a store, where they are on another drive. Both drives are of a new opening then.
pub(crate) fn open(tenant: &Tenant, db: Option<&Db>, options: &VolumeOptions, look: bool) -> Result<Option<Beside>> {
    let Some((link, db)) = pair::link_of(tenant, db.is_some())?.zip(db) else { return Ok(None) };
    let open = db.open(tenant.volume(), &link, options, look)?;
    pair::raise(tenant, open.volume())?;
    Ok(Some(open))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_named_by_any_path() {
        for path in ["/data/a.img", "/data/50%&more?time=pace&speed=2", "b%26.img", "ä"] {
            let db = Db::of_option(&Db::option_of(path)).unwrap();
            assert_eq!(db.locator, path);
            assert!(!Db::option_of(path).contains('&'));
        }
        assert_eq!(Db::of_option("imbrex:///data/a.img").unwrap().locator, "/data/a.img");
        for bad in ["", "on", "%", "a%2", "%+1", "%zz", "%ff"] {
            let why = Db::of_option(bad).unwrap_err();
            assert!(why.contains("db") && why.contains("write"), "{why}");
        }
    }
}
