//! A transaction: what is to happen to objects and collections, all of it or nothing.

use crate::fragments::Fragments;
use crate::id::{CollectionId, ObjectId};
use crate::keyvalue::Pair;
use crate::onode::Hint;
use imbrex_device::Result;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What is told when a transaction is durable, or never will be.
pub(crate) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// One step of a transaction, in a collection.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    CreateCollection { bits: u8 },
    RemoveCollection,
    Split { into: CollectionId },
    Merge { into: CollectionId },
    Object { object: ObjectId, act: Act },
}

impl Step {
    fn act(&self) -> Option<&Act> {
        match self {
            Step::Object { act: Act::IfThere(act), .. } => Some(act),
            Step::Object { act, .. } => Some(act),
            _ => None,
        }
    }

    /// Whether records go with it.
    fn takes_away(&self) -> bool {
        matches!(
            self.act(),
            Some(
                Act::Remove | Act::Truncate { .. } | Act::OmapRemove(_) | Act::OmapRemoveRange { .. } | Act::OmapClear
            )
        )
    }

    /// Whether it brings nothing, and records may become longer by it, or an object be made.
    fn lengthens(&self) -> bool {
        matches!(self.act(), Some(Act::Zero { .. } | Act::Rename { .. } | Act::Rewrite { .. }))
    }

    /// Whether there are more records behind it than before, or longer ones. What takes something away is none, although it writes records anew.
    pub(crate) fn brings_records(&self) -> bool {
        let Some(act) = self.act() else { return matches!(self, Step::CreateCollection { .. }) };
        match act {
            Act::Touch
            | Act::Write { .. }
            | Act::Clone { .. }
            | Act::CloneRange { .. }
            | Act::Hint(_)
            | Act::SetAttributes(_)
            | Act::OmapSet(_)
            | Act::OmapHeader(_) => true,
            Act::Zero { .. }
            | Act::Truncate { .. }
            | Act::Remove
            | Act::Rename { .. }
            | Act::RemoveAttribute(_)
            | Act::RemoveAttributes
            | Act::OmapRemove(_)
            | Act::OmapRemoveRange { .. }
            | Act::OmapClear
            | Act::IfThere(_)
            | Act::Rewrite { .. } => false,
        }
    }
}

/// What happens to an object.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Touch,
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    Zero {
        offset: u64,
        len: u64,
    },
    Truncate {
        size: u64,
    },
    Remove,
    Rename {
        to: ObjectId,
    },
    Clone {
        to: ObjectId,
    },
    CloneRange {
        to: ObjectId,
        from: u64,
        len: u64,
        at: u64,
    },
    Hint(Hint),
    SetAttributes(Vec<Pair>),
    RemoveAttribute(Vec<u8>),
    RemoveAttributes,
    OmapSet(Vec<Pair>),
    OmapRemove(Vec<Vec<u8>>),
    OmapRemoveRange {
        from: Vec<u8>,
        to: Vec<u8>,
    },
    OmapClear,
    OmapHeader(Vec<u8>),
    /// This happens where the object is there, and nothing where it is not.
    IfThere(Box<Act>),
    /// The bytes of these blocks are written anew, side by side, as far as somebody has read them and nobody else shares them.
    Rewrite {
        blocks: Range<u64>,
        read: Arc<Fragments>,
    },
}

/// Steps that happen together or not at all, in the order in which they were added. Each object is named with the collection that it is in.
///
/// A step that makes no sense fails the whole transaction before anything has changed: an object that is not there, or is and must not be, a collection that is not
/// empty. [`Transaction::touch`], [`Transaction::write`], [`Transaction::zero`], attributes, omap and hints make an object that is not there, and so does [`Transaction::clone_range`] of `to`.
#[derive(Default)]
pub struct Transaction {
    pub(crate) steps: Vec<(CollectionId, Step)>,
    pub(crate) callbacks: Vec<Callback>,
    pub(crate) makes_room: bool,
}

/// What a transaction asks of the drive of the metadata, if that is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Nothing: it only takes away.
    Nothing,
    /// Room for a little that comes with what it takes away, or for records that become longer.
    Little,
    /// Room for what it brings.
    Room,
}

/// What these steps ask. `makes_room`: whoever made them says that they belong to a removal.
pub(crate) fn asks(steps: &[(CollectionId, Step)], makes_room: bool) -> Asks {
    let any = |of: fn(&Step) -> bool| steps.iter().any(|(_, step)| of(step));
    match (any(Step::brings_records), any(Step::takes_away)) {
        (true, false) if !makes_room => Asks::Room,
        (true, _) => Asks::Little,
        (false, _) if any(Step::lengthens) => Asks::Little,
        _ => Asks::Nothing,
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.steps).finish()
    }
}

impl Transaction {
    /// One without steps.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    fn step(&mut self, collection: CollectionId, step: Step) -> &mut Transaction {
        self.steps.push((collection, step));
        self
    }

    pub(crate) fn act(&mut self, collection: CollectionId, object: &ObjectId, act: Act) -> &mut Transaction {
        self.step(collection, Step::Object { object: object.clone(), act })
    }

    /// Is called once: when all is durable, or never will be. Callbacks are called one after the other, in the order of their transactions, by a thread that
    /// commits.
    pub fn on_commit(&mut self, told: impl FnOnce(Result<()>) + Send + 'static) -> &mut Transaction {
        self.callbacks.push(Box::new(told));
        self
    }

    /// It belongs to a removal, although it brings a little: it may take room that a drive of the metadata keeps for deletions.
    pub fn makes_room(&mut self) -> &mut Transaction {
        self.makes_room = true;
        self
    }

    /// Makes a collection of the objects of its pool whose hashes have the same lowest `bits` bits as its seed.
    pub fn create_collection(&mut self, collection: CollectionId, bits: u8) -> &mut Transaction {
        self.step(collection, Step::CreateCollection { bits })
    }

    /// The collection, which must be empty, is gone.
    pub fn remove_collection(&mut self, collection: CollectionId) -> &mut Transaction {
        self.step(collection, Step::RemoveCollection)
    }

    /// The collection goes by one bit more, and `into` is made of the objects for which that bit is one: its seed is that of `collection` with the bit.
    pub fn split_collection(&mut self, collection: CollectionId, into: CollectionId) -> &mut Transaction {
        self.step(collection, Step::Split { into })
    }

    /// The collection's objects are those of `into`, from which [`Transaction::split_collection`] would have taken them.
    pub fn merge_collection(&mut self, collection: CollectionId, into: CollectionId) -> &mut Transaction {
        self.step(collection, Step::Merge { into })
    }

    /// The object is there.
    pub fn touch(&mut self, collection: CollectionId, object: &ObjectId) -> &mut Transaction {
        self.act(collection, object, Act::Touch)
    }

    /// These bytes stand at `offset`. An object that ends before that has zeros between. To write nothing changes no size, wherever it is; nor does a range of
    /// nothing in [`Transaction::zero`] and [`Transaction::clone_range`].
    pub fn write(
        &mut self,
        collection: CollectionId,
        object: &ObjectId,
        offset: u64,
        bytes: &[u8],
    ) -> &mut Transaction {
        self.act(collection, object, Act::Write { offset, bytes: bytes.to_vec() })
    }

    /// So many zeros stand at `offset`, and take no room.
    pub fn zero(&mut self, collection: CollectionId, object: &ObjectId, offset: u64, len: u64) -> &mut Transaction {
        self.act(collection, object, Act::Zero { offset, len })
    }

    /// The object has this size. What is new is zeros.
    pub fn truncate(&mut self, collection: CollectionId, object: &ObjectId, size: u64) -> &mut Transaction {
        self.act(collection, object, Act::Truncate { size })
    }

    /// The object is gone.
    pub fn remove(&mut self, collection: CollectionId, object: &ObjectId) -> &mut Transaction {
        self.act(collection, object, Act::Remove)
    }

    /// The object is gone, whether or not it was there.
    pub fn remove_if_there(&mut self, collection: CollectionId, object: &ObjectId) -> &mut Transaction {
        self.act(collection, object, Act::IfThere(Box::new(Act::Remove)))
    }

    /// The object is called `to`, a name that no object of the collection has.
    pub fn rename(&mut self, collection: CollectionId, object: &ObjectId, to: &ObjectId) -> &mut Transaction {
        self.act(collection, object, Act::Rename { to: to.clone() })
    }

    /// The same, where the object is there. Nothing happens where it is not.
    pub fn rename_if_there(&mut self, collection: CollectionId, object: &ObjectId, to: &ObjectId) -> &mut Transaction {
        self.act(collection, object, Act::IfThere(Box::new(Act::Rename { to: to.clone() })))
    }

    /// `to`, of the same collection, is what the object is: bytes, attributes, omap. It shares the bytes, which are not copied.
    pub fn clone_object(&mut self, collection: CollectionId, object: &ObjectId, to: &ObjectId) -> &mut Transaction {
        self.act(collection, object, Act::Clone { to: to.clone() })
    }

    /// `len` bytes of the object, from `from` on, stand in `to` at `at`. Whole blocks of 4 KiB are shared where `to` is another object and
    /// both offsets have the same distance from one.
    pub fn clone_range(
        &mut self,
        collection: CollectionId,
        object: &ObjectId,
        to: &ObjectId,
        (from, len, at): (u64, u64, u64),
    ) -> &mut Transaction {
        self.act(collection, object, Act::CloneRange { to: to.clone(), from, len, at })
    }

    /// What is to be expected of the object's next writes.
    pub fn hint(&mut self, collection: CollectionId, object: &ObjectId, hint: Hint) -> &mut Transaction {
        self.act(collection, object, Act::Hint(hint))
    }

    /// The object has these attributes beside its others.
    pub fn set_attributes(
        &mut self,
        collection: CollectionId,
        object: &ObjectId,
        all: &[(&[u8], &[u8])],
    ) -> &mut Transaction {
        self.act(collection, object, Act::SetAttributes(owned(all)))
    }

    /// The object has no attribute of this name.
    pub fn remove_attribute(&mut self, collection: CollectionId, object: &ObjectId, name: &[u8]) -> &mut Transaction {
        self.act(collection, object, Act::RemoveAttribute(name.to_vec()))
    }

    /// The object has no attributes.
    pub fn remove_attributes(&mut self, collection: CollectionId, object: &ObjectId) -> &mut Transaction {
        self.act(collection, object, Act::RemoveAttributes)
    }

    /// The object's omap has these pairs beside its others.
    pub fn omap_set(
        &mut self,
        collection: CollectionId,
        object: &ObjectId,
        pairs: &[(&[u8], &[u8])],
    ) -> &mut Transaction {
        self.act(collection, object, Act::OmapSet(owned(pairs)))
    }

    /// The object's omap has none of these keys.
    pub fn omap_remove(&mut self, collection: CollectionId, object: &ObjectId, keys: &[&[u8]]) -> &mut Transaction {
        self.act(collection, object, Act::OmapRemove(keys.iter().map(|key| key.to_vec()).collect()))
    }

    /// The object's omap has no key from `from` on and before `to`.
    pub fn omap_remove_range(
        &mut self,
        collection: CollectionId,
        object: &ObjectId,
        from: &[u8],
        to: &[u8],
    ) -> &mut Transaction {
        self.act(collection, object, Act::OmapRemoveRange { from: from.to_vec(), to: to.to_vec() })
    }

    /// The object's omap has no keys and no header.
    pub fn omap_clear(&mut self, collection: CollectionId, object: &ObjectId) -> &mut Transaction {
        self.act(collection, object, Act::OmapClear)
    }

    /// The object's omap has this header.
    pub fn omap_header(&mut self, collection: CollectionId, object: &ObjectId, header: &[u8]) -> &mut Transaction {
        self.act(collection, object, Act::OmapHeader(header.to_vec()))
    }
}

fn owned(pairs: &[(&[u8], &[u8])]) -> Vec<Pair> {
    pairs.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}
