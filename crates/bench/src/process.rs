//! What the kernel says of a process.

/// Clock ticks in a second, in `/proc/PID/stat`; Linux shows 100 to every program.
const TICKS: f64 = 100.0;

/// A number of `/proc/PID/stat`, counted from 1 as the kernel's documents do; `None` where there is no such process, or no such number.
pub(crate) fn stat(pid: u32, field: usize) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 2, the name, stands in brackets and may hold anything.
    stat.rsplit_once(") ")?.1.split_whitespace().nth(field.checked_sub(3)?)?.parse().ok()
}

/// When it was started, in ticks since the boot: with its number it is this process and no later one.
pub(crate) fn started(pid: u32) -> Option<u64> {
    stat(pid, 22)
}

/// Processor seconds that it used so far, user and system, to a hundredth.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    Some((stat(pid, 14)? + stat(pid, 15)?) as f64 / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_as_the_kernel_does() {
        let me = std::process::id();
        let parent = std::os::unix::process::parent_id();
        assert_eq!(stat(me, 4), Some(u64::from(parent)));
        assert!(started(me).is_some() && cpu_seconds(me).is_some());
        assert_eq!((stat(me, 2), stat(me, 1000), started(u32::MAX)), (None, None, None));
    }
}
