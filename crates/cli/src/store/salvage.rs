//! `imbrex store salvage`: objects of a drive whose store does not open.

use super::files::Files;
use super::label::drive;
use super::named::{Named, uri_with};
use super::open;
use crate::chunk::bar;
use crate::output::{Failure, Outcome, hexadecimal, number_of, print, print_json, size};
use imbrex_device::Drive;
use imbrex_drives::{SCHEME, parse_uri};
use imbrex_store::{CollectionId, Db, Head, Import, Pair, Salvage, Salvaged, Scratch, Taker};
use serde_json::json;
use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The index, while the salvage is under way.
const INDEX: &str = ".salvage-index";

#[derive(clap::Args)]
pub(super) struct Args {
    /// The drive: a path or a URI.
    drive: String,
    /// A new or empty directory; or another drive with an object store: a URI, an image or a device.
    #[arg(long)]
    to: String,
    /// The drive with the metadata, where they are on another one and it is still there.
    #[arg(long, value_name = "DRIVE")]
    db: Option<String>,
    /// UUID of the volume, where not the one that was written to last is meant.
    #[arg(long)]
    volume: Option<String>,
    /// Also objects that were deleted, where whole metadata tell of them no more.
    #[arg(long)]
    deleted: bool,
    /// Replace objects that the other store has.
    #[arg(long)]
    replace: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Tells what is doubtful as it comes, and hands all on.
struct Telling<'a> {
    to: &'a mut dyn Taker,
    now: Option<String>,
    doubts: Vec<(String, String)>,
    more: u64,
}

/// Sentences that are printed at most.
const MOST: usize = 1000;

impl Taker for Telling<'_> {
    fn collection(&mut self, collection: CollectionId, bits: u8) -> imbrex_device::Result<()> {
        self.to.collection(collection, bits)
    }
    fn begin(&mut self, head: &Head) -> imbrex_device::Result<()> {
        self.now = Some(head.id.to_string());
        self.to.begin(head)
    }
    fn bytes(&mut self, at: u64, bytes: &[u8]) -> imbrex_device::Result<()> {
        self.to.bytes(at, bytes)
    }
    fn omap_header(&mut self, header: &[u8]) -> imbrex_device::Result<()> {
        self.to.omap_header(header)
    }
    fn omap(&mut self, pairs: Vec<Pair>) -> imbrex_device::Result<()> {
        self.to.omap(pairs)
    }
    fn doubt(&mut self, sentence: &str) -> imbrex_device::Result<()> {
        match self.doubts.len() < MOST {
            true => self.doubts.push((self.now.clone().unwrap_or_default(), sentence.to_owned())),
            false => self.more += 1,
        }
        self.to.doubt(sentence)
    }
    fn again(&mut self) -> imbrex_device::Result<()> {
        self.to.again()
    }
    fn end(&mut self) -> imbrex_device::Result<()> {
        self.to.end()
    }
}

fn volume(text: &str) -> Result<[u8; 16], Failure> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let wrong = || Failure::usage(format!("{text:?} is no UUID; write it as 32 hexadecimal digits"));
    if digits.len() != 32 || !digits.is_ascii() {
        return Err(wrong());
    }
    let mut out = [0; 16];
    for (n, to) in out.iter_mut().enumerate() {
        *to = u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).map_err(|_| wrong())?;
    }
    Ok(out)
}

/// Whether this is a drive, and no directory.
fn is_drive(to: &str) -> bool {
    let is = |about: fs::Metadata| about.is_file() || about.file_type().is_block_device();
    to.starts_with(SCHEME) || fs::metadata(to).is_ok_and(is)
}

/// The drive that a URI names for the metadata, for reading.
fn db(named: &str) -> Result<Option<Drive>, Failure> {
    let Some(_) = named.strip_prefix(SCHEME) else { return Ok(None) };
    let parsed = parse_uri(named, &["db"])?;
    let db = parsed.options.get("db").map(|db| Db::of_option(db)).transpose().map_err(Failure::usage)?;
    Ok(db.map(|db| db.look()).transpose()?)
}

pub(super) fn run(args: &Args) -> Outcome {
    let volume = args.volume.as_deref().map(volume).transpose()?;
    let from = drive(&args.drive)?;
    let db = db(&uri_with(&args.drive, args.db.as_deref())?)?;
    let to_drive = is_drive(&args.to);
    let dir = match to_drive {
        true => std::env::temp_dir(),
        false => Path::new(&args.to).to_owned(),
    };
    let mut files = if to_drive { None } else { Some(Files::new(&dir, "")?) };
    let index = dir.join(if to_drive { format!("imbrex-salvage-{}", std::process::id()) } else { INDEX.into() });
    let searching = bar(Some(0));
    let mut sorting = || {
        let path = index.with_extension("sorting");
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    };
    let scratch = Scratch::in_file(&from, &index)?;
    let found = Salvage::search_apart((&from, db.as_ref()), scratch, volume, &mut sorting, &mut |done, all| {
        searching.set_length(all);
        searching.set_position(done);
    });
    searching.finish_and_clear();
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            if let Some(files) = files.take() {
                files.discard();
            }
            return Err(error.into());
        }
    };
    let (notes, walked, whole) = (found.notes().to_vec(), found.walked().clone(), found.is_whole());
    let store = if to_drive { Some(open(&Named::of(&args.to))?) } else { None };
    let mut import = store.as_ref().map(|store| Import::new(store, args.replace)).transpose()?;
    let to: &mut dyn Taker = match (&mut import, &mut files) {
        (Some(import), _) => import,
        (None, Some(files)) => files,
        (None, None) => return Err(Failure::failed("nothing takes the objects; give a directory")),
    };
    let mut telling = Telling { to, now: None, doubts: Vec::new(), more: 0 };
    let told = found.read(args.deleted, &mut telling);
    let Telling { doubts, more, .. } = telling;
    let ended = import.map_or(Ok(()), |import| import.finish().map(drop)).and(files.map_or(Ok(()), Files::finish));
    let incomplete = |sentence: String| format!("{sentence}; what came before is in {}", args.to);
    let told = told.map_err(|error| Failure::from(error).reword(incomplete))?;
    ended.map_err(|error| Failure::from(error).reword(incomplete))?;
    let Salvaged { objects, of_runs, unnamed, doubtful, bytes, lost, older, senseless } = told;
    if args.json {
        let doubt = |(object, sentence): &(String, String)| json!({ "object": object, "doubt": sentence });
        print_json(
            &json!({ "drive": args.drive, "volume": hexadecimal(&walked.volume), "whole_metadata": whole, "objects": objects,
            "objects_without_metadata": of_runs, "objects_without_names": unnamed, "doubtful_objects": doubtful, "bytes": bytes,
            "lost_bytes": lost, "older_bytes": older, "senseless_records": senseless, "zones": walked.zones, "runs": walked.runs,
            "damaged_runs": walked.damaged_runs, "notes": notes, "doubts": doubts.iter().map(doubt).collect::<Vec<_>>(), "more_doubts": more }),
        )?;
    } else {
        notes.iter().try_for_each(|note| print(format_args!("note: {note}")))?;
        doubts.iter().try_for_each(|(object, sentence)| print(format_args!("{object}: {sentence}")))?;
        if more > 0 {
            print(format_args!("and {}", number_of(more, "more sentence")))?;
        }
        print(format_args!(
            "{}: {} with {} salvaged to {}; {} without metadata, {} without a name; {} lost, {} older than the last",
            args.drive,
            number_of(objects, "object"),
            size(bytes),
            args.to,
            of_runs,
            unnamed,
            size(lost),
            size(older),
        ))?;
    }
    match doubtful + senseless {
        0 if whole => Ok(()),
        _ => Err(Failure::damage(format_args!("{} doubtful; compare them with a copy", number_of(doubtful, "object")))),
    }
}
