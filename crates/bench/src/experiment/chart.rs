//! Charts of a report: lines over an axis, or bars. Drawn by `plotters`, once as SVG text and once as pixels.
//!
//! The letters come from a font in the program, so that a chart looks the same on every machine.

use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use serde::{Deserialize, Serialize};
use std::sync::Once;

const FONT: &[u8] = include_bytes!("../../fonts/DejaVuSans-subset.ttf");
const WIDTH: u32 = 860;
const HEIGHT: u32 = 380;
const MARGIN: u32 = 10;
const COLOURS: [RGBColor; 12] = [
    RGBColor(0x1f, 0x6f, 0xb4),
    RGBColor(0xd9, 0x5f, 0x0e),
    RGBColor(0x2c, 0x8c, 0x4a),
    RGBColor(0xb0, 0x2a, 0x37),
    RGBColor(0x6f, 0x4a, 0xa8),
    RGBColor(0x80, 0x5a, 0x3b),
    RGBColor(0xc4, 0x4e, 0x9e),
    RGBColor(0x5f, 0x5f, 0x5f),
    RGBColor(0x9a, 0x9a, 0x10),
    RGBColor(0x0f, 0x9b, 0xa8),
    RGBColor(0x10, 0x10, 0x10),
    RGBColor(0xe8, 0xa8, 0x20),
];

/// An axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What, with its unit.
    pub label: String,
    /// Whether equal steps are equal factors.
    pub log: bool,
}

impl Axis {
    /// An even axis.
    pub fn even(label: &str) -> Axis {
        Axis { label: label.into(), log: false }
    }
    /// A logarithmic axis.
    pub fn log(label: &str) -> Axis {
        Axis { label: label.into(), log: true }
    }
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Lines over an axis.
    Lines(Vec<Series>),
    /// A dot for each point; the axis upwards begins where they do.
    Points(Vec<Series>),
    /// A bar for each name; and beside it what others published, where they did.
    Bars(Vec<(String, f64, Option<f64>)>),
    /// What a number becomes when something changes one way or the other.
    Tornado {
        /// The number as it is.
        middle: f64,
        /// What changes, and the number then.
        bars: Vec<(String, Option<f64>, Option<f64>)>,
    },
}

/// One chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Name of its file, without ending.
    pub file: String,
    /// What is above it.
    pub title: String,
    /// To the right; bars have none.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub shape: Shape,
}

fn with_font() {
    static ONCE: Once = Once::new();
    // It cannot fail on a font that a test has drawn with; without it a chart has no letters.
    ONCE.call_once(|| _ = register_font("sans-serif", FontStyle::Normal, FONT));
}

/// A little more than the largest, so that nothing touches the frame.
fn headroom(largest: f64, log: bool) -> f64 {
    match largest {
        largest if largest <= 0.0 || !largest.is_finite() => 1.0,
        largest if log => largest * 1.5,
        largest => largest * 1.08,
    }
}

/// As many digits as a tick needs.
fn tick(value: f64) -> String {
    // What adding steps up leaves behind the digits that are shown is no reason for a point or a sign.
    let value = (value * 1e3).round() / 1e3 + 0.0;
    match value.abs() {
        0.0 => "0".into(),
        v if v >= 1e6 => format!("{:.1}M", value / 1e6).replace(".0M", "M"),
        v if v >= 1e4 => format!("{:.0}k", value / 1e3),
        v if v >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}").trim_end_matches('0').to_owned(),
    }
}

/// A figure beside a bar: three digits at least, so that bars can be told apart by it.
fn figure(value: f64) -> String {
    if value.abs() < 100.0 { super::report::number(value) } else { tick(value) }
}

/// As many digits as tell numbers apart that lie in a span.
fn tick_between(value: f64, span: f64) -> String {
    match span {
        span if span > 20.0 => format!("{value:.0}"),
        span if span > 2.0 => format!("{value:.1}"),
        span if span > 0.2 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

type Drawn = Result<(), String>;
type Area<B> = DrawingArea<B, plotters::coord::Shift>;

fn failed<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

impl Chart {
    /// As SVG text, to stand in a page.
    pub fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area())?;
        Ok(text)
    }

    /// As a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, String> {
        let mut pixels = vec![0u8; (WIDTH * HEIGHT * 3) as usize];
        self.draw(&BitMapBackend::with_buffer(&mut pixels, (WIDTH, HEIGHT)).into_drawing_area())?;
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, WIDTH, HEIGHT);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::High);
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&pixels).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(file)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn {
        with_font();
        area.fill(&WHITE).map_err(failed)?;
        let above = self.caption(area)? + MARGIN;
        match &self.shape {
            Shape::Lines(series) => self.lines(area, above, series)?,
            Shape::Points(series) => self.points(area, above, series)?,
            Shape::Bars(bars) => self.bars(area, above, bars)?,
            Shape::Tornado { middle, bars } => self.tornado(area, above, *middle, bars)?,
        }
        area.present().map_err(failed)
    }

    /// Writes the title, in as many lines as it takes; how high they are, in pixels.
    fn caption<B: DrawingBackend>(&self, area: &Area<B>) -> Result<u32, String> {
        let style = ("sans-serif", 16).into_text_style(area);
        let fits = |line: &str| {
            let size = area.estimate_text_size(line, &style).map_err(failed)?;
            Ok::<bool, String>(size.0 + 2 * MARGIN <= WIDTH)
        };
        let mut below = area.clone();
        let mut line = String::new();
        for word in self.title.split(' ') {
            let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
            if line.is_empty() || fits(&longer)? {
                line = longer;
            } else {
                below = below.titled(&line, style.clone()).map_err(failed)?;
                line = word.to_owned();
            }
        }
        let below = below.titled(&line, style).map_err(failed)?;
        Ok(HEIGHT - below.dim_in_pixel().1)
    }

    fn lines<B: DrawingBackend>(&self, area: &Area<B>, above: u32, series: &[Series]) -> Drawn {
        let all = || series.iter().flat_map(|series| &series.points).filter(|(x, y)| x.is_finite() && y.is_finite());
        let smallest =
            |of: fn(&(f64, f64)) -> f64| all().map(of).filter(|v| *v > 0.0).min_by(f64::total_cmp).unwrap_or(0.1);
        let (right, top) = all().fold((0.0f64, 0.0f64), |(a, b), (x, y)| (a.max(*x), b.max(*y)));
        let right = if right > 0.0 { right } else { 1.0 };
        let (left, bottom) = (smallest(|p| p.0), smallest(|p| p.1) / 1.5);
        let top = headroom(top, self.y.log);
        // Four kinds of axes are four types.
        match (self.x.log, self.y.log) {
            (false, false) => self.mesh((area, above), series, 0.0..right, 0.0..top),
            (true, false) => self.mesh((area, above), series, (left..right * 1.0001).log_scale(), 0.0..top),
            (false, true) => self.mesh((area, above), series, 0.0..right, (bottom..top).log_scale()),
            (true, true) => {
                self.mesh((area, above), series, (left..right * 1.0001).log_scale(), (bottom..top).log_scale())
            }
        }
    }

    fn points<B: DrawingBackend>(&self, area: &Area<B>, above: u32, series: &[Series]) -> Drawn {
        let all = || series.iter().flat_map(|series| &series.points).filter(|(x, y)| x.is_finite() && y.is_finite());
        let right = all().map(|at| at.0).fold(0.0, f64::max);
        let (low, high) =
            all().map(|at| at.1).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), y| (a.min(y), b.max(y)));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let room = ((high - low) * 0.04).max(0.5);
        let right = if right > 0.0 { right } else { 1.0 };
        self.mesh((area, above), series, 0.0..right, low - room..high + room)
    }

    fn mesh<B, X, Y>(&self, (area, above): (&Area<B>, u32), series: &[Series], x: X, y: Y) -> Drawn
    where
        B: DrawingBackend,
        X: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        X::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
        Y::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
    {
        // The legend stands beside the lines, so that it hides none of them.
        let widest = series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        let names = (widest as u32 * 7 + 44).clamp(210, WIDTH / 2);
        let (area, legend) = area.split_horizontally(WIDTH - names);
        let mut chart = ChartBuilder::on(&area)
            .margin(MARGIN)
            .margin_top(above)
            .x_label_area_size(42)
            .y_label_area_size(62)
            .build_cartesian_2d(x, y)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .label_style(("sans-serif", 12))
            .light_line_style(WHITE)
            .x_label_formatter(&|v| tick(*v))
            .y_label_formatter(&|v| tick(*v))
            .draw()
            .map_err(failed)?;
        for (i, one) in series.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let points = one.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
            let joined = !matches!(self.shape, Shape::Points(_));
            if joined {
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2))).map_err(failed)?;
            }
            if !joined || one.points.len() <= 24 {
                let size = if joined { 3 } else { 2 };
                chart.draw_series(points.map(|at| Circle::new(at, size, colour.filled()))).map_err(failed)?;
            }
            let y = 40 + 20 * i as i32;
            let line = PathElement::new([(4, y + 6), (22, y + 6)], colour.stroke_width(3));
            legend.draw(&line).map_err(failed)?;
            legend.draw(&Text::new(one.name.clone(), (28, y), ("sans-serif", 12))).map_err(failed)?;
        }
        Ok(())
    }

    /// From the middle to either side.
    fn tornado<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        above: u32,
        middle: f64,
        bars: &[(String, Option<f64>, Option<f64>)],
    ) -> Drawn {
        let all = || bars.iter().flat_map(|(_, low, high)| [*low, *high]).flatten().filter(|v| v.is_finite());
        let (left, right) = all().fold((middle, middle), |(a, b), v| (a.min(v), b.max(v)));
        // Room for the numbers beside the bars; and something to look at where nothing changes anything.
        let room = ((right - left) * 0.12).max(middle.abs() * 0.01).max(1e-9);
        let rows = bars.len().max(1) as f64;
        let widest = bars.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        let names = (widest as u32 * 7 + 24).clamp(120, WIDTH / 2);
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_top(above)
            .x_label_area_size(42)
            .y_label_area_size(names)
            .build_cartesian_2d(left - room..right + room, 0.0..rows)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .x_desc(&self.y.label)
            .label_style(("sans-serif", 12))
            .light_line_style(WHITE)
            .x_label_formatter(&|v| tick_between(*v, right - left))
            .draw()
            .map_err(failed)?;
        for (i, (name, low, high)) in bars.iter().enumerate() {
            let top = rows - i as f64;
            let mut texts = Vec::new();
            // Both may lie on the same side: each has half of the height then.
            for (value, colour, from, to) in [(low, COLOURS[1], 0.15, 0.5), (high, COLOURS[0], 0.5, 0.85)] {
                let Some(value) = value.filter(|v| v.is_finite()) else { continue };
                let bar = [(middle.min(value), top - from), (middle.max(value), top - to)];
                chart.draw_series([Rectangle::new(bar, colour.filled())]).map_err(failed)?;
                let (x, y) = chart.backend_coord(&(value, top - (from + to) / 2.0));
                let x = if value < middle { x - 38 } else { x + 4 };
                texts.push(Text::new(tick_between(value, right - left), (x, y - 6), ("sans-serif", 11)));
            }
            let (_, y) = chart.backend_coord(&(left, top - 0.5));
            texts.push(Text::new(name.clone(), (14, y - 6), ("sans-serif", 12)));
            for text in texts {
                area.draw(&text).map_err(failed)?;
            }
        }
        let line = [(middle, 0.0), (middle, rows)];
        chart.draw_series(LineSeries::new(line, BLACK.stroke_width(1))).map_err(failed)?;
        Ok(())
    }

    fn bars<B: DrawingBackend>(&self, area: &Area<B>, above: u32, bars: &[(String, f64, Option<f64>)]) -> Drawn {
        let largest = bars.iter().flat_map(|(_, ours, theirs)| [*ours, theirs.unwrap_or(0.0)]).fold(0.0, f64::max);
        let rows = bars.len().max(1) as f64;
        // About so many pixels for a letter; what is longer still is cut by the bars.
        let widest = bars.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        let names = (widest as u32 * 7 + 24).clamp(120, WIDTH / 2);
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_top(above)
            .x_label_area_size(42)
            .y_label_area_size(names)
            .build_cartesian_2d(0.0..headroom(largest, false) * 1.08, 0.0..rows)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .x_desc(&self.y.label)
            .label_style(("sans-serif", 12))
            .light_line_style(WHITE)
            .x_label_formatter(&|v| tick(*v))
            .draw()
            .map_err(failed)?;
        let published = RGBColor(0xb8, 0xb8, 0xb8);
        for (i, (name, ours, theirs)) in bars.iter().enumerate() {
            let top = rows - i as f64;
            let middle = if theirs.is_some() { top - 0.5 } else { top - 0.85 };
            let bar = |from, to, value, colour: RGBColor| Rectangle::new([(0.0, from), (value, to)], colour.filled());
            chart.draw_series([bar(top - 0.15, middle, *ours, COLOURS[0])]).map_err(failed)?;
            let value = |value: f64, y: f64| {
                let (x, y) = chart.backend_coord(&(value, y));
                Text::new(figure(value), (x + 4, y - 6), ("sans-serif", 12))
            };
            let mut texts = vec![value(*ours, (top - 0.15 + middle) / 2.0)];
            if let Some(theirs) = theirs {
                texts.push(value(*theirs, top - 0.675));
            }
            let (_, y) = chart.backend_coord(&(0.0, top - 0.5));
            texts.push(Text::new(name.clone(), (14, y - 6), ("sans-serif", 12)));
            if let Some(theirs) = theirs {
                chart.draw_series([bar(middle, top - 0.85, *theirs, published)]).map_err(failed)?;
            }
            for text in texts {
                area.draw(&text).map_err(failed)?;
            }
        }
        if bars.iter().any(|(_, _, theirs)| theirs.is_some()) {
            let text = "blue: measured here; grey: published";
            area.draw(&Text::new(text, (14, HEIGHT as i32 - 26), ("sans-serif", 12))).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(log: bool) -> Chart {
        let axis = |label: &str| Axis { label: label.into(), log };
        let series = |name: &str, points: &[(f64, f64)]| Series { name: name.into(), points: points.to_vec() };
        Chart {
            file: "c".into(),
            title: "A title < & >".into(),
            x: axis("seconds"),
            y: axis("MiB/s"),
            shape: Shape::Lines(vec![
                series("one", &[(1.0, 10.0), (2.0, 200.0)]),
                series("odd", &[(f64::NAN, 1.0), (0.5, f64::INFINITY)]),
            ]),
        }
    }

    #[test]
    fn every_kind_is_drawn_with_letters() {
        let bars = Shape::Bars(vec![("a".into(), 3.0, Some(4.0)), ("b".into(), 2.0, None)]);
        let tornado = Shape::Tornado {
            middle: 1.0,
            bars: vec![("a".into(), Some(0.5), Some(1.4)), ("b".into(), None, Some(f64::NAN))],
        };
        let nothing = Shape::Tornado { middle: 0.0, bars: vec![] };
        let tornadoes = [tornado, nothing].map(|shape| Chart { shape, ..lines(false) });
        let empty = Chart { shape: Shape::Lines(vec![]), ..lines(false) };
        let Shape::Lines(dots) = lines(false).shape else { panic!("lines are lines") };
        let dots = [dots, vec![]].map(|dots| Chart { shape: Shape::Points(dots), ..lines(false) });
        for chart in [lines(false), lines(true), Chart { shape: bars, ..lines(false) }, empty]
            .into_iter()
            .chain(tornadoes)
            .chain(dots)
        {
            let svg = chart.svg().unwrap();
            assert!(svg.starts_with("<svg") && svg.contains("A title &lt; &amp; &gt;"), "{svg}");
            let file = chart.png().unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            reader.next_frame(&mut pixels).unwrap();
            // The caption is there: dark pixels in its rows.
            let caption = &pixels[..(25 * WIDTH * 3) as usize];
            assert!(caption.iter().filter(|byte| **byte < 80).count() > 300);
        }
    }

    #[test]
    fn a_title_that_is_longer_than_a_line_is_read_to_its_end() {
        let words = ["as long as the name of a ratio of two rows"; 6];
        let svg = Chart { title: words.join(" "), ..lines(false) }.svg().unwrap();
        // Its words stand in lines of their own, none of which is wider than the picture.
        let lines: Vec<&str> =
            svg.lines().filter(|line| words[0].split(' ').any(|word| line.trim().starts_with(word))).collect();
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() < 140), "{svg}");
        assert_eq!(
            lines.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" "),
            words.join(" ")
        );
    }

    #[test]
    fn ticks_have_as_many_digits_as_they_need() {
        assert_eq!(
            [0.0, -1e-17, 0.25, 0.999_999_9, 1.0, 1.5, 100.0, 12_000.0, 2.5e6, 3e6].map(tick),
            ["0", "0", "0.25", "1", "1", "1.5", "100", "12k", "2.5M", "3M"]
        );
    }
}
