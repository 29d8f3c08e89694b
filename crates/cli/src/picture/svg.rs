//! A scene as SVG.

use super::scene::{Colour, Scene, Shape};
use std::fmt::Write;

fn hex([r, g, b]: Colour) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The file's text.
pub fn paint(scene: &Scene) -> String {
    let (width, height) = (scene.width, scene.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n\
         <g shape-rendering=\"crispEdges\" font-family=\"monospace\" font-size=\"10\">\n",
        hex(scene.paper)
    );
    for shape in &scene.shapes {
        // Writing to a string cannot fail.
        let _ = match shape {
            Shape::Box { x, y, width, height, colour } => writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{}\"/>",
                hex(*colour)
            ),
            Shape::Text { x, y, text, colour } => {
                let wide = 6 * text.len();
                writeln!(
                    out,
                    "<text x=\"{x}\" y=\"{y}\" textLength=\"{wide}\" fill=\"{}\">{}</text>",
                    hex(*colour),
                    escape(text)
                )
            }
        };
    }
    out.push_str("</g>\n</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out() {
        let text = Shape::Text { x: 1, y: 2, text: "<script>&".into(), colour: [0, 16, 255] };
        let svg = paint(&Scene { width: 10, height: 10, paper: [255; 3], shapes: vec![text] });
        assert!(svg.contains("fill=\"#0010ff\">&lt;script&gt;&amp;</text>"), "{svg}");
    }
}
