//! What a chunk server on a kernel's file system does, as SMRSTORE's section 2.1 has it: each chunk is a file, bytes stand in segments
//! of 4,048 with a footer of 48 behind them (checksum and place in the chunk), and go past the page cache (`O_DIRECT`) into files
//! whose space was taken beforehand. `imbrex bench segments` is it as a program, on this machine and in the VM.
//!
//! Clients are threads: each has one append or read under way, so as many as there are threads are at the file system at once. Appends of
//! a job go to its files in turn, as in the [experiment](crate::experiment); a size counts with its footers, so a piece of 1 MiB carries
//! 256 x 4,048 bytes of the user, and nothing is ever written twice or padded.

use imbrex_device::AlignedBuf;
use rustix::fs::{FallocateFlags, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// With its footer.
pub const SEGMENT: u64 = 4096;
/// What of it is the user's.
pub const PAYLOAD: u64 = 4048;
const PAYLOAD_LEN: usize = PAYLOAD as usize;

/// `imbrex bench segments …`: for experiments, which run it.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Example:\n  imbrex bench segments append /mnt/chunks --size 65536 --count 512 --sync")]
pub struct Args {
    /// What to do: make the files, append to them, fill them, or read from them.
    #[arg(value_enum)]
    pub what: What,
    /// Where the files are.
    pub dir: PathBuf,
    /// Jobs.
    #[arg(long, default_value_t = 4)]
    pub jobs: u64,
    /// Number of the first of them.
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Files of each job.
    #[arg(long, default_value_t = 128)]
    pub files: u64,
    /// Appends under way in each job, or reads under way at all.
    #[arg(long, default_value_t = 4)]
    pub depth: u64,
    /// Bytes of an append or read, footers included; whole segments.
    #[arg(long, default_value_t = 4096)]
    pub size: u64,
    /// How many, of all jobs together.
    #[arg(long, default_value_t = 1)]
    pub count: u64,
    /// Where in each file the first append goes; with `read`, the length of each file; with `make`, what is taken for each.
    #[arg(long, default_value_t = 0)]
    pub at: u64,
    /// An append ends with fdatasync.
    #[arg(long)]
    pub sync: bool,
    /// The file system is synced after the last append.
    #[arg(long)]
    pub settle: bool,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Makes the files and takes their space.
    Make,
    /// Appends.
    Append,
    /// Random reads, verified.
    Read,
}

/// What came of a run. Times are the world's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Appends or reads.
    pub operations: u64,
    /// Bytes of the user in them.
    pub payload: u64,
    /// From the first to the last answer.
    pub seconds: f64,
    /// The same, and until everything was synced then.
    pub seconds_with_sync: f64,
    /// Of each, sorted, in seconds.
    pub took: Vec<f64>,
}

fn failed(path: &Path, error: impl std::fmt::Display) -> String {
    format!(
        "{}: {error}; see that the directory is there, has room, and is on a file system that knows O_DIRECT",
        path.display()
    )
}

/// The files of all jobs, in one directory.
pub(crate) fn paths(args: &Args) -> impl Iterator<Item = PathBuf> + '_ {
    let numbers = (args.first..args.first + args.jobs).flat_map(|job| (0..args.files).map(move |file| (job, file)));
    numbers.map(|(job, file)| args.dir.join(format!("{job}.{file}")))
}

/// The next number of a series that everybody counts alike (splitmix).
pub(crate) fn random(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Puts segments of the chunk, from this offset of its file on, into `out`, whole ones.
pub(crate) fn fill(out: &mut [u8], chunk: u64, at: u64) {
    for (n, segment) in out.chunks_exact_mut(SEGMENT as usize).enumerate() {
        let place = at + n as u64 * SEGMENT;
        segment[..PAYLOAD_LEN].fill(random(chunk ^ place << 20) as u8);
        finish(segment, chunk, place);
    }
}

/// Likewise with these bytes of the user, as many as segments take.
pub(crate) fn seal(out: &mut [u8], user: &[u8], chunk: u64, at: u64) {
    for (n, (segment, bytes)) in out.chunks_exact_mut(SEGMENT as usize).zip(user.chunks_exact(PAYLOAD_LEN)).enumerate()
    {
        segment[..PAYLOAD_LEN].copy_from_slice(bytes);
        finish(segment, chunk, at + n as u64 * SEGMENT);
    }
}

/// Verifies segments and takes the user's bytes out of them; the error is a sentence.
pub(crate) fn unseal(segments: &[u8], user: &mut [u8], chunk: u64, at: u64) -> Result<(), String> {
    verified(segments, chunk, at)?;
    for (segment, bytes) in segments.chunks_exact(SEGMENT as usize).zip(user.chunks_exact_mut(PAYLOAD_LEN)) {
        bytes.copy_from_slice(&segment[..PAYLOAD_LEN]);
    }
    Ok(())
}

/// Writes the footer of a segment.
fn finish(segment: &mut [u8], chunk: u64, place: u64) {
    let (payload, footer) = segment.split_at_mut(PAYLOAD_LEN);
    footer.fill(0);
    let sum = crc32c::crc32c(payload);
    footer[..4].copy_from_slice(&sum.to_le_bytes());
    footer[4..8].copy_from_slice(&(PAYLOAD as u32).to_le_bytes());
    footer[8..16].copy_from_slice(&place.to_le_bytes());
    footer[16..24].copy_from_slice(&chunk.to_le_bytes());
}

/// Whether these are the chunk's segments from this offset on.
fn verified(bytes: &[u8], chunk: u64, at: u64) -> Result<(), String> {
    for (n, segment) in bytes.chunks_exact(SEGMENT as usize).enumerate() {
        let place = at + n as u64 * SEGMENT;
        let (payload, footer) = segment.split_at(PAYLOAD_LEN);
        let word =
            |at: usize| footer.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
        let sum = u64::from(crc32c::crc32c(payload)) | PAYLOAD << 32;
        if (word(0), word(8), word(16)) != (sum, place, chunk) {
            return Err(format!(
                "the segment at {place} of chunk {chunk} is not what was written; the file system or the drive lost it"
            ));
        }
    }
    Ok(())
}

/// The files of all jobs, open.
struct Files {
    all: Vec<File>,
    /// Of each job, and the number of the first in `all`.
    each: u64,
    first: u64,
}

impl Files {
    fn open(args: &Args, write: bool) -> Result<Files, String> {
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
        let mut all = Vec::new();
        for path in paths(args) {
            let opened = OpenOptions::new().read(true).write(write).custom_flags(direct).open(&path);
            all.push(opened.map_err(|error| failed(&path, error))?);
        }
        Ok(Files { all, each: args.files, first: args.first * args.files })
    }

    /// The number of a file, by which its segments know it, and the file; the first job is 0 here.
    fn get(&self, job: u64, file: u64) -> Option<(u64, &File)> {
        let number = job * self.each + file;
        Some((self.first + number, self.all.get(usize::try_from(number).ok()?)?))
    }
}

/// Makes files in this order, and takes their space.
pub(crate) fn make(args: &Args, files: impl IntoIterator<Item = PathBuf>) -> Result<Answer, String> {
    fs::create_dir_all(&args.dir).map_err(|error| failed(&args.dir, error))?;
    for path in files {
        let made = OpenOptions::new().write(true).create_new(true).open(&path).map_err(|error| failed(&path, error))?;
        if args.at > 0 {
            take(&made, args.at).map_err(|error| failed(&path, error))?;
        }
    }
    synced(&args.dir)?;
    Ok(Answer::default())
}

/// Makes a file so long, and takes its space. Zoned XFS takes none before it knows what comes: there the file is only so long.
pub(crate) fn take(file: &File, bytes: u64) -> std::io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
        taken => Ok(taken?),
    }
}

fn synced(dir: &Path) -> Result<(), String> {
    let opened = File::open(dir).map_err(|error| failed(dir, error))?;
    rustix::fs::syncfs(&opened).map_err(|error| failed(dir, error))
}

/// What one client did: what each operation took.
type Took = Result<Vec<f64>, String>;

/// One append: the next of its job.
fn append_one(args: &Args, files: &Files, (job, turn): (u64, u64), buffer: &mut [u8]) -> Result<f64, String> {
    let at = args.at + turn / args.files * args.size;
    let Some((chunk, file)) = files.get(job, turn % args.files) else {
        return Err("there are fewer files than that".into());
    };
    fill(buffer, chunk, at);
    let came = Instant::now();
    file.write_all_at(buffer, at)
        .and_then(|()| if args.sync { file.sync_data() } else { Ok(()) })
        .map_err(|error| failed(&args.dir, error))?;
    Ok(came.elapsed().as_secs_f64())
}

/// One read: the one of this number.
fn read_one(args: &Args, files: &Files, number: u64, buffer: &mut [u8]) -> Result<f64, String> {
    let all = args.jobs * args.files;
    let (which, piece) = (random(2 * number) % all.max(1), random(2 * number + 1) % (args.at / args.size).max(1));
    let at = piece * args.size;
    let Some((chunk, file)) = files.get(which / args.files, which % args.files) else {
        return Err("there are no files".into());
    };
    let came = Instant::now();
    file.read_exact_at(buffer, at).map_err(|error| failed(&args.dir, error))?;
    let took = came.elapsed().as_secs_f64();
    verified(buffer, chunk, at)?;
    Ok(took)
}

/// Reads a chunk's file in pieces of so many bytes up to its first segment that is not the chunk's: bytes before that. The error is a sentence.
pub(crate) fn scan(path: &Path, chunk: u64, piece: u64) -> Result<u64, String> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(direct).open(path).map_err(|error| failed(path, error))?;
    let mut buffer = AlignedBuf::zeroed(piece as usize);
    let mut at = 0;
    loop {
        let n = file.read_at(&mut buffer, at).map_err(|error| failed(path, error))?;
        for segment in buffer.get(..n).unwrap_or_default().chunks(SEGMENT as usize) {
            if (segment.len() as u64) < SEGMENT || verified(segment, chunk, at).is_err() {
                return Ok(at);
            }
            at += SEGMENT;
        }
        if n == 0 {
            return Ok(at);
        }
    }
}

/// Does what `args` say; the error is a sentence.
pub fn run(args: &Args) -> Result<Answer, String> {
    let whole = args.size > 0 && args.size.is_multiple_of(SEGMENT) && args.size <= 64 << 20;
    if !whole || args.jobs == 0 || args.files == 0 || args.depth == 0 || args.jobs.saturating_mul(args.depth) > 1024 {
        return Err("sizes are whole segments of 4096 bytes, at most 64 MiB, and there is at least one job, file and client, at most 1024 clients".into());
    }
    if args.what == What::Make {
        return make(args, paths(args));
    }
    let files = Files::open(args, args.what == What::Append)?;
    // Who appends takes turns with those of its job, who reads with all.
    let parties = if args.what == What::Read { 1 } else { args.jobs };
    let turns: Vec<AtomicU64> = (0..parties).map(|_| AtomicU64::new(0)).collect();
    let share = |party: u64| args.count / parties + u64::from(party < args.count % parties);
    let client = |party: u64| -> Took {
        let mut buffer = AlignedBuf::zeroed(args.size as usize);
        let mut took = Vec::new();
        let Some(turns) = turns.get(party as usize) else { return Ok(took) };
        loop {
            let turn = turns.fetch_add(1, Ordering::Relaxed);
            if turn >= share(party) {
                return Ok(took);
            }
            took.push(match args.what {
                What::Read => read_one(args, &files, turn, &mut buffer)?,
                _ => append_one(args, &files, (party, turn), &mut buffer)?,
            });
        }
    };
    let began = Instant::now();
    let ended: Vec<Took> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..parties * args.depth)
            .map(|n| {
                scope.spawn({
                    let client = &client;
                    move || client(n / args.depth)
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|_| Err("a client ended early; please report it".into())))
            .collect()
    });
    let seconds = began.elapsed();
    let mut answer = Answer::default();
    for took in ended {
        answer.took.extend(took?);
    }
    if args.settle {
        synced(&args.dir)?;
    }
    let with_sync = began.elapsed();
    answer.took.sort_by(f64::total_cmp);
    answer.operations = answer.took.len() as u64;
    answer.payload = answer.operations * (args.size / SEGMENT) * PAYLOAD;
    (answer.seconds, answer.seconds_with_sync) = (seconds.as_secs_f64(), with_sync.as_secs_f64());
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(what: What, dir: &Path) -> Args {
        Args {
            what,
            dir: dir.into(),
            jobs: 2,
            first: 3,
            files: 5,
            depth: 2,
            size: 8192,
            count: 30,
            at: 0,
            sync: true,
            settle: true,
        }
    }

    #[test]
    fn appends_go_to_the_files_in_turn_and_reads_verify_them() {
        let dir = tempfile::tempdir().unwrap();
        run(&Args { at: 32 << 10, ..args(What::Make, dir.path()) }).unwrap();
        let done = run(&args(What::Append, dir.path())).unwrap();
        assert_eq!((done.operations, done.payload, done.took.len()), (30, 60 * 4048, 30));
        assert!(done.took.is_sorted() && done.seconds_with_sync >= done.seconds);
        // Three rounds over ten files: 24 KiB each, the rest is as it was made.
        for job in 3..5 {
            for file in 0..5 {
                let bytes = fs::read(dir.path().join(format!("{job}.{file}"))).unwrap();
                assert_eq!(bytes.len(), 32 << 10);
                verified(&bytes[..24 << 10], job * 5 + file, 0).unwrap();
                assert!(bytes[24 << 10..].iter().all(|byte| *byte == 0));
            }
        }
        let read = |at| run(&Args { at, count: 200, ..args(What::Read, dir.path()) });
        assert_eq!(read(24 << 10).unwrap().operations, 200);
        assert!(read(32 << 10).unwrap_err().contains("not what was written"), "behind the appends");
        for piece in [4096, 16 << 10] {
            assert_eq!(scan(&dir.path().join("4.2"), 22, piece).unwrap(), 24 << 10, "to what was never written");
            assert_eq!(scan(&dir.path().join("4.2"), 21, piece).unwrap(), 0, "another chunk's");
        }
        let again = run(&args(What::Make, dir.path())).unwrap_err();
        assert!(again.contains("3.0"), "{again}");
    }

    #[test]
    fn what_is_sealed_is_verified_and_taken_out_again() {
        let user: Vec<u8> = (0..2 * PAYLOAD).map(|i| (i % 251) as u8).collect();
        let (mut segments, mut out) = (vec![0; 8192], vec![0; user.len()]);
        seal(&mut segments, &user, 7, 4096);
        unseal(&segments, &mut out, 7, 4096).unwrap();
        assert_eq!(out, user);
        assert!(unseal(&segments, &mut out, 7, 0).is_err(), "they belong elsewhere");
        segments[5000] ^= 1;
        assert!(unseal(&segments, &mut out, 7, 4096).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            Args { size: 4095, ..args(What::Append, Path::new("/")) },
            Args { depth: 0, ..args(What::Append, Path::new("/")) },
            Args { jobs: 4000, ..args(What::Append, Path::new("/")) },
        ] {
            assert!(run(&wrong).unwrap_err().contains("whole segments"));
        }
        assert!(run(&args(What::Read, Path::new("/no/such"))).unwrap_err().contains("/no/such"));
    }
}
