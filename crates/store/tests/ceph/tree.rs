//! What an object store of Ceph has, as `ceph-objectstore-tool --op fuse` shows it: a directory for each collection, and there one for each object.

use crate::journal::{Coll, NEWEST, Name};
use crate::support::Object;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Collections with their bits, and what is in them.
pub type Tree = BTreeMap<Coll, (u8, BTreeMap<Name, Object>)>;

type Read<T> = Result<T, String>;

pub fn read(path: &Path) -> Read<Tree> {
    let mut tree = Tree::new();
    for (name, path) in files(path)? {
        if name == b"type" {
            continue;
        }
        let bits = if name == b"meta" { "0".into() } else { text(&path.join("bitwise_hash_bits"))? };
        let bits = bits.trim().parse().map_err(|_| format!("{bits} bits"))?;
        let mut objects = BTreeMap::new();
        for (name, path) in files(&path.join("all"))? {
            let header = bytes(&path.join("omap_header"))?;
            let object = Object {
                bytes: bytes(&path.join("data"))?,
                attributes: contents(&path.join("attr"))?,
                omap: contents(&path.join("omap"))?,
                header: Some(header).filter(|header| !header.is_empty()),
            };
            objects.insert(object_of(&name).ok_or_else(|| format!("{}", name.escape_ascii()))?, object);
        }
        tree.insert(collection_of(&name).ok_or_else(|| format!("{}", name.escape_ascii()))?, (bits, objects));
    }
    Ok(tree)
}

fn bytes(path: &Path) -> Read<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn text(path: &Path) -> Read<String> {
    String::from_utf8(bytes(path)?).map_err(|error| format!("{}: {error}", path.display()))
}

fn files(path: &Path) -> Read<Vec<(Vec<u8>, std::path::PathBuf)>> {
    let all = fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let all = all.map(|entry| entry.map(|entry| (entry.file_name().as_bytes().to_vec(), entry.path())));
    all.collect::<Result<_, _>>().map_err(|error| format!("{}: {error}", path.display()))
}

fn contents(path: &Path) -> Read<BTreeMap<Vec<u8>, Vec<u8>>> {
    files(path)?.into_iter().map(|(name, path)| Ok((name, bytes(&path)?))).collect()
}

/// `meta`, `1.a_head`, or `1.as2_head` of a shard.
fn collection_of(name: &[u8]) -> Option<Coll> {
    let name = std::str::from_utf8(name).ok()?;
    if name == "meta" {
        return Some(Coll::Meta);
    }
    let (pool, seed) = name.strip_suffix("_head")?.split_once('.')?;
    let (seed, shard) = match seed.split_once('s') {
        Some((seed, shard)) => (seed, Some(shard.parse().ok()?)),
        None => (seed, None),
    };
    Some(Coll::Group { pool: pool.parse().ok()?, seed: u32::from_str_radix(seed, 16).ok()?, shard })
}

/// `shard#pool:hash:namespace:key:name:snapshot#generation`, the hash with its bits reversed, and some bytes as `%xx`.
pub fn object_of(name: &[u8]) -> Option<Name> {
    let name = std::str::from_utf8(name).ok()?;
    let (shard, name) = name.split_once('#')?;
    let (name, generation) = name.split_once('#')?;
    let parts: Vec<&str> = name.split(':').collect();
    let [pool, hash, namespace, key, name, snap] = parts[..] else { return None };
    let snap = match snap {
        "head" => u64::MAX - 1,
        "snapdir" => u64::MAX,
        snap => u64::from_str_radix(snap, 16).ok()?,
    };
    Some(Name {
        pool: pool.parse().ok()?,
        hash: u32::from_str_radix(hash, 16).ok()?.reverse_bits(),
        namespace: unescaped(namespace)?,
        key: unescaped(key)?,
        name: unescaped(name)?,
        snap,
        generation: if generation.is_empty() { NEWEST } else { u64::from_str_radix(generation, 16).ok()? },
        shard: if shard.is_empty() { None } else { Some(shard.parse().ok()?) },
    })
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut from, mut out) = (text.as_bytes(), Vec::new());
    while let [first, rest @ ..] = from {
        from = rest;
        if *first == b'%' {
            let (code, rest) = rest.split_at_checked(2)?;
            out.push(u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?);
            from = rest;
        } else {
            out.push(*first);
        }
    }
    Some(out)
}
