//! The chunk store as an engine of a volume: what the [shell](imbrex_zones::shell) needs of it.

use crate::api::look::Space;
use crate::api::store::ChunkStore;
use crate::api::uri::{OF_URI, OpenRequest};
use crate::clean::background::Chores;
use crate::core::Core;
use crate::core::report::Relabelled;
use crate::error::{Error, Result};
use crate::meter::Measured;
use crate::meter::Stats;
use crate::options::FormatOptions;
use crate::recover::{self, Progress, Relabel, TENANT, relabel};
use crate::zone::ZoneState;
use imbrex_device::{Drive, ZonedDevice};
use imbrex_zones::shell::{Engine, Opened, Opener, Rest, Start, UriOption, names};
use imbrex_zones::{Volume, VolumeOptions};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Options of a URI that the chunk store understands, beside the drive's.
pub fn uri_options() -> Vec<&'static str> {
    names::<Core>()
}

/// Figures of an open store, beside those that every engine has.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What operations took.
    pub operations: Vec<Measured>,
    /// What the store has done, and how full its zones are.
    pub stats: Stats,
    /// Room.
    pub space: Space,
    /// How many datazones there are of each kind of stream (the cleaner's with theirs) in each state.
    pub datazones: Vec<(String, ZoneState, u64)>,
}

/// Figures of drive and store.
pub type Metrics = imbrex_zones::shell::Metrics<Figures>;
/// Looks at a store without keeping it open.
pub type Watch = imbrex_zones::shell::Watch<Figures>;

impl Engine for Core {
    const TENANT: &'static str = TENANT;
    const OPTIONS: &'static [UriOption<OpenRequest>] = OF_URI;
    type Options = OpenRequest;
    type Error = Error;
    type Figures = Figures;
    type Chores = Chores;

    fn opened() -> &'static Opened<Core> {
        static OPENED: LazyLock<Opened<Core>> = LazyLock::new(Opened::default);
        &OPENED
    }

    fn volume_options(request: &mut OpenRequest) -> &mut VolumeOptions {
        &mut request.options.volume
    }

    fn look(request: &mut OpenRequest) {
        // Who only looks has nothing to gain from zones that are free.
        request.options.max_slowdown = None;
    }

    fn check(request: &OpenRequest, device: &dyn ZonedDevice) -> Result<(), String> {
        request.check(device)
    }

    fn format(drive: &Drive) -> Result<()> {
        ChunkStore::format(drive, &FormatOptions::default())
    }

    fn open(start: Start<Core>) -> Result<Core> {
        recover::open(start, None, None, &mut |_, _, _| {})
    }

    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn damage(&self) -> &[String] {
        &self.report.damage
    }

    fn figures(&self) -> Figures {
        let mut datazones: BTreeMap<(String, ZoneState), u64> = BTreeMap::new();
        for (stream, state) in self.datazones() {
            *datazones.entry((self.stream_name(stream), state)).or_default() += 1;
        }
        Figures {
            operations: self.counters.meter.read(),
            stats: self.stats(),
            space: self.space(),
            datazones: datazones.into_iter().map(|((stream, state), n)| (stream, state, n)).collect(),
        }
    }

    /// A piece of the checkpoint that is under way, or a burst of cleaning.
    fn step(&self) -> Result<bool> {
        {
            let mut guard = self.commits.lead();
            if guard.log().in_snapshot() {
                self.checkpoint_step(&mut guard)?;
                return Ok(true);
            }
        }
        self.step_background()
    }

    fn wants_thread(&self) -> bool {
        self.options.max_slowdown.is_some()
    }

    fn chore(&self, chores: &mut Chores) -> Option<Rest> {
        self.attend(chores)
    }
}

/// An opening that somebody watches, or a salvage.
pub(crate) struct Opening<'a> {
    pub(crate) salvage: Option<Relabel>,
    pub(crate) relabelled: Option<Relabelled>,
    pub(crate) progress: Progress<'a>,
}

impl Opener<Core> for Opening<'_> {
    fn alone(&self) -> bool {
        self.salvage.is_some()
    }

    fn prepare(&mut self, drive: &Drive, request: &OpenRequest) -> Result<()> {
        if let Some(how) = self.salvage {
            self.relabelled = relabel(drive, how, &request.options.clock, self.progress)?;
        }
        Ok(())
    }

    fn open(&mut self, start: Start<Core>) -> Result<Core> {
        recover::open(start, self.salvage, self.relabelled.take(), self.progress)
    }
}
