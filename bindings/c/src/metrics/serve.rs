//! Metrics over HTTP, on a thread that ends with the process.

use super::{figures, render};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use tiny_http::{Header, Request, Response, Server};

/// Serves from now on. A sentence where the address cannot be had.
pub(super) fn start(address: SocketAddr) -> Result<(), String> {
    let listener = TcpListener::bind(address).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => "is in use by another process; give each program a port of its own".to_owned(),
        ErrorKind::PermissionDenied => "may not be used by this user; take a port from 1024 on".to_owned(),
        ErrorKind::AddrNotAvailable => "is no address of this machine; write 127.0.0.1".to_owned(),
        _ => format!("cannot be served ({error}); choose another address"),
    })?;
    let server = Server::from_listener(listener, None).map_err(|error| format!("cannot be served ({error})"))?;
    let thread = std::thread::Builder::new().name("imbrex-metrics".into());
    let run = move || {
        for request in server.incoming_requests() {
            answer(request);
        }
    };
    thread.spawn(run).map(drop).map_err(|error| format!("cannot be served ({error}): no thread for it"))
}

fn answer(request: Request) {
    let page = request.url().split('?').next().unwrap_or_default().to_owned();
    let (status, text) = match page.as_str() {
        "/metrics" => match render::render(&figures()) {
            Ok(text) => (200, text),
            Err(error) => (500, format!("{error}\n")),
        },
        "/" => (200, "Imbrex: the metrics are at /metrics\n".to_owned()),
        _ => (404, "not here; the metrics are at /metrics\n".to_owned()),
    };
    let mut response = Response::from_string(text).with_status_code(status);
    if let (Ok(kind), "/metrics") = (Header::from_bytes("Content-Type", render::CONTENT_TYPE), page.as_str()) {
        response.add_header(kind);
    }
    // Who asked and did not wait for the answer needs none.
    if let Err(error) = request.respond(response) {
        tracing::debug!(%error, "a reader of metrics went away");
    }
}
