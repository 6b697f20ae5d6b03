//! The picture of a demo as text: a row for each scene over the scene's own time, with times below it, and the totals.
//!
//! Pure: the records and the available width come in as arguments.

use super::record::{Moment, MomentKind, Record};
use super::view::wrapped;
use crate::output::run_view::{truncate, width};
use outlast_kernel::time::Span;
use std::time::Duration;

const LEGEND: &str = "▲ asks   ░ waits   ✂ cut off   ● tool runs   ✗ killed   ↻ started again   ✓ answered   ■ stopped";

impl MomentKind {
    /// Returns the mark of a moment. A wait has none: it is an interval.
    const fn mark(self) -> Option<char> {
        Some(match self {
            Self::RequestSent => '▲',
            Self::WaitStarted => return None,
            Self::ToolStarted => '●',
            Self::AnswerBroken => '✂',
            Self::Killed => '✗',
            Self::Resumed => '↻',
            Self::Answered => '✓',
            Self::GivenUp => '■',
        })
    }

    /// Returns what fills the row from this moment to the next one.
    const fn filling(self) -> char {
        match self {
            Self::WaitStarted => '░',
            Self::Killed => ' ',
            _ => '─',
        }
    }

    /// Returns the rank of the moment's time; the lowest ranks get the room below the row first.
    const fn rank(self) -> u8 {
        match self {
            Self::Answered | Self::GivenUp => 0,
            Self::Killed => 1,
            Self::Resumed => 2,
            Self::RequestSent | Self::WaitStarted | Self::ToolStarted | Self::AnswerBroken => 3,
        }
    }
}

/// Formats a duration briefly: in whole seconds, from an hour on in whole minutes.
pub(super) fn format_duration(time: Duration) -> String {
    let seconds = (time + Duration::from_millis(500)).as_secs();
    match seconds {
        0 if time.is_zero() => "0s".to_owned(),
        0 => Span(time).to_string(),
        3600.. => Span(Duration::from_secs(seconds - seconds % 60)).to_string(),
        _ => Span(Duration::from_secs(seconds)).to_string(),
    }
}

/// Formats durations as a list: `5s, 10s and 45s`.
pub(super) fn join_durations(times: &[Duration]) -> String {
    let times: Vec<String> = times.iter().copied().map(format_duration).collect();
    match times.split_last() {
        None => "0s".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// Returns the totals of all scenes in a sentence each; `elapsed` is the duration of the demo in real time.
pub(super) fn totals(records: &[Record], elapsed: Duration) -> String {
    let sum = |of: fn(&Record) -> usize| records.iter().map(of).sum::<usize>();
    let waited = records.iter().flat_map(Record::waits).sum();
    format!(
        "Requests: {}. Waited: {} (in {} of yours). Kills survived: {}. Tools run: {}, twice: {}. Words shown twice: {}.",
        sum(|record| record.requests),
        format_duration(waited),
        format_duration(elapsed),
        sum(Record::kills_survived),
        sum(|record| record.tool_runs.len()),
        sum(Record::tools_run_twice),
        sum(Record::words_shown_twice),
    )
}

/// Returns the picture with its legend and the totals, at most that wide.
pub(super) fn picture(records: &[Record], elapsed: Duration, columns: usize) -> String {
    let label = |(number, record): (u32, &Record)| format!("{number} {}", record.scene.name);
    let labels: Vec<String> = (1..).zip(records).map(label).collect();
    let widest = labels.iter().map(|label| width(label)).max();
    let indent = widest.unwrap_or_default() + 2;
    let room = columns.saturating_sub(indent).max(1);
    let mut lines = Vec::new();
    for (record, label) in records.iter().zip(&labels) {
        let (bar, times) = row(record, room);
        let gap = " ".repeat(indent.saturating_sub(width(label)));
        lines.push(format!("{label}{gap}{bar}"));
        lines.push(format!("{}{times}", " ".repeat(indent)));
    }
    lines.push(String::new());
    lines.extend(legend(columns));
    lines.push(String::new());
    lines.extend(wrapped(&totals(records, elapsed), "", columns));
    let lines = lines
        .iter()
        .map(|line| truncate(line.trim_end(), columns) + "\n");
    lines.collect()
}

/// Returns the legend in as many lines as it takes. A mark and its meaning stay on one line.
fn legend(columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for sign in LEGEND.split("   ") {
        match lines.last_mut() {
            Some(line) if width(line) + 3 + width(sign) <= columns => {
                *line += &format!("   {sign}");
            }
            _ => lines.push(sign.to_owned()),
        }
    }
    lines
}

/// Returns the row of a scene, and the times below it.
fn row(record: &Record, room: usize) -> (String, String) {
    let moments = &record.moments;
    let end = moments.last().map(|moment| moment.at).unwrap_or_default();
    let mark = |moment: &Moment| Some((*moment, moment.kind.mark()?));
    let (marked, marks): (Vec<Moment>, Vec<char>) = moments.iter().filter_map(mark).unzip();
    // A scene without a wait has no length that is worth a picture.
    if record.count(MomentKind::WaitStarted) == 0 || end.is_zero() {
        let time = moments.last().map(|moment| format_duration(moment.at));
        return (marks.into_iter().collect(), time.unwrap_or_default());
    }
    let cell = |at: Duration| cell_of(at, end, room);
    let mut bar = vec![' '; room];
    for pair in moments.windows(2) {
        bar[cell(pair[0].at)..cell(pair[1].at)].fill(pair[0].kind.filling());
    }
    let ideal: Vec<usize> = marked.iter().map(|moment| cell(moment.at)).collect();
    let places = spread_cells(&ideal, room);
    for (mark, place) in marks.iter().zip(&places) {
        bar[*place] = *mark;
    }
    let times = times(marked.into_iter().zip(places).collect(), room);
    (bar.into_iter().collect(), times)
}

/// Returns the cell of a moment in a row of that many cells.
fn cell_of(at: Duration, length: Duration, room: usize) -> usize {
    let last = room.saturating_sub(1);
    let cell = at.as_millis() * last as u128 / length.as_millis().max(1);
    usize::try_from(cell).unwrap_or(last).min(last)
}

/// Returns the cells in the same order, moved apart so that none occurs twice.
fn spread_cells(ideal: &[usize], room: usize) -> Vec<usize> {
    let mut places = Vec::new();
    let mut free = 0;
    for place in ideal {
        free = free.max(*place);
        places.push(free);
        free += 1;
    }
    let mut limit = room;
    for place in places.iter_mut().rev() {
        limit = limit.saturating_sub(1);
        *place = (*place).min(limit);
        limit = *place;
    }
    places
}

/// Returns the times below the marks where there is room, by rank.
fn times(mut moments: Vec<(Moment, usize)>, room: usize) -> String {
    moments.sort_by_key(|(moment, _)| moment.kind.rank());
    let mut line = vec![' '; room];
    for (moment, place) in moments {
        let label: Vec<char> = format_duration(moment.at).chars().collect();
        let start = place.min(room.saturating_sub(label.len()));
        let end = (start + label.len()).min(room);
        let around = start.saturating_sub(1)..(end + 1).min(room);
        if line[around].iter().all(|taken| *taken == ' ') {
            line[start..end].copy_from_slice(&label[..end - start]);
        }
    }
    line.into_iter().collect()
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
