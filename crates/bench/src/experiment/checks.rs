//! What must be said about rows before anybody believes them (DESIGN, sections 4 and 8). Pure functions.

use super::result::{Outcome, Row};

/// Below this the processor, not the drive, decided how long it took.
const BUSY: f64 = 0.8;
/// Rows whose write amplification differs by more did different work.
const SAME_WORK: f64 = 0.1;
/// Results at other scales and speed-ups must agree as closely.
pub const AGREEMENT: f64 = 0.05;

/// Flags rows that were not bound by their drive. Only rows whose clock ran with the world's have a utilisation to judge.
pub fn cpu_bound(row: &mut Row) {
    if let Some(part) = row.drive_utilisation.filter(|part| *part < BUSY) {
        row.flags.push(format!("CPU-bound: the drive was busy for only {:.0} % of the time", part * 100.0));
    }
}

/// The same where one of two drives may be waited for, which were busy for these parts of the time.
pub fn cpu_bound_on_two(row: &mut Row, busy: [f64; 2]) {
    // They may have been busy at the same time, so it may have been less.
    let part: f64 = busy.iter().sum();
    if part < BUSY {
        row.flags.push(format!("CPU-bound: one of the drives was busy for at most {:.0} % of the time", part * 100.0));
    }
}

/// Whether two rows wrote so differently that a comparison of their times compares work, not drives; the sentence says it.
pub fn artefact(a: &Row, b: &Row) -> Option<String> {
    let (wa, wb) = (a.write_amplification?, b.write_amplification?);
    let apart = (wa / wb - 1.0).abs().max((wb / wa - 1.0).abs());
    (apart > SAME_WORK).then(|| {
        format!("scheduling artefact: write amplification {wa:.2} and {wb:.2} differ by {:.0} %", apart * 100.0)
    })
}

/// Flags every ratio between the times of two rows that wrote so differently.
pub fn artefacts(outcome: &mut Outcome) {
    let rows = &outcome.rows;
    for ratio in &mut outcome.ratios {
        let Some([slow, fast]) = &ratio.between else { continue };
        let row = |name: &String| rows.iter().find(|row| row.name == *name);
        ratio.flags.extend(row(slow).zip(row(fast)).and_then(|(slow, fast)| artefact(slow, fast)));
    }
}

/// How far results that should be the same lie apart, as a part of the smallest; `None` with fewer than two.
pub fn apart(values: &[f64]) -> Option<f64> {
    let smallest = values.iter().copied().min_by(f64::total_cmp)?;
    let largest = values.iter().copied().max_by(f64::total_cmp)?;
    (values.len() > 1 && smallest > 0.0).then(|| largest / smallest - 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::result::Ratio;
    use super::*;

    #[test]
    fn of_two_drives_one_has_to_be_busy() {
        let flags = |busy| {
            let mut row = Row::default();
            cpu_bound_on_two(&mut row, busy);
            row.flags
        };
        assert!(flags([0.5, 0.29])[0].contains("at most 79 %"));
        assert!(flags([0.5, 0.31]).is_empty() && flags([0.0, 0.9]).is_empty());
    }

    #[test]
    fn an_idle_drive_flags_its_row() {
        let mut row = Row { drive_utilisation: Some(0.79), ..Row::default() };
        cpu_bound(&mut row);
        assert!(row.flags[0].contains("79 %"));
        let mut busy = Row { drive_utilisation: Some(0.8), ..Row::default() };
        cpu_bound(&mut busy);
        assert!(busy.flags.is_empty());
    }

    #[test]
    fn rows_that_wrote_differently_are_an_artefact() {
        let row = |wa| Row { write_amplification: Some(wa), ..Row::default() };
        assert!(artefact(&row(3.0), &row(3.2)).is_none());
        assert!(artefact(&row(3.0), &row(3.4)).unwrap().contains("13 %"));
        assert!(artefact(&row(3.4), &row(3.0)).is_some());
        assert!(artefact(&Row::default(), &row(3.0)).is_none());
    }

    #[test]
    fn a_ratio_between_rows_that_wrote_differently_says_so() {
        let row = |name: &str, wa| Row { write_amplification: Some(wa), ..Row::new(name, "d") };
        let between = |slow: &str, fast: &str| Ratio::of("r", &[1.0]).unwrap().between(slow, fast);
        let mut outcome = Outcome {
            rows: vec![row("a", 3.0), row("b", 3.1), row("c", 4.0)],
            ratios: vec![between("a", "b"), between("a", "c"), between("c", "gone"), Ratio::default()],
            ..Outcome::default()
        };
        artefacts(&mut outcome);
        let flags: Vec<usize> = outcome.ratios.iter().map(|ratio| ratio.flags.len()).collect();
        assert_eq!(flags, [0, 1, 0, 0]);
        assert!(outcome.ratios[1].flags[0].contains("33 %"), "{:?}", outcome.ratios[1].flags);
    }

    #[test]
    fn how_far_results_lie_apart() {
        assert!((apart(&[1.1, 1.0, 1.05]).unwrap() - 0.1).abs() < 1e-12);
        assert_eq!((apart(&[1.0]), apart(&[]), apart(&[0.0, 1.0])), (None, None, None));
    }
}
