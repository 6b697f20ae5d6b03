//! What the user sees of a prompt: events or an answer on stdout, progress on stderr.

use crate::exit::Exit;
use crate::progress::Progress;
use anyhow::Context;
use outlast_engine::turn::{Ended, Handle};
use outlast_kernel::decision::GiveUp;
use outlast_kernel::event::{Event, Seal, StopReason};
use outlast_kernel::policy::Policy;
use outlast_kernel::text;
use std::io::{IsTerminal, Write};

pub(crate) struct Screen {
    pub(crate) progress: Progress<std::io::Stderr>,
    json: bool,
    handle: Handle,
    lost_stdout: Option<std::io::Error>,
}

impl Screen {
    pub(crate) fn new(json: bool, handle: Handle) -> Self {
        let stderr = std::io::stderr();
        let is_terminal = stderr.is_terminal();
        Self {
            progress: Progress::new(stderr, is_terminal),
            json,
            handle,
            lost_stdout: None,
        }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        if !self.json {
            self.progress.event(&event.body, event.time);
            return;
        }
        let written = serde_json::to_string(event)
            .map_err(std::io::Error::from)
            .and_then(|line| say(&line));
        if let (Err(error), None) = (written, &self.lost_stdout) {
            // Nobody reads on: to go on would spend money for nothing.
            self.lost_stdout = Some(error);
            self.handle.abort();
        }
    }

    pub(crate) fn finish(&mut self, ended: &Ended, policy: &Policy) -> anyhow::Result<Exit> {
        if !self.json && ended.seal == Seal::Completed {
            self.lost_stdout = say(text::plain(&ended.text).trim_end_matches('\n')).err();
        }
        match self.lost_stdout.take() {
            None => {}
            Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return Ok(Exit::Failed);
            }
            Some(error) => return Err(error).context("cannot write to stdout"),
        }
        if !self.json {
            self.explain(ended, policy);
        }
        Ok(Exit::from(ended))
    }

    fn explain(&mut self, ended: &Ended, policy: &Policy) {
        if ended.seal == Seal::Aborted {
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
        self.progress.print(&format!(
            "error: {phrase}: {}{code}: {why}",
            judged.failure.message
        ));
        if let Some(remedy) = remedy(*why, policy) {
            self.progress.print(&format!("  hint: {remedy}"));
        }
    }
}

fn say(line: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

fn remedy(why: GiveUp, policy: &Policy) -> Option<&'static str> {
    match why {
        GiveUp::RetriesSpent { .. }
        | GiveUp::SleepSpent { .. }
        | GiveUp::StatedWaitTooLong { .. }
            if policy.name != "overnight" =>
        {
            Some(
                "a more patient policy waits longer: --policy overnight (`outlast policy list` shows all)",
            )
        }
        GiveUp::Overflow => Some("shorten the prompt, or choose a model with a larger window"),
        GiveUp::ContentSent => Some("ask again: nothing of the answer was printed"),
        _ => None,
    }
}
