//! What an operator should know or change about a drive's settings. Advice, never a refusal: policy over what sysfs says,
//! without any effect of its own.

use super::sysfs::Sysfs;

/// From this kernel on writes to a zone are kept in order by the block layer itself (zone write plugging); before it only
/// the scheduler `mq-deadline` did.
const ZONE_WRITE_PLUGGING: (u32, u32) = (6, 10);
/// Below this size of a command, in KiB, a disk's commands cost noticeably more than they have to: a record of a mebibyte, with its framing, would
/// be two. Linux passes as much by itself (commit d2be537c3ba3 of 2015).
const GOOD_COMMAND_KIB: u64 = 1280;
/// What is worth asking for: Linux passes as much by itself from 6.17 on (commit 9b8b84879d4a).
const BEST_COMMAND_KIB: u64 = 4096;

/// One setting of a drive, and what to say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Which setting: `scheduler`, `write cache`, `command size`.
    pub subject: &'static str,
    /// It is as it should be.
    pub good: bool,
    /// One sentence; where the setting is not good it says what to run.
    pub sentence: String,
}

impl Advice {
    fn good(subject: &'static str, sentence: String) -> Advice {
        Advice { subject, good: true, sentence }
    }
    fn change(subject: &'static str, sentence: String) -> Advice {
        Advice { subject, good: false, sentence }
    }
}

/// Advice about the device of this directory, under a kernel of this release.
pub(super) fn advise(sysfs: &Sysfs, kernel: Option<(u32, u32)>) -> Vec<Advice> {
    [scheduler(sysfs, kernel), write_cache(sysfs), command_size(sysfs)].into_iter().flatten().collect()
}

fn scheduler(sysfs: &Sysfs, kernel: Option<(u32, u32)>) -> Option<Advice> {
    const SUBJECT: &str = "scheduler";
    let (now, all) = sysfs.schedulers()?;
    if kernel.is_some_and(|kernel| kernel >= ZONE_WRITE_PLUGGING) {
        let text = format!("{now} is fine: this kernel keeps the writes to a zone in order by itself");
        return Some(Advice::good(SUBJECT, text));
    }
    if now == "mq-deadline" {
        return Some(Advice::good(SUBJECT, "mq-deadline keeps the writes to a zone in order".into()));
    }
    if !all.iter().any(|name| name == "mq-deadline") {
        // Its requests pass no scheduler (device-mapper), or the module is not there.
        let text = format!("{now}, and mq-deadline is not on offer here; Imbrex has one write in flight per zone");
        return Some(Advice::good(SUBJECT, text));
    }
    let name = sysfs.name();
    Some(Advice::change(
        SUBJECT,
        format!(
            "{now}, but kernels before 6.10 keep the writes to a zone in order with mq-deadline only; run \
             `echo mq-deadline > /sys/block/{name}/queue/scheduler`"
        ),
    ))
}

fn write_cache(sysfs: &Sysfs) -> Option<Advice> {
    const SUBJECT: &str = "write cache";
    let kernel = sysfs.text("queue/write_cache")?;
    let drive = sysfs.drives_own_cache();
    let drives_is_on = drive.as_deref().is_some_and(|text| text.starts_with("write back"));
    let name = sysfs.name();
    if kernel == "write through" && drives_is_on {
        return Some(Advice::change(
            SUBJECT,
            format!(
                "the drive's is on, but the kernel was told that it is off and sends no flushes, so a power loss takes \
                 what was synced; run `echo 'write back' > /sys/block/{name}/queue/write_cache`"
            ),
        ));
    }
    Some(match kernel.as_str() {
        "write back" => {
            Advice::good(SUBJECT, "on: what is written is safe from a power loss once it is flushed".into())
        }
        _ => Advice::good(SUBJECT, "off, or there is none: what is written is safe from a power loss at once".into()),
    })
}

fn command_size(sysfs: &Sysfs) -> Option<Advice> {
    const SUBJECT: &str = "command size";
    let now = sysfs.number("queue/max_sectors_kb")?;
    let most = sysfs.number("queue/max_hw_sectors_kb").unwrap_or(now);
    let (name, better) = (sysfs.name(), most.min(BEST_COMMAND_KIB));
    let run = format!("run `echo {better} > /sys/block/{name}/queue/max_sectors_kb`");
    let turns = sysfs.number("queue/rotational") == Some(1);
    Some(match now {
        _ if now >= better => Advice::good(SUBJECT, format!("up to {now} KiB")),
        _ if now < GOOD_COMMAND_KIB => Advice::change(
            SUBJECT,
            format!("at most {now} KiB, but the drive takes {most} KiB; larger ones cost less: {run}"),
        ),
        _ if turns => Advice::good(
            SUBJECT,
            format!("up to {now} KiB, and the drive takes {most} KiB; chunks are written faster in larger ones: {run}"),
        ),
        _ => Advice::good(SUBJECT, format!("up to {now} KiB")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(files: &[(&str, &str)], kernel: (u32, u32)) -> Vec<(&'static str, bool, String)> {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let all = advise(&Sysfs::at(dir.path()), Some(kernel));
        all.into_iter().map(|advice| (advice.subject, advice.good, advice.sentence)).collect()
    }

    #[test]
    fn the_scheduler_matters_on_old_kernels_only() {
        let file = "queue/scheduler";
        for (text, kernel, good) in [
            ("[mq-deadline] none", (6, 1), true),
            ("mq-deadline [none]", (6, 1), false),
            ("mq-deadline [bfq]", (6, 9), false),
            ("mq-deadline [none]", (6, 10), true),
            ("[none]", (6, 1), true),
        ] {
            let got = advice(&[(file, text)], kernel);
            assert_eq!((got.len(), got[0].0, got[0].1), (1, "scheduler", good), "{text} {kernel:?}");
            assert_eq!(got[0].2.contains("echo mq-deadline >"), !good);
        }
    }

    #[test]
    fn a_cache_that_the_kernel_does_not_know_of_is_told() {
        let own = "device/scsi_disk/0:0:0:0/cache_type";
        for (kernel, drive, good) in [
            ("write back", "write back", true),
            ("write through", "write through", true),
            ("write through", "write back", false),
            ("write through", "write back, no read (daft)", false),
        ] {
            let got = advice(&[("queue/write_cache", kernel), (own, drive)], (6, 1));
            assert_eq!((got[0].0, got[0].1), ("write cache", good), "{kernel} {drive}");
        }
        assert!(advice(&[("queue/write_cache", "write back")], (6, 1))[0].1);
    }

    #[test]
    fn small_commands_are_told() {
        for (now, most, turns, good, says) in [
            ("1280", "32767", "1", true, "echo 4096 >"),
            ("1280", "2048", "1", true, "echo 2048 >"),
            ("1280", "32767", "0", true, "up to 1280 KiB"),
            ("4096", "32767", "1", true, "up to 4096 KiB"),
            ("512", "4096", "0", false, "echo 4096 >"),
            ("128", "1024", "1", false, "echo 1024 >"),
            ("128", "128", "1", true, "up to 128 KiB"),
        ] {
            let files = [("queue/max_sectors_kb", now), ("queue/max_hw_sectors_kb", most), ("queue/rotational", turns)];
            let got = &advice(&files, (6, 1))[0];
            assert_eq!(got.1, good, "{now} {most} {got:?}");
            assert!(got.2.contains(says), "{now} {most} {got:?}");
        }
    }
}
