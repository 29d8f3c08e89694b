//! URIs, locators and sizes: no panic; a size reads back; what is understood of a drive in memory or of a banded disk is sound.

#![no_main]

use imbrex_drives::{Locator, key, parse_bool, parse_size, parse_uri};
use libfuzzer_sys::fuzz_target;

fn locator(text: &str) {
    match Locator::parse(text) {
        Ok(Locator::Memory(memory)) => assert!(memory.config.check().is_ok(), "a configuration that makes a drive"),
        Ok(Locator::Banded(disk)) => {
            for size in [0, 4096, 1 << 20, 1 << 33, u64::MAX] {
                if let Ok(layout) = disk.plan(size, 4096) {
                    assert!(layout.data_at + u64::from(layout.bands) * layout.band <= size, "the bands fit the disk");
                }
            }
        }
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(text.is_empty() || !key(text).is_empty());
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for uri in [text.to_owned(), format!("imbrex://{text}"), format!("imbrex://mem:?{text}")] {
        if let Ok(uri) = parse_uri(&uri, &["cache"]) {
            assert!(!uri.locator.is_empty());
            let _ = (uri.open_options(), uri.size("cache"));
            locator(&uri.locator);
        }
    }
    for text in [text.to_owned(), format!("mem:?{text}"), format!("banded:d?{text}")] {
        locator(&text);
    }
    if let Ok(size) = parse_size(text) {
        assert_eq!(parse_size(&size.to_string()), Ok(size));
    }
    let _ = parse_bool(text);
});
