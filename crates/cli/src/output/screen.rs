//! The output of a prompt: events or a completion on stdout, progress on stderr.

use crate::output::diagnostics;
use crate::output::progress::Progress;
use crate::output::safe_json;
use crate::platform::exit::Exit;
use anyhow::{Context, bail};
use outlast_engine::turn::TurnOutcome;
use outlast_kernel::decision::GiveUp;
use outlast_kernel::event::{Body, Event, StopReason, TurnStatus};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::policy::Policy;
use outlast_kernel::text;
use outlast_kernel::verdict::{Cause, Class};
use std::io::{IsTerminal, Write};

pub(crate) struct Screen {
    pub(crate) progress: Progress<std::io::Stderr>,
    json: bool,
    /// Printed before the completion if there are several.
    heading: Option<String>,
    lost_stdout: Option<std::io::Error>,
    /// The reason for a failed turn, as printed.
    reason: Option<String>,
}

impl Screen {
    pub(crate) fn new(json: bool) -> Self {
        let stderr = std::io::stderr();
        let is_terminal = stderr.is_terminal();
        let progress = Progress::new(stderr, is_terminal);
        Self {
            progress: with_verbosity(progress),
            json,
            heading: None,
            lost_stdout: None,
            reason: None,
        }
    }

    /// Creates the output of one of several prompts: its lines stay, and begin with its label.
    pub(crate) fn one_of_several(json: bool, label: &str, heading: String) -> Self {
        Self {
            progress: with_verbosity(Progress::labelled(std::io::stderr(), label)),
            heading: Some(heading),
            ..Self::new(json)
        }
    }

    /// Whether the reader of stdout has gone: continuing would spend money for nothing.
    pub(crate) const fn is_stdout_lost(&self) -> bool {
        self.lost_stdout.is_some()
    }

    /// Whether events are printed instead of the completion.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Checks that all output reached stdout; returns the write error otherwise.
    pub(crate) fn into_write_result(self) -> std::io::Result<()> {
        self.lost_stdout.map_or(Ok(()), Err)
    }

    /// Takes the error of a failed write of events to stdout, if there was one.
    pub(crate) fn take_lost_stdout(&mut self) -> Option<std::io::Error> {
        self.lost_stdout.take()
    }

    pub(crate) fn event(&mut self, event: &Event) {
        if let Body::Error { reason, .. } = &event.body {
            self.reason = Some(reason.clone());
        }
        if !self.json {
            self.progress.event(&event.body, event.time);
            return;
        }
        let written = serde_json::to_string(event)
            .map_err(std::io::Error::from)
            .and_then(|line| print_line(&safe_json(&line)));
        if let (Err(error), None) = (written, &self.lost_stdout) {
            self.lost_stdout = Some(error);
        }
    }

    pub(crate) fn finish(&mut self, ended: &TurnOutcome, policy: &Policy) -> anyhow::Result<Exit> {
        let answer = ended.message.text();
        let answer = text::plain(&answer);
        let answer = answer.trim_end_matches('\n');
        if !self.json && ended.seal == TurnStatus::Completed && !answer.is_empty() {
            self.lost_stdout = self.print_answer(answer).err();
        }
        match &self.lost_stdout {
            None => {}
            // The reader of a pipe may close it.
            Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return Ok(Exit::Failed);
            }
            Some(error) => bail!("cannot write to stdout: {error}"),
        }
        let shortfall = UnusableAnswer::detect(ended, answer.is_empty());
        if !self.json {
            self.print_failure(ended, policy);
            if let Some(shortfall) = &shortfall {
                self.progress.print(&shortfall.message());
            }
        }
        Ok(match shortfall {
            Some(shortfall) if shortfall.is_failure() => Exit::Failed,
            _ => Exit::from(ended),
        })
    }

    /// Prints a completion that was already complete.
    pub(crate) fn print_complete_answer(&self, answer: &str) -> anyhow::Result<()> {
        let answer = text::plain(answer);
        let said = self.print_answer(answer.trim_end_matches('\n'));
        said.context("cannot write to stdout")
    }

    fn print_answer(&self, answer: &str) -> std::io::Result<()> {
        match &self.heading {
            Some(heading) => print_line(&format!("{}\n{answer}", text::plain(heading))),
            None => print_line(answer),
        }
    }

    fn print_failure(&mut self, ended: &TurnOutcome, policy: &Policy) {
        if ended.seal == TurnStatus::Aborted {
            self.progress.print("Cancelled.");
        }
        let Some((judged, why)) = &ended.error else {
            return;
        };
        let code = judged
            .failure
            .public_code()
            .map_or(String::new(), |code| format!(" ({code})"));
        let phrase = judged.verdict.cause.phrase();
        let reason = self.reason.take().unwrap_or_else(|| why.to_string());
        let says_more = reason != why.to_string();
        self.progress.print(&format!(
            "error: {phrase}: {}{code}: {reason}",
            one_line(&judged.failure.message)
        ));
        if let Some(remedy) = hint(judged, *why, policy).filter(|_| !says_more) {
            self.progress.print(&format!("  hint: {remedy}"));
        }
    }
}

/// Prints the closing lines about a turn whose events were shown: the problem and its remedy.
pub(crate) fn outcome_messages(
    ended: &TurnOutcome,
    policy: Option<&Policy>,
) -> (Option<String>, Option<String>) {
    let shortfall = UnusableAnswer::detect(ended, ended.message.text().trim().is_empty());
    let (problem, own) = match shortfall.map(|shortfall| (shortfall.is_failure(), shortfall)) {
        Some((true, shortfall)) => (Some(shortfall.message()), None),
        Some((false, shortfall)) => (None, Some(shortfall.message())),
        None => (None, None),
    };
    let bare = |text: String| {
        let text = text.trim_start();
        let bare = text
            .strip_prefix("error: ")
            .or_else(|| text.strip_prefix("hint: "));
        bare.unwrap_or(text).to_owned()
    };
    let error = ended.error.as_ref().zip(policy);
    let remedy = error.and_then(|((judged, why), policy)| hint(judged, *why, policy));
    let remedy = own.or(remedy.map(str::to_owned));
    (problem.map(bare), remedy.map(bare))
}

fn with_verbosity(progress: Progress<std::io::Stderr>) -> Progress<std::io::Stderr> {
    match diagnostics::is_quiet() {
        true => progress.quiet(),
        false => progress,
    }
}

/// The reason that a successful response has no usable completion.
enum UnusableAnswer {
    Refused,
    Empty,
    CutOff,
    RequestsTools(String),
}

impl UnusableAnswer {
    fn detect(ended: &TurnOutcome, is_empty: bool) -> Option<Self> {
        if ended.seal != TurnStatus::Completed {
            return None;
        }
        match ended.stop_reason {
            Some(StopReason::Refusal) => Some(Self::Refused),
            Some(StopReason::ToolUse) => {
                let names: Vec<&str> = ended
                    .message
                    .tool_calls()
                    .map(|call| call.name.as_str())
                    .collect();
                Some(Self::RequestsTools(names.join(", ")))
            }
            _ if is_empty => Some(Self::Empty),
            Some(StopReason::Length) => Some(Self::CutOff),
            _ => None,
        }
    }

    fn is_failure(&self) -> bool {
        !matches!(self, Self::CutOff)
    }

    fn message(&self) -> String {
        match self {
            Self::Refused => "error: the model refused to answer".to_owned(),
            Self::Empty => "error: the answer is empty".to_owned(),
            // The turn reports the cut itself.
            Self::CutOff => "  hint: `max_tokens` raises the output limit".to_owned(),
            Self::RequestsTools(names) => {
                format!("error: the model wants to run a tool that it was not offered: {names}")
            }
        }
    }
}

/// Joins a provider's text into one line, so that it cannot imitate a line of ours.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn print_line(line: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

fn hint(judged: &ClassifiedFailure, why: GiveUp, policy: &Policy) -> Option<&'static str> {
    let refused = judged.verdict.cause == Cause::InvalidRequest;
    if refused && judged.failure.message.to_lowercase().contains("tool") {
        return Some("if the model knows no tools, offer it none: --no-tools");
    }
    match why {
        GiveUp::RetriesExhausted { .. }
        | GiveUp::SleepBudgetExhausted { .. }
        | GiveUp::StatedWaitTooLong { .. }
            if policy.name != "overnight" =>
        {
            Some(
                "a more patient policy waits longer: --policy overnight (`outlast policy list` shows all)",
            )
        }
        GiveUp::NotRetryable if judged.verdict.cause == Cause::Auth => {
            Some("check the key: `outlast doctor` says whether the provider accepts it")
        }
        GiveUp::Overflow => Some("shorten the prompt, or choose a model with a larger window"),
        GiveUp::ContentSent if judged.verdict.class() == Class::Transient => {
            Some("nothing of the answer was printed; --after-content retract asks again by itself")
        }
        _ => None,
    }
}
