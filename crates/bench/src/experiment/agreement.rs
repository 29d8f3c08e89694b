//! Whether results of one experiment at several scales and speeds agree (DESIGN, section 4): what is told at full size must not depend on
//! how small the drive was made, nor on how fast its clock ran. What lies more than 5 % apart is marked invalid, row by row and ratio
//! by ratio. Pure functions over results; they may be hours apart.

use super::checks::{AGREEMENT, apart};
use super::report::number;
use super::result::{Config, Outcome, Row};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Figures of a row that mean the same at every scale. Of those that say the same in two ways the first stands for both.
const FIGURES: &[&str] = &[
    "s for all inserts at full size",
    "ms an insert",
    "operations/s",
    "MiB/s",
    "average, MiB/s",
    "GiB of zones, at full size",
    "zones over live files",
    "flushes an insert",
];
/// Those of which a row has one at most.
const TIMES: usize = 5;

/// A result that was compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Where it is.
    pub dir: String,
    /// Sizes are divided by this.
    pub scale: u32,
    /// Drive seconds in a second.
    pub speed: Option<f64>,
    /// The program.
    pub program: String,
    /// When it began, seconds since 1970.
    pub began: u64,
    /// Whether it ran to its end.
    pub complete: bool,
}

/// One figure in all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The row or ratio.
    pub of: String,
    /// The figure; of ratios "ratio".
    pub figure: String,
    /// In the order of the results; `None` where that one has none.
    pub values: Vec<Option<f64>>,
    /// Largest over smallest, less 1.
    pub apart: f64,
    /// Whether that is within the limit.
    pub agrees: bool,
}

/// How far results agree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Those that were compared.
    pub results: Vec<Compared>,
    /// Everything that at least two of them have.
    pub lines: Vec<Line>,
    /// What a reader must know about the comparison, in sentences.
    pub notes: Vec<String>,
}

/// Drive seconds in a second; results of older versions say it in their rows.
fn speed(outcome: &Outcome) -> Option<f64> {
    outcome.config.speed.or_else(|| {
        let times = outcome.rows.iter().filter_map(|row| row.settings.get("time"));
        times.filter_map(|time| time.rsplit_once("speed=")?.1.parse().ok()).next()
    })
}

/// What tells one of several results of an experiment from the others, for the head of a column.
pub fn column(compared: &Compared) -> String {
    let speed = compared.speed.map_or(String::new(), |speed| format!(", speed {}", number(speed)));
    format!("1/{}{speed}", compared.scale)
}

fn figures(row: &Row) -> Vec<(&'static str, f64)> {
    let of = |name: &&'static str| row.figures.get(*name).map(|value| (*name, *value));
    let time = FIGURES[..TIMES].iter().find_map(of);
    let others = FIGURES[TIMES..].iter().filter_map(of);
    time.into_iter().chain(others).chain(row.write_amplification.map(|wa| (AMPLIFICATION, wa))).collect()
}

/// Explains why times differ, and makes nothing invalid by itself.
const AMPLIFICATION: &str = "write amplification";

fn all(outcome: &Outcome) -> Vec<(String, &'static str, f64)> {
    let rows = outcome.rows.iter().filter(|row| row.not_run.is_none());
    let rows = rows.flat_map(|row| figures(row).into_iter().map(|(name, value)| (row.name.clone(), name, value)));
    let ratios = outcome.ratios.iter().map(|ratio| (ratio.name.clone(), "ratio", ratio.median));
    rows.chain(ratios).collect()
}

/// Why two results cannot be compared; a sentence.
fn stranger(a: &Outcome, b: &Outcome) -> Option<String> {
    if a.experiment != b.experiment {
        return Some(format!(
            "one is of {}, another of {}; compare results of one experiment",
            a.experiment, b.experiment
        ));
    }
    if a.config.short || b.config.short {
        return Some("one is the short form, which measures nothing; run the experiment without --short".into());
    }
    let models = |config: &Config| config.models.clone();
    let other = models(&b.config);
    let differs = models(&a.config).into_iter().find(|(name, print)| other.get(name).is_some_and(|p| p != print));
    differs.map(|(name, _)| {
        format!("they were measured on different models of {name}; run those of the older model again")
    })
}

/// Compares results, each with the place that it was read from. The error is a sentence.
pub fn compare(results: &[(String, Outcome)]) -> Result<Agreement, String> {
    let [(_, first), rest @ ..] = results else { return Err("there is no result to compare".into()) };
    if rest.is_empty() {
        return Err(format!("{} has one result; compare at least two", first.experiment));
    }
    if let Some(why) = rest.iter().find_map(|(_, other)| stranger(first, other)) {
        return Err(why);
    }
    let compared = |(dir, outcome): &(String, Outcome)| Compared {
        dir: dir.clone(),
        scale: outcome.config.scale,
        speed: speed(outcome),
        program: outcome.config.program.clone(),
        began: outcome.config.began,
        complete: outcome.complete,
    };
    let mut agreement = Agreement { results: results.iter().map(compared).collect(), ..Agreement::default() };
    let tables: Vec<_> = results.iter().map(|(_, outcome)| all(outcome)).collect();
    let mut seen = BTreeSet::new();
    for (of, figure, _) in tables.iter().flatten() {
        if !seen.insert((of.clone(), *figure)) {
            continue;
        }
        let value = |table: &Vec<(String, &str, f64)>| {
            table.iter().find(|(name, other, _)| name == of && other == figure).map(|(.., value)| *value)
        };
        let values: Vec<Option<f64>> = tables.iter().map(value).collect();
        let there: Vec<f64> = values.iter().flatten().copied().collect();
        let Some(apart) = apart(&there) else { continue };
        let (of, figure, agrees) = (of.clone(), (*figure).to_owned(), apart <= AGREEMENT);
        agreement.lines.push(Line { of, figure, values, apart, agrees });
    }
    let programs: BTreeSet<&str> = agreement.results.iter().map(|one| one.program.as_str()).collect();
    if programs.len() > 1 {
        agreement.notes.push("the results are of different builds of the program, which may be why they differ".into());
    }
    for one in agreement.results.iter().filter(|one| !one.complete) {
        agreement.notes.push(format!("{} is partial: rows that it lacks were not compared there", one.dir));
    }
    if agreement.lines.is_empty() {
        return Err(format!(
            "the results of {} have no row in common that was measured; nothing was compared",
            first.experiment
        ));
    }
    Ok(agreement)
}

/// Begins the sentences that a comparison leaves in a result, so that the next one can replace them.
const MARK: &str = "between scales and speeds";

/// Writes a comparison into one of the results that it is about: the table, and marks at what does not agree.
pub fn mark(outcome: &mut Outcome, agreement: &Agreement) {
    let old = |sentence: &String| !sentence.starts_with(MARK);
    outcome.invalid.retain(old);
    let counts = |line: &&Line| !line.agrees && line.figure != AMPLIFICATION;
    let sentences = |of: &str, ratio: bool| -> Vec<String> {
        let lines =
            agreement.lines.iter().filter(counts).filter(|line| line.of == of && (line.figure == "ratio") == ratio);
        lines.map(|line| format!("{MARK}: {} lies {:.0} % apart", line.figure, line.apart * 100.0)).collect()
    };
    for row in &mut outcome.rows {
        row.invalid.retain(old);
        row.invalid.extend(sentences(&row.name, false));
    }
    for ratio in &mut outcome.ratios {
        ratio.invalid.retain(old);
        ratio.invalid.extend(sentences(&ratio.name, true));
    }
    let wrong: BTreeSet<&str> = agreement.lines.iter().filter(counts).map(|line| line.of.as_str()).collect();
    let of: BTreeSet<&str> = agreement.lines.iter().map(|line| line.of.as_str()).collect();
    if !wrong.is_empty() {
        outcome.invalid.push(format!(
            "{MARK}: {} of {} rows and ratios differ by more than {:.0} %; they are marked",
            wrong.len(),
            of.len(),
            AGREEMENT * 100.0
        ));
    }
    outcome.agreement = Some(agreement.clone());
}

#[cfg(test)]
mod tests {
    use super::super::result::Ratio;
    use super::*;

    fn outcome(scale: u32, seconds: f64, ratio: f64) -> (String, Outcome) {
        let mut row = Row { write_amplification: Some(seconds), ..Row::new("one", "d") };
        row.figures.insert("s for all inserts at full size".into(), seconds);
        // Says the same again, and would be counted twice; and what shrinks with the scale.
        row.figures.insert("operations/s".into(), 1e6 / seconds);
        row.figures.insert("CPU s of the program".into(), f64::from(scale));
        row.settings.insert("time".into(), "time=pace&speed=0.25".into());
        let config = Config { scale, models: [("d".to_owned(), "0".to_owned())].into(), ..Config::default() };
        let rows = vec![row, Row::not_run("two", "no legs")];
        let ratios = vec![Ratio::of("a over b", &[ratio]).unwrap()];
        (
            format!("at-{scale}"),
            Outcome { experiment: "e".into(), complete: true, config, rows, ratios, ..Outcome::default() },
        )
    }

    #[test]
    fn what_lies_apart_is_marked_once_however_often_it_is_compared() {
        let mut results = [outcome(64, 100.0, 1.0), outcome(32, 104.0, 1.06), outcome(16, 101.0, 1.0)];
        let agreement = compare(&results).unwrap();
        let lines: Vec<_> = agreement.lines.iter().map(|line| (line.figure.as_str(), line.agrees)).collect();
        assert_eq!(lines, [("s for all inserts at full size", true), ("write amplification", true), ("ratio", false)]);
        assert_eq!(column(&agreement.results[1]), "1/32, speed 0.250");
        for _ in 0..2 {
            mark(&mut results[0].1, &agreement);
        }
        let marked = &results[0].1;
        assert!(marked.rows[0].invalid.is_empty() && marked.ratios[0].invalid.len() == 1, "{marked:?}");
        assert!(
            marked.ratios[0].invalid[0].contains("6 % apart") && marked.invalid[0].contains("1 of 2"),
            "{:?}",
            marked.invalid
        );
        // Compared anew with what agrees, the marks go.
        let agreement = compare(&[results[0].clone(), results[2].clone()]).unwrap();
        mark(&mut results[0].1, &agreement);
        assert!(results[0].1.invalid.is_empty() && results[0].1.ratios[0].invalid.is_empty());
        // A row whose time differs is invalid, one that wrote more and took as long is not.
        let apart = compare(&[outcome(64, 100.0, 1.0), outcome(32, 110.0, 1.0)]).unwrap();
        mark(&mut results[0].1, &apart);
        assert_eq!(results[0].1.rows[0].invalid.len(), 1);
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let one = outcome(64, 1.0, 1.0);
        assert!(compare(&[]).is_err() && compare(std::slice::from_ref(&one)).unwrap_err().contains("at least two"));
        let refused = |change: fn(&mut Outcome)| {
            let mut other = outcome(32, 1.0, 1.0);
            change(&mut other.1);
            compare(&[one.clone(), other]).unwrap_err()
        };
        assert!(refused(|o| o.experiment = "f".into()).contains("one experiment"));
        assert!(refused(|o| o.config.short = true).contains("--short"));
        assert!(refused(|o| _ = o.config.models.insert("d".into(), "1".into())).contains("models of d"));
        assert!(refused(|o| (o.rows.clear(), o.ratios.clear()).0).contains("no row in common"));
    }
}
