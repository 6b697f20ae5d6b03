//! Draws a policy and a simulation as SVG, on logarithmic scales.

use crate::commands::policy::delays;
use crate::commands::simulate::StrategyResult;
use outlast_kernel::policy::Policy;
use outlast_kernel::time::Span;
use outlast_mock::simulation::Scenario;
use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, ChartBuilder, Color, DrawingArea, IntoDrawingArea, IntoFont, IntoLogRange, RGBColor,
    Rectangle, SVGBackend, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::time::Duration;

type DrawResult = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const BAR: RGBColor = RGBColor(0x3b, 0x6e, 0xa5);
const FAULT: RGBColor = RGBColor(0xd8, 0x5c, 0x4a);
const BAR_WIDTH: u32 = 46;
const MARGIN: u32 = 110;
const POLICY_HEIGHT: u32 = 380;
const SIMULATION_WIDTH: u32 = 1000;
const PANEL_HEIGHT: u32 = 190;
/// The smallest rate that is drawn, in calls a second.
const MIN_RATE: f64 = 0.01;

/// Draws a policy: one bar for each retry, with the total sleep so far above it.
pub(crate) fn policy(policy: &Policy) -> anyhow::Result<String> {
    let delays = delays(policy);
    let bars = u32::try_from(delays.len())
        .unwrap_or(u32::MAX)
        .clamp(8, 200);
    let size = (MARGIN + bars * BAR_WIDTH, POLICY_HEIGHT);
    svg(size, |area| draw_policy(area, policy, &delays))
}

/// Draws a simulation: for each strategy its calls over time, all on one scale.
pub(crate) fn simulation(scenario: &Scenario, all: &[StrategyResult]) -> anyhow::Result<String> {
    let panels = u32::try_from(all.len()).unwrap_or(1);
    let size = (SIMULATION_WIDTH, PANEL_HEIGHT * panels);
    svg(size, |area| draw_simulation(area, scenario, all))
}

fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> DrawResult) -> anyhow::Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = area.fill(&WHITE).map_err(Into::into);
    let drawn = drawn
        .and_then(|()| draw(&area))
        .and_then(|()| Ok(area.present()?));
    drawn.map_err(|error| anyhow::anyhow!("{error}"))?;
    drop(area);
    Ok(svg)
}

fn draw_policy(area: &Area<'_>, policy: &Policy, delays: &[Duration]) -> DrawResult {
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
    let mut chart = ChartBuilder::on(area)
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
    Ok(())
}

fn draw_simulation(area: &Area<'_>, scenario: &Scenario, all: &[StrategyResult]) -> DrawResult {
    let peaks = all.iter().flat_map(rates).map(|(_, rate)| rate);
    let top = peaks.fold(f64::from(scenario.capacity), f64::max) * 2.0;
    for (panel, played) in area.split_evenly((all.len(), 1)).iter().zip(all) {
        draw_strategy(panel, scenario, played, top)?;
    }
    Ok(())
}

fn draw_strategy(
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
            Rectangle::new(corners, BAR.filled())
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
