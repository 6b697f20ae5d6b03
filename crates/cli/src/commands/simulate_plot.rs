//! Draws a simulation: for each strategy its calls over time, all on one logarithmic scale.

use crate::commands::simulate::StrategyResult;
use outlast_kernel::time::Span;
use outlast_mock::simulation::Scenario;
use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, Color, DrawingArea, IntoDrawingArea, IntoLogRange, RGBColor, Rectangle,
    SVGBackend, WHITE,
};
use std::time::Duration;

type DrawResult = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const CALLS: RGBColor = RGBColor(0x3b, 0x6e, 0xa5);
const FAULT: RGBColor = RGBColor(0xd8, 0x5c, 0x4a);
const WIDTH: u32 = 1000;
const PANEL_HEIGHT: u32 = 190;
/// The smallest rate that is drawn, in calls a second.
const MIN_RATE: f64 = 0.01;

pub(crate) fn svg(scenario: &Scenario, all: &[StrategyResult]) -> anyhow::Result<String> {
    let panels = u32::try_from(all.len()).unwrap_or(1);
    let mut svg = String::new();
    draw(&mut svg, (WIDTH, PANEL_HEIGHT * panels), scenario, all)
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(svg)
}

fn draw(
    svg: &mut String,
    size: (u32, u32),
    scenario: &Scenario,
    all: &[StrategyResult],
) -> DrawResult {
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    let peaks = all.iter().flat_map(rates).map(|(_, rate)| rate);
    let top = peaks.fold(f64::from(scenario.capacity), f64::max) * 2.0;
    for (panel, played) in area.split_evenly((all.len(), 1)).iter().zip(all) {
        draw_one(panel, scenario, played, top)?;
    }
    area.present()?;
    Ok(())
}

fn draw_one(
    panel: &Area<'_>,
    scenario: &Scenario,
    played: &StrategyResult,
    top: f64,
) -> DrawResult {
    let end = scenario.duration().as_secs_f64();
    let caption = format!(
        "{}: {} calls, {} succeeded",
        played.name, played.metrics.calls, played.metrics.successes
    );
    let mut chart = ChartBuilder::on(panel)
        .caption(caption, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end, (MIN_RATE..top).log_scale())?;
    let faults = scenario.fault_periods().into_iter().map(|period| {
        let corners = [
            (period.start.as_secs_f64(), MIN_RATE),
            (period.end.as_secs_f64(), top),
        ];
        Rectangle::new(corners, FAULT.mix(0.12).filled())
    });
    chart.draw_series(faults)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .y_desc("calls/s")
        .x_label_formatter(&|x| Span(Duration::from_secs_f64(x.max(0.0))).to_string())
        .draw()?;
    let bars = rates(played)
        .filter(|(_, rate)| *rate > MIN_RATE)
        .map(|(from, rate)| {
            let corners = [(from, MIN_RATE), (from + interval_seconds(played), rate)];
            Rectangle::new(corners, CALLS.filled())
        });
    chart.draw_series(bars)?;
    Ok(())
}

/// Returns the length of a part of the run, in seconds.
fn interval_seconds(played: &StrategyResult) -> f64 {
    played.metrics.interval_millis as f64 / 1000.0
}

/// Returns the calls a second in each part of the run, with the part's beginning.
fn rates(played: &StrategyResult) -> impl Iterator<Item = (f64, f64)> {
    let part = interval_seconds(played);
    let counts = played.metrics.calls_over_time.iter().enumerate();
    counts.map(move |(index, count)| {
        (
            index as f64 * part,
            (f64::from(*count) / part).max(MIN_RATE),
        )
    })
}
