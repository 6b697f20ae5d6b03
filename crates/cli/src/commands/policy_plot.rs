//! Draws a policy: one bar for each retry, on a logarithmic scale, with the total sleep so far below it.

use crate::commands::policy::delays;
use outlast_kernel::policy::Policy;
use outlast_kernel::time::Span;
use plotters::prelude::{
    BLACK, ChartBuilder, Color, IntoDrawingArea, IntoFont, IntoLogRange, RGBColor, Rectangle,
    SVGBackend, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::time::Duration;

type DrawResult = Result<(), Box<dyn std::error::Error>>;

const BAR: RGBColor = RGBColor(0x3b, 0x6e, 0xa5);
const BAR_WIDTH: u32 = 46;
const MARGIN: u32 = 110;
const HEIGHT: u32 = 380;

pub(crate) fn svg(policy: &Policy) -> anyhow::Result<String> {
    let delays = delays(policy);
    let bars = u32::try_from(delays.len())
        .unwrap_or(u32::MAX)
        .clamp(8, 200);
    let mut svg = String::new();
    draw(
        &mut svg,
        (MARGIN + bars * BAR_WIDTH, HEIGHT),
        policy,
        &delays,
    )
    .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(svg)
}

fn draw(svg: &mut String, size: (u32, u32), policy: &Policy, delays: &[Duration]) -> DrawResult {
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    let total: Duration = delays.iter().sum();
    let caption = match delays.len() {
        0 => format!("{}: no retry", policy.name),
        n => format!(
            "{}: {n} retries, {} of waiting, then it gives up",
            policy.name,
            Span(total)
        ),
    };
    let seconds = |delay: &Duration| delay.as_secs_f64().max(0.001);
    let longest = delays.iter().map(seconds).fold(1.0, f64::max);
    let shortest = delays.iter().map(seconds).fold(longest, f64::min);
    let (bottom, top) = (shortest / 3.0, longest * 3.0);
    let columns = delays.len().max(1) as f64;
    let mut chart = ChartBuilder::on(&area)
        .caption(caption, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.5..columns + 0.5, (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_desc("retry")
        .y_desc("delay")
        .x_labels(delays.len().clamp(1, 30))
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| Span(Duration::from_secs_f64(*y)).to_string())
        .draw()?;
    let label = |size: u32| ("sans-serif", size).into_font().color(&BLACK.mix(0.8));
    let above = Pos::new(HPos::Center, VPos::Bottom);
    let mut slept = Duration::ZERO;
    for (index, delay) in delays.iter().enumerate() {
        let (x, y) = (index as f64 + 1.0, seconds(delay));
        slept += *delay;
        chart.draw_series([Rectangle::new(
            [(x - 0.36, bottom), (x + 0.36, y)],
            BAR.filled(),
        )])?;
        let texts = [
            Text::new(
                Span(*delay).to_string(),
                (x, y * 1.05),
                label(13).pos(above),
            ),
            Text::new(
                format!("Σ {}", Span(slept)),
                (x, y * 1.6),
                label(9).pos(above),
            ),
        ];
        chart.draw_series(texts)?;
    }
    area.present()?;
    Ok(())
}
