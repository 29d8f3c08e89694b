//! What other programs want to know of the command line: completions for shells, and man pages. Both are made of the command
//! itself, so they cannot say anything else than `--help`.

use crate::known::experiments;
use crate::man::pages;
use crate::output::{Failure, Outcome, print};
use clap::Command;
use clap_complete::Shell;
use std::path::PathBuf;

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
    let mut text = String::from_utf8_lossy(&out).trim_end().to_owned();
    if args.shell == Shell::Fish {
        // clap_complete gives fish no words for what stands without an option.
        let names = experiments().join(" ");
        text += "\ncomplete -c imbrex -n \"__fish_imbrex_using_subcommand bench; and __fish_seen_subcommand_from run\"";
        text += &format!(" -f -a \"{names}\"");
    }
    print(text)
}

pub fn man(args: &Man, command: &Command) -> Outcome {
    if !args.dir.is_dir() {
        return Err(Failure::failed(format!("{} is no directory; make one with mkdir -p first", args.dir.display())));
    }
    pages(command, &args.dir)
}
