//! Crashes before each command of both drives: the process is killed, or the power of either drive fails, or of both.

use super::*;
use rand::Rng;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What was promised so far: transactions that are durable, that outlive the process, and that have begun.
#[derive(Clone, Copy, Debug, Default)]
struct Promised {
    synced: usize,
    acked: usize,
}

/// What a workload writes down.
#[derive(Default)]
pub struct Log {
    /// Digests after each transaction, of which the first is that of nothing.
    then: Vec<u64>,
    promised: Promised,
}

impl Log {
    pub fn then(&self) -> Vec<u64> {
        self.then.clone()
    }

    /// How many are durable, and how many outlive the process.
    pub fn promised(&self) -> (usize, usize) {
        (self.promised.synced, self.promised.acked)
    }
}

pub type Shared = Arc<Mutex<Log>>;

/// Transactions at random, some of which are synced, or kept; packing, cleaning; and openings.
pub fn workload(two: &Two, seed: u64, log: &Shared) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut model = Model::default();
    log.lock().unwrap().then.push(model.digest());
    for mount in 0..3 {
        let store = two.open()?;
        let queue = |transaction, then: Model| {
            log.lock().unwrap().then.push(then.digest());
            store.queue(transaction).map(|ticket| (ticket, then))
        };
        let count = || log.lock().unwrap().then.len() - 1;
        if mount == 0 {
            let ((c, bits), mut begin, mut then) = (first(), Transaction::new(), model.clone());
            then.apply(&support::Op::Create(c, bits), &mut begin).unwrap();
            model = queue(begin, then)?.1;
        }
        for _ in 0..14 {
            let (_, transaction, then) = any_transaction(&mut rng, &model, 300_000);
            let ticket;
            (ticket, model) = queue(transaction, then)?;
            let all = count();
            match rng.random_range(0..8) {
                0 | 1 => {
                    store.sync()?;
                    log.lock().unwrap().promised = Promised { synced: all, acked: all };
                }
                2 | 3 => {
                    store.wait_for(ticket, imbrex_store::Survives::Process)?;
                    log.lock().unwrap().promised.acked = all;
                    // Zones that are free are reset at once, and not when somebody takes them.
                    store.volume().quiesce()?;
                }
                4 => drop(store.pack()?),
                5 => drop(store.clean(200_000)?),
                _ => {}
            }
        }
        store.sync()?;
        let all = count();
        log.lock().unwrap().promised = Promised { synced: all, acked: all };
    }
    Ok(())
}

/// Whether the drives have at least so many transactions, each whole; and go on.
pub fn holds(two: &Two, then: &[u64], least: usize, what: &str) {
    let store = two.open().unwrap_or_else(|error| panic!("{what}: {error}"));
    let wrong = store.check_all(true).unwrap_or_else(|error| panic!("{what}: {error}")).wrong;
    assert!(wrong.is_empty(), "{what}: {wrong:#?}");
    let mut model = Model::of(&store).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = model.digest();
    let at = then.iter().rposition(|digest| *digest == found);
    assert!(at.is_some_and(|at| at >= least), "{what}: as after {at:?} of {}, {least} at least", then.len() - 1);
    let mut rng = ChaCha8Rng::seed_from_u64(found);
    for _ in 0..2 {
        let (_, transaction, then) = any_transaction(&mut rng, &model, 100_000);
        store.commit(transaction).unwrap_or_else(|error| panic!("{what}: {error}"));
        model = then;
    }
    drop(store);
    let store = two.open().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(Model::of(&store).unwrap() == model, "{what}: what was written behind it");
    let wrong = store.check_all(true).unwrap().wrong;
    assert!(wrong.is_empty(), "{what}: {wrong:#?}");
}

/// How the power of a drive fails.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// It does not.
    No,
    All,
    Nothing,
    Random(u64),
}

fn after(two: &Two, losses: [Loss; 2]) -> Two {
    let mut after = two.copy();
    for (n, loss) in losses.into_iter().enumerate() {
        let drive = &two.drives[n];
        let cut = match loss {
            Loss::No => continue,
            Loss::All => drive.after_power_loss_choosing(&mut |most| most),
            Loss::Nothing => drive.after_power_loss_choosing(&mut |_| 0),
            Loss::Random(seed) => drive.after_power_loss(seed),
        };
        // What an earlier power epoch has left may be there still: nobody may believe it.
        after.drives[n] = cut.unwrap();
    }
    after
}

/// A moment before a command, and what was promised.
struct Moment {
    two: Two,
    promised: Promised,
    begun: usize,
}

fn survivors() -> [Option<Arc<HeapSurvivor>>; 2] {
    [(); 2].map(|()| Some(Arc::new(HeapSurvivor::new())))
}

/// Moments that are looked at, beside the first ones: the steps of an opening are few, and each of them counts.
const MOMENTS: u64 = 40;
/// Combinations of what each drive loses.
const LOSSES: usize = 7;

fn explore(configs: [Config; 2], seed: u64) {
    let mut two = Two::new(&configs[0], &configs[1]);
    two.format(false).unwrap();
    two.survivors = survivors();
    let log = Shared::default();
    let moments: Arc<Mutex<Vec<Moment>>> = Arc::default();
    let all = two.clone();
    // Twice: once to count the commands, and once to keep some of the moments before them.
    let count = Arc::new(AtomicU64::new(0));
    {
        let count = count.clone();
        let mut alone = two.copy();
        alone.watch = Some(Watch::new(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }));
        workload(&alone, seed, &Shared::default()).unwrap();
    }
    let commands = count.load(Ordering::Relaxed);
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 1);
    let (log_of, to, mut n) = (log.clone(), moments.clone(), 0);
    two.watch = Some(Watch::new(move |_, _| {
        n += 1;
        if n <= MOMENTS || rng.random_range(0..commands) < MOMENTS {
            let log = log_of.lock().unwrap();
            let (promised, begun) = (log.promised, log.then.len());
            to.lock().unwrap().push(Moment { two: all.copy(), promised, begun });
        }
        Ok(())
    }));
    workload(&two, seed, &log).unwrap();
    let then = log.lock().unwrap().then.clone();
    let moments = std::mem::take(&mut *moments.lock().unwrap());
    assert!(moments.len() as u64 > MOMENTS * 5 / 4, "{} moments of {commands} commands", moments.len());
    for (n, Moment { two, promised, begun }) in moments.iter().enumerate() {
        let random = seed.wrapping_mul(1000) + n as u64;
        let losses: [_; LOSSES] = [
            [Loss::No, Loss::No],
            [Loss::Nothing, Loss::No],
            [Loss::Random(random), Loss::No],
            [Loss::No, Loss::Nothing],
            [Loss::All, Loss::Nothing],
            [Loss::Nothing, Loss::All],
            [Loss::Random(random), Loss::Random(random + 1)],
        ];
        for losses in losses {
            let kept = matches!(losses[1], Loss::No);
            let least = if kept { promised.acked } else { promised.synced };
            let what = format!("seed {seed}, moment {n}, {losses:?}, {promised:?}");
            holds(&after(two, losses), &then[..*begun], least, &what);
        }
    }
    println!("seed {seed}: {} of {} states", moments.len() * LOSSES, commands as usize * LOSSES);
}

#[test]
fn a_crash_at_any_moment_leaves_the_first_transactions_and_those_that_were_durable() {
    let zns = Config { max_open: Some(16), max_active: Some(16), ..few_active() };
    let uncached = Config { write_cache: false, ..config() };
    for seed in imbrex_crashkit::seeds(1) {
        for configs in [[config(), zns.clone()], [config(), config()], [zns.clone(), uncached.clone()]] {
            explore(configs, seed);
        }
    }
}

/// A store in place, which overwrites: its drive has a flush of its own as well.
#[test]
fn a_crash_of_a_store_in_place_leaves_the_same() {
    for seed in imbrex_crashkit::seeds(1) {
        explore([plain(), config()], seed);
    }
}
