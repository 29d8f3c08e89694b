//! The page of an experiment: one file, nothing from elsewhere, no script. And the page that links several.

use super::agreement::{Agreement, column};
use super::failed;
use super::result::{Config, Figure, Outcome, Ratio, Row};
use super::sensitivity::Replayed;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:#1c1c1c}\
h1{font-size:1.6em;margin-bottom:.2em}h2{font-size:1.15em;margin-top:2em}\
table{border-collapse:collapse;font-size:13px}th,td{padding:.25em .6em;text-align:right;border-bottom:1px solid #ddd;vertical-align:top}\
th{background:#f4f4f4;font-weight:600}td:first-child,th:first-child,td.t,th.t{text-align:left}\
.wide{overflow-x:auto}.flag{color:#8a4b00}.bad{background:#fde8e8;border-left:4px solid #b02a37;padding:.6em 1em}\
.grey{color:#666}svg{max-width:100%;height:auto}figure{margin:1em 0}code{background:#f4f4f4;padding:0 .25em}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number as people read it.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v >= 1e5 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        v if v >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

fn bytes(value: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| value >= 1 << shift) {
        None => format!("{value} B"),
        Some((unit, shift)) => format!("{:.2} {unit}", value as f64 / (1u64 << shift) as f64),
    }
}

fn figure(figure: &Figure) -> String {
    format!(
        "{} {}<br><span class=\"grey\">{}</span>",
        number(figure.value),
        escape(&figure.unit),
        escape(&figure.source)
    )
}

/// A column of the table of rows: its head, and what a row has there.
type Column = (&'static str, fn(&Row) -> Option<String>);

const COLUMNS: &[Column] = &[
    ("device s", |r| r.device_seconds.map(number)),
    ("wall s", |r| r.wall_seconds.map(number)),
    ("operations", |r| r.operations.map(|n| n.to_string())),
    ("user wrote", |r| r.bytes_user.map(bytes)),
    ("drive wrote", |r| r.bytes_drive.map(bytes)),
    ("drive read", |r| r.bytes_read.map(bytes)),
    ("WA", |r| r.write_amplification.map(number)),
    ("space eff.", |r| r.space_efficiency.map(|part| format!("{:.1} %", part * 100.0))),
    ("flushes", |r| r.flushes.map(|n| n.to_string())),
    ("resets", |r| r.zone_resets.map(|n| n.to_string())),
    ("drive busy", |r| r.drive_utilisation.map(|part| format!("{:.0} %", part * 100.0))),
    ("CPU busy", |r| r.cpu_saturation.map(|part| format!("{:.0} %", part * 100.0))),
    ("queue", |r| r.queue_depth.map(number)),
    ("paper", |r| r.paper.as_ref().map(figure)),
];

fn rows(out: &mut String, rows: &[Row]) -> std::fmt::Result {
    let used: Vec<&Column> = COLUMNS.iter().filter(|(_, cell)| rows.iter().any(|row| cell(row).is_some())).collect();
    let mut figures: Vec<&str> = rows.iter().flat_map(|row| row.figures.keys().map(String::as_str)).collect();
    figures.sort_unstable();
    figures.dedup();
    write!(out, "<div class=\"wide\"><table><tr><th>row</th><th class=\"t\">drive</th>")?;
    figures.iter().try_for_each(|name| write!(out, "<th>{}</th>", escape(name)))?;
    used.iter().try_for_each(|(head, _)| write!(out, "<th>{head}</th>"))?;
    writeln!(out, "<th class=\"t\">remarks</th></tr>")?;
    for row in rows {
        write!(out, "<tr><td>{}</td><td class=\"t\">{}", escape(&row.name), escape(&row.drive))?;
        if !row.rule.is_empty() {
            write!(out, "<br><span class=\"grey\">{}</span>", escape(&row.rule))?;
        }
        write!(out, "</td>")?;
        if let Some(why) = &row.not_run {
            writeln!(
                out,
                "<td class=\"t flag\" colspan=\"{}\">not run: {}</td></tr>",
                figures.len() + used.len() + 1,
                escape(why)
            )?;
            continue;
        }
        for name in &figures {
            write!(out, "<td>{}</td>", row.figures.get(*name).copied().map(number).unwrap_or_default())?;
        }
        used.iter().try_for_each(|(_, cell)| write!(out, "<td>{}</td>", cell(row).unwrap_or_default()))?;
        write!(out, "<td class=\"t\">")?;
        row.invalid.iter().try_for_each(|why| write!(out, "<div class=\"bad\">invalid {}</div>", escape(why)))?;
        row.flags.iter().try_for_each(|flag| write!(out, "<div class=\"flag\">{}</div>", escape(flag)))?;
        row.settings.iter().try_for_each(|(name, value)| {
            write!(out, "<div class=\"grey\">{}: {}</div>", escape(name), escape(value))
        })?;
        writeln!(out, "</td></tr>")?;
    }
    writeln!(out, "</table></div>")
}

fn ratios(out: &mut String, ratios: &[Ratio]) -> std::fmt::Result {
    writeln!(
        out,
        "<h2>Ratios</h2><table><tr><th>what</th><th>median</th><th>spread</th><th>runs</th>\
         <th>bandwidth alone</th><th>goal</th><th>paper</th><th class=\"t\">remarks</th></tr>"
    )?;
    for ratio in ratios {
        let invalid = ratio.invalid.iter().map(|why| format!("<div class=\"bad\">invalid {}</div>", escape(why)));
        let flags = ratio.flags.iter().map(|flag| format!("<div class=\"flag\">{}</div>", escape(flag)));
        let flags: Vec<String> = invalid.chain(flags).collect();
        let goal = ratio
            .goal
            .map(|goal| format!("≥ {}: {}", number(goal), if ratio.median >= goal { "met" } else { "<b>missed</b>" }));
        writeln!(
            out,
            "<tr><td>{}</td><td><b>{}</b></td><td>{} to {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"t\">{}</td></tr>",
            escape(&ratio.name),
            number(ratio.median),
            number(ratio.smallest),
            number(ratio.largest),
            ratio.all.len(),
            ratio.bandwidth_alone.map(number).unwrap_or_default(),
            goal.unwrap_or_default(),
            ratio.paper.as_ref().map(figure).unwrap_or_default(),
            flags.concat()
        )?;
    }
    writeln!(out, "</table>")
}

fn latencies(out: &mut String, rows: &[Row]) -> std::fmt::Result {
    if rows.iter().all(|row| row.latency.is_empty()) {
        return Ok(());
    }
    writeln!(
        out,
        "<h2>Latency of the drive's commands</h2><div class=\"wide\"><table><tr><th>row</th><th class=\"t\">cause</th><th>commands</th>\
         <th>mean, ms</th><th>median</th><th>95 %</th><th>99 %</th><th>longest</th></tr>"
    )?;
    for row in rows {
        for (cause, of) in &row.latency {
            let ms = |seconds: f64| number(seconds * 1e3);
            writeln!(
                out,
                "<tr><td>{}</td><td class=\"t\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&row.name),
                escape(cause),
                of.commands,
                ms(of.mean),
                ms(of.p50),
                ms(of.p95),
                ms(of.p99),
                ms(of.max)
            )?;
        }
    }
    writeln!(out, "</table></div>")
}

/// The same at several scales and speeds, and how far it lies apart.
fn agreement(out: &mut String, agreement: &Agreement) -> std::fmt::Result {
    writeln!(
        out,
        "<h2>Agreement between scales and speeds</h2><p>What lies more than 5 % apart is marked invalid; write amplification only says why.</p>\
         <div class=\"wide\"><table><tr><th>what</th><th class=\"t\">figure</th>"
    )?;
    agreement.results.iter().try_for_each(|one| write!(out, "<th>{}</th>", escape(&column(one))))?;
    writeln!(out, "<th>apart</th></tr>")?;
    for line in &agreement.lines {
        write!(out, "<tr><td>{}</td><td class=\"t\">{}</td>", escape(&line.of), escape(&line.figure))?;
        line.values.iter().try_for_each(|value| write!(out, "<td>{}</td>", value.map(number).unwrap_or_default()))?;
        let class = if line.agrees { "" } else { " class=\"flag\"" };
        writeln!(out, "<td{class}>{:.1} %</td></tr>", line.apart * 100.0)?;
    }
    writeln!(out, "</table></div><ul>")?;
    for one in &agreement.results {
        writeln!(
            out,
            "<li class=\"grey\">{}: {}, {}</li>",
            escape(&column(one)),
            escape(&one.dir),
            escape(&one.program)
        )?;
    }
    agreement.notes.iter().try_for_each(|note| writeln!(out, "<li>{}</li>", escape(note)))?;
    writeln!(out, "</ul>")
}

/// What the ratios and the rows would be, were an assumption a half less or a half more.
fn sensitivity(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let rows: Vec<(&Row, &Replayed)> =
        outcome.rows.iter().filter_map(|row| Some((row, row.replayed.as_ref()?))).collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<h2>What rests on assumptions</h2><p>The commands of each row once more, on its drive and on one of which a single assumed number is a \
         half less (-) or a half more (+); what two drives of a ratio assume both is changed on both. A replay asks for the same commands in the \
         same order, each as long after the last completion before it as it was: how the engine would have reacted to another drive is not in it, \
         and what the host thought in between does not change. How near it comes stands in the first table.</p>\
         <div class=\"wide\"><table><tr><th>row</th><th>commands</th><th>busy, s: measured</th><th>replayed</th><th>differs by</th></tr>"
    )?;
    for (row, replayed) in &rows {
        let differs = (replayed.busy / replayed.measured.max(1e-9) - 1.0) * 100.0;
        let note = if replayed.forgotten > 0 {
            format!(" ({} before them are lost)", replayed.forgotten)
        } else {
            String::new()
        };
        writeln!(
            out,
            "<tr><td>{}</td><td>{}{note}</td><td>{}</td><td>{}</td><td>{differs:+.1} %</td></tr>",
            escape(&row.name),
            replayed.commands,
            number(replayed.measured),
            number(replayed.busy)
        )?;
    }
    writeln!(out, "</table></div>")?;
    let pair = |low: Option<f64>, high: Option<f64>| {
        let text = |value: Option<f64>| value.map_or("&ndash;".into(), number);
        format!("{} / {}", text(low), text(high))
    };
    let swinging: Vec<&Ratio> = outcome.ratios.iter().filter(|ratio| !ratio.swings.is_empty()).collect();
    if !swinging.is_empty() {
        let lines: Vec<Vec<String>> = swinging
            .iter()
            .map(|ratio| vec![escape(&ratio.name), format!("<b>{}</b>", number(ratio.median))])
            .collect();
        let find = |i: usize, name: &str| {
            swinging[i].swings.iter().find(|swing| swing.parameter == name).map(|swing| pair(swing.low, swing.high))
        };
        let names = swinging.iter().flat_map(|ratio| ratio.swings.iter().map(|swing| swing.parameter.as_str()));
        transposed(out, ["ratio", "as it is"], &lines, names, find)?;
    }
    let lines: Vec<Vec<String>> =
        rows.iter().map(|(row, replayed)| vec![escape(&row.name), number(replayed.busy)]).collect();
    let find = |i: usize, name: &str| {
        let change = rows[i].1.changes.iter().find(|change| change.parameter == name)?;
        Some(pair(change.low.as_ref().map(|point| point.busy), change.high.as_ref().map(|point| point.busy)))
    };
    let names = rows.iter().flat_map(|(_, replayed)| replayed.changes.iter().map(|change| change.parameter.as_str()));
    transposed(out, ["seconds busy", "as it is"], &lines, names, find)
}

/// A table with a column for each of `lines` (head, and what it is unchanged) and a row for each parameter.
fn transposed<'a>(
    out: &mut String,
    [what, unchanged]: [&str; 2],
    lines: &[Vec<String>],
    names: impl Iterator<Item = &'a str>,
    find: impl Fn(usize, &str) -> Option<String>,
) -> std::fmt::Result {
    let mut seen = BTreeSet::new();
    write!(out, "<div class=\"wide\"><table><tr><th>{what}: - / +</th>")?;
    let column = |out: &mut String, i: usize| -> std::fmt::Result {
        lines.iter().try_for_each(|line| write!(out, "<td>{}</td>", line.get(i).map_or("", String::as_str)))
    };
    column(out, 0)?;
    write!(out, "</tr><tr><td>{unchanged}</td>")?;
    column(out, 1)?;
    writeln!(out, "</tr>")?;
    for name in names.filter(|name| seen.insert(*name)) {
        write!(out, "<tr><td>{}</td>", escape(name))?;
        (0..lines.len()).try_for_each(|i| write!(out, "<td>{}</td>", find(i, name).unwrap_or_default()))?;
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table></div>")
}

/// Where the drive's time went, by what the head did.
fn seconds(out: &mut String, rows: &[Row]) -> std::fmt::Result {
    let timed: Vec<&Row> = rows.iter().filter(|row| !row.seconds.is_empty()).collect();
    let mut kinds: Vec<&str> = timed.iter().flat_map(|row| row.seconds.keys().map(String::as_str)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    if timed.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<h2>Where the drive's time went, in seconds</h2><div class=\"wide\"><table><tr><th>row</th><th class=\"t\">cause</th>"
    )?;
    kinds.iter().try_for_each(|kind| write!(out, "<th>{}</th>", escape(kind)))?;
    writeln!(out, "</tr>")?;
    for row in timed {
        let all = std::iter::once(("all", &row.seconds));
        let causes = row.seconds_by_cause.iter().map(|(cause, of)| (cause.as_str(), of));
        // What took next to nothing says nothing.
        let whole: f64 = row.seconds.values().sum();
        for (cause, of) in all.chain(causes.filter(|(_, of)| of.values().sum::<f64>() > whole / 200.0)) {
            write!(out, "<tr><td>{}</td><td class=\"t\">{}</td>", escape(&row.name), escape(cause))?;
            kinds.iter().try_for_each(|kind| {
                write!(out, "<td>{}</td>", of.get(*kind).copied().map(number).unwrap_or_default())
            })?;
            writeln!(out, "</tr>")?;
        }
    }
    writeln!(out, "</table></div>")
}

fn config(out: &mut String, config: &Config) -> std::fmt::Result {
    let machine = &config.machine;
    writeln!(out, "<h2>To repeat it</h2><table>")?;
    let mut line = |name: &str, value: &str| {
        writeln!(out, "<tr><td>{}</td><td class=\"t\">{}</td></tr>", escape(name), escape(value))
    };
    line("command", &config.command)?;
    line("program", &config.program)?;
    line("scale", &format!("1/{}{}", config.scale, if config.short { ", short form: only the plumbing" } else { "" }))?;
    if let Some(speed) = config.speed {
        line("speed", &format!("{} seconds of the drives in one", number(speed)))?;
    }
    line("runs of each row", &config.repeats.to_string())?;
    let shared = if machine.load_before > 1.0 { "; others were at work on it" } else { "" };
    line(
        "machine",
        &format!(
            "{} cores, {}, Linux {}, load before {}{shared}",
            machine.cores,
            bytes(machine.memory),
            machine.kernel,
            machine.load_before
        ),
    )?;
    config.models.iter().try_for_each(|(name, print)| line(&format!("model of {name}"), print))?;
    config.programs.iter().try_for_each(|(name, version)| line(name, version))?;
    config.settings.iter().try_for_each(|(name, value)| line(name, value))?;
    writeln!(out, "</table>")
}

fn page(outcome: &Outcome) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let name = escape(&outcome.experiment);
    writeln!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}</title><style>{STYLE}</style></head><body>"
    )?;
    writeln!(out, "<h1>{name}</h1><p>{}</p>", escape(&outcome.about))?;
    if !outcome.complete {
        let why = outcome.stopped.as_deref().unwrap_or("it was not ended");
        writeln!(out, "<p class=\"bad\">These results are partial: {}.</p>", escape(why))?;
    }
    for why in &outcome.invalid {
        writeln!(out, "<p class=\"bad\">Invalid: {}.</p>", escape(why))?;
    }
    if outcome.config.short {
        writeln!(out, "<p class=\"bad\">Short form: the figures say nothing, only that it runs.</p>")?;
    }
    if !outcome.ratios.is_empty() {
        ratios(&mut out, &outcome.ratios)?;
    }
    for chart in &outcome.charts {
        match chart.svg() {
            Ok(svg) => writeln!(out, "<figure>{svg}</figure>")?,
            Err(why) => {
                writeln!(out, "<p class=\"flag\">{} could not be drawn: {}</p>", escape(&chart.title), escape(&why))?
            }
        }
    }
    writeln!(out, "<h2>Rows</h2>")?;
    rows(&mut out, &outcome.rows)?;
    if !outcome.notes.is_empty() {
        writeln!(out, "<h2>Remarks</h2><ul>")?;
        outcome.notes.iter().try_for_each(|note| writeln!(out, "<li>{}</li>", escape(note)))?;
        writeln!(out, "</ul>")?;
    }
    if let Some(compared) = &outcome.agreement {
        agreement(&mut out, compared)?;
    }
    sensitivity(&mut out, outcome)?;
    seconds(&mut out, &outcome.rows)?;
    latencies(&mut out, &outcome.rows)?;
    config(&mut out, &outcome.config)?;
    writeln!(out, "</body></html>")?;
    Ok(out)
}

/// Writes `report.html` and a PNG file for each chart into `dir`.
pub fn write(dir: &Path, outcome: &Outcome) -> Result<(), String> {
    let path = dir.join("report.html");
    let text = page(outcome).map_err(|e| failed(&path, e))?;
    std::fs::write(&path, text).map_err(|e| failed(&path, e))?;
    for chart in &outcome.charts {
        let path = dir.join(format!("{}.png", chart.file));
        let file = chart.png().map_err(|e| failed(&path, e))?;
        std::fs::write(&path, file).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

/// Writes `index.html` into `dir`, with a link to every experiment below it that has a result. The error is a sentence.
pub fn index(dir: &Path) -> Result<usize, String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| failed(dir, e))?.flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path().join("result.json")) else { continue };
        let Ok(outcome) = serde_json::from_str::<Outcome>(&text) else { continue };
        found.push((entry.file_name().to_string_lossy().into_owned(), outcome));
    }
    let place = |name: &str| super::ALL.iter().position(|one| one.name == name).unwrap_or(usize::MAX);
    found.sort_by_key(|(dir, outcome)| (place(&outcome.experiment), dir.clone()));
    let path = dir.join("index.html");
    let text = index_page(&found).map_err(|e| failed(&path, e))?;
    std::fs::write(&path, text).map_err(|e| failed(&path, e))?;
    Ok(found.len())
}

fn index_page(found: &[(String, Outcome)]) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Imbrex: experiments</title><style>{STYLE}</style></head><body>"
    )?;
    writeln!(
        out,
        "<h1>Experiments</h1><p>Each line leads to a report with its charts; <code>result.json</code> beside it has everything.</p>"
    )?;
    writeln!(
        out,
        "<table><tr><th>experiment</th><th class=\"t\">what it asks</th><th class=\"t\">what came of it</th></tr>"
    )?;
    for (dir, outcome) in found {
        let mut came = Vec::new();
        if !outcome.complete {
            came.push("<span class=\"flag\">partial</span>".to_owned());
        }
        came.extend(outcome.invalid.iter().map(|why| format!("<span class=\"flag\">invalid: {}</span>", escape(why))));
        let idle = outcome.rows.iter().filter(|row| row.not_run.is_some()).count();
        if idle > 0 {
            came.push(format!("<span class=\"flag\">{idle} of {} rows not run</span>", outcome.rows.len()));
        }
        if let Some(compared) = &outcome.agreement {
            let agree = compared.lines.iter().filter(|line| line.agrees).count();
            let columns: Vec<String> = compared.results.iter().map(column).collect();
            came.push(format!("{agree} of {} figures agree at {}", compared.lines.len(), escape(&columns.join("; "))));
        }
        came.extend(outcome.ratios.iter().take(6).map(|r| format!("{}: <b>{}</b>", escape(&r.name), number(r.median))));
        writeln!(
            out,
            "<tr><td><a href=\"{0}/report.html\">{0}</a></td><td class=\"t\">{1}</td><td class=\"t\">{2}</td></tr>",
            escape(dir),
            escape(&outcome.about),
            came.join("<br>")
        )?;
    }
    writeln!(out, "</table></body></html>")?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::chart::{Axis, Chart, Series, Shape};
    use super::*;

    #[test]
    fn a_page_says_what_did_not_run_and_stands_alone() {
        let points = vec![(0.0, 1.0), (1.0, 2.0)];
        let chart = Chart {
            file: "c".into(),
            title: "t".into(),
            x: Axis::even("s"),
            y: Axis::even("y"),
            shape: Shape::Lines(vec![Series { name: "one".into(), points }]),
        };
        let good = Row { device_seconds: Some(12.5), flags: vec!["CPU-bound".into()], ..Row::new("<good>", "d") };
        let outcome = Outcome {
            experiment: "odd".into(),
            rows: vec![good, Row::not_run("bad", "no legs")],
            ratios: vec![Ratio { goal: Some(2.0), ..Ratio::of("r", &[1.5]).unwrap() }],
            charts: vec![chart],
            ..Outcome::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let under = dir.path().join("odd");
        std::fs::create_dir(&under).unwrap();
        write(&under, &outcome).unwrap();
        let text = std::fs::read_to_string(under.join("report.html")).unwrap();
        for part in ["&lt;good&gt;", "12.50", "CPU-bound", "not run: no legs", "partial", "<svg", "missed"] {
            assert!(text.contains(part), "lacks {part:?}");
        }
        assert!(!text.contains("<script") && !text.contains("src="));
        assert!(under.join("c.png").exists());
        std::fs::write(under.join("result.json"), serde_json::to_string(&outcome).unwrap()).unwrap();
        assert_eq!(index(dir.path()).unwrap(), 1);
        let page = std::fs::read_to_string(dir.path().join("index.html")).unwrap();
        assert!(page.contains("odd/report.html") && page.contains("1 of 2 rows not run"));
    }
}
