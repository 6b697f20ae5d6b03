//! Shows retries on stderr while a completion is awaited.
//!
//! On a terminal the line counts down in place, from the absolute wake time; elsewhere each retry is one line.
//! Not here: the lines about other remedies (see `progress/event_lines.rs`).

pub(crate) mod event_lines;

use crate::output::diagnostics;
use crate::output::run_view::formatting::TimeLeft;
use outlast_kernel::event::Body;
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Cause;
use outlast_kernel::{Timestamp, text};
use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

/// Time without output after which a line says that the completion is still awaited.
const SILENCE_THRESHOLD: Duration = Duration::from_secs(3);
/// A hold that moves by less is not printed again.
const MIN_HOLD_CHANGE: Duration = Duration::from_secs(60);

/// Maximum length of a tool's arguments as shown.
const MAX_ARGUMENTS_LENGTH: usize = 100;

pub(crate) struct Progress<Out: Write> {
    out: Out,
    is_terminal: bool,
    /// Whether only problems are printed.
    is_quiet: bool,
    wait: Option<Wait>,
    /// Start of the wait for a completion.
    request_started_at: Option<Timestamp>,
    gate_wait: Option<Held>,
    shown: String,
    /// The beginning of every line.
    label: String,
    /// The arguments of tool calls, by the ids of the calls.
    tool_calls: HashMap<String, String>,
    /// The model that the turn began with.
    first_model: String,
}

/// A hold of the gate.
#[derive(Clone, Copy)]
struct Held {
    until: Timestamp,
    cause: Option<Cause>,
    /// The time that was printed where lines stay.
    printed_until: Timestamp,
}

#[derive(Clone)]
struct Wait {
    cause: Cause,
    since: Timestamp,
    at: Timestamp,
    attempt: u32,
    max_attempts: Option<u32>,
}

impl<Out: Write> Progress<Out> {
    pub(crate) fn new(out: Out, is_terminal: bool) -> Self {
        Self {
            out,
            is_terminal,
            is_quiet: false,
            wait: None,
            request_started_at: None,
            gate_wait: None,
            shown: String::new(),
            label: String::new(),
            tool_calls: HashMap::new(),
            first_model: String::new(),
        }
    }

    /// Creates the progress of one of several prompts: lines stay, and begin with the label.
    pub(crate) fn labelled(out: Out, label: &str) -> Self {
        Self {
            label: format!("[{label}] "),
            ..Self::new(out, false)
        }
    }

    /// Restricts the output to problems.
    pub(crate) fn quiet(self) -> Self {
        Self {
            is_terminal: false,
            is_quiet: true,
            ..self
        }
    }

    /// Handles an event that happened at `now`.
    pub(crate) fn event(&mut self, body: &Body, now: Timestamp) {
        match body {
            Body::RetryScheduled {
                attempt,
                max_attempts,
                retry_at,
                cause,
                ..
            } => {
                let wait = Wait {
                    cause: *cause,
                    since: now,
                    at: *retry_at,
                    attempt: *attempt,
                    max_attempts: *max_attempts,
                };
                let line = wait.line(now);
                self.wait = Some(wait);
                self.request_started_at = None;
                if self.is_terminal {
                    self.redraw(line);
                } else {
                    self.print(&line);
                }
            }
            Body::Held { until, cause } => self.start_gate_wait(*until, *cause, now),
            Body::AttemptStarted { .. } => {
                self.end_wait();
                self.gate_wait = None;
                self.request_started_at = Some(now);
            }
            Body::RetryEnded { .. } => self.end_wait(),
            Body::Sealed { .. } => {
                self.request_started_at = None;
                self.gate_wait = None;
                if self.is_terminal {
                    self.redraw(String::new());
                }
            }
            Body::Start { model, .. } => self.first_model.clone_from(model),
            body => {
                if let Some(line) = event_lines::line(body, &self.first_model, now) {
                    self.print(&line);
                }
                self.tool_event(body);
            }
        }
    }

    /// Handles the events of tool calls.
    fn tool_event(&mut self, body: &Body) {
        match body {
            Body::ToolCall(call) => {
                let arguments = text::bounded(&call.arguments, MAX_ARGUMENTS_LENGTH);
                let shown = format!("{} {arguments}", call.name);
                self.tool_calls.insert(call.id.clone(), shown);
            }
            // The line is cleared, so that an approval question can be read.
            Body::StepComplete { .. } => {
                self.request_started_at = None;
                if self.is_terminal {
                    self.redraw(String::new());
                }
            }
            Body::ToolStarted { id, name } => {
                let shown = self.tool_calls.remove(id).unwrap_or_else(|| name.clone());
                self.print(&format!("● {shown}"));
            }
            // A call that was started has left the list.
            Body::ToolResult {
                id,
                output,
                is_error: true,
            } => {
                if let Some(shown) = self.tool_calls.remove(id) {
                    let why = output.lines().next().unwrap_or_default();
                    self.print(&format!("○ {shown}: {why}"));
                }
            }
            _ => {}
        }
    }

    /// Updates the countdown, or the time that the completion has been awaited.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        if !self.is_terminal {
            return;
        }
        if let Some(wait) = &self.wait {
            let line = wait.line(now);
            self.redraw(line);
        } else if let Some(held) = self.gate_wait {
            self.redraw(held.line(now));
        } else if let Some(silence) = self.request_started_at.map(|since| now.since(since))
            && silence >= SILENCE_THRESHOLD
        {
            let silence = Span(Duration::from_secs(silence.as_secs()));
            self.redraw(format!(
                "… waiting for the answer ({silence}, Ctrl-C cancels)"
            ));
        }
    }

    /// Handles a hold of the gate. Before a scheduled retry is due, its own wait stays on display.
    fn start_gate_wait(&mut self, until: Timestamp, cause: Option<Cause>, now: Timestamp) {
        if self.wait.as_ref().is_some_and(|wait| wait.at > now) {
            return;
        }
        self.end_wait();
        let far = |held: Held| {
            held.printed_until
                .since(until)
                .max(until.since(held.printed_until))
                >= MIN_HOLD_CHANGE
        };
        let news = self.gate_wait.is_none_or(far);
        let printed_until = match self.gate_wait {
            Some(held) if !news => held.printed_until,
            _ => until,
        };
        let held = Held {
            until,
            cause,
            printed_until,
        };
        self.gate_wait = Some(held);
        if self.is_terminal {
            self.redraw(held.line(now));
        } else if news {
            self.print(&held.line(now));
        }
    }

    pub(crate) fn print(&mut self, line: &str) {
        if self.is_quiet && diagnostics::is_progress_line(line) {
            return;
        }
        if self.is_terminal {
            self.redraw(String::new());
        }
        // An error of stderr cannot be reported.
        writeln!(self.out, "{}{}", self.label, text::plain(line)).ok();
    }

    fn redraw(&mut self, line: String) {
        if line != self.shown {
            write!(self.out, "\r\u{1b}[2K{line}")
                .and_then(|()| self.out.flush())
                .ok();
            self.shown = line;
        }
    }

    /// Ends a wait, and leaves its first line behind as a record.
    fn end_wait(&mut self) {
        let Some(wait) = self.wait.take().filter(|_| self.is_terminal) else {
            return;
        };
        self.redraw(wait.line(wait.since));
        self.shown.clear();
        writeln!(self.out).ok();
    }
}

impl Held {
    fn line(&self, now: Timestamp) -> String {
        let phrase = self.cause.map_or("Others are ahead", Cause::phrase);
        let left = Span(Duration::from_secs(self.until.since(now).as_secs() + 1));
        format!("⚠ {phrase}, waiting in line, next try in {left}… (Ctrl-C cancels)")
    }
}

impl Wait {
    fn line(&self, now: Timestamp) -> String {
        let left = match self.at.since(self.since) < Duration::from_secs(1) {
            true => TimeLeft::new(self.at, self.since).exact(),
            false => TimeLeft::new(self.at, now).rounded(),
        };
        let number = match self.max_attempts {
            Some(most) => format!("{}/{most}", self.attempt),
            None => self.attempt.to_string(),
        };
        let cause = self.cause.phrase();
        format!("⚠ {cause}, retrying {left} ({number}, Ctrl-C cancels)")
    }
}

/// Formats the time in the user's zone, with the date if it is not today.
pub(crate) fn time_of_day(at: Timestamp, now: Timestamp) -> String {
    let zoned = |time: Timestamp| {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(millis)
            .map(|time| time.to_zoned(jiff::tz::TimeZone::system()))
    };
    let (Ok(at), Ok(now)) = (zoned(at), zoned(now)) else {
        return at.to_string();
    };
    let format = if at.date() == now.date() {
        "%H:%M"
    } else {
        "%Y-%m-%d %H:%M"
    };
    at.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn scheduled(seconds: u64) -> Body {
        Body::RetryScheduled {
            attempt: 1,
            max_attempts: Some(3),
            delay_ms: seconds * 1000,
            retry_at: NOW + Duration::from_secs(seconds),
            cause: Cause::Overloaded,
            message: "Overloaded".to_owned(),
            code: None,
        }
    }

    fn shown(is_terminal: bool, play: impl FnOnce(&mut Progress<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        play(&mut Progress::new(&mut out, is_terminal));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_pipe_gets_one_line_for_each_retry() {
        let text = shown(false, |progress| {
            progress.event(&scheduled(2), NOW);
            progress.tick(NOW + Duration::from_secs(1));
            progress.event(
                &Body::AttemptStarted { attempt: 2 },
                NOW + Duration::from_secs(2),
            );
        });
        assert_eq!(
            text,
            "⚠ Server overloaded, retrying in 2s… (1/3, Ctrl-C cancels)\n"
        );
    }

    #[test]
    fn a_terminal_gets_a_countdown_in_place() {
        let text = shown(true, |progress| {
            progress.event(&scheduled(2), NOW);
            for millis in [10, 400, 999, 1000, 1500, 2000] {
                progress.tick(NOW + Duration::from_millis(millis));
            }
            progress.event(
                &Body::AttemptStarted { attempt: 2 },
                NOW + Duration::from_secs(2),
            );
        });
        let line = |left| {
            format!("\r\u{1b}[2K⚠ Server overloaded, retrying {left}… (1/3, Ctrl-C cancels)")
        };
        let lines = ["in 2s", "in 1s", "now", "in 2s"].map(line);
        assert_eq!(text, lines.concat() + "\n");
    }

    #[test]
    fn terminal_shows_wait_for_silent_provider() {
        let text = shown(true, |progress| {
            progress.event(&Body::AttemptStarted { attempt: 1 }, NOW);
            for seconds in [1, 2, 3] {
                progress.tick(NOW + Duration::from_secs(seconds));
            }
            let status = outlast_kernel::event::TurnStatus::Completed;
            progress.event(&Body::Sealed { status }, NOW + Duration::from_secs(4));
        });
        let line = "… waiting for the answer (3s, Ctrl-C cancels)";
        assert_eq!(text, format!("\r\u{1b}[2K{line}\r\u{1b}[2K"));
    }

    #[test]
    fn a_long_wait_shows_the_time_of_day() {
        let text = shown(false, |progress| {
            progress.event(&scheduled(2 * 86_400), NOW)
        });
        assert!(
            text.starts_with("⚠ Server overloaded, retrying in 2d… at 2027-01-1"),
            "{text}"
        );
    }
}
