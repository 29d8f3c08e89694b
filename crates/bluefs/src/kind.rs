//! Placement policy by name: which files of RocksDB and LevelDB are written once and in order, and which are not.
//!
//! Pure functions of a file's name (its last component, no directory). The data placement of BlueFS §4: files that are
//! only appended to get whole sequential zones, everything else 256 KiB extents in conventional zones. What the names
//! look like is told by RocksDB's `file/filename.cc`, `file/delete_scheduler.cc` (`.trash`) and its backup engine
//! (`.000012_s0A1B_4096.sst.tmp`), and by LevelDB's `db/filename.cc`. A wrong guess costs speed, never data: every kind
//! of file accepts every operation.

/// How a file's bytes are placed. The numbers are on the drive: never change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A directory; it has no bytes, only entries.
    Directory = 1,
    /// Written at random or rewritten: extents in conventional zones.
    Random = 2,
    /// Written once in order (tables, blobs): the bare bytes in sequential zones, the size in the journal.
    Table = 3,
    /// Appended to and synced often (write-ahead logs, MANIFEST, info logs): frames in sequential zones, so that the
    /// size is in the log itself.
    Log = 4,
}

impl FileKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [FileKind; 4] = [FileKind::Directory, FileKind::Random, FileKind::Table, FileKind::Log];

    /// The kind with this number on the drive.
    pub fn from_number(number: u8) -> Option<FileKind> {
        FileKind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The kind for a new file of this name; never [`FileKind::Directory`].
    pub fn of_name(name: &str) -> FileKind {
        match purpose(name) {
            Purpose::Table | Purpose::Blob => FileKind::Table,
            Purpose::Wal | Purpose::Manifest | Purpose::InfoLog => FileKind::Log,
            Purpose::Other if inner_name(name).ends_with(".log") => FileKind::Log,
            Purpose::Current | Purpose::Options | Purpose::Identity | Purpose::Lock | Purpose::Other => {
                FileKind::Random
            }
        }
    }

    /// Whether its bytes go to sequential zones as a rule.
    pub fn is_sequential(self) -> bool {
        matches!(self, FileKind::Table | FileKind::Log)
    }

    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Directory => "directory",
            FileKind::Random => "random",
            FileKind::Table => "table",
            FileKind::Log => "log",
        }
    }
}

/// What a database uses a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// A write-ahead log, `000012.log`.
    Wal,
    /// The log of the database's own metadata, `MANIFEST-000005`.
    Manifest,
    /// Lines for people: `LOG`, `LOG.old`, `LOG.old.1700000000`, and `data_db_LOG` where a log directory is set.
    InfoLog,
    /// A sorted table, `.sst` or `.ldb`.
    Table,
    /// A blob file.
    Blob,
    /// `CURRENT`, the name of the MANIFEST in use.
    Current,
    /// `OPTIONS-000007`.
    Options,
    /// `IDENTITY`.
    Identity,
    /// `LOCK`.
    Lock,
    /// Anything else.
    Other,
}

/// What a file of this name is for; temporary and trash suffixes are looked through.
pub fn purpose(name: &str) -> Purpose {
    let name = inner_name(name);
    match name {
        "CURRENT" => return Purpose::Current,
        "IDENTITY" => return Purpose::Identity,
        "LOCK" => return Purpose::Lock,
        _ => {}
    }
    if is_info_log(name) {
        return Purpose::InfoLog;
    }
    if name.strip_prefix("MANIFEST-").is_some_and(|rest| !rest.is_empty()) {
        return Purpose::Manifest;
    }
    if name.strip_prefix("OPTIONS-").is_some_and(|rest| !rest.is_empty()) {
        return Purpose::Options;
    }
    match name.rsplit_once('.') {
        Some((stem, "log")) if is_number(stem) => Purpose::Wal,
        Some((_, "sst" | "ldb")) => Purpose::Table,
        Some((_, "blob")) => Purpose::Blob,
        _ => Purpose::Other,
    }
}

/// The number of a live write-ahead log: `000012.log` is 12. `None` for any other name, trash and temporary copies
/// included: those have no place in the order of a database's logs.
pub fn wal_number(name: &str) -> Option<u64> {
    let stem = name.strip_suffix(".log")?;
    if is_number(stem) { stem.parse().ok() } else { None }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// `LOG` or `…_LOG`, alone or with `.old` or `.old.<number>` behind it.
fn is_info_log(name: &str) -> bool {
    let base = match name.split_once(".old") {
        None => name,
        Some((base, "")) => base,
        Some((base, rest)) => match rest.strip_prefix('.') {
            Some(stamp) if is_number(stamp) => base,
            _ => return false,
        },
    };
    base == "LOG" || base.ends_with("_LOG")
}

/// The name without what marks it as temporary: a leading dot, `.tmp`, `.dbtmp`, `.trash`. RocksDB numbers trash whose
/// name is taken in front of the suffix (`000012.sst0.trash`), so digits after a known ending are dropped too.
fn inner_name(name: &str) -> &str {
    let mut inner = name.strip_prefix('.').unwrap_or(name);
    loop {
        if let Some(rest) = inner.strip_suffix(".trash") {
            inner = without_trash_number(rest);
        } else if let Some(rest) = inner.strip_suffix(".tmp").or_else(|| inner.strip_suffix(".dbtmp")) {
            inner = rest;
        } else {
            return inner;
        }
    }
}

fn without_trash_number(name: &str) -> &str {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered_ending = [".sst", ".ldb", ".blob", ".log"].iter().any(|ending| bare.ends_with(ending));
    if numbered_ending { bare } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rocksdb_and_leveldb_get_their_purpose_and_kind() {
        use FileKind as K;
        use Purpose as P;
        let table: &[(&str, P, K)] = &[
            ("000012.log", P::Wal, K::Log),
            ("18446744073709551615.log", P::Wal, K::Log),
            ("000012.log.trash", P::Wal, K::Log),
            ("MANIFEST-000005", P::Manifest, K::Log),
            ("MANIFEST-000005.tmp", P::Manifest, K::Log),
            ("MANIFEST-", P::Other, K::Random),
            ("LOG", P::InfoLog, K::Log),
            ("LOG.old", P::InfoLog, K::Log),
            ("LOG.old.1700000000123456", P::InfoLog, K::Log),
            ("LOG.old.x", P::Other, K::Random),
            ("LOG.older", P::Other, K::Random),
            ("data_db_LOG", P::InfoLog, K::Log),
            ("data_db_LOG.old.17", P::InfoLog, K::Log),
            ("CATALOG", P::Other, K::Random),
            ("000012.sst", P::Table, K::Table),
            ("000012.ldb", P::Table, K::Table),
            ("ingest-me.sst", P::Table, K::Table),
            ("000012.blob", P::Blob, K::Table),
            ("000012.sst.trash", P::Table, K::Table),
            ("000012.sst0.trash", P::Table, K::Table),
            ("000012.blob17.trash", P::Blob, K::Table),
            ("000010_s123_456.sst", P::Table, K::Table),
            ("000010_1234567_456.sst", P::Table, K::Table),
            (".000010_s123_456.sst.tmp", P::Table, K::Table),
            (".000010_s123_456.blob.tmp", P::Blob, K::Table),
            ("CURRENT", P::Current, K::Random),
            ("CURRENT.tmp", P::Current, K::Random),
            ("OPTIONS-000007", P::Options, K::Random),
            ("OPTIONS-000007.dbtmp", P::Options, K::Random),
            ("IDENTITY", P::Identity, K::Random),
            ("IDENTITY.tmp", P::Identity, K::Random),
            ("LOCK", P::Lock, K::Random),
            ("000012.dbtmp", P::Other, K::Random),
            ("METADB-1", P::Other, K::Random),
            ("LATEST_BACKUP", P::Other, K::Random),
            ("LATEST_BACKUP.tmp", P::Other, K::Random),
            ("COMPACTION_PROGRESS-17.dbtmp", P::Other, K::Random),
            ("notes.log", P::Other, K::Log),
            ("notes.log.tmp", P::Other, K::Log),
            ("12x.log", P::Other, K::Log),
            (".log", P::Other, K::Random),
            (".sst", P::Other, K::Random),
            ("sst", P::Other, K::Random),
            ("000012.SST", P::Other, K::Random),
            ("000012.sst.bak", P::Other, K::Random),
            (".tmp", P::Other, K::Random),
            ("", P::Other, K::Random),
            (".", P::Other, K::Random),
            ("日本.sst", P::Table, K::Table),
        ];
        for (name, want_purpose, want_kind) in table {
            assert_eq!(purpose(name), *want_purpose, "purpose of {name:?}");
            assert_eq!(FileKind::of_name(name), *want_kind, "kind of {name:?}");
        }
    }

    #[test]
    fn only_live_logs_have_a_number() {
        let table: &[(&str, Option<u64>)] = &[
            ("000012.log", Some(12)),
            ("0.log", Some(0)),
            ("18446744073709551615.log", Some(u64::MAX)),
            ("18446744073709551616.log", None),
            ("000012.log.trash", None),
            (".000012.log.tmp", None),
            ("+12.log", None),
            ("notes.log", None),
            (".log", None),
            ("000012.sst", None),
        ];
        for (name, want) in table {
            assert_eq!(wal_number(name), *want, "number of {name:?}");
        }
    }

    #[test]
    fn kinds_keep_their_numbers() {
        for kind in FileKind::ALL {
            assert_eq!(FileKind::from_number(kind as u8), Some(kind));
        }
        assert_eq!(FileKind::Table as u8, 3);
        assert_eq!(FileKind::from_number(0), None);
        assert_eq!(FileKind::from_number(5), None);
    }
}
