//! An object's omap: pairs that a user keeps beside its bytes, and a header. Its keys go by a number of its own, so to clear it is to forget the number.

use crate::codec::put_ordered;
use crate::draft::{Draft, Object};
use crate::keyvalue::{Family, Pair};
use crate::onode::keys_of;
use imbrex_device::{Code, Result};

/// Longest key of an omap, in bytes.
pub const MAX_OMAP_KEY: usize = 32 << 10;
/// Longest value and longest header of an omap, in bytes.
pub const MAX_OMAP_VALUE: usize = 16 << 20;

/// What stands behind the number in a key.
const HEADER: u8 = 0;
const PAIR: u8 = 1;
const END: u8 = 2;

fn with(omap: u64, kind: u8, key: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(10 + key.len());
    put_ordered(&mut all, omap);
    all.push(kind);
    all.extend_from_slice(key);
    all
}

/// The key-value store's key of a header.
pub(crate) fn header_key(omap: u64) -> Vec<u8> {
    with(omap, HEADER, &[])
}

/// And of a pair.
pub(crate) fn pair_key(omap: u64, key: &[u8]) -> Vec<u8> {
    with(omap, PAIR, key)
}

/// Behind all pairs.
pub(crate) fn end_key(omap: u64) -> Vec<u8> {
    with(omap, END, &[])
}

/// The user's key in such a key.
pub(crate) fn user_key(omap: u64, key: &[u8]) -> &[u8] {
    &key[pair_key(omap, &[]).len().min(key.len())..]
}

fn number(draft: &mut Draft<'_>, object: &mut Object) -> u64 {
    if object.onode.omap == 0 {
        object.onode.omap = draft.number();
    }
    object.onode.omap
}

fn check(draft: &Draft<'_>, key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() <= MAX_OMAP_KEY && value.len() <= MAX_OMAP_VALUE {
        return Ok(());
    }
    let sentence = format!(
        "a pair of an omap with a key of {} bytes and a value of {} is too long; they may have {MAX_OMAP_KEY} and {MAX_OMAP_VALUE}",
        key.len(),
        value.len()
    );
    Err(draft.refuse(Code::InvalidArgument, sentence))
}

pub(crate) fn set(draft: &mut Draft<'_>, object: &mut Object, pairs: &[Pair]) -> Result<()> {
    pairs.iter().try_for_each(|(key, value)| check(draft, key, value))?;
    let omap = number(draft, object);
    for (key, value) in pairs {
        draft.layer.put(Family::Omap, pair_key(omap, key), value.clone());
    }
    Ok(())
}

pub(crate) fn set_header(draft: &mut Draft<'_>, object: &mut Object, header: &[u8]) -> Result<()> {
    check(draft, &[], header)?;
    let omap = number(draft, object);
    draft.layer.put(Family::Omap, header_key(omap), header.to_vec());
    Ok(())
}

pub(crate) fn remove(draft: &mut Draft<'_>, object: &Object, keys: &[Vec<u8>]) {
    if object.onode.omap > 0 {
        keys.iter().for_each(|key| draft.layer.delete(Family::Omap, pair_key(object.onode.omap, key)));
    }
}

pub(crate) fn remove_range(draft: &mut Draft<'_>, object: &Object, from: &[u8], to: &[u8]) -> Result<()> {
    let omap = object.onode.omap;
    if omap == 0 || from >= to {
        return Ok(());
    }
    let end = pair_key(omap, to);
    let mut next = Some(pair_key(omap, from));
    while let Some(from) = next {
        let (pairs, more) = draft.pairs(Family::Omap, &from, Some(&end))?;
        pairs.into_iter().for_each(|(key, _)| draft.layer.delete(Family::Omap, key));
        next = more;
    }
    Ok(())
}

pub(crate) fn clear(draft: &mut Draft<'_>, object: &mut Object) {
    let omap = std::mem::take(&mut object.onode.omap);
    if omap > 0 {
        let (from, to) = keys_of(omap);
        draft.layer.delete_range(Family::Omap, from, to);
    }
}

/// The other object has what this one has.
pub(crate) fn copy(draft: &mut Draft<'_>, object: &Object, to: &mut Object) -> Result<()> {
    let omap = object.onode.omap;
    if omap == 0 {
        return Ok(());
    }
    let new = number(draft, to);
    let (from, end) = keys_of(omap);
    let mut next = Some(from);
    while let Some(from) = next {
        let (pairs, more) = draft.pairs(Family::Omap, &from, Some(&end))?;
        for (key, value) in pairs {
            let key = match key == header_key(omap) {
                true => header_key(new),
                false => pair_key(new, user_key(omap, &key)),
            };
            draft.layer.put(Family::Omap, key, value);
        }
        next = more;
    }
    Ok(())
}
