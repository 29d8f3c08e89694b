//! Words of a command line that shells complete.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};
use imbrex_bench::experiment::{self, ALL};
use imbrex_emulator::Profile;
use std::ffi::OsStr;
use std::sync::LazyLock;

/// A parser that also tells shells some words that it takes. It may take others, too: a profile may be a file.
#[derive(Clone)]
struct Known<P> {
    parser: P,
    names: fn() -> Vec<&'static str>,
}

impl<P: TypedValueParser> TypedValueParser for Known<P> {
    type Value = P::Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<P::Value, Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}

/// The name of a drive model, or a file that describes one; who reads the profile says what is wrong with it.
pub fn profile() -> impl TypedValueParser<Value = String> {
    static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(Profile::all);
    Known { parser: StringValueParser::new(), names: || PROFILES.iter().map(|profile| profile.name.as_str()).collect() }
}

/// What `imbrex bench run` takes.
pub fn experiments() -> Vec<&'static str> {
    ALL.iter().map(|experiment| experiment.name).chain(["all"]).collect()
}

/// The name of an experiment, or `all`. A wrong one is told before anything that is missing.
pub fn experiment() -> impl TypedValueParser<Value = String> {
    let check = |name: String| if name == "all" { Ok(name) } else { experiment::named(&name).map(|_| name) };
    Known { parser: StringValueParser::new().try_map(check), names: experiments }
}
