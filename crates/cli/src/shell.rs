//! What other programs want to know of the command line: completions for shells, and man pages. Both are made of the command
//! itself, so they cannot say anything else than `--help`.

use crate::output::{EXIT_STATUS, Failure, Outcome, print};
use clap::Command;
use clap_complete::Shell;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  source <(imbrex completions bash)\n  \
                        imbrex completions zsh > ~/.zfunc/_imbrex\n  \
                        imbrex completions fish > ~/.config/fish/completions/imbrex.fish")]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  imbrex man ~/.local/share/man/man1 && man imbrex-fs-cp")]
pub struct Man {
    /// Where the pages go: an existing directory.
    dir: PathBuf,
}

pub fn completions(args: &Completions, mut command: Command) -> Outcome {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut command, "imbrex", &mut out);
    print(String::from_utf8_lossy(&out).trim_end())
}

pub fn man(args: &Man, mut command: Command) -> Outcome {
    if !args.dir.is_dir() {
        return Err(Failure::failed(format!("{} is no directory; make one with mkdir -p first", args.dir.display())));
    }
    command.build();
    page(&command, "imbrex", &args.dir)
}

/// What holds for all commands, in the language of man pages.
fn more() -> String {
    let mut text = String::from(".SH \"EXIT STATUS\"\n");
    for status in EXIT_STATUS {
        text += &format!(".TP\n.B {}\n{}\n", status.code, status.means);
    }
    text += ".SH ENVIRONMENT\n";
    for (name, means) in ENVIRONMENT {
        text += &format!(".TP\n.B {name}\n{means}\n");
    }
    let lists = [
        ("bluefs (imbrex fs)", imbrex_bluefs::URI_OPTIONS),
        ("the chunk store (imbrex chunk)", imbrex_chunkstore::URI_OPTIONS),
    ];
    text += ".SH \"URI OPTIONS\"\nA drive is a path, or imbrex:// and the path, with options behind a question mark: imbrex:///data/drive.img?cache=2G.\n";
    for (engine, options) in lists {
        text += &format!(".PP\nOptions of {engine}: {}.\n", options.join(", "));
    }
    text.replace("imbrex-", "imbrex\\-")
}

/// Variables that the command and the libraries heed.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("IMBREX_LOG", "What is logged on stderr: error, warn, info, debug or trace, also by part (imbrex_zones=debug)."),
    (
        "IMBREX_METRICS",
        "Of programs that use the libraries: an address (127.0.0.1:9899) that answers Prometheus, or a file that metrics are written to.",
    ),
    ("IMBREX_DRIVE", "Of programs with the LevelDB plug\\-in: the drive, a path or a URI."),
];

/// The page of a command, and those of the commands below it.
fn page(command: &Command, name: &str, dir: &Path) -> Outcome {
    let mut text = Vec::new();
    let path = dir.join(format!("{name}.1"));
    let failed =
        |error: std::io::Error| Failure::failed(format!("{}: {error}; choose another directory", path.display()));
    clap_mangen::Man::new(command.clone()).title(name).render(&mut text).map_err(failed)?;
    text.extend_from_slice(more().as_bytes());
    std::fs::write(&path, text).map_err(failed)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        page(below, &format!("{name}-{}", below.get_name()), dir)?;
    }
    Ok(())
}
