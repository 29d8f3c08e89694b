//! Profile files: no panic; what parses makes a configuration that is either sound or refused with a sentence.

#![no_main]

use imbrex_emulator::{Config, Overrides, Profile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Profile::parse(text) {
        Ok(profile) => {
            if let Err(error) = Config::new(&profile, &Overrides::default()).check() {
                assert!(!error.to_string().is_empty());
            }
        }
        Err(sentence) => assert!(!sentence.is_empty()),
    }
});
