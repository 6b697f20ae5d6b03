//! `outlast -p`: ask once, print the answer.
//!
//! Invariant: stdout carries the answer (or, with `--json`, the events) and nothing else. The answer is printed when it
//! is whole.

use crate::cli::PromptArguments;
use crate::exit::{Exit, Usage};
use crate::progress::Progress;
use crate::{complain, home, interrupt, settings};
use anyhow::Context;
use outlast_dialect::{Message, Request};
use outlast_engine::clock::WallClock;
use outlast_engine::provider::Anthropic;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::turn::{Control, Ended, Handle, Ids, Turn};
use outlast_engine::{CancellationToken, Clock, run_turn};
use outlast_kernel::budget::Prompt;
use outlast_kernel::decision::GiveUp;
use outlast_kernel::event::{Event, Seal};
use outlast_kernel::policy::Policy;
use outlast_kernel::text;
use outlast_mock::{Script, Scripted};
use std::io::{IsTerminal, Read, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the scripted provider does when nothing else is asked for: enough to see a retry at work.
const FIRST_RUN: &str = "overloaded:2";
const MAX_PROMPT_BYTES: u64 = 16 << 20;
const MAX_ANSWER_TOKENS: u32 = 8192;
const TICK: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: PromptArguments) -> anyhow::Result<Exit> {
    let policy = Policy::named(&arguments.policy).map_err(|error| Usage(error.to_string()))?;
    let script_text = arguments
        .model
        .clone()
        .unwrap_or_else(|| FIRST_RUN.to_owned());
    let script: Script = script_text
        .parse()
        .map_err(|error: outlast_mock::Error| Usage(error.to_string()))?;
    let clock = settings::clock()?;
    let text = read_prompt(arguments.prompt.as_deref().unwrap_or_default())?;
    if arguments.provider.is_none() && arguments.model.is_none() && !arguments.json {
        complain(&format!(
            "No provider is configured: using the scripted one (--provider mock --model {FIRST_RUN})."
        ));
    }
    if let Err(error) = home::prepare() {
        complain(&format!("warning: {error:#}"));
    }
    let request = Request {
        model: script_text,
        messages: vec![Message::user(text)],
        max_tokens: MAX_ANSWER_TOKENS,
    };
    let asking = Asking {
        request,
        script,
        policy,
        clock,
        json: arguments.json,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(asking.run())
}

fn read_prompt(argument: &str) -> anyhow::Result<String> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    let mut prompt = String::new();
    let read = std::io::stdin()
        .take(MAX_PROMPT_BYTES + 1)
        .read_to_string(&mut prompt);
    read.context("cannot read the prompt from stdin; it must be UTF-8 text")?;
    if prompt.len() as u64 > MAX_PROMPT_BYTES {
        return Err(Usage(format!(
            "the prompt on stdin is longer than {} MiB",
            MAX_PROMPT_BYTES >> 20
        ))
        .into());
    }
    Ok(prompt)
}

struct Asking {
    request: Request,
    script: Script,
    policy: Policy,
    clock: WallClock,
    json: bool,
}

impl Asking {
    async fn run(self) -> anyhow::Result<Exit> {
        let clock: Arc<dyn Clock> = Arc::new(self.clock);
        let provider = Anthropic::new(
            "mock",
            Arc::new(Scripted::new(self.script, clock.clone())),
            clock.clone(),
        );
        let retry = PolicyRetry::new(self.policy.clone(), clock.clone());
        let cancel = CancellationToken::new();
        interrupt::cancel_on_signal(cancel.clone());
        let (control, handle) = Control::new(cancel);
        let turn = Turn {
            provider: &provider,
            request: &self.request,
            retry: Some(&retry),
            budget: Prompt::default(),
            clock: &*clock,
            ids: Ids::fresh(),
            control,
        };
        let screen = Mutex::new(Screen::new(self.json, handle));
        let ended = show_while_running(turn, &screen, &*clock).await;
        let mut screen = screen.into_inner().unwrap_or_else(PoisonError::into_inner);
        screen.finish(&ended, &self.policy)
    }
}

/// Runs the turn while the countdown ticks.
async fn show_while_running(turn: Turn<'_>, screen: &Mutex<Screen>, clock: &dyn Clock) -> Ended {
    let lock = || screen.lock().unwrap_or_else(PoisonError::into_inner);
    let mut sink = |event: Event| lock().event(&event);
    let mut running = pin!(run_turn(turn, &mut sink));
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            ended = &mut running => return ended,
            _ = ticks.tick() => lock().progress.tick(clock.now()),
        }
    }
}

/// What the user sees: events or an answer on stdout, progress on stderr.
struct Screen {
    progress: Progress<std::io::Stderr>,
    json: bool,
    handle: Handle,
    lost_stdout: Option<std::io::Error>,
}

impl Screen {
    fn new(json: bool, handle: Handle) -> Self {
        let stderr = std::io::stderr();
        let is_terminal = stderr.is_terminal();
        Self {
            progress: Progress::new(stderr, is_terminal),
            json,
            handle,
            lost_stdout: None,
        }
    }

    fn event(&mut self, event: &Event) {
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

    fn finish(&mut self, ended: &Ended, policy: &Policy) -> anyhow::Result<Exit> {
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
