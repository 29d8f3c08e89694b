//! The drive that a command of an engine is about: how it is named, and opened for work or for a look. One for all engines, so that
//! `imbrex fs` and `imbrex chunk` understand the same.

use crate::output::{Failure, Outcome, print, print_json, warn};
use imbrex_device::{Class, Drive};
use imbrex_drives::{Locator, OpenOptions, SCHEME, parse_uri};
use serde_json::json;

/// What every command of an engine takes.
#[derive(clap::Args)]
pub struct Named {
    /// The drive: a path or a URI.
    pub drive: String,
    /// Flushes of an emulated drive reach the host's disk.
    #[arg(long)]
    host_sync: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What making an empty store on a drive takes.
#[derive(clap::Args)]
pub struct Format {
    /// The drive: a path or a URI.
    drive: String,
    /// Destroy what is on the drive.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Format {
    /// A drive of this name, which holds nothing.
    #[cfg(test)]
    pub fn of(drive: &str) -> Format {
        Format { drive: drive.to_owned(), force: false, json: true }
    }

    /// The same for a drive of another name.
    pub fn renamed(self, name: impl FnOnce(&str) -> Result<String, Failure>) -> Result<Format, Failure> {
        Ok(Format { drive: name(&self.drive)?, ..self })
    }

    /// The URI of the drive.
    pub fn uri(&self) -> Result<String, Failure> {
        uri_of(&self.drive)
    }

    /// Makes `what` on the drive with `format`, and opens it once with `open`: the first opening makes the store.
    pub fn run<T, E: Into<Failure>>(
        &self,
        what: &str,
        open: impl Fn(&str, &[(&str, &str)]) -> imbrex_device::Result<T>,
        format: impl FnOnce(&Drive, bool) -> Result<(), E>,
    ) -> Outcome {
        let named = Named::of(&self.drive);
        // What makes no sense is said before anything is destroyed. Whether a store can be opened does not matter yet.
        if let Err(failure @ Failure::Told(Class::Usage, _)) = named.open_with(named.as_a_look(), &open) {
            return Err(failure);
        }
        let locator = match self.drive.strip_prefix(SCHEME) {
            Some(rest) => {
                // The store has just said that it knows all of them.
                let query = rest.split_once('?').map_or("", |(_, query)| query);
                let names: Vec<&str> =
                    query.split('&').map(|part| part.split('=').next().unwrap_or_default()).collect();
                parse_uri(&self.drive, &names)?.locator
            }
            None => self.drive.clone(),
        };
        let drive = imbrex_drives::open(&locator, &OpenOptions::default())?;
        format(&drive, self.force).map_err(Into::into)?;
        drop(drive);
        if !Locator::is_memory(&locator) {
            named.open_with(Vec::new(), &open)?;
        }
        match self.json {
            true => print_json(&json!({ "drive": self.drive })),
            false => print(format_args!("{}: {what}", self.drive)),
        }
    }
}

/// Options beside those of the URI.
type Options<'a> = Vec<(&'a str, &'a str)>;

impl Named {
    /// A drive of this name, without anything else asked for.
    pub fn of(drive: &str) -> Named {
        Named { drive: drive.to_owned(), host_sync: false, json: false }
    }

    /// What makes of an opening a look, for which nothing on the drive changes, not even what would be repaired. A drive in memory is
    /// nobody else's, and new each time.
    pub fn as_a_look(&self) -> Options<'static> {
        let memory = Locator::is_memory(self.drive.strip_prefix(SCHEME).unwrap_or(&self.drive));
        if memory { Vec::new() } else { vec![("read-only", "on")] }
    }

    /// Opens the drive's engine with `open`, which gets the URI and the options. Failures show the drive as the user has written it.
    pub fn open_with<T, E: Into<Failure>>(
        &self,
        options: Options,
        open: impl FnOnce(&str, &[(&str, &str)]) -> Result<T, E>,
    ) -> Result<T, Failure> {
        // Only programs that load the library have an endpoint.
        if std::env::var_os("IMBREX_METRICS").is_some_and(|to| !to.is_empty()) {
            let sentence = "IMBREX_METRICS is for programs that load libimbrex.so, and this command gives no metrics; `imbrex top` \
                            watches the drive";
            warn(sentence, self.json);
        }
        self.open_in_front(options, open)
    }

    /// The same in front of a program that loads the library.
    pub fn open_in_front<T, E: Into<Failure>>(
        &self,
        mut options: Options,
        open: impl FnOnce(&str, &[(&str, &str)]) -> Result<T, E>,
    ) -> Result<T, Failure> {
        if self.host_sync {
            options.push(("host-sync", "on"));
        }
        let uri = uri_of(&self.drive)?;
        open(&uri, &options).map_err(|error| {
            // What the user wrote, where it is not what is wrong with the drive that it leads to.
            let named =
                |text: String| text.strip_prefix(&uri).map_or(text.clone(), |rest| format!("{}{rest}", self.drive));
            error.into().reword(named)
        })
    }
}

/// The URI of a drive that may be given as a path.
pub fn uri_of(drive: &str) -> Result<String, Failure> {
    let uri = if drive.starts_with(SCHEME) {
        drive.to_owned()
    } else if drive.is_empty() {
        return Err(Failure::usage("the name of the drive is empty; give the path of a drive image or a device"));
    } else if drive.starts_with("mem:") || drive.starts_with("banded:") {
        // No paths, but locators.
        format!("{SCHEME}{drive}")
    } else {
        let path = std::path::absolute(drive).map_err(|e| Failure::failed(format!("{drive}: {e}; check the path")))?;
        format!("{SCHEME}{}", path.display())
    };
    Ok(uri)
}
