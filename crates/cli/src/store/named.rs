//! The drive of an object store, and the one with its metadata, where that is another one.

use crate::engine::{self, uri_of};
use crate::output::Failure;
use imbrex_drives::SCHEME;
use imbrex_store::Db;
use std::ops::Deref;

/// What every command of an object store takes.
#[derive(clap::Args)]
#[group(skip)]
pub struct Named {
    #[command(flatten)]
    named: engine::Named,
    /// The drive with the metadata, where they are on another one.
    #[arg(long, value_name = "DRIVE")]
    db: Option<String>,
}

impl Deref for Named {
    type Target = engine::Named;
    fn deref(&self) -> &engine::Named {
        &self.named
    }
}

impl Named {
    /// A drive of this name, without anything else asked for.
    pub fn of(drive: &str) -> Named {
        Named { named: engine::Named::of(drive), db: None }
    }

    /// [`engine::Named::open_with`], with both drives.
    pub fn open_with<T, E: Into<Failure>>(
        &self,
        options: Vec<(&str, &str)>,
        open: impl FnOnce(&str, &[(&str, &str)]) -> Result<T, E>,
    ) -> Result<T, Failure> {
        let db = option(&self.named.drive, self.db.as_deref())?;
        let db = db.as_deref().map(|db| ("db", db));
        self.named.open_with(options.into_iter().chain(db).collect(), open)
    }
}

/// The value of the option `db` for a drive that is named beside another one.
fn option(drive: &str, db: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(db) = db else { return Ok(None) };
    let query = drive.strip_prefix(SCHEME).and_then(|rest| rest.split_once('?')).map_or("", |(_, query)| query);
    if query.split('&').any(|part| part.split('=').next() == Some("db")) {
        return Err(Failure::usage("the URI names a drive for the metadata already; leave --db out"));
    }
    let uri = uri_of(db)?;
    Ok(Some(Db::option_of(uri.strip_prefix(SCHEME).unwrap_or(&uri))))
}

/// The URI of a drive, and of another one for its metadata: what else takes a URI has both then. Without the other one it is what it was.
pub fn uri_with(drive: &str, db: Option<&str>) -> Result<String, Failure> {
    let Some(db) = option(drive, db)? else { return Ok(drive.to_owned()) };
    let uri = uri_of(drive)?;
    let sign = if uri.contains('?') { '&' } else { '?' };
    Ok(format!("{uri}{sign}db={db}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_both_drives_once() {
        let both = |drive, db| uri_with(drive, Some(db));
        assert_eq!(both("/a.img", "/b&c.img").ok().unwrap(), "imbrex:///a.img?db=/b%26c.img");
        let uri = both("imbrex:///a.img?memtable=1M", "imbrex:///b.img").ok().unwrap();
        assert_eq!(uri, "imbrex:///a.img?memtable=1M&db=/b.img");
        assert!(both(&uri, "/b.img").is_err() && both("/a.img", "").is_err());
        assert_eq!(uri_with("a.img", None).ok().unwrap(), "a.img");
    }
}
