//! Spaces by their names.

use crate::batch::{Batch, Body};
use crate::core::Core;
use crate::manifest::{Note, Space};
use crate::order::{Bytewise, Order};
use crate::space::{LONGEST_NAME, MOST_SPACES, UNNAMED, known};
use crate::sync::lock;
use crate::work::Worker;
use crate::write::write;
use imbrex_device::{Cause, Code, Result};

/// What becomes of a space that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// It is an error.
    Never,
    /// It is made.
    IfMissing,
    /// It is made, and one that is there is an error.
    New,
}

fn refuse<T>(core: &Core, code: Code, sentence: String) -> Result<T> {
    Err(core.refused(code, sentence))
}

/// The number of the space with this name, and with keys in the order of that name.
pub(super) fn open(core: &Core, worker: &Worker, name: &str, order: &str, make: Make) -> Result<u16> {
    // One at a time, so that a name has one number.
    let _one = lock(&core.naming);
    match find(core, name) {
        Some(_) if make == Make::New => refuse(core, Code::Exists, format!("there is a space {name:?} already")),
        Some((_, stored)) if stored != order => refuse(
            core,
            Code::InvalidArgument,
            format!("the keys of the space {name:?} are in the order {stored:?}, not {order:?}; open it with its own"),
        ),
        Some((number, _)) => Ok(number),
        None if make == Make::Never => refuse(core, Code::NotFound, format!("there is no space {name:?}")),
        None => {
            // One that was dropped with this name must be so durably first, or there would be two.
            worker.note_ranges()?;
            add(core, name, order)
        }
    }
}

/// Number and order of the space with this name.
fn find(core: &Core, name: &str) -> Option<(u16, String)> {
    let found = core.named_spaces().into_iter().find(|(_, space)| space.name == name);
    found.map(|(number, space)| (number, space.order))
}

/// The space of this name goes, and all its keys.
pub(super) fn drop_named(core: &Core, worker: &Worker, name: &str) -> Result<()> {
    let one = lock(&core.naming);
    if name.is_empty() {
        let sentence = "the space without a name cannot be dropped; delete the range of all its keys";
        return refuse(core, Code::InvalidArgument, sentence.into());
    }
    let Some((number, order)) = find(core, name) else {
        return refuse(core, Code::NotFound, format!("there is no space {name:?}"));
    };
    let mut batch = Batch::new();
    batch.drop_space(number);
    write(core, worker, (Body::Batch(&batch), UNNAMED), (false, true))?;
    // From here on the name is free.
    worker.note_ranges()?;
    drop(one);
    if order != Bytewise.name() {
        // Later openings need not know its order.
        worker.merge_all()?;
    }
    Ok(())
}

fn add(core: &Core, name: &str, order: &str) -> Result<u16> {
    if name.len() > LONGEST_NAME || order.len() > LONGEST_NAME {
        let len = name.len().max(order.len());
        let sentence = format!("a name of {len} bytes is too long; a space and its order have {LONGEST_NAME} at most");
        return refuse(core, Code::InvalidArgument, sentence);
    }
    let Some(how) = known(order) else {
        return refuse(core, Code::InvalidArgument, format!("this program knows no order {order:?} of keys"));
    };
    let Some(number) = core.spaces.unused() else {
        let sentence =
            format!("the store has had {MOST_SPACES} spaces, and takes no more; drop some, and open it anew");
        return refuse(core, Code::InvalidArgument, sentence);
    };
    core.spaces.set(number, &how);
    let space = Space { name: name.into(), order: order.into(), dropped: false };
    let made = core.commit(core.note(&[Note::Space(number, space)]), Cause::Journal);
    match made {
        Ok(()) => core.spaces.add(number),
        Err(_) => drop(core.note(&[Note::NoSpace(number)])),
    }
    made.map(|()| number)
}

/// Names of all spaces but the unnamed one, and of their orders.
pub(super) fn names(core: &Core) -> Vec<(String, String)> {
    let named = core.named_spaces().into_iter().filter(|(_, space)| !space.name.is_empty());
    let mut names: Vec<_> = named.map(|(_, space)| (space.name, space.order)).collect();
    names.sort();
    names
}
