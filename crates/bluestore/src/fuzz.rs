//! What the fuzz target calls: hostile bytes where the store reads what it has written.

use crate::blob::{BLOCK, Blob, BlobId};
use crate::codec::Reader;
use crate::counts;
use crate::freelist;
use crate::id::{CollectionId, ObjectId};
use crate::names;
use crate::onode::{Onode, Span, of_span_key};
use crate::rounds::Rounds;
use crate::run::RunHeader;
use crate::space::Space;
use crate::super_block::SuperBlock;
use crate::table::{Sums, Zone, of_zone_key};

/// One record: a byte says of which kind, the rest is it. What is accepted, and written again, is the same when it is read.
pub fn fuzz_records(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 14 {
        0 => {
            if let Some(onode) = Onode::decode(bytes) {
                assert_eq!(Onode::decode(&onode.encode()), Some(onode));
            }
        }
        1 => {
            if let Some(span) = Span::of_record(bytes, 7) {
                assert_eq!(Span::of_record(&span.record(7), 7), Some(span));
            }
        }
        2 => fuzz_blob(bytes),
        3 => {
            if let Some(id) = ObjectId::of_key(bytes) {
                assert_eq!(id.key(), bytes);
            }
        }
        4 => {
            // Sealed, so that what is behind the checksum is reached.
            let blocks = RunHeader::blocks_of(bytes).unwrap_or(1);
            let mut block = vec![0; blocks as usize * BLOCK as usize];
            let len = bytes.len().min(block.len());
            block[..len].copy_from_slice(&bytes[..len]);
            let _ = RunHeader::decode(&block);
            block[16..20].fill(0);
            let crc = crc32c::crc32c(&block);
            block[16..20].copy_from_slice(&crc.to_le_bytes());
            if let Some(header) = RunHeader::decode(&block) {
                let building = header.building();
                let mut again = vec![0; building.blocks() as usize * BLOCK as usize];
                building.encode_into((header.at, header.life, header.mount, header.group), &mut again);
                let again = RunHeader::decode(&again);
                assert_eq!(again.map(|again| (again.pieces, again.sums)), Some((header.pieces, header.sums)));
            }
        }
        5 => _ = SuperBlock { volume: [0; 16], tenant: 1, unit: 0 }.check(bytes),
        10 => fuzz_units(bytes),
        6 => _ = (Zone::decode(bytes), of_zone_key(bytes), Sums::decode(bytes)),
        8 => {
            if let Some(changes) = counts::decode(bytes) {
                assert_eq!(counts::decode(&counts::encode(&changes)), Some(changes));
            }
            let _ = counts::of_key(bytes);
        }
        9 => {
            if let Some(rounds) = Rounds::decode_body(bytes) {
                assert_eq!(Rounds::decode(&rounds.encode()), Some(rounds));
            }
            let _ = Rounds::decode(bytes);
        }
        11 => {
            let (mut from, mut before) = (Reader(bytes), None);
            while let Some(Some(name)) = names::decode(&mut from, before.as_ref()) {
                let again = names::encode(&name, before.as_ref());
                assert!(again.is_some_and(
                    |again| names::decode(&mut Reader(&again), before.as_ref()) == Some(Some(name.clone()))
                ));
                before = Some(name);
            }
        }
        12 => crate::salvage::fuzz_stored(bytes),
        7 => _ = (BlobId::of_key(bytes), of_span_key(bytes), CollectionId::of_key(bytes)),
        _ => _ = (Reader(bytes).escaped(), Reader(bytes).ordered(), Reader(bytes).varint()),
    }
}

/// A blob that is accepted can be named, overwritten and moved anyhow.
fn fuzz_blob(bytes: &[u8]) {
    let Some(mut blob) = Blob::decode(bytes) else { return };
    assert_eq!(Blob::decode(&blob.encode()), Some(blob.clone()));
    for first in 0..blob.named {
        let blocks = (blob.named - first).min(3);
        let (from, len) = blob.whole(first, blocks);
        blob.name(first, blocks);
        let _ = blob.find(from, len);
        blob.put(from, len, crate::blob::Place { zone: 1, block: first, life: 2 });
        let _ = blob.unname(first, blocks);
    }
    assert_eq!(Blob::decode(&blob.encode()), Some(blob));
}

/// Records of units of hostile bytes, taken into a zone, are as they were or are refused.
fn fuzz_units(bytes: &[u8]) {
    let Some((key, value)) = bytes.split_at_checked(8) else { return };
    let (Some(key), Some(taken)) = (freelist::of_key(key), freelist::decode(value)) else { return };
    let mut space = Space::new(1, 300);
    space.add(key.0);
    if space.load(key, taken) {
        // The header's unit is taken anyway, and in no record.
        assert_eq!(space.record(key, 0), if key.1 == 0 { taken & !1 } else { taken });
    }
}
