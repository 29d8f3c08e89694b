//! URIs and sizes: no panic; a size reads back.

#![no_main]

use imbrex_drives::{parse_bool, parse_size, parse_uri};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for uri in [text.to_owned(), format!("imbrex://{text}"), format!("imbrex://mem:?{text}")] {
        if let Ok(uri) = parse_uri(&uri, &["cache"]) {
            assert!(!uri.locator.is_empty());
            let _ = (uri.open_options(), uri.size("cache"));
        }
    }
    if let Ok(size) = parse_size(text) {
        assert_eq!(parse_size(&size.to_string()), Ok(size));
    }
    let _ = parse_bool(text);
});
