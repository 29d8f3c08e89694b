//! What other programs want to know of the command line: completions for shells, and man pages. Both are made of the command
//! itself, so they cannot say anything else than `--help`.

use crate::output::{Failure, Outcome, print};
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

/// The page of a command, and those of the commands below it.
fn page(command: &Command, name: &str, dir: &Path) -> Outcome {
    let mut text = Vec::new();
    let path = dir.join(format!("{name}.1"));
    let failed =
        |error: std::io::Error| Failure::failed(format!("{}: {error}; choose another directory", path.display()));
    clap_mangen::Man::new(command.clone()).title(name).render(&mut text).map_err(failed)?;
    std::fs::write(&path, text).map_err(failed)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        page(below, &format!("{name}-{}", below.get_name()), dir)?;
    }
    Ok(())
}
