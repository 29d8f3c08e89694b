//! Experiments that run beside the others: nothing in them is timed by the world's clock, so it is the same to them when they get a
//! processor, and at idle priority they take none that somebody else wants.

use super::{
    Experiment, Options, bluefs_sync, chunk_lifetime, chunk_placement, kernel_amplification, machine, needs,
    zoned_file_systems,
};
use std::process::{Command, Stdio};

/// Their names, in the order in which they run: what a kernel does in a VM, and drives with a virtual clock. A row by
/// the world's clock does not run there, and says so.
pub const BESIDE: [&str; 4] = [
    kernel_amplification::EXPERIMENT.name,
    zoned_file_systems::EXPERIMENT.name,
    chunk_placement::EXPERIMENT.name,
    chunk_lifetime::EXPERIMENT.name,
];

/// Runs with nothing beside it: a synchronous insert passes through several threads one after the other, and each that is late counts, four times at its speed.
pub const ALONE: &str = bluefs_sync::EXPERIMENT.name;

/// Each report lists what ran beside it.
pub fn told(experiment: &Experiment) -> String {
    if BESIDE.contains(&experiment.name) {
        "experiments by the world's clock; it runs at idle priority itself, and nothing in it is timed by that clock"
            .into()
    } else {
        format!("until they end, at idle priority: {}; nothing in them is timed", BESIDE.join(", "))
    }
}

/// Whether priorities can be changed here, tried on a thread of its own.
pub fn possible() -> bool {
    std::thread::scope(|scope| matches!(scope.spawn(step_back).join(), Ok(Ok(()))))
}

/// Whether memory holds this experiment and the largest of the `others`, which comes sooner or later.
pub fn fits(aside: &(&Experiment, Options), others: &[(&'static Experiment, Options)]) -> bool {
    let taken = |(experiment, options): &(&Experiment, Options)| machine::taken(needs(experiment, options), options);
    let largest = others.iter().map(taken).max().unwrap_or(0);
    taken(aside).saturating_add(largest) <= machine::free_memory()
}

/// From now on this thread, and all that it starts, gets a processor only where nobody else wants one. The error is a sentence.
pub fn step_back() -> Result<(), String> {
    // The kernel counts what runs at a low priority apart, whoever has it; `chrt` (of util-linux) makes it wait for all others.
    rustix::process::nice(19).map_err(|e| format!("the priority of a thread cannot be changed ({e})"))?;
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let status = Command::new("chrt")
        .args(["--idle", "--pid", "0", &thread])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("chrt ended with {status}")),
        Err(error) => Err(format!("chrt: {error}; install util-linux, which has it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policy and nice value of the calling thread.
    fn priority() -> (String, String) {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // Behind the name, which may hold anything: state is field 3, the nice value 19, the policy 41 (5: idle).
        let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
        (fields[38].to_owned(), fields[16].to_owned())
    }

    #[test]
    fn a_thread_that_steps_back_takes_what_it_starts_along_and_nobody_else() {
        let mine = priority();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(possible());
                assert_eq!(priority(), mine);
                step_back().unwrap();
                let idle = ("5".to_owned(), "19".to_owned());
                assert_eq!(priority(), idle);
                assert_eq!(std::thread::scope(|scope| scope.spawn(priority).join().unwrap()), idle);
                let program = Command::new("cat").arg("/proc/self/stat").output().unwrap();
                let stat = String::from_utf8(program.stdout).unwrap();
                let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
                assert_eq!((fields[38], fields[16]), ("5", "19"));
            });
        });
        assert_eq!(priority(), mine);
    }
}
