//! The same picture as SVG.

use super::picture::{AgentState, Totals, format_duration, intervals, length, row_labels};
use super::record::{MomentKind, Record};
use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, Circle, Color, DrawingArea, IntoDrawingArea, IntoFont, RGBColor, Rectangle, SVGBackend,
    Text, WHITE,
};
use plotters::style::TextStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::time::Duration;

type DrawResult = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: i32 = 1000;
const LEFT: i32 = 130;
const RIGHT: i32 = 940;
const TOP: i32 = 60;
const ROW: i32 = 90;
const BAR: i32 = 22;
const FOOTER_HEIGHT: i32 = 50;

const WORKING_COLOR: RGBColor = RGBColor(0x3b, 0x6e, 0xa5);
const WAITING_COLOR: RGBColor = RGBColor(0xd9, 0xb4, 0x4a);
const FAILED_COLOR: RGBColor = RGBColor(0xd8, 0x5c, 0x4a);
const SUCCESS_COLOR: RGBColor = RGBColor(0x4a, 0x96, 0x5c);

pub(super) fn svg(records: &[Record], totals: &Totals) -> anyhow::Result<String> {
    let rows = i32::try_from(records.len())?;
    let size = (
        u32::try_from(WIDTH)?,
        u32::try_from(TOP + rows * ROW + FOOTER_HEIGHT)?,
    );
    let mut svg = String::new();
    draw(&mut svg, size, records, totals).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(svg)
}

fn draw(svg: &mut String, size: (u32, u32), records: &[Record], totals: &Totals) -> DrawResult {
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    let title = "An outage, outlasted: blue asks, yellow waits, red breaks, green is done; each row over its own time";
    write(&area, (WIDTH / 2, 24), title, 18)?;
    let mut top = TOP;
    for (record, name) in records.iter().zip(row_labels(records)) {
        row(&area, record, &name, top)?;
        top += ROW;
    }
    write(
        &area,
        (WIDTH / 2, top + FOOTER_HEIGHT / 2),
        &totals.line(),
        17,
    )?;
    area.present()?;
    Ok(())
}

fn row(area: &Area<'_>, record: &Record, name: &str, top: i32) -> DrawResult {
    let style = ("sans-serif", 18).into_font().color(&BLACK);
    let style = style.pos(Pos::new(HPos::Right, VPos::Center));
    area.draw(&Text::new(
        name.to_owned(),
        (LEFT - 14, top + BAR / 2),
        style,
    ))?;
    let length = length(record);
    for (from, to, state) in intervals(record) {
        let corners = [
            (x_position(from, length), top),
            (x_position(to, length), top + BAR),
        ];
        match state {
            AgentState::Working => {
                area.draw(&Rectangle::new(corners, WORKING_COLOR.mix(0.5).filled()))?
            }
            AgentState::Waiting => {
                area.draw(&Rectangle::new(corners, WAITING_COLOR.mix(0.5).filled()))?
            }
            AgentState::Down => {
                area.draw(&Rectangle::new(corners, FAILED_COLOR.stroke_width(1)))?
            }
        }
    }
    // Two heights take turns, so that neighbours can be read.
    let mut heights = [BAR + 14, BAR + 32].into_iter().cycle();
    let mut last = None;
    for moment in &record.moments {
        let Some((colour, word)) = marker(moment.kind) else {
            continue;
        };
        let x = x_position(moment.at, length);
        area.draw(&Circle::new((x, top + BAR / 2), 5, colour.filled()))?;
        let is_apart = last.is_none_or(|last| x - last > 50);
        let always = matches!(
            moment.kind,
            MomentKind::AnswerBroken | MomentKind::Answered | MomentKind::GivenUp
        );
        if is_apart || always {
            let height = heights.next().unwrap_or(BAR);
            let label = format!("{word} {}", format_duration(moment.at));
            write(area, (x, top + height), &label, 14)?;
            last = Some(x);
        }
    }
    Ok(())
}

/// Where that moment is; what takes no time is at the beginning.
fn x_position(at: Duration, length: Option<Duration>) -> i32 {
    let Some(length) = length else { return LEFT };
    let room = u128::from((RIGHT - LEFT).unsigned_abs());
    let from_left = at.as_millis() * room / length.as_millis().max(1);
    LEFT + i32::try_from(from_left).unwrap_or_default()
}

fn marker(what: MomentKind) -> Option<(RGBColor, &'static str)> {
    Some(match what {
        MomentKind::RequestSent => (WORKING_COLOR, "asks"),
        MomentKind::WaitStarted => return None,
        MomentKind::ToolStarted => (WORKING_COLOR, "tool"),
        MomentKind::AnswerBroken => (FAILED_COLOR, "cut"),
        MomentKind::Killed => (FAILED_COLOR, "killed"),
        MomentKind::Resumed => (WORKING_COLOR, "again"),
        MomentKind::Answered => (SUCCESS_COLOR, "answered"),
        MomentKind::GivenUp => (FAILED_COLOR, "stopped"),
    })
}

fn write(area: &Area<'_>, at: (i32, i32), text: &str, size: i32) -> DrawResult {
    let style: TextStyle<'_> = ("sans-serif", size).into_font().color(&BLACK);
    let style = style.pos(Pos::new(HPos::Center, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}
