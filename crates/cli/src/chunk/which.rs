//! Which chunks the user means: by id, by name, or by the beginning of an id.

use super::unfinished::FOLDER;
use crate::output::{Failure, Outcome};
use imbrex_chunkstore::{ChunkId, ChunkStore, Error};

/// Fewest digits of an id that are taken for its beginning.
const FEWEST: usize = 4;

/// The chunks of an id, a name, or the beginning of an id that no other one has.
pub(super) fn which(store: &ChunkStore, text: &str) -> Result<Vec<ChunkId>, Failure> {
    if let Ok(id) = text.parse() {
        store.stat(id)?;
        return Ok(vec![id]);
    }
    let no_name = match store.named(text) {
        Ok(ids) => return Ok(ids),
        Err(error) => error,
    };
    let digits = text.len() < 48 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !digits || text.len() < FEWEST {
        return Err(no_name.into());
    }
    let low: ChunkId = format!("{text:0<48}").parse().map_err(Failure::usage)?;
    let begins = |id: &ChunkId| id.to_string().starts_with(&text.to_ascii_lowercase());
    let behind = store.list(Some(low), 2).into_iter().map(|info| info.id);
    let found: Vec<ChunkId> = store.stat(low).map(|info| info.id).into_iter().chain(behind).filter(begins).collect();
    match found[..] {
        [] => Err(Failure::failed(format!(
            "no chunk is named {text:?}, and no id begins so; `imbrex chunk ls` lists ids and names"
        ))),
        [one] => Ok(vec![one]),
        [one, other, ..] => {
            Err(Failure::failed(format!("several ids begin with {text}, as {one} and {other}; give more digits")))
        }
    }
}

/// All chunks that are meant, each once, in order.
pub(super) fn all(store: &ChunkStore, texts: &[String]) -> Result<Vec<ChunkId>, Failure> {
    let mut found = Vec::new();
    for text in texts {
        found.extend(which(store, text)?);
    }
    Ok(found)
}

/// The one chunk that is meant.
pub(super) fn one(store: &ChunkStore, text: &str) -> Result<ChunkId, Failure> {
    match which(store, text)?[..] {
        [one] => Ok(one),
        ref several => Err(Failure::failed(format!(
            "{text:?} stands for {} chunks, and this takes one; give its id, which `imbrex chunk stat` prints",
            several.len()
        ))),
    }
}

/// Nothing of what these chunks are named is left over when they are gone.
pub(super) fn whole(store: &ChunkStore, ids: &[ChunkId]) -> Outcome {
    for of in ids.iter().filter_map(|id| store.name_of(*id)) {
        if store.named(&of.name)?.iter().any(|id| !ids.contains(id)) {
            return Err(Failure::failed(format!(
                "that is one of the {} chunks of {:?}; remove it by its name, or take the name off first with `imbrex chunk name --off`",
                of.chunks, of.name
            )));
        }
    }
    Ok(())
}

/// None of these names is taken, unless what has it is to be replaced.
pub(super) fn free<'a>(store: &ChunkStore, names: impl Iterator<Item = &'a str>, replace: bool) -> Outcome {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if let Some(why) = imbrex_chunkstore::entry::names::check(name) {
            return Err(Error::BadName { name: name.into(), why }.into());
        }
        if name.starts_with(FOLDER) {
            return Err(Failure::failed(format!(
                "{name:?}: names that begin with {FOLDER} are for puts under way; give another --name or --prefix"
            )));
        }
        if !seen.insert(name) {
            return Err(Failure::failed(format!(
                "two of them would be named {name:?}; store them one after the other, with another --name or --prefix"
            )));
        }
        if !replace && store.named(name).is_ok() {
            return Err(Failure::failed(format!(
                "a chunk is named {name:?} already; give another --name or --prefix, --no-name, or --replace to delete that one"
            )));
        }
    }
    Ok(())
}
