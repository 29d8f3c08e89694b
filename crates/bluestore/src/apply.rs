//! What the steps of a transaction do to a draft.

use crate::blob::{BLOCK, BlobId};
use crate::compress::{Compression, TOGETHER, compress};
use crate::core::is_of_bytes;
use crate::draft::{Draft, May, Object};
use crate::fragments::Fragments;
use crate::id::{CollectionId, ObjectId, bits_of, mask};
use crate::keyvalue::{Family, Pair};
use crate::omap;
use crate::onode::{Extent, MAX_OBJECT, SPAN};
use crate::transaction::{Act, Step};
use imbrex_device::{AlignedBuf, Code, Result};
use std::ops::Range;

/// Longest name of an attribute, in bytes.
pub const MAX_ATTRIBUTE_NAME: usize = 256;
/// Longest value of an attribute, in bytes.
pub const MAX_ATTRIBUTE: usize = 64 << 10;
/// Most bytes of all attributes of an object.
pub const MAX_ATTRIBUTES: usize = 1 << 20;

/// More spans than an object has.
const SPANS: u64 = MAX_OBJECT / BLOCK / SPAN + 1;
/// Most bytes of a range that are copied where they cannot be shared.
const MOST_COPIED: u64 = 64 << 20;

/// Carries a step out.
pub(crate) fn step(draft: &mut Draft<'_>, collection: CollectionId, step: &Step) -> Result<()> {
    match step {
        Step::CreateCollection { bits } => create_collection(draft, collection, *bits),
        Step::RemoveCollection => remove_collection(draft, collection),
        Step::Split { into } => split(draft, collection, *into),
        Step::Merge { into } => merge(draft, collection, *into),
        Step::Object { object, act } => {
            let bits = bits(draft, collection)?;
            let (act, must) = if let Act::IfThere(act) = act { (&**act, false) } else { (act, true) };
            let others = match act {
                Act::Rename { to } | Act::Clone { to } | Act::CloneRange { to, .. } => Some(to),
                _ => None,
            };
            for id in others.into_iter().chain([object]) {
                if !collection.has(bits, id) {
                    return Err(draft.refuse(
                        Code::InvalidArgument,
                        format!("{id} belongs to another collection than {collection}"),
                    ));
                }
            }
            if !must && !draft.is_there(object)? {
                return Ok(());
            }
            act_on(draft, object, act)
        }
    }
}

fn bits(draft: &mut Draft<'_>, collection: CollectionId) -> Result<u8> {
    let bits = draft.bits(collection)?;
    bits.ok_or_else(|| draft.refuse(Code::NotFound, format!("{collection} does not exist")))
}

fn create_collection(draft: &mut Draft<'_>, collection: CollectionId, bits: u8) -> Result<()> {
    if bits > 32 || collection.seed & !mask(bits) != 0 {
        let sentence = format!("{collection} cannot go by {bits} bits: its seed has more, or there are more than 32");
        return Err(draft.refuse(Code::InvalidArgument, sentence));
    }
    // Collections of a pool have no object in common.
    let pool = |seed| CollectionId { pool: collection.pool, seed }.key();
    let mut from = Some(pool(0));
    while let Some(next) = from {
        let (pairs, more) = draft.pairs(Family::Collections, &next, None)?;
        from = more;
        for (key, value) in pairs {
            let other = CollectionId::of_key(&key).zip(bits_of(&value));
            let (other, other_bits) = other.ok_or_else(|| draft.core.corrupt("a collection's record"))?;
            if other.pool != collection.pool {
                from = None;
                break;
            }
            if (other.seed ^ collection.seed) & mask(bits.min(other_bits)) == 0 {
                return Err(
                    draft.refuse(Code::Exists, format!("{collection} would share objects with {other}, which exists"))
                );
            }
        }
    }
    draft.set_bits(collection, Some(bits));
    Ok(())
}

fn remove_collection(draft: &mut Draft<'_>, collection: CollectionId) -> Result<()> {
    let bits = bits(draft, collection)?;
    if draft.has_objects(collection, bits)? {
        return Err(draft.refuse(Code::NotEmpty, format!("{collection} has objects")));
    }
    draft.set_bits(collection, None);
    Ok(())
}

fn split(draft: &mut Draft<'_>, collection: CollectionId, into: CollectionId) -> Result<()> {
    let bits = bits(draft, collection)?;
    let half = 1u32.checked_shl(bits.into()).map(|bit| CollectionId { seed: collection.seed | bit, ..collection });
    if half != Some(into) {
        return Err(draft.refuse(
            Code::InvalidArgument,
            format!("{into} is not a half of {collection}, which goes by {bits} bits"),
        ));
    }
    draft.set_bits(collection, Some(bits + 1));
    draft.set_bits(into, Some(bits + 1));
    Ok(())
}

fn merge(draft: &mut Draft<'_>, collection: CollectionId, into: CollectionId) -> Result<()> {
    let (bits, into_bits) = (bits(draft, collection)?, bits(draft, into)?);
    let whole = bits.checked_sub(1).map(|less| CollectionId { seed: collection.seed & mask(less), ..collection });
    if bits != into_bits || whole != Some(into) || into == collection {
        return Err(
            draft.refuse(Code::InvalidArgument, format!("{collection} and {into} are not the halves of a collection"))
        );
    }
    draft.set_bits(collection, None);
    draft.set_bits(into, Some(bits - 1));
    Ok(())
}

fn act_on(draft: &mut Draft<'_>, id: &ObjectId, act: &Act) -> Result<()> {
    let mut object = match act {
        Act::Truncate { .. }
        | Act::Remove
        | Act::Rename { .. }
        | Act::Clone { .. }
        | Act::CloneRange { .. }
        | Act::Rewrite { .. } => draft.take(id)?,
        _ => draft.take_or_make(id)?,
    };
    match act {
        Act::Touch => {}
        Act::Write { offset, bytes } => write(draft, &mut object, *offset, bytes)?,
        Act::Zero { offset, len } => zero(draft, &mut object, *offset, *len)?,
        Act::Truncate { size } => truncate(draft, &mut object, *size)?,
        Act::Remove => {
            empty(draft, &mut object)?;
            draft.strike(object);
            return Ok(());
        }
        Act::Rename { to } => {
            to.check()?;
            if to == id {
                draft.put(object);
                return Ok(());
            }
            if draft.is_there(to)? {
                return Err(draft.refuse(Code::Exists, format!("{to} exists")));
            }
            draft.rename(object, to);
            return Ok(());
        }
        Act::Clone { to } => {
            if to == id {
                return Err(draft.refuse(Code::InvalidArgument, format!("{id} cannot be a clone of itself")));
            }
            clone(draft, &mut object, to)?;
            draft.put_back(object);
            return Ok(());
        }
        Act::CloneRange { to, from, len, at } => {
            let (from, len, at) = (*from, *len, *at);
            let end = from.checked_add(len).filter(|end| *end <= object.onode.size);
            let Some(_) = end else {
                let sentence =
                    format!("{id} has {} bytes, and none to share from {from} on for {len}", object.onode.size);
                return Err(draft.refuse(Code::Range, sentence));
            };
            if to == id {
                // What it is now; what is written does not count.
                let ends = (from.max(at), (from + len).min(at.saturating_add(len)));
                if ends.0 < ends.1 {
                    return Err(draft.refuse(
                        Code::InvalidArgument,
                        "an object's range cannot be shared with itself where the two overlap",
                    ));
                }
                clone_range_within(draft, &mut object, from, len, at)?;
            } else {
                let mut other = draft.take_or_make(to)?;
                clone_range(draft, &mut object, &mut other, from, len, at)?;
                draft.put(other);
                draft.put_back(object);
                return Ok(());
            }
        }
        Act::Hint(hint) => object.onode.hint = *hint,
        Act::SetAttributes(all) => set_attributes(draft, &mut object, all)?,
        Act::RemoveAttribute(name) => drop(object.onode.attributes.remove(name)),
        Act::RemoveAttributes => object.onode.attributes.clear(),
        Act::OmapSet(pairs) => omap::set(draft, &mut object, pairs)?,
        Act::OmapRemove(keys) => omap::remove(draft, &object, keys),
        Act::OmapRemoveRange { from, to } => omap::remove_range(draft, &object, from, to)?,
        Act::OmapClear => omap::clear(draft, &mut object),
        Act::OmapHeader(header) => omap::set_header(draft, &mut object, header)?,
        Act::Rewrite { blocks, read } => rewrite(draft, &mut object, blocks, read)?,
        Act::IfThere(_) => {}
    }
    draft.put(object);
    Ok(())
}

fn set_attributes(draft: &Draft<'_>, object: &mut Object, all: &[Pair]) -> Result<()> {
    for (name, value) in all {
        if name.len() > MAX_ATTRIBUTE_NAME || value.len() > MAX_ATTRIBUTE {
            let sentence = format!(
                "an attribute with a name of {} bytes and a value of {} is too long; they may have {MAX_ATTRIBUTE_NAME} and {MAX_ATTRIBUTE}",
                name.len(),
                value.len()
            );
            return Err(draft.refuse(Code::InvalidArgument, sentence));
        }
        object.onode.attributes.insert(name.clone(), value.clone());
    }
    let bytes: usize = object.onode.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_ATTRIBUTES {
        let sentence =
            format!("attributes of {bytes} bytes are too many for an object, which may have {MAX_ATTRIBUTES}");
        return Err(draft.refuse(Code::InvalidArgument, sentence));
    }
    Ok(())
}

/// Where something ends that begins there, if an object may be as long.
fn end(draft: &Draft<'_>, offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).filter(|end| *end <= MAX_OBJECT).ok_or_else(|| {
        let sentence =
            format!("{len} bytes from {offset} on are behind the longest object, which has {MAX_OBJECT} bytes");
        draft.refuse(Code::InvalidArgument, sentence)
    })
}

/// Has `each` see the parts of a range of blocks that are in one span each: the span, and its first block and the one behind the last.
fn spans(first: u64, end: u64, mut each: impl FnMut(u64, u32, u32) -> Result<()>) -> Result<()> {
    let mut at = first;
    while at < end {
        let span = at / SPAN;
        let to = end.min((span + 1) * SPAN);
        each(span, (at - span * SPAN) as u32, (to - span * SPAN) as u32)?;
        at = to;
    }
    Ok(())
}

fn write(draft: &mut Draft<'_>, object: &mut Object, offset: u64, bytes: &[u8]) -> Result<()> {
    let end = end(draft, offset, bytes.len() as u64)?;
    if bytes.is_empty() {
        return Ok(());
    }
    draft.brings_bytes();
    put_bytes(draft, object, offset, bytes)?;
    let size = object.onode.size.max(end);
    draft.resize(object, size);
    Ok(())
}

/// These bytes stand at `offset`; the size does not change.
fn put_bytes(draft: &mut Draft<'_>, object: &mut Object, offset: u64, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let end = offset + bytes.len() as u64;
    spans(offset / BLOCK, end.div_ceil(BLOCK), |span, from, to| {
        let start = (span * SPAN + u64::from(from)) * BLOCK;
        let mut new = AlignedBuf::zeroed(u64::from(to - from) as usize * BLOCK as usize);
        let stop = start + new.len() as u64;
        // What a first and a last block have beside the new bytes.
        for block in (start / BLOCK..stop / BLOCK).step_by((stop / BLOCK - start / BLOCK - 1).max(1) as usize) {
            let partly = block * BLOCK < offset || (block + 1) * BLOCK > end;
            if partly && let Some(old) = draft.block(object, block)? {
                let at = (block * BLOCK - start) as usize;
                new[at..at + BLOCK as usize].copy_from_slice(&old);
            }
        }
        let (first, last) = (offset.max(start), end.min(stop));
        new[(first - start) as usize..(last - start) as usize]
            .copy_from_slice(&bytes[(first - offset) as usize..(last - offset) as usize]);
        let cut = draft.packed(object, span, from, to)?;
        put_blobs(draft, object, (span, from), new, May::Wait)?;
        cut.into_iter().try_for_each(|blob| compact(draft, object, span, blob))
    })
}

/// A part of a compressed blob was overwritten, and all that is stored of it stays. Where the rest takes no more room by itself it is written anew. So an object never takes more than its size.
///
/// Whoever overwrites a part of what is damaged asks for none of it, and it stays. So does the rest where there is no room for it.
fn compact(draft: &mut Draft<'_>, object: &mut Object, span: u64, blob: BlobId) -> Result<()> {
    if draft.is_tight() {
        return Ok(());
    }
    match rest_of(draft, object, span, blob) {
        Err(error) if is_of_bytes(&error) => Ok(()),
        rest => rest?.into_iter().try_for_each(|(at, bytes)| put_blobs(draft, object, (span, at), bytes, May::Wait)),
    }
}

/// What a span has of a compressed blob, where it is worth writing it anew.
fn rest_of(draft: &mut Draft<'_>, object: &mut Object, span: u64, blob: BlobId) -> Result<Vec<(u32, AlignedBuf)>> {
    let extents = draft.span(object, span)?.0.clone();
    let rest: Vec<Extent> = extents.iter().filter(|extent| extent.blob == blob).copied().collect();
    let Some(first) = rest.first() else { return Ok(Vec::new()) };
    let blocks = rest.iter().map(|extent| extent.blocks).sum::<u32>();
    if blocks > draft.stored(blob)? || draft.is_shared(first, &extents)? {
        return Ok(Vec::new());
    }
    rest.iter().map(|extent| Ok((extent.at, draft.bytes_of(extent)?))).collect()
}

/// These whole blocks stand in a span from block `from` on, compressed where that pays.
fn put_blobs(
    draft: &mut Draft<'_>,
    object: &mut Object,
    (span, from): (u64, u32),
    bytes: AlignedBuf,
    may: May,
) -> Result<()> {
    let how = draft.compression(object);
    let parts: Vec<&[u8]> = bytes.chunks(TOGETHER as usize * BLOCK as usize).collect();
    let packed: Vec<_> =
        parts.iter().map(|part| compress(how, part).filter(|packed| draft.is_a_grain(packed.len()))).collect();
    if packed.iter().all(Option::is_none) {
        let blocks = (bytes.len() as u64 / BLOCK) as u32;
        return put_blob(draft, object, (span, from, blocks), (bytes, None), may);
    }
    let mut at = from;
    for (part, packed) in parts.into_iter().zip(packed) {
        let blocks = (part.len() as u64 / BLOCK) as u32;
        let stored = match packed {
            Some(packed) => (packed, Some((how, blocks))),
            None => {
                let mut plain = AlignedBuf::zeroed(part.len());
                plain.copy_from_slice(part);
                (plain, None)
            }
        };
        put_blob(draft, object, (span, at, blocks), stored, may)?;
        at += blocks;
    }
    Ok(())
}

/// A blob stands in a span from block `from` on, and has so many.
fn put_blob(
    draft: &mut Draft<'_>,
    object: &mut Object,
    (span, from, blocks): (u64, u32, u32),
    stored: (AlignedBuf, Option<(Compression, u32)>),
    may: May,
) -> Result<()> {
    let (to, packed) = (from + blocks, stored.1.is_some());
    let blob = draft.new_blob(object, span * SPAN + u64::from(from), stored, may);
    let extent = Extent { at: from, blocks, blob, first: 0, packed };
    draft.name(&extent)?;
    punch(draft, object, span, from, to)?;
    draft.span(object, span)?.insert(extent);
    object.change(span);
    Ok(())
}

/// Bytes that were read before are written anew, as few blobs that go to zones one behind the other. What has changed since, or is shared, stays as it is.
fn rewrite(draft: &mut Draft<'_>, object: &mut Object, blocks: &Range<u64>, read: &Fragments) -> Result<()> {
    draft.brings_bytes();
    for span in draft.spans(object, blocks.start / SPAN, blocks.end.div_ceil(SPAN))? {
        let begin = span * SPAN;
        let mut groups: Vec<(u32, Vec<u8>)> = Vec::new();
        let extents = draft.span(object, span)?.0.clone();
        for extent in &extents {
            let within = blocks.start <= begin + u64::from(extent.at) && begin + u64::from(extent.end()) <= blocks.end;
            let Some(bytes) = read.of(extent).filter(|_| within) else { continue };
            if draft.is_shared(extent, &extents)? {
                continue;
            }
            match groups.last_mut() {
                Some((at, all)) if *at + (all.len() as u64 / BLOCK) as u32 == extent.at => all.extend(bytes),
                _ => groups.push((extent.at, bytes)),
            }
        }
        for (at, bytes) in groups {
            let mut new = AlignedBuf::zeroed(bytes.len());
            new.copy_from_slice(&bytes);
            put_blobs(draft, object, (span, at), new, May::NotWait)?;
        }
    }
    Ok(())
}

/// Takes the extents between two blocks of a span out.
fn punch(draft: &mut Draft<'_>, object: &mut Object, span: u64, from: u32, to: u32) -> Result<()> {
    let (gone, left) = draft.span(object, span)?.punch(from, to);
    if gone.is_empty() {
        return Ok(());
    }
    object.change(span);
    // What is left is named before, so that it does not die between.
    left.iter().try_for_each(|extent| draft.name(extent))?;
    gone.iter().try_for_each(|extent| draft.unname(extent))
}

/// Zeros that take no room, where whole blocks are; the size does not change.
fn put_zeros(draft: &mut Draft<'_>, object: &mut Object, offset: u64, end: u64) -> Result<()> {
    let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
    // What a first and a last block have beside the zeros stays, if they have anything.
    for (from, to) in [(offset, (first * BLOCK).min(end)), ((last * BLOCK).max(offset), end)] {
        if from < to && draft.block(object, from / BLOCK)?.is_some() {
            put_bytes(draft, object, from, &vec![0; (to - from) as usize])?;
        }
        if first > last {
            break;
        }
    }
    if first >= last {
        return Ok(());
    }
    for span in draft.spans(object, first / SPAN, last.div_ceil(SPAN))? {
        let begin = span * SPAN;
        let (from, to) = (first.max(begin), last.min(begin + SPAN));
        if from < to {
            let (from, to) = ((from - begin) as u32, (to - begin) as u32);
            let cut = draft.packed(object, span, from, to)?;
            punch(draft, object, span, from, to)?;
            cut.into_iter().try_for_each(|blob| compact(draft, object, span, blob))?;
        }
    }
    Ok(())
}

fn zero(draft: &mut Draft<'_>, object: &mut Object, offset: u64, len: u64) -> Result<()> {
    let end = end(draft, offset, len)?;
    if len == 0 {
        return Ok(());
    }
    // Nothing is behind the size.
    put_zeros(draft, object, offset, end.min(object.onode.size.next_multiple_of(BLOCK)).max(offset))?;
    let size = object.onode.size.max(end);
    draft.resize(object, size);
    Ok(())
}

fn truncate(draft: &mut Draft<'_>, object: &mut Object, size: u64) -> Result<()> {
    end(draft, size, 0)?;
    if size < object.onode.size {
        put_zeros(draft, object, size, object.onode.size.next_multiple_of(BLOCK))?;
    }
    draft.resize(object, size);
    Ok(())
}

/// Nobody names the object's blobs and its omap any more, since it is about to be struck.
fn empty(draft: &mut Draft<'_>, object: &mut Object) -> Result<()> {
    for span in draft.spans(object, 0, SPANS)? {
        let gone = std::mem::take(&mut draft.span(object, span)?.0);
        gone.iter().try_for_each(|extent| draft.unname(extent))?;
    }
    omap::clear(draft, object);
    Ok(())
}

fn clone(draft: &mut Draft<'_>, object: &mut Object, to: &ObjectId) -> Result<()> {
    if draft.is_there(to)? {
        let mut old = draft.take(to)?;
        empty(draft, &mut old)?;
        draft.strike(old);
    }
    let mut new = draft.take_or_make(to)?;
    new.onode.attributes = object.onode.attributes.clone();
    new.onode.hint = object.onode.hint;
    for span in draft.spans(object, 0, SPANS)? {
        let extents = draft.span(object, span)?.clone();
        extents.0.iter().try_for_each(|extent| draft.name(extent))?;
        new.set_span(span, extents);
    }
    let size = object.onode.size;
    draft.resize(&mut new, size);
    omap::copy(draft, object, &mut new)?;
    draft.put(new);
    Ok(())
}

/// What is read of an object, as a list of holes and shared extents, so that it can stand elsewhere.
fn clone_range(
    draft: &mut Draft<'_>,
    from: &mut Object,
    to: &mut Object,
    offset: u64,
    len: u64,
    at: u64,
) -> Result<()> {
    let stop = end(draft, at, len)?;
    if len == 0 {
        return Ok(());
    }
    let (first, last) = shared(offset, len, at).unwrap_or((offset, offset));
    check_copied(draft, len - (last - first))?;
    for (begin, end) in [(offset, first), (last, offset + len)] {
        if begin < end {
            draft.brings_bytes();
        }
        let bytes = bytes(draft, from, begin, end)?;
        put_bytes(draft, to, at + (begin - offset), &bytes)?;
    }
    share(draft, from, to, (first / BLOCK, last / BLOCK, (at + (first - offset)) / BLOCK))?;
    let size = to.onode.size.max(stop);
    draft.resize(to, size);
    Ok(())
}

/// Whole blocks of `from`, between the first two numbers, are those of `to` from the third on, too. Costs what there is, and not what there could be.
fn share(
    draft: &mut Draft<'_>,
    from: &mut Object,
    to: &mut Object,
    (first, last, goal): (u64, u64, u64),
) -> Result<()> {
    let mut parts = Vec::new();
    for span in draft.spans(from, first / SPAN, last.div_ceil(SPAN))? {
        let begin = span * SPAN;
        let (low, high) = (first.max(begin) - begin, last.min(begin + SPAN) - begin);
        let extents = draft.span(from, span)?.0.iter();
        for part in extents.filter_map(|extent| extent.part(low as u32, high as u32)) {
            let at = begin + u64::from(part.at) - first + goal;
            // It may be in two spans there.
            spans(at, at + u64::from(part.blocks), |span, low, high| {
                let first = part.first + (span * SPAN + u64::from(low) - at) as u32;
                parts.push((span, Extent { at: low, blocks: high - low, first, ..part }));
                Ok(())
            })?;
        }
    }
    // Before others go, so that nothing dies between.
    parts.iter().try_for_each(|(_, part)| draft.name(part))?;
    let (begin, end, mut cut) = (goal, goal + (last - first), Vec::new());
    for span in draft.spans(to, begin / SPAN, end.div_ceil(SPAN))? {
        let (low, high) = (begin.max(span * SPAN) - span * SPAN, end.min((span + 1) * SPAN) - span * SPAN);
        cut.extend(draft.packed(to, span, low as u32, high as u32)?.into_iter().map(|blob| (span, blob)));
        punch(draft, to, span, low as u32, high as u32)?;
    }
    for (span, part) in parts {
        draft.span(to, span)?.insert(part);
        to.change(span);
    }
    cut.into_iter().try_for_each(|(span, blob)| compact(draft, to, span, blob))
}

/// Within one object, of ranges that do not overlap: bytes are copied.
fn clone_range_within(draft: &mut Draft<'_>, object: &mut Object, offset: u64, len: u64, at: u64) -> Result<()> {
    let stop = end(draft, at, len)?;
    if len == 0 {
        return Ok(());
    }
    check_copied(draft, len)?;
    draft.brings_bytes();
    let bytes = bytes(draft, object, offset, offset + len)?;
    put_bytes(draft, object, at, &bytes)?;
    let size = object.onode.size.max(stop);
    draft.resize(object, size);
    Ok(())
}

/// What cannot be shared is copied in memory.
fn check_copied(draft: &Draft<'_>, len: u64) -> Result<()> {
    let sentence =
        || format!("{len} bytes of a range cannot be shared, and are too many to be copied; at most {MOST_COPIED} are");
    if len > MOST_COPIED { Err(draft.refuse(Code::InvalidArgument, sentence())) } else { Ok(()) }
}

/// The whole blocks of a range that can be shared, as bytes; `None`: none.
fn shared(offset: u64, len: u64, at: u64) -> Option<(u64, u64)> {
    let (first, last) = (offset.next_multiple_of(BLOCK), (offset + len) / BLOCK * BLOCK);
    (offset % BLOCK == at % BLOCK && first < last).then_some((first, last))
}

/// Bytes of an object, zeros where nothing is.
fn bytes(draft: &mut Draft<'_>, object: &mut Object, begin: u64, end: u64) -> Result<Vec<u8>> {
    let mut out = vec![0; (end - begin) as usize];
    for block in begin / BLOCK..end.div_ceil(BLOCK) {
        let Some(found) = draft.block(object, block)? else { continue };
        let (from, to) = (begin.max(block * BLOCK), end.min((block + 1) * BLOCK));
        out[(from - begin) as usize..(to - begin) as usize]
            .copy_from_slice(&found[(from - block * BLOCK) as usize..(to - block * BLOCK) as usize]);
    }
    Ok(out)
}
