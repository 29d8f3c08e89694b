//! `imbrex store export` and `import`: objects as a stream.

use super::named::Named;
use super::{ALL, look, object, open};
use crate::output::{Failure, Outcome, number_of, print, print_json, size, warn};
use imbrex_device::Code;
use imbrex_store::{CollectionId, Of, StreamWriter, read_stream};
use serde_json::json;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};

#[derive(clap::Args)]
pub(super) struct Export {
    #[command(flatten)]
    named: Named,
    /// The file, which must not be there; - is stdout.
    file: String,
    /// Only this object.
    #[arg(long, value_name = "NAME", conflicts_with = "collection")]
    name: Option<OsString>,
    /// Only this collection and its objects: pool and seed.
    #[arg(long, value_name = "POOL.SEED")]
    collection: Option<String>,
}

#[derive(clap::Args)]
pub(super) struct Import {
    #[command(flatten)]
    named: Named,
    /// The file; - is stdin.
    file: String,
    /// Replace objects that are there.
    #[arg(long)]
    replace: bool,
}

fn collection(text: &str) -> Result<CollectionId, Failure> {
    let both = text.split_once('.').and_then(|(pool, seed)| {
        Some(CollectionId { pool: pool.parse().ok()?, seed: u32::from_str_radix(seed, 16).ok()? })
    });
    both.ok_or_else(|| {
        Failure::usage(format!("{text:?} is no collection; write it as POOL.SEED, the seed in hexadecimal"))
    })
}

pub(super) fn export(args: &Export) -> Outcome {
    let (wanted, named) = (args.collection.as_deref().map(collection).transpose()?, args.name.as_deref().map(object));
    let of = match (&wanted, &named) {
        (Some(collection), _) => Of::Collection(*collection),
        (None, Some(id)) => Of::Object(id),
        (None, None) => Of::All,
    };
    let store = look(&args.named)?;
    let cannot = |error: io::Error| Failure::failed(format!("{}: {error}; give a new file", args.file));
    let to_stdout = args.file == "-";
    let out: Box<dyn Write> = match to_stdout {
        true => Box::new(io::stdout().lock()),
        false => Box::new(File::create_new(&args.file).map_err(cannot)?),
    };
    let mut writer = StreamWriter::new(BufWriter::with_capacity(1 << 20, out))?;
    let told = imbrex_store::export(&store, &of, &mut writer).and_then(|told| {
        let mut out = writer.finish()?;
        out.flush()
            .map(|()| told)
            .map_err(|error| imbrex_device::Error::refused(Code::Io, "the stream", error.to_string()))
    });
    let told = match told {
        Ok(told) => told,
        Err(error) => {
            if !to_stdout {
                // A part of a stream is of no use.
                let _ = fs::remove_file(&args.file);
            }
            return Err(error.into());
        }
    };
    told.damaged.iter().for_each(|sentence| warn(sentence, args.named.json));
    let damaged = told.damaged.len() as u64 + told.more_damaged;
    if !to_stdout {
        match args.named.json {
            true => print_json(&json!({ "objects": told.objects, "bytes": told.bytes, "damaged_objects": damaged }))?,
            false => print(format_args!("{} with {} exported", number_of(told.objects, "object"), size(told.bytes)))?,
        }
    }
    match damaged {
        0 => Ok(()),
        n => Err(Failure::damage(format_args!("{} left out, which cannot be read", number_of(n, "object")))),
    }
}

pub(super) fn import(args: &Import) -> Outcome {
    let cannot = |error: io::Error| Failure::failed(format!("{}: {error}; check the path", args.file));
    let from: Box<dyn Read> = match args.file.as_str() {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(File::open(path).map_err(cannot)?),
    };
    let mut from = BufReader::with_capacity(1 << 20, from);
    let store = open(&args.named)?;
    let mut import = imbrex_store::Import::new(&store, args.replace)?;
    let read = read_stream(&mut from, &mut import);
    // What came before is there in any case.
    let objects = import.finish();
    match (read, objects) {
        (Ok(_), Ok(objects)) => match args.named.json {
            true => print_json(&json!({ "objects": objects })),
            false => print(format_args!("{} imported", number_of(objects, "object"))),
        },
        (Err(error), Ok(objects)) => {
            let failure = match error.code() {
                Code::Exists => Failure::failed(format!("{error}; --replace does that")),
                _ => error.into(),
            };
            Err(failure.reword(|sentence| format!("{sentence}; {} imported before", number_of(objects, "object"))))
        }
        (Ok(_), Err(error)) => Err(error.into()),
        (Err(error), Err(other)) => Err(Failure::from(error).and(other.into())),
    }
}

/// Whether a name is one that `imbrex store` itself gives.
pub(super) fn is_plain(id: &imbrex_store::ObjectId) -> bool {
    id.pool == ALL.pool && id.namespace.is_empty() && (id.snap, id.generation) == (0, 0)
}
