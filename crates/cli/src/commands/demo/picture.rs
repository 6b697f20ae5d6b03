//! What happened, as rows of text: one for each scene, each over its own time, with its times below it.
//!
//! Pure: what was recorded and the room that there is come in as arguments.

use super::record::{Moment, MomentKind, Record};
use super::view::wrapped;
use crate::output::run_view::{truncate, width};
use outlast_kernel::time::Span;
use std::time::Duration;

const LEGEND: &str = "▲ asks   ░ waits   ✂ cut off   ● tool runs   ✗ killed   ↻ started again   ✓ answered   ■ stopped";

/// What was measured, in all scenes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    requests: usize,
    waited: Duration,
    kills_survived: usize,
    tools_run: usize,
    tools_run_twice: usize,
    words_shown_twice: usize,
    /// How long it took on the clock on the wall.
    elapsed: Duration,
}

impl Totals {
    pub(super) fn from_records(records: &[Record], elapsed: Duration) -> Self {
        let sum = |of: fn(&Record) -> usize| records.iter().map(of).sum();
        Self {
            requests: sum(|record| record.requests),
            waited: records.iter().flat_map(Record::waits).sum(),
            kills_survived: sum(Record::kills_survived),
            tools_run: sum(|record| record.tool_runs.len()),
            tools_run_twice: sum(Record::tools_run_twice),
            words_shown_twice: sum(Record::words_shown_twice),
            elapsed,
        }
    }

    pub(super) fn line(&self) -> String {
        format!(
            "Requests: {}. Waited: {} (in {} of yours). Kills survived: {}. Tools run: {}, twice: {}. Words shown twice: {}.",
            self.requests,
            format_duration(self.waited),
            format_duration(self.elapsed),
            self.kills_survived,
            self.tools_run,
            self.tools_run_twice,
            self.words_shown_twice,
        )
    }
}

/// What goes on between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentState {
    Working,
    Waiting,
    Down,
}

impl AgentState {
    const fn cell(self) -> char {
        match self {
            Self::Working => '─',
            Self::Waiting => '░',
            Self::Down => ' ',
        }
    }
}

impl MomentKind {
    /// How a moment is marked; a wait is no moment.
    pub(super) const fn mark(self) -> Option<char> {
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

    /// What has its time said first where there is no room for all.
    const fn rank(self) -> u8 {
        match self {
            Self::Answered | Self::GivenUp => 0,
            Self::Killed => 1,
            Self::Resumed => 2,
            Self::RequestSent | Self::WaitStarted | Self::ToolStarted | Self::AnswerBroken => 3,
        }
    }
}

/// What goes on, from when to when.
pub(super) fn intervals(record: &Record) -> Vec<(Duration, Duration, AgentState)> {
    let ends = record.moments.iter().skip(1).map(|moment| moment.at);
    let stretch = |(moment, end): (&Moment, Duration)| {
        let state = match moment.kind {
            MomentKind::WaitStarted => AgentState::Waiting,
            MomentKind::Killed => AgentState::Down,
            _ => AgentState::Working,
        };
        (moment.at, end, state)
    };
    record.moments.iter().zip(ends).map(stretch).collect()
}

/// How long a scene took; nothing for one that nothing was waited for in.
pub(super) fn length(record: &Record) -> Option<Duration> {
    let end = record.moments.last().map(|moment| moment.at);
    end.filter(|end| record.count(MomentKind::WaitStarted) > 0 && !end.is_zero())
}

/// A duration as short as it can be said.
pub(super) fn format_duration(time: Duration) -> String {
    let seconds = (time + Duration::from_millis(500)).as_secs();
    match seconds {
        0 if time.is_zero() => "0s".to_owned(),
        0 => Span(time).to_string(),
        3600.. => Span(Duration::from_secs(seconds - seconds % 60)).to_string(),
        _ => Span(Duration::from_secs(seconds)).to_string(),
    }
}

/// `5s, 10s and 45s`.
pub(super) fn join_durations(times: &[Duration]) -> String {
    let times: Vec<String> = times.iter().copied().map(format_duration).collect();
    match times.split_last() {
        None => "0s".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// The whole picture, no wider than that.
pub(super) fn text(records: &[Record], totals: &Totals, columns: usize) -> String {
    let names: Vec<String> = row_labels(records).collect();
    let label = names
        .iter()
        .map(|name| width(name))
        .max()
        .unwrap_or_default()
        + 2;
    let room = columns.saturating_sub(label).max(1);
    let mut lines = Vec::new();
    for (record, name) in records.iter().zip(&names) {
        let missing = label.saturating_sub(width(name));
        let (bar, times) = row(record, room);
        lines.push(format!("{name}{}{bar}", " ".repeat(missing)));
        lines.push(format!("{}{times}", " ".repeat(label)));
    }
    lines.push(String::new());
    lines.extend(legend(columns));
    lines.push(String::new());
    lines.extend(wrapped(&totals.line(), "", columns));
    let lines = lines
        .iter()
        .map(|line| truncate(line.trim_end(), columns) + "\n");
    lines.collect()
}

/// What the rows are called.
pub(super) fn row_labels(records: &[Record]) -> impl Iterator<Item = String> {
    (1..)
        .zip(records)
        .map(|(number, record)| format!("{number} {}", record.name))
}

/// The legend, in as many lines as it takes; no sign is parted from its meaning.
fn legend(columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for sign in LEGEND.split("   ") {
        match lines.last_mut() {
            Some(line) if width(line) + 3 + width(sign) <= columns => {
                line.push_str("   ");
                line.push_str(sign);
            }
            _ => lines.push(sign.to_owned()),
        }
    }
    lines
}

/// A scene, and the times below it.
fn row(record: &Record, room: usize) -> (String, String) {
    let marked: Vec<(Moment, char)> = record
        .moments
        .iter()
        .filter_map(|moment| Some((*moment, moment.kind.mark()?)))
        .collect();
    let Some(length) = length(record) else {
        let marks = marked.iter().map(|(_, mark)| *mark).collect();
        let end = record
            .moments
            .last()
            .map(|moment| format_duration(moment.at));
        return (marks, end.unwrap_or_default());
    };
    let cell = |at: Duration| cell_of(at, length, room);
    let mut bar = vec![' '; room];
    for (from, to, state) in intervals(record) {
        for place in &mut bar[cell(from)..cell(to)] {
            *place = state.cell();
        }
    }
    let ideal: Vec<usize> = marked.iter().map(|(moment, _)| cell(moment.at)).collect();
    let places = spread_cells(&ideal, room);
    for ((_, mark), place) in marked.iter().zip(&places) {
        bar[*place] = *mark;
    }
    let moments: Vec<(Moment, usize)> = marked
        .iter()
        .map(|(moment, _)| *moment)
        .zip(places)
        .collect();
    (bar.into_iter().collect(), times(&moments, room))
}

/// Where that moment is in a row of so many cells.
fn cell_of(at: Duration, length: Duration, room: usize) -> usize {
    let last = u128::try_from(room.saturating_sub(1)).unwrap_or_default();
    let cell = at.as_millis() * last / length.as_millis().max(1);
    usize::try_from(cell)
        .unwrap_or(usize::MAX)
        .min(room.saturating_sub(1))
}

/// The same places in the same order, none of them twice.
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

/// When it was, below the marks, where there is room; what matters most comes first.
fn times(moments: &[(Moment, usize)], room: usize) -> String {
    let mut order: Vec<&(Moment, usize)> = moments.iter().collect();
    order.sort_by_key(|(moment, _)| moment.kind.rank());
    let mut line = vec![' '; room];
    for (moment, place) in order {
        let label: Vec<char> = format_duration(moment.at).chars().collect();
        let start = (*place).min(room.saturating_sub(label.len()));
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
