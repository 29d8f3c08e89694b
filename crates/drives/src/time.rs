//! `time=` and `speed=`: how an emulated drive keeps time while it is open.

use imbrex_emulator::time::Pace;

/// The options of an emulated drive that say how it keeps time.
pub const TIME_OPTIONS: &[&str] = &["time", "speed"];

/// Speeds between these make sense: below, a rotation takes minutes; above, no host keeps up.
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-3..=1e6;

/// How an emulated drive keeps time; `None`: it keeps none.
pub type Time = Option<Pace>;

/// Gathers the options as they are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeOptions<'a> {
    time: Option<&'a str>,
    speed: Option<&'a str>,
}

impl<'a> TimeOptions<'a> {
    /// Takes an option if it is one of time; `false` where it is another. The error is a sentence.
    pub(crate) fn take(&mut self, name: &str, value: &'a str) -> Result<bool, String> {
        let place = match name {
            "time" => &mut self.time,
            "speed" => &mut self.speed,
            _ => return Ok(false),
        };
        match place.replace(value) {
            None => Ok(true),
            Some(_) => Err(format!("{name} is there twice; leave one out")),
        }
    }

    /// What they say together; the error is a sentence.
    pub(crate) fn understand(&self) -> Result<Time, String> {
        let speed = match self.speed {
            None => 1.0,
            Some(text) => {
                let speed = text.parse::<f64>().ok().filter(|speed| SPEEDS.contains(speed));
                speed.ok_or_else(|| {
                    let (least, most) = (SPEEDS.start(), SPEEDS.end());
                    format!(
                        "speed={text}: drive seconds in one second are a number between {least} and {most}, as 2 or 0.5"
                    )
                })?
            }
        };
        match self.time {
            Some("pace") => Ok(Some(Pace::Real { speed })),
            Some(time @ ("off" | "account")) => match self.speed {
                Some(_) => Err(format!(
                    "speed= says how fast the drive's clock runs, and with time={time} nobody waits for it; use time=pace, or leave it out"
                )),
                None if time == "account" => Ok(Some(Pace::Account)),
                None => Ok(None),
            },
            Some(other) => Err(format!(
                "time={other}: a drive keeps time as off, account (service times are added up) or pace (callers wait)"
            )),
            None if self.speed.is_some() => Err("speed= goes with time=pace; write both, or leave it out".into()),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[(&str, &str)]) -> Result<Time, String> {
        let mut options = TimeOptions::default();
        for (name, value) in parts {
            assert!(options.take(name, value)?);
        }
        options.understand()
    }

    #[test]
    fn options_make_a_pace_or_a_sentence() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("time", "off")]), Ok(None));
        assert_eq!(of(&[("time", "account")]), Ok(Some(Pace::Account)));
        assert_eq!(of(&[("time", "pace")]), Ok(Some(Pace::Real { speed: 1.0 })));
        assert_eq!(of(&[("speed", "0.5"), ("time", "pace")]), Ok(Some(Pace::Real { speed: 0.5 })));
        for (parts, says) in [
            (&[("time", "fast")][..], "off, account"),
            (&[("time", "on")], "off, account"),
            (&[("time", "pace"), ("time", "off")], "twice"),
            (&[("speed", "2")], "goes with time=pace"),
            (&[("time", "account"), ("speed", "2")], "nobody waits"),
            (&[("time", "pace"), ("speed", "0")], "between"),
            (&[("time", "pace"), ("speed", "-1")], "between"),
            (&[("time", "pace"), ("speed", "NaN")], "between"),
            (&[("time", "pace"), ("speed", "inf")], "between"),
            (&[("time", "pace"), ("speed", "")], "between"),
        ] {
            let sentence = of(parts).unwrap_err();
            assert!(sentence.contains(says), "{parts:?}: {sentence:?} lacks {says:?}");
        }
        assert_eq!(TimeOptions::default().take("size", "1"), Ok(false));
    }
}
