//! The socket by which commands reach the images that another process serves.

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_device::{Code, Drive};
use imbrex_emulator::Emulator;
use imbrex_image::control::{Control, Request, Server, socket_of};
use imbrex_image::{Images, Info, Survives};
use imbrex_zones::Exec;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

fn images() -> Images {
    let drive = Drive { device: Arc::new(Emulator::memory(&support::config()).unwrap()), survivor: None };
    support::format(&drive).unwrap();
    Images::open(support::open(&drive, Exec::Inline).unwrap(), ()).unwrap()
}

fn asked(path: &Path, request: Request) -> Result<Vec<u8>, Code> {
    given(path, request, &[])
}

fn given(path: &Path, request: Request, mut input: &[u8]) -> Result<Vec<u8>, Code> {
    let mut out = Vec::new();
    let server = Server::at(path).unwrap().expect("somebody serves");
    server.perform(&request, &mut input, &mut out).map(|()| out).map_err(|error| error.code())
}

fn create(name: &str) -> Request {
    Request::Create { name: name.into(), size: 1 << 20 }
}

#[test]
fn what_is_asked_for_is_done_and_errors_come_back_with_their_kind() {
    let dir = tempfile::tempdir().unwrap();
    let (path, images) = (dir.path().join("s"), images());
    assert!(Server::at(&path).unwrap().is_none());
    // Of a process that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(Server::at(&path).unwrap().is_none());
    let control = Control::new(images.clone(), &path).unwrap();
    assert_eq!(asked(&path, create("a")), Ok(Vec::new()));
    assert_eq!(asked(&path, create("a")), Err(Code::Exists));
    assert_eq!(asked(&path, Request::Remove { name: "b".into() }), Err(Code::NotFound));
    let all: Vec<Info> = serde_json::from_slice(&asked(&path, Request::List).unwrap()).unwrap();
    assert_eq!(all.iter().map(|info| (&info.name[..], info.size)).collect::<Vec<_>>(), [("a", 1 << 20)]);
    // More than a frame.
    let bytes = support::content(3 << 20, 1);
    asked(&path, Request::Resize { name: "a".into(), size: 3 << 20 }).unwrap();
    images.image("a", false).unwrap().write(0, &bytes, Survives::Process).unwrap();
    let diff = asked(&path, Request::ExportDiff { name: "a".into(), from: None, to: None }).unwrap();
    assert!(diff.len() > bytes.len() && diff.ends_with(b"e"), "{}", diff.len());
    drop(control);
    assert!(!path.exists() && Server::at(&path).unwrap().is_none());
}

#[test]
fn a_client_that_lies_or_goes_away_changes_nothing_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _control = Control::new(images(), &path).unwrap();
    let long = vec![b'x'; 100_000];
    for line in [&b""[..], b"\n", b"{\"create\":{\"name\":\"a\"}}\n", b"\xff\xfe\n", b"{\"create", &long] {
        let mut client = UnixStream::connect(&path).unwrap();
        let _ = client.write_all(line);
        let _ = client.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        // Whoever sends more than is read may be cut off.
        if client.read_to_end(&mut answer).is_ok() && !answer.is_empty() {
            assert_eq!(answer[0], b'e', "{line:?}");
        }
    }
    // It asks and does not listen.
    for _ in 0..40 {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"\"list\"\n").unwrap();
    }
    let size = Request::Create { name: "x".into(), size: u64::MAX };
    assert_eq!(asked(&path, size), Err(Code::InvalidArgument));
    assert_eq!(asked(&path, create("b")), Ok(Vec::new()));
    assert_eq!(asked(&path, Request::Create { name: "y".repeat(256), size: 1 }), Err(Code::NameTooLong));
}

#[test]
fn drives_have_sockets_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| {
        std::fs::write(dir.path().join(name), b"").unwrap();
        dir.path().join(name)
    };
    let (a, b) = (path("a.img"), path("b.img"));
    std::os::unix::fs::symlink(&a, dir.path().join("link")).unwrap();
    assert_ne!(socket_of(&a), socket_of(&b));
    assert_eq!(socket_of(&a), socket_of(&dir.path().join("link")));
    assert_eq!(socket_of(&dir.path().join("none")), None);
}
