//! A scene as PNG: an 8-bit picture, text in embedded-graphics' own font of 6 × 10 pixels.

use super::scene::{Colour, Scene, Shape};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::ascii::FONT_6X10;
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use embedded_graphics::primitives::Rectangle;
use embedded_graphics::text::Text;
use std::convert::Infallible;

struct Canvas {
    size: Size,
    bytes: Vec<u8>,
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        self.size
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(at, colour) in pixels {
            let (Ok(x), Ok(y)) = (usize::try_from(at.x), usize::try_from(at.y)) else { continue };
            let width = self.size.width as usize;
            if x < width
                && let Some(pixel) = self.bytes.get_mut((y * width + x) * 3..(y * width + x) * 3 + 3)
            {
                pixel.copy_from_slice(&[colour.r(), colour.g(), colour.b()]);
            }
        }
        Ok(())
    }
}

fn rgb([r, g, b]: Colour) -> Rgb888 {
    Rgb888::new(r, g, b)
}

fn point(x: u32, y: u32) -> Point {
    Point::new(i32::try_from(x).unwrap_or(i32::MAX), i32::try_from(y).unwrap_or(i32::MAX))
}

/// The file's bytes.
pub fn paint(scene: &Scene) -> Result<Vec<u8>, png::EncodingError> {
    let size = Size::new(scene.width, scene.height);
    let mut canvas = Canvas { size, bytes: vec![0; scene.width as usize * scene.height as usize * 3] };
    let Ok(()) = canvas.clear(rgb(scene.paper));
    for shape in &scene.shapes {
        let Ok(()) = match shape {
            Shape::Box { x, y, width, height, colour } => {
                canvas.fill_solid(&Rectangle::new(point(*x, *y), Size::new(*width, *height)), rgb(*colour))
            }
            Shape::Text { x, y, text, colour } => {
                Text::new(text, point(*x, *y), MonoTextStyle::new(&FONT_6X10, rgb(*colour))).draw(&mut canvas).map(drop)
            }
        };
    }
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, scene.width, scene.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&canvas.bytes)?;
    Ok(out)
}
