//! The checked-in header is what the sources say.
//!
//! After a change: `UPDATE_HEADER=1 cargo test -p imbrex-capi --test header`.

use std::path::Path;

#[test]
fn the_header_is_current() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in ["error", "fs", "file", "chunk", "names", "kv", "image", "store"] {
        builder = builder.with_src(here.join(format!("src/{source}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().expect("cbindgen").write(&mut made);
    let made = String::from_utf8(made).expect("UTF-8");
    let path = here.join("imbrex.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("imbrex.h");
    }
    let kept = std::fs::read_to_string(&path).expect("imbrex.h");
    assert!(
        kept == made,
        "bindings/c/imbrex.h is not what the sources say; run UPDATE_HEADER=1 cargo test -p imbrex-capi --test header"
    );
    // What cbindgen did not see is not in the API: every function of the sources must be there.
    let sources = [
        include_str!("../src/error.rs"),
        include_str!("../src/fs.rs"),
        include_str!("../src/file.rs"),
        include_str!("../src/chunk.rs"),
        include_str!("../src/names.rs"),
        include_str!("../src/kv.rs"),
        include_str!("../src/image.rs"),
        include_str!("../src/store.rs"),
    ];
    for source in sources {
        for rest in source.split("extern \"C\" fn imbrex_").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            assert!(made.contains(&format!("imbrex_{name}(")), "imbrex_{name} is not in the header");
        }
    }
}
