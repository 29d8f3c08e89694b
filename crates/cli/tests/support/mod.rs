//! Running the command as a user does, and what it may answer.

#![allow(dead_code, reason = "each test file uses its own share")]

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// A directory of the host for a drive, the survivors of its mounts, and files.
pub struct Place {
    dir: TempDir,
    /// The drive.
    pub path: PathBuf,
}

/// A place without a drive.
pub fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    Place { dir, path }
}

/// A place with a formatted drive of 64 zones of 1 MiB.
pub fn formatted() -> Place {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    done(at.fs("format", &[]));
    at
}

impl Place {
    pub fn drive(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// A path beside the drive.
    pub fn host(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Makes a file beside the drive.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.host(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The command, with survivors in this place.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imbrex"));
        command.args(args).env("IMBREX_SHM_DIR", self.dir.path()).stdin(Stdio::null());
        // Of cargo: with it a plug-in would find the libimbrex.so that cargo built last, not the one beside it.
        command.env_remove("LD_LIBRARY_PATH");
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs `imbrex fs VERB DRIVE …`.
    pub fn fs(&self, verb: &str, more: &[&str]) -> Output {
        self.run(&[&["fs", verb, self.drive()], more].concat())
    }

    /// Runs `imbrex chunk VERB DRIVE …`.
    pub fn chunk(&self, verb: &str, more: &[&str]) -> Output {
        self.run(&[&["chunk", verb, self.drive()], more].concat())
    }

    /// Runs `imbrex chunk VERB DRIVE …` with these bytes for its stdin.
    pub fn chunk_given(&self, verb: &str, more: &[&str], input: &[u8]) -> Output {
        self.given(&[&["chunk", verb, self.drive()], more].concat(), input)
    }

    /// Runs `imbrex store VERB DRIVE …`.
    pub fn store(&self, verb: &str, more: &[&str]) -> Output {
        self.run(&[&["store", verb, self.drive()], more].concat())
    }

    /// Runs `imbrex kv VERB DRIVE …`.
    pub fn kv(&self, verb: &str, more: &[&str]) -> Output {
        self.run(&[&["kv", verb, self.drive()], more].concat())
    }

    /// Runs `imbrex kv VERB DRIVE …` with these bytes for its stdin.
    pub fn kv_given(&self, verb: &str, more: &[&str], input: &[u8]) -> Output {
        self.given(&[&["kv", verb, self.drive()], more].concat(), input)
    }

    /// Runs the command with these bytes for its stdin.
    pub fn given(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self.piped(args);
        // Who refuses reads nothing.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// Starts the command with pipes for its three streams.
    pub fn piped(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Runs `imbrex fs cp DRIVE - TO`, and gives it `input` and no end yet.
    pub fn copying(&self, to: &str, input: &[u8]) -> Child {
        let mut child = self.piped(&["fs", "cp", self.drive(), "-", to]);
        child.stdin.as_mut().unwrap().write_all(input).unwrap();
        child
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The output of a command that succeeds and complains of nothing.
#[track_caller]
pub fn done(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout)
}

pub fn json(output: Output) -> Value {
    serde_json::from_str(&done(output)).unwrap()
}

/// The one sentence of a command that fails; whatever it printed before does not matter.
#[track_caller]
pub fn fails(output: Output, code: i32) -> String {
    let sentence = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{sentence}");
    // What clap says of a wrong command line has several lines.
    if code != 2 {
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
        assert!(sentence.starts_with("imbrex: "), "{sentence}");
        assert!(!sentence.contains("panicked"), "{sentence}");
    }
    sentence
}

/// Fails unless `sentence` has every part.
#[track_caller]
pub fn says(sentence: &str, parts: &[&str]) {
    for part in parts {
        assert!(sentence.contains(part), "{sentence:?} lacks {part:?}");
    }
}

/// Bytes that no two places of a file share.
pub fn bytes(n: usize) -> Vec<u8> {
    let mut all = vec![0; n];
    all.chunks_mut(4).zip(0u32..).for_each(|(to, i)| {
        to.copy_from_slice(&i.wrapping_mul(2_654_435_761).to_le_bytes()[..to.len()]);
    });
    all
}

/// What is in a file of the host.
pub fn content(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap()
}
