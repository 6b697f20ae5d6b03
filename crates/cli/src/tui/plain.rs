//! The chat line by line for screen readers: lines once written never change.
//!
//! Input ends with Enter. Esc and Enter cancels a retry, `r` and Enter retries now, Ctrl-C interrupts. Lines from a
//! file or a pipe are read one at a time, each when the work of the previous one has ended.

use super::activity::Activity;
use super::chat::{Chat, Input};
use super::driver::{Driver, Flow, LeaveSummary};
use super::transcript::{Kind, Tone, ToolState};
use crate::args::SessionArguments;
use crate::output::approval;
use crate::output::diagnostics::{self, Capture};
use crate::platform::signals::{Signal, SignalStream};
use outlast_engine::Clock;
use outlast_kernel::{Timestamp, text};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Split, Stdin};

/// Maximum number of lines of a tool's output.
const MAX_OUTPUT_LINES: usize = 10;
const RETRACTED: &str = "What came of the answer broke off; it is asked for again.\n";

struct PlainChat {
    chat: Chat,
    driver: Driver,
    diagnostics: Capture,
    lines: Option<Split<BufReader<Stdin>>>,
    is_attended: bool,
    /// Number of blocks of that session that were written.
    written: usize,
    session: String,
    /// The last announced activity.
    announced: Announced,
}

#[derive(Default, PartialEq, Eq)]
struct Announced {
    retry: Option<(u32, Timestamp)>,
    is_asked: bool,
    is_ready: bool,
    choices: String,
    hint: Option<&'static str>,
}

pub(super) async fn run(
    choice: SessionArguments,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<(Option<Signal>, LeaveSummary)> {
    let mut plain = PlainChat {
        chat: Chat::new(),
        driver: Driver::new(choice, clock),
        diagnostics: diagnostics::capture(),
        lines: Some(BufReader::new(tokio::io::stdin()).split(b'\n')),
        is_attended: std::io::stdin().is_terminal(),
        written: 0,
        session: String::new(),
        announced: Announced::default(),
    };
    plain.driver.start();
    let signal = plain.run_loop().await;
    let PlainChat {
        diagnostics,
        mut driver,
        ..
    } = plain;
    drop(diagnostics);
    let signal = signal?;
    Ok((signal, driver.leave(signal).await))
}

impl PlainChat {
    async fn run_loop(&mut self) -> anyhow::Result<Option<Signal>> {
        let mut signals = SignalStream::new();
        loop {
            self.write()?;
            let takes_lines = self.is_attended || self.is_ready();
            if self.lines.is_none() && self.is_ready() {
                return Ok(None);
            }
            let next = tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    Signal::Interrupt if self.chat.hint.is_none() => {
                        self.driver.handle_input(Input::Interrupted, &mut self.chat)
                    }
                    signal => return Ok(Some(signal)),
                },
                message = self.driver.next() => self.driver.handle_all(message, &mut self.chat)?,
                line = self.diagnostics.next() => {
                    self.driver.handle_input(Input::Notice(Tone::Warning, line), &mut self.chat)
                }
                line = next_line(&mut self.lines), if takes_lines && self.lines.is_some() => {
                    match line? {
                        Some(line) => self.line(line),
                        None => {
                            self.lines = None;
                            Flow::Continue
                        }
                    }
                }
            };
            if next == Flow::Quit {
                self.write()?;
                return Ok(None);
            }
        }
    }

    fn line(&mut self, line: String) -> Flow {
        self.chat.hint = None;
        (self.announced.is_ready, self.announced.is_asked) = (false, false);
        self.driver.handle_input(Input::Line(line), &mut self.chat)
    }

    /// Whether the chat waits for the user.
    fn is_ready(&self) -> bool {
        let is_over = self.chat.activity == Activity::Idle && !self.chat.is_busy();
        is_over && self.driver.is_idle() || self.chat.question.is_some()
    }

    /// Writes the new blocks.
    fn write(&mut self) -> std::io::Result<()> {
        let mut new = String::new();
        if self.session != self.chat.status.session {
            self.session.clone_from(&self.chat.status.session);
            self.written = 0;
        }
        let mut was_retracted = false;
        let settled = self.chat.transcript.settled_from(self.written);
        // Blocks from before the session are repeated when it is open.
        for (number, kind, is_retracted) in settled.filter(|_| !self.session.is_empty()) {
            match is_retracted {
                true if was_retracted => {}
                true => new.push_str(RETRACTED),
                false => new.push_str(&block_text(kind)),
            }
            was_retracted = is_retracted;
            self.written = number + 1;
        }
        new.push_str(&self.describe_activity());
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text::plain(&new).as_bytes())?;
        stdout.flush()
    }

    /// Returns the announcement of a new activity.
    fn describe_activity(&mut self) -> String {
        let now = self.driver.clock().now();
        let retry = match &self.chat.activity {
            // A retry that is due happens at once and needs no announcement.
            Activity::Retrying(retrying) if retrying.wake_time(now) > now => {
                Some((retrying.attempt, retrying.wake_time(now)))
            }
            // A hold is announced once, because its time may move often.
            Activity::Queued { .. } => Some((0, Timestamp::default())),
            _ => None,
        };
        let choices = self.chat.choices_as_text();
        let told = Announced {
            retry,
            is_asked: self.chat.question.is_some(),
            is_ready: self.is_ready(),
            choices: choices.clone(),
            hint: self.chat.hint,
        };
        let before = std::mem::replace(&mut self.announced, told);
        let mut says = String::new();
        if retry.is_some()
            && !was_announced(retry, before.retry)
            && let Some(said) = self.chat.activity.describe(now)
        {
            let key = said.key.map_or(String::new(), |key| format!(" · {key}"));
            says.push_str(&format!("{}{}{key}\n", said.text, said.details));
        }
        if let Some(asked) = self.chat.question.as_ref().filter(|_| !before.is_asked) {
            says.push_str(&approval::question_prompt(&asked.question));
            says.push('\n');
        }
        if choices != before.choices {
            says.push_str(&choices);
        }
        if let Some(hint) = self.chat.hint.filter(|_| before.hint.is_none()) {
            says.push_str(&format!("{hint}\n"));
        }
        if self.announced.is_ready && !before.is_ready && self.is_attended {
            says.push_str("> ");
        }
        says
    }
}

/// Whether the wait was announced: the same retry, at about the same time.
fn was_announced(retry: Option<(u32, Timestamp)>, before: Option<(u32, Timestamp)>) -> bool {
    const SMALL_CHANGE: Duration = Duration::from_secs(2);
    let (Some((attempt, at)), Some((before, told))) = (retry, before) else {
        return false;
    };
    attempt == before && at.since(told).max(told.since(at)) < SMALL_CHANGE
}

/// Reads the next line. A line that is not valid UTF-8 is shown with replacement characters; reading continues with the
/// next one.
async fn next_line(lines: &mut Option<Split<BufReader<Stdin>>>) -> std::io::Result<Option<String>> {
    let Some(lines) = lines else {
        return std::future::pending().await;
    };
    let line = lines.next_segment().await?;
    Ok(line.map(|line| String::from_utf8_lossy(&line).into_owned()))
}

/// Returns the text of a block.
fn block_text(kind: &Kind) -> String {
    match kind {
        Kind::User(said) => format!("You: {said}\n"),
        Kind::Answer(answer) => format!("{}\n", answer.trim_end()),
        Kind::Thought(_) => String::new(),
        Kind::Notice { text, .. } => format!("{}\n", text.trim_end()),
        Kind::Tool(tool) => {
            let title = tool.title();
            match &tool.state {
                ToolState::Ended { output, is_error } => {
                    let how = if *is_error { "failed" } else { "done" };
                    let all = output.lines().count();
                    let first: String = output
                        .lines()
                        .take(MAX_OUTPUT_LINES)
                        .map(|line| format!("  {line}\n"))
                        .collect();
                    let more = match all.saturating_sub(MAX_OUTPUT_LINES) {
                        0 => String::new(),
                        more => format!("  … {more} more lines\n"),
                    };
                    format!("Tool {how}: {title}\n{first}{more}")
                }
                ToolState::Called | ToolState::Running => format!("Tool: {title}\n"),
            }
        }
    }
}
