//! An experiment that runs: its rows, one after the other or, where nothing but a virtual clock times them, on all processors at once.

use super::result::{Outcome, Row};
use super::{FEWER_SPEED, Options, Rule, Stop, Watcher, load, machine, save};
use imbrex_emulator::{Profile, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// An experiment that runs: what its rows are measured with, and where they go.
pub struct Run<'a> {
    pub(crate) options: &'a Options,
    pub(crate) outcome: Outcome,
    watcher: &'a dyn Watcher,
    pub(super) interrupted: Arc<AtomicBool>,
    /// All that the experiment has, in their order, those that the usual form leaves out, and how many are wanted.
    names: Vec<String>,
    extra: Vec<String>,
    rows: usize,
    /// Of each row that was measured: its place in `names`, and its run.
    ranks: Vec<(usize, usize)>,
    doing: String,
    speed: f64,
    /// The same of rows with real mechanics.
    real_speed: f64,
    repeats: usize,
    /// Which of its runs the row that is measured now is in, from 0.
    repeat: usize,
    /// Why no row of this experiment can run.
    missing: Option<String>,
}

impl<'a> Run<'a> {
    /// Nothing is measured yet. Of the rows: all, those that the usual form leaves out, and how many are wanted.
    pub(super) fn new(
        options: &'a Options,
        outcome: Outcome,
        watcher: &'a dyn Watcher,
        interrupted: Arc<AtomicBool>,
        (names, extra, rows): (Vec<String>, Vec<String>, usize),
        speed: f64,
    ) -> Run<'a> {
        Run {
            options,
            outcome,
            watcher,
            interrupted,
            names,
            extra,
            rows,
            ranks: Vec::new(),
            doing: String::new(),
            speed,
            real_speed: FEWER_SPEED,
            repeats: options.repeats.max(1),
            repeat: 0,
            missing: None,
        }
    }

    /// The row that is measured now.
    pub(crate) fn doing(&self) -> String {
        self.doing.clone()
    }

    /// Seconds of the drives' clocks in a second; nobody waits for plumbing. Where mechanics are real a drive has so little to do in a
    /// second that its clock may run faster than the world's, unless a speed is asked for.
    pub(crate) fn speed(&self, rule: Rule) -> f64 {
        match (self.options.short, self.options.speed, rule) {
            (true, ..) => 1000.0,
            (_, None, Rule::Fewer) => self.real_speed,
            _ => self.speed,
        }
    }

    /// Where mechanics are real and no speed is asked for, clocks run so fast from now on.
    pub(crate) fn real_mechanics_at(&mut self, speed: f64) {
        self.real_speed = speed;
    }

    /// Whether this row is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.options.wants(name, &self.extra)
    }

    /// Whether somebody asked to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Notes the model of a profile.
    pub(crate) fn model(&mut self, profile: &Profile) {
        self.outcome.config.models.insert(profile.name.clone(), time::fingerprint(profile));
    }

    /// Notes a setting of the whole experiment.
    pub(crate) fn setting(&mut self, name: &str, value: impl ToString) {
        self.outcome.config.settings.insert(name.into(), value.to_string());
    }

    /// Notes the version of a program that every row needs; where it is missing, no row runs and each says so.
    pub(crate) fn program(&mut self, name: &str, version: Result<String, String>) {
        match version {
            Ok(version) => _ = self.outcome.config.programs.insert(name.into(), version),
            Err(why) => self.missing = Some(why),
        }
    }

    /// One run of a row is enough, however many are asked for, because of this.
    pub(crate) fn once(&mut self, because: &str) {
        if self.repeats > 1 {
            self.setting("one run of each row, though more were asked for", because);
        }
        (self.repeats, self.outcome.config.repeats) = (1, 1);
    }

    /// Says what it does, within the row that comes next.
    pub(crate) fn says(&self, what: &str) {
        self.watcher.at(self.outcome.rows.len() as f64 / (self.rows * self.repeats).max(1) as f64, what);
    }

    /// Which of its runs the row that is measured now is in, from 0.
    pub(crate) fn repeat(&self) -> usize {
        self.repeat
    }

    /// Measures one row, if it is wanted, as often as is asked for, and keeps each. A row that cannot run says why and the experiment goes on.
    pub(crate) fn row(
        &mut self,
        name: &str,
        mut measure: impl FnMut(&mut Self) -> Result<Row, Stop>,
    ) -> Result<(), Stop> {
        if !self.wants(name) {
            return Ok(());
        }
        for repeat in 0..self.repeats {
            if self.stopped() {
                return Err(Stop::Interrupted);
            }
            let full = repeated(name, repeat);
            (self.doing, self.repeat) = (full.clone(), repeat);
            self.says(&full);
            let measured = match &self.missing {
                Some(why) => Err(Stop::Failed(why.clone())),
                None => measure(self),
            };
            self.keep(name, repeat, measured)?;
        }
        Ok(())
    }

    /// Keeps a run of a row where the experiment has it, whatever was measured before, and writes down all there is.
    fn keep(&mut self, name: &str, repeat: usize, measured: Result<Row, Stop>) -> Result<(), Stop> {
        let full = repeated(name, repeat);
        let row = match measured {
            Ok(row) => Row { name: full, ..row },
            Err(Stop::Failed(why)) => Row::not_run(&full, why),
            Err(Stop::Interrupted) => return Err(Stop::Interrupted),
        };
        let rank = (self.names.iter().position(|other| other == name).unwrap_or(usize::MAX), repeat);
        let place = self.ranks.partition_point(|other| *other <= rank);
        self.ranks.insert(place, rank);
        self.outcome.rows.insert(place, row);
        save(&self.options.out, &self.outcome).map_err(Stop::Failed)
    }

    /// Measures those of these rows that are wanted on all processors, once each, and keeps each where the experiment has it. For rows that
    /// nothing but a virtual clock times, and that share nothing: they are the same whoever else is at work. One takes so much memory (`each`);
    /// half of what is free is used. A row that cannot run says why. What `measure` has beside a row comes back by the row's place.
    pub(crate) fn at_once<T: Send>(
        &mut self,
        names: &[String],
        each: u64,
        measure: impl Fn(usize, &dyn Fn() -> bool) -> Result<(Row, T), Stop> + Sync,
    ) -> Result<Vec<Option<T>>, Stop> {
        let wanted: Vec<usize> = (0..names.len()).filter(|i| self.wants(&names[*i])).collect();
        let room = usize::try_from(machine::free_memory() / 2 / each.max(1)).unwrap_or(usize::MAX);
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let workers = processors.min(room).min(wanted.len()).max(1);
        let mut all: Vec<Option<T>> = names.iter().map(|_| None).collect();
        let (taken, over, interrupted) = (AtomicUsize::new(0), AtomicBool::new(false), self.interrupted.clone());
        let stopped = || over.load(Ordering::Relaxed) || interrupted.load(Ordering::Relaxed);
        let (said, heard) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (said, taken, wanted, measure, stopped) = (said.clone(), &taken, &wanted, &measure, &stopped);
                scope.spawn(move || {
                    // From the back: what comes last there takes longest, as the fullest drives do.
                    while let Some(row) = wanted.iter().rev().nth(taken.fetch_add(1, Ordering::Relaxed)).copied() {
                        if stopped() || said.send((row, None)).is_err() {
                            return;
                        }
                        _ = said.send((row, Some(measure(row, stopped))));
                    }
                });
            }
            drop(said);
            let mut under_way: Vec<usize> = Vec::new();
            let mut ended = Ok(());
            for (row, measured) in heard {
                match measured {
                    None => under_way.push(row),
                    Some(measured) => {
                        under_way.retain(|other| *other != row);
                        let measured = measured.map(|(row_of, more)| {
                            all[row] = Some(more);
                            row_of
                        });
                        let kept = self.keep(&names[row], 0, measured);
                        // The others hear of it at their next commit; what they have measured by then is kept, too.
                        over.fetch_or(kept.is_err(), Ordering::Relaxed);
                        ended = ended.and(kept);
                    }
                }
                let names: Vec<&str> = under_way.iter().map(|row| names[*row].as_str()).collect();
                self.says(&names.join("; "));
            }
            ended
        })?;
        if self.stopped() { Err(Stop::Interrupted) } else { Ok(all) }
    }

    /// This run of a row as another experiment of the same command measured it.
    pub(crate) fn shared(&self, experiment: &str, row: &str) -> Option<Row> {
        let other = load(&self.options.shared.as_ref()?.join(experiment)).ok()?;
        let (ours, theirs) = (&self.outcome.config, &other.config);
        let same = other.complete
            && (&ours.command, &ours.program) == (&theirs.command, &theirs.program)
            && (ours.scale, ours.short) == (theirs.scale, theirs.short);
        let name = repeated(row, self.repeat);
        let mut row = other.rows.into_iter().find(|row| same && row.name == name && row.not_run.is_none())?;
        row.settings.insert("measured by".into(), format!("{experiment}: {name}"));
        Some(row)
    }

    /// A number of every run of the row of this name.
    pub(crate) fn runs(&self, name: &str, of: impl Fn(&Row) -> Option<f64>) -> Vec<Option<f64>> {
        (0..self.repeats).map(|repeat| self.measured(&repeated(name, repeat)).and_then(&of)).collect()
    }

    /// The number of `over` for each of `under`, run by run, where both have it.
    pub(crate) fn pairs(&self, over: &str, under: &str, of: impl Fn(&Row) -> Option<f64>) -> Vec<f64> {
        let pairs = self.runs(over, &of).into_iter().zip(self.runs(under, &of));
        pairs.filter_map(|(over, under)| Some(over? / under?)).collect()
    }

    /// The row of this name, if it was measured.
    pub(crate) fn measured(&self, name: &str) -> Option<&Row> {
        self.outcome.rows.iter().find(|row| row.name == name && row.not_run.is_none())
    }
}

/// The name of a run of a row, from 0.
fn repeated(name: &str, repeat: usize) -> String {
    if repeat == 0 { name.to_owned() } else { format!("{name} (run {})", repeat + 1) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Nobody, options};
    use super::super::{Experiment, NONE, Needs, run};
    use super::*;
    use std::sync::Barrier;

    const NAMES: [&str; 6] = ["a", "by the clock", "b", "c", "d", "also left out"];

    fn names() -> Vec<String> {
        NAMES.map(String::from).into()
    }

    fn side_by_side(run: &mut Run) -> Result<(), Stop> {
        let all: Vec<String> = names().into_iter().filter(|name| name != NAMES[1]).collect();
        // Two of them meet, where the machine has two processors; and the first is the last to end.
        let meet = Barrier::new(if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) { 2 } else { 1 });
        let more = run.at_once(&all, 1, |i, _| match i {
            2 => Err(Stop::Failed("it has no legs".into())),
            0 | 1 => {
                meet.wait();
                Ok((Row { operations: Some(i as u64), ..Row::default() }, i))
            }
            _ => Ok((Row { operations: Some(i as u64), ..Row::default() }, i)),
        })?;
        assert_eq!(more, [Some(0), Some(1), None, Some(3), None]);
        run.row(NAMES[1], |_| Ok(Row { operations: Some(77), ..Row::default() }))
    }

    const SIDE_BY_SIDE: Experiment = Experiment {
        name: "side by side",
        about: "",
        paper: "",
        speed: 1.0,
        rows: |_| names(),
        extra: |_| vec![NAMES[5].into()],
        needs: |_| Needs::default(),
        run: side_by_side,
    };

    #[test]
    fn rows_that_are_measured_at_once_stand_in_their_order_and_say_what_was_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let outcome = run(&SIDE_BY_SIDE, &options(dir.path()), &Nobody, &Arc::default()).unwrap();
        let rows: Vec<_> = outcome.rows.iter().map(|row| (row.name.as_str(), row.operations)).collect();
        assert_eq!(rows, [("a", Some(0)), (NAMES[1], Some(77)), ("b", Some(1)), ("c", None), ("d", Some(3))]);
        assert_eq!(outcome.rows[3].not_run.as_deref(), Some("it has no legs"));
        assert!(outcome.notes[0].contains("1 of 6 rows: also left out. `--full`"), "{:?}", outcome.notes);
        // By its name, or with all, it is measured, and nothing is said.
        let only = |only: &str, full| Options {
            only: (!only.is_empty()).then(|| only.to_owned()).into_iter().collect(),
            full,
            force: true,
            ..options(dir.path())
        };
        let one = Experiment {
            run: |run| run.at_once(&names(), 1, |_, _| Ok((Row::default(), ()))).map(drop),
            ..SIDE_BY_SIDE
        };
        for (options, rows) in [(only("left out", false), 1), (only("", true), 6), (only("", false), 5)] {
            let outcome = run(&one, &options, &Nobody, &Arc::default()).unwrap();
            assert_eq!((outcome.rows.len(), outcome.notes.len()), (rows, usize::from(rows == 5)));
        }
    }

    #[test]
    fn what_was_measured_at_once_before_an_interruption_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let interrupted = Experiment {
            extra: NONE,
            run: |run| {
                let asked = run.interrupted.clone();
                let all = run.at_once(&names(), u64::MAX, |i, stopped| {
                    // One at a time, from the back, since memory is short.
                    asked.store(i == 3, Ordering::Relaxed);
                    if stopped() { Err(Stop::Interrupted) } else { Ok((Row::default(), ())) }
                });
                assert_eq!(all, Err(Stop::Interrupted));
                all.map(drop)
            },
            ..SIDE_BY_SIDE
        };
        let options = options(dir.path());
        assert!(run(&interrupted, &options, &Nobody, &Arc::default()).unwrap_err().contains("partial"));
        let kept = load(&options.out).unwrap();
        assert_eq!(kept.rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), [NAMES[4], NAMES[5]]);
        assert!(!kept.complete);
    }
}
