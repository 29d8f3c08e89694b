//! Where warnings go: nobody else in a C or C++ program listens to them.

use std::sync::Once;
use tracing_subscriber::EnvFilter;

static LISTEN: Once = Once::new();

/// Warnings go to standard error from now on; the environment variable `IMBREX_LOG` asks for more (`debug`) or less (`off`).
/// A Rust program that links this crate and listens already keeps its own listener.
pub(crate) fn listen() {
    LISTEN.call_once(|| {
        let filter = EnvFilter::try_from_env("IMBREX_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
        let made = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
        if made.is_err() {
            tracing::debug!("somebody listens to the log already");
        }
    });
}
