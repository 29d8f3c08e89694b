//! Figures of images, for whoever watches them.
//!
//! What an image takes is found by a look at all its objects. Whoever asks for figures goes on with such a look for a while, and is told what the last whole one has found, and how old that is.

use crate::images::{Images, WeakImages};
use crate::lasting::{Look, Taken};
use crate::limits::Limits;
use crate::meter::Requests;
use crate::names::{ALL, HEAD, number_of};
use crate::objects::Core;
use imbrex_bluestore::Usage;
use imbrex_device::{Code, Result};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// So old what an image takes may be before somebody looks again.
const FRESH: Duration = Duration::from_secs(60);
/// Objects that are looked at for one answer, of all images together.
const MOST: usize = 16 << 10;
/// Objects of a page of a list.
const PAGE: usize = 256;

/// Figures of an image. Counters begin when its images are opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Its name.
    pub name: String,
    /// Bytes that it has.
    pub size: u64,
    /// What it took when somebody looked last; `None`: nobody has yet.
    pub taken: Option<Takes>,
    /// Its snapshots.
    pub snapshots: u64,
    /// Its limits.
    pub limits: Limits,
    /// What was asked of it, by kind.
    pub requests: Vec<Requests>,
    /// Requests that the limits have held back.
    pub waits: u64,
    /// How many nanoseconds these have waited together.
    pub waited: u64,
}

/// What an image takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Takes {
    /// As [`Info::used`](crate::Info::used).
    pub used: u64,
    /// As [`Info::kept`](crate::Info::kept).
    pub kept: u64,
    /// So many seconds ago.
    pub age: u64,
}

/// Figures of the store that has the images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is that of the store's Usage")]
pub struct StoreFigures {
    pub objects: u64,
    pub bytes: u64,
    pub stored: u64,
    pub uncounted: u64,
    pub deferred: u64,
    pub free: u64,
    pub capacity: u64,
    pub moved: u64,
}

/// What `imbrex image stat` asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Of the image.
    pub image: Figures,
    /// Of the store.
    pub store: StoreFigures,
}

impl StoreFigures {
    fn of(usage: &Usage) -> StoreFigures {
        let Usage { objects, bytes, stored, uncounted, deferred, free, capacity, moved, .. } = *usage;
        StoreFigures { objects, bytes, stored, uncounted, deferred, free, capacity, moved }
    }
}

impl Core {
    /// Goes on with a look at all objects, or begins one where the last is old. `left`: objects that may be looked at.
    fn look_on(&self, left: &mut usize) -> Result<()> {
        let now = self.lasting.clock.now();
        let mut look = self.lasting.look();
        let old = |(_, began): &(Taken, Duration)| now.saturating_sub(*began) >= FRESH;
        if look.next.is_none() {
            if !look.last.as_ref().is_none_or(old) {
                return Ok(());
            }
            look.next = Some((self.object(0, 0), Taken::default(), now));
        }
        while *left > 0
            && let Some((from, mut taken, began)) = look.next.take()
        {
            let page = match self.store.list(ALL, Some(&from), PAGE.min(*left)) {
                Ok(page) => page,
                Err(error) => {
                    look.next = None;
                    return Err(error);
                }
            };
            *left -= page.all.len().clamp(1, *left);
            let mut next = page.next;
            for id in page.all {
                let Some((_, snap)) = number_of(self.id, &id) else {
                    next = None;
                    break;
                };
                *(if snap == HEAD { &mut taken.head } else { &mut taken.kept }) += self.stored(&id)?;
            }
            let Look { last, next: goes_on } = &mut *look;
            match next {
                Some(next) => *goes_on = Some((next, taken, began)),
                None => *last = Some((taken, began)),
            }
        }
        Ok(())
    }

    fn figures(&self, name: &str) -> Figures {
        let (now, lasting) = (self.lasting.clock.now(), &self.lasting);
        let last = lasting.look().last;
        let taken = last.map(|(Taken { head, kept }, began)| Takes {
            used: head,
            kept,
            age: now.saturating_sub(began).as_secs(),
        });
        let (waits, waited) = lasting.meter.waits();
        let state = self.state();
        Figures {
            name: name.to_owned(),
            size: state.header.size,
            taken,
            snapshots: state.snaps.values().filter(|snap| !snap.going).count() as u64,
            limits: state.header.limits,
            requests: lasting.meter.requests(),
            waits,
            waited,
        }
    }
}

impl Images {
    /// Figures of all images, in the order of their names. What they take is looked up by parts, so that an answer takes a bounded time: at the first time it may be missing.
    ///
    /// # Errors
    /// Those of the store.
    pub fn figures(&self) -> Result<Vec<Figures>> {
        let mut all = Vec::new();
        for name in self.names()? {
            match self.named(&mut self.lock(), &name) {
                Ok(core) => all.push((name, core)),
                // It was removed meanwhile, or is damaged, which others are not.
                Err(error) => tracing::debug!(%error, name, "this image has no figures"),
            }
        }
        // Where not all can be looked at, those of which the least is known are.
        let mut order: Vec<&Arc<Core>> = all.iter().map(|(_, core)| core).collect();
        order.sort_by_key(|core| core.lasting.look().last.map(|(_, began)| began));
        let mut left = MOST;
        for core in order {
            if let Err(error) = core.look_on(&mut left) {
                tracing::debug!(%error, "what an image takes is not known");
            }
        }
        Ok(all.iter().map(|(name, core)| core.figures(name)).collect())
    }

    /// Figures of an image and of its store. Where nobody has looked what the image takes, that is done first.
    ///
    /// # Errors
    /// `NotFound`; those of the store.
    pub fn stat(&self, name: &str) -> Result<Stat> {
        let core = self.named(&mut self.lock(), name)?;
        core.look_on(&mut { MOST })?;
        while core.lasting.look().last.is_none() {
            core.look_on(&mut { MOST })?;
        }
        Ok(Stat { image: core.figures(name), store: StoreFigures::of(&self.store().usage()) })
    }

    /// Figures that do not keep the images open.
    pub fn watch(&self) -> Watch {
        Watch(self.downgrade())
    }
}

/// Looks at images without keeping them open. Clones are the same.
#[derive(Clone)]
pub struct Watch(WeakImages);

impl Watch {
    /// The figures now; `None`: they are not open any more.
    pub fn figures(&self) -> Option<Vec<Figures>> {
        let _looking = self.0.1.lock().unwrap_or_else(PoisonError::into_inner);
        let images = self.0.upgrade()?;
        match images.figures() {
            Ok(figures) => Some(figures),
            Err(error) => {
                // A store that was closed under them, too.
                if error.code() != Code::InvalidArgument {
                    tracing::warn!(%error, "images have no figures now");
                }
                Some(Vec::new())
            }
        }
    }

    /// Whether they are open.
    pub fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Who has let the images go waits here for looks that are under way: behind it they keep nothing open.
    pub fn wait_for_looks(&self) {
        drop(self.0.1.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
