//! Line charts and bars as SVG or PNG; wide horizontal ranges of lines are logarithmic, unless they begin at zero.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use headwater::train::whole_file::write_whole;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

const SIZE: (u32, u32) = (1100, 420);
const FONT: &str = "sans-serif";
/// Horizontal ranges narrower than this are drawn on a linear axis.
const NARROW_RATIO: f64 = 2.0;

/// Where bars begin, how long the longest is, how high each is and how far it is from the next, in pixels.
const BARS_LEFT: i32 = 420;
const BARS_WIDE: i32 = 540;
const BAR_HIGH: i32 = 14;
const BAR_PITCH: i32 = 24;
/// How far names of parts are from each other.
const PART_PITCH: i32 = 170;
/// Where the first of them lies.
const BARS_TOP: i32 = 48;

/// One chart: a title and some lines.
#[derive(Debug)]
pub struct Chart {
    /// Above the chart.
    pub title: String,
    /// Below the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis.
    pub y_label: String,
    /// Named lines of points.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Bars below each other, each of one or several parts.
#[derive(Debug, Default)]
pub struct Bars {
    /// Above them.
    pub title: String,
    /// What the parts of every bar are, for the legend. Empty where bars have one part.
    pub parts: Vec<String>,
    /// From the top down.
    pub bars: Vec<Bar>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Left of it.
    pub name: String,
    /// Of its parts, from the left, all in one unit. None is negative.
    pub lengths: Vec<f64>,
    /// Right of it: its figure.
    pub figure: String,
}

/// Draws the charts below each other into `path`, whose ending chooses the format.
pub fn draw(path: &Path, charts: &[Chart]) -> anyhow::Result<()> {
    let rows = u32::try_from(charts.len().max(1))?;
    write(path, (SIZE.0, SIZE.1 * rows), &Content::Charts(charts))
}

/// Draws bars into `path`, whose ending chooses the format.
pub fn draw_bars(path: &Path, bars: &Bars) -> anyhow::Result<()> {
    let rows = i32::try_from(bars.bars.len())? + i32::from(!bars.parts.is_empty());
    write(path, (SIZE.0, u32::try_from(BARS_TOP + BAR_PITCH * (rows + 1))?), &Content::Bars(bars))
}

/// What a picture shows.
enum Content<'a> {
    Charts(&'a [Chart]),
    Bars(&'a Bars),
}

fn write(path: &Path, size: (u32, u32), content: &Content<'_>) -> anyhow::Result<()> {
    register_font(FONT, FontStyle::Normal, include_bytes!("../assets/DejaVuSans-ascii.ttf"))
        .map_err(|_| anyhow!("the built-in font does not load"))?;
    // In memory first: what writes while it draws leaves half a picture on a full disk, or an empty one without a word.
    let drawn = match format_of(path)? {
        Format::Svg => svg(size, content),
        Format::Png => png(size, content),
    };
    Ok(write_whole(path, &drawn.with_context(|| format!("drawing {}", path.display()))?)?)
}

fn svg(size: (u32, u32), content: &Content<'_>) -> anyhow::Result<Vec<u8>> {
    let mut text = String::new();
    draw_on(&SVGBackend::with_string(&mut text, size).into_drawing_area(), content)?;
    Ok(text.into_bytes())
}

fn png(size: (u32, u32), content: &Content<'_>) -> anyhow::Result<Vec<u8>> {
    let mut pixels = vec![0; 3 * usize::try_from(size.0)? * usize::try_from(size.1)?];
    draw_on(&BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area(), content)?;
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(bytes)
}

/// What a picture is stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Vectors.
    Svg,
    /// Pixels.
    Png,
}

/// The format that a file's ending names. Asked before a long measurement, so that a bad name costs nothing.
pub fn format_of(path: &Path) -> anyhow::Result<Format> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg") => Ok(Format::Svg),
        Some("png") => Ok(Format::Png),
        _ => bail!("{}: the name of a plot ends in .svg or .png", path.display()),
    }
}

fn draw_on<B: DrawingBackend>(area: &DrawingArea<B, Shift>, content: &Content<'_>) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    match content {
        Content::Charts(charts) => {
            for (part, chart) in area.split_evenly((charts.len().max(1), 1)).iter().zip(*charts) {
                draw_chart(part, chart)?;
            }
        }
        Content::Bars(bars) => draw_all_bars(area, bars)?,
    }
    area.present()?;
    Ok(())
}

/// A line for the names of parts, and one for every bar: its name, the bar, and its figure.
fn draw_all_bars<B: DrawingBackend>(area: &DrawingArea<B, Shift>, bars: &Bars) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    let sum = |bar: &Bar| bar.lengths.iter().sum::<f64>();
    let longest = bars.bars.iter().map(sum).fold(f64::MIN_POSITIVE, f64::max);
    let text = || (FONT, 14).into_text_style(area);
    area.draw_text(&bars.title, &(FONT, 20).into_text_style(area), (12, 12))?;
    for (part, name) in bars.parts.iter().enumerate() {
        let x = 12 + PART_PITCH * i32::try_from(part)?;
        let color = Palette99::pick(part).to_rgba();
        area.draw(&Rectangle::new([(x, BARS_TOP), (x + BAR_HIGH, BARS_TOP + BAR_HIGH)], color.filled()))?;
        area.draw_text(name, &text(), (x + BAR_HIGH + 6, BARS_TOP))?;
    }
    let top = BARS_TOP + BAR_PITCH * i32::from(!bars.parts.is_empty());
    for (row, bar) in (0i32..).zip(&bars.bars) {
        let y = top + BAR_PITCH * row;
        area.draw_text(&bar.name, &text(), (12, y))?;
        let mut reached = 0.0;
        let place = |reached: f64| BARS_LEFT + pixels(f64::from(BARS_WIDE) * reached / longest);
        for (part, length) in bar.lengths.iter().enumerate() {
            let color = Palette99::pick(part).to_rgba();
            let corners = [(place(reached), y), (place(reached + length), y + BAR_HIGH)];
            area.draw(&Rectangle::new(corners, color.filled()))?;
            reached += length;
        }
        area.draw_text(&bar.figure, &text(), (place(reached) + 6, y))?;
    }
    Ok(())
}

/// The whole number of pixels of a length.
#[expect(clippy::cast_possible_truncation, reason = "lengths are within the picture")]
fn pixels(length: f64) -> i32 {
    length.round() as i32
}

fn draw_chart<B: DrawingBackend>(area: &DrawingArea<B, Shift>, chart: &Chart) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    let points = || chart.lines.iter().flat_map(|(_, points)| points);
    let (low, high) = points().fold((f64::INFINITY, 0.0f64), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
    let top = points().fold(0.0f64, |top, (_, y)| top.max(*y));
    if !low.is_finite() || low < 0.0 {
        bail!("there is nothing to draw");
    }
    let mut builder = ChartBuilder::on(area);
    builder.caption(&chart.title, (FONT, 20)).margin(12).x_label_area_size(42).y_label_area_size(60);
    // Room on the right is for the legend.
    if low == 0.0 || high / low < NARROW_RATIO {
        let pad = (high - low).max(1.0) * 0.04;
        plot(builder.build_cartesian_2d(low - pad..high + 6.0 * pad, 0.0..top * 1.1)?, chart)
    } else {
        plot(builder.build_cartesian_2d((low * 0.9..high * 1.8).log_scale(), 0.0..top * 1.1)?, chart)
    }
}

fn plot<'a, B, X>(mut context: ChartContext<'a, B, Cartesian2d<X, RangedCoordf64>>, chart: &Chart) -> anyhow::Result<()>
where
    B: DrawingBackend + 'a,
    B::ErrorType: 'static,
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    context
        .configure_mesh()
        .x_desc(&chart.x_label)
        .y_desc(&chart.y_label)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .label_style((FONT, 14))
        .max_light_lines(1)
        .light_line_style(BLACK.mix(0.05))
        .draw()?;
    for (i, (name, points)) in chart.lines.iter().enumerate() {
        let color = Palette99::pick(i).to_rgba();
        let series = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
        context
            .draw_series(series)?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    context
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 14))
        .draw()?;
    Ok(())
}
