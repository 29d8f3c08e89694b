//! What the time model knows of a drive: numbers with a unit and a source, from the profile's file.

use imbrex_device::ZoneOp;
use serde::{Deserialize, Serialize};

/// One number of the time model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Which: one of [`NAMES`].
    pub name: String,
    /// The number, in the unit that the name ends with.
    pub value: f64,
    /// Where it comes from; begins with "assumed" where nobody measured it.
    pub source: String,
}

impl Parameter {
    /// Whether nobody measured it.
    pub fn is_assumed(&self) -> bool {
        self.source.starts_with("assumed")
    }
}

macro_rules! params {
    ($($(#[$doc:meta])* $field:ident: $default:expr, $min:expr, $max:expr;)*) => {
        /// All numbers of the time model of a spinning drive. Units stand in the names.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub struct Params { $($(#[$doc])* pub $field: f64,)* }

        /// The names that a profile may give, with the least and the most that makes sense.
        pub const NAMES: &[(&str, f64, f64)] = &[$((stringify!($field), $min, $max),)*];

        impl Params {
            fn of(get: impl Fn(&str) -> Option<f64>) -> Result<Params, String> {
                Ok(Params { $($field: match (get(stringify!($field)), $default) {
                    (Some(value), _) => value,
                    (None, Some(value)) => value,
                    (None, None) => return Err(format!("the time model needs the parameter {:?}", stringify!($field))),
                },)* })
            }
            /// Every number by its name, in the order of [`NAMES`].
            pub fn values(&self) -> Vec<(&'static str, f64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
            fn field(&mut self, name: &str) -> Option<&mut f64> {
                match name { $(stringify!($field) => Some(&mut self.$field),)* _ => None }
            }
        }
    };
}

params! {
    /// Sequential bandwidth at the outer edge.
    bandwidth_outer_mib_s: None::<f64>, 1.0, 1e5;
    /// Sequential bandwidth averaged over the time of a pass over the whole drive.
    bandwidth_average_mib_s: None::<f64>, 1.0, 1e5;
    /// Turns of the platters a minute.
    rotation_rpm: None::<f64>, 60.0, 1e6;
    /// Seek time over the fraction d of the stroke: settle + root * sqrt(d) + linear * d.
    seek_settle_ms: None::<f64>, 0.0, 1e3;
    seek_root_ms: None::<f64>, 0.0, 1e3;
    seek_linear_ms: None::<f64>, 0.0, 1e3;
    /// What the controller spends on a command, whatever it is.
    overhead_us: None::<f64>, 0.0, 1e6;
    /// Bandwidth between host and drive.
    interface_mib_s: None::<f64>, 1.0, 1e6;
    /// Commands that the drive looks at to choose the next one.
    queue_depth: None::<f64>, 1.0, 1024.0;
    /// After this long a command is served whatever lies nearer.
    queue_patience_ms: None::<f64>, 0.0, 1e6;
    /// How far the drive reads ahead behind a read while nobody waits.
    readahead_kib: None::<f64>, 0.0, 1e6;
    /// Pieces of the drive that it keeps of what it read ahead.
    readahead_segments: None::<f64>, 1.0, 1024.0;
    /// Most that the drive writes out of its write cache in one go.
    destage_kib: None::<f64>, 4.0, 1e6;
    /// Of so many extents of the write cache the one that the head reaches soonest is written next.
    destage_choice: Some(1.0), 1.0, 1024.0;
    /// How long the head waits for something better to do before it writes out the cache unpressed.
    destage_after_idle_ms: None::<f64>, 0.0, 1e6;
    /// Bandwidth where the conventional zones lie; 0: they lie where their addresses are.
    conventional_bandwidth_mib_s: Some(0.0), 0.0, 1e5;
    /// Zone operations; an implicit open and a close by the drive cost the same as those the host asks for.
    zone_open_ms: Some(0.0), 0.0, 1e4;
    zone_close_ms: Some(0.0), 0.0, 1e4;
    zone_finish_ms: Some(0.0), 0.0, 1e4;
    zone_reset_ms: Some(0.0), 0.0, 1e4;
    /// Drive-managed drives: a band is written as a whole.
    band_mib: Some(0.0), 0.0, 1e6;
    /// Persistent cache at the outer edge.
    persistent_cache_mib: Some(0.0), 0.0, 1e8;
    /// Most extents that the translation map of the persistent cache holds.
    persistent_cache_extents: Some(0.0), 0.0, 1e9;
    /// From this length on a write that begins a band or continues one goes to the band itself.
    stream_kib: Some(0.0), 0.0, 1e6;
    /// Bands that can be written as streams at once.
    streams: Some(0.0), 0.0, 1e4;
    /// The drive cleans after it had nothing to do for so long.
    clean_after_idle_ms: Some(0.0), 0.0, 1e7;
}

impl Params {
    /// What a profile's parameters say; the error is a sentence.
    pub fn parse(parameters: &[Parameter]) -> Result<Params, String> {
        for (i, parameter) in parameters.iter().enumerate() {
            let name = &parameter.name;
            let Some((_, min, max)) = NAMES.iter().find(|(known, ..)| known == name) else {
                let known: Vec<_> = NAMES.iter().map(|(name, ..)| *name).collect();
                return Err(format!("there is no parameter {name:?}; use {}", known.join(", ")));
            };
            if !(*min..=*max).contains(&parameter.value) {
                return Err(format!("{name} is {}; it must be between {min} and {max}", parameter.value));
            }
            if parameter.source.is_empty() {
                return Err(format!("{name} has no source; say who measured it, or \"assumed\""));
            }
            if parameters[..i].iter().any(|other| other.name == *name) {
                return Err(format!("{name} is there twice"));
            }
        }
        let params = Params::of(|name| parameters.iter().find(|p| p.name == name).map(|p| p.value))?;
        params.check()?;
        Ok(params)
    }

    /// What [`Params::values`] said; names that are missing have their defaults. The error is a sentence.
    pub(crate) fn from_values(values: &[(String, f64)]) -> Result<Params, String> {
        let parameter =
            |(name, value): &(String, f64)| Parameter { name: name.clone(), value: *value, source: "kept".into() };
        Params::parse(&values.iter().map(parameter).collect::<Vec<_>>())
    }

    fn check(&self) -> Result<(), String> {
        let (outer, average) = (self.bandwidth_outer_mib_s, self.bandwidth_average_mib_s);
        if average > outer || average <= outer / 2.0 {
            return Err(format!(
                "an average of {average} MiB/s needs an outer bandwidth from it to below twice it, not {outer}"
            ));
        }
        let inner = 2.0 * average - outer;
        let conventional = self.conventional_bandwidth_mib_s;
        if conventional != 0.0 && !(inner..=outer).contains(&conventional) {
            return Err(format!(
                "nowhere on the drive is the bandwidth {conventional} MiB/s of conventional zones; it is {outer} to {inner}"
            ));
        }
        if self.persistent_cache_mib > 0.0 && (self.band_mib == 0.0 || self.persistent_cache_mib < 2.0 * self.band_mib)
        {
            return Err("a drive with a persistent cache needs band_mib, and room for two bands in the cache".into());
        }
        Ok(())
    }

    /// An open, with the close of another zone that made room for it.
    pub(crate) fn open_ms(&self, closed: bool) -> f64 {
        self.zone_open_ms + if closed { self.zone_close_ms } else { 0.0 }
    }

    /// A zone operation of the host, and the drive's own close that it brought along.
    pub(crate) fn zone_op_ms(&self, op: ZoneOp, closed: bool) -> f64 {
        match op {
            ZoneOp::Open => self.open_ms(closed),
            ZoneOp::Close => self.zone_close_ms,
            ZoneOp::Finish => self.zone_finish_ms,
            ZoneOp::Reset => self.zone_reset_ms,
        }
    }

    /// Whether the drive translates addresses.
    pub fn translates(&self) -> bool {
        self.persistent_cache_mib > 0.0
    }

    /// With the parameter `name` times `factor`, for sensitivity; the error is a sentence.
    pub fn with(mut self, name: &str, factor: f64) -> Result<Params, String> {
        match self.field(name) {
            Some(value) => *value *= factor,
            None => return Err(format!("there is no parameter {name:?}")),
        }
        self.queue_depth = self.queue_depth.max(1.0).round();
        self.destage_choice = self.destage_choice.max(1.0).round();
        self.readahead_segments = self.readahead_segments.max(1.0).round();
        self.check()?;
        Ok(self)
    }

    /// For an experiment at 1/`scale`: mechanical times and what the drive keeps in memory or sets aside are divided; bandwidth
    /// stays. Capacity and zones are the configuration's.
    #[must_use]
    pub fn scaled(mut self, scale: f64) -> Params {
        for times in [
            &mut self.seek_settle_ms,
            &mut self.seek_root_ms,
            &mut self.seek_linear_ms,
            &mut self.overhead_us,
            &mut self.queue_patience_ms,
            &mut self.destage_after_idle_ms,
            &mut self.zone_open_ms,
            &mut self.zone_close_ms,
            &mut self.zone_finish_ms,
            &mut self.zone_reset_ms,
            &mut self.clean_after_idle_ms,
            &mut self.readahead_kib,
            &mut self.destage_kib,
            &mut self.band_mib,
            &mut self.persistent_cache_mib,
            &mut self.stream_kib,
        ] {
            *times /= scale;
        }
        self.rotation_rpm *= scale;
        self.destage_kib = self.destage_kib.max(4.0);
        self
    }

    /// For operations that keep their size, of which there are 1/`scale`: what fills up with their number shrinks, nothing else.
    #[must_use]
    pub fn fewer(mut self, scale: f64) -> Params {
        let least = 2.0 * self.band_mib;
        self.persistent_cache_mib = (self.persistent_cache_mib / scale).max(least.min(self.persistent_cache_mib));
        self.persistent_cache_extents /= scale;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, value: f64) -> Parameter {
        Parameter { name: name.into(), value, source: "assumed".into() }
    }

    #[test]
    fn what_makes_no_drive_is_refused_with_a_sentence() {
        let mut all: Vec<Parameter> =
            NAMES.iter().take(15).map(|(name, min, max)| parameter(name, (1.0f64).clamp(*min, *max))).collect();
        all[0].value = 200.0;
        all[1].value = 150.0;
        all[2].value = 7200.0;
        all[12].value = 512.0;
        assert!(Params::parse(&all).is_ok());
        for (change, says) in [
            (parameter("colour", 1.0), "no parameter \"colour\""),
            (parameter("zone_open_ms", -1.0), "between 0"),
            (parameter("zone_open_ms", f64::NAN), "between 0"),
            (parameter("rotation_rpm", 7200.0), "twice"),
            (parameter("conventional_bandwidth_mib_s", 90.0), "nowhere"),
            (parameter("persistent_cache_mib", 90.0), "band_mib"),
            (Parameter { source: String::new(), ..parameter("zone_open_ms", 1.0) }, "no source"),
        ] {
            let with: Vec<_> = all.iter().cloned().chain([change]).collect();
            let sentence = Params::parse(&with).unwrap_err();
            assert!(sentence.contains(says), "{sentence:?} lacks {says:?}");
        }
        assert!(Params::parse(&all[1..]).unwrap_err().contains("bandwidth_outer_mib_s"));
        assert!(Params::parse(&all).unwrap().with("bandwidth_average_mib_s", 0.5).is_err());
    }
}
