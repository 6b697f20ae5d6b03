//! `outlast -p`: ask once, print the answer.
//!
//! Invariant: stdout carries the answer (or, with `--json`, the events) and nothing else. The answer is printed when it
//! is whole.

use crate::cli::PromptArguments;
use crate::config::{self, Settings};
use crate::exit::{Exit, Usage};
use crate::reach::{self, FIRST_RUN, Reached};
use crate::screen::Screen;
use crate::{complain, home, image, interrupt, knowledge, settings};
use anyhow::Context;
use outlast_dialect::{Delivery, Message, Part, Request, Role};
use outlast_engine::accounts::Accounts;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::turn::{Control, Ended, Turn};
use outlast_engine::{CancellationToken, Clock, RetryStrategy, run_turn};
use outlast_kernel::event::Event;
use outlast_kernel::policy::Policy;
use std::io::Read;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const MAX_PROMPT_BYTES: u64 = 16 << 20;
const TICK: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &PromptArguments) -> anyhow::Result<Exit> {
    let settings = config::load(&arguments.flags.overrides())?;
    let clock: Arc<dyn Clock> = Arc::new(settings::clock()?);
    let reached = reach::model(&settings, arguments.base_url.as_deref(), clock.clone())?;
    let request = request(arguments, &settings, reached.model.clone())?;
    if settings.provider.is_none() && settings.model.is_none() && !arguments.json {
        complain(&format!(
            "No provider is configured: using the scripted one (--provider mock --model {FIRST_RUN})."
        ));
    }
    let home = home::prepare()
        .inspect_err(|error| complain(&format!("warning: {error:#}")))
        .ok();
    let asking = Asking {
        request,
        reached,
        home,
        policy: settings.retry.policy,
        retries: settings.retry.enabled,
        clock,
        json: arguments.json,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let exit = runtime.block_on(asking.run());
    // Whatever is still looked up or connected is of no use any more.
    runtime.shutdown_background();
    exit
}

fn request(
    arguments: &PromptArguments,
    settings: &Settings,
    model: String,
) -> anyhow::Result<Request> {
    let text = read_prompt(arguments.prompt.as_deref().unwrap_or_default())?;
    let mut parts = vec![Part::Text { text }];
    for path in &arguments.image {
        parts.push(Part::Image(image::read(path)?));
    }
    let role = Role::User;
    Ok(Request {
        model,
        messages: vec![Message { role, parts }],
        max_tokens: settings.max_tokens,
        delivery: if arguments.no_stream {
            Delivery::Whole
        } else {
            Delivery::Streamed
        },
        ..Request::default()
    })
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
    reached: Reached,
    home: Option<PathBuf>,
    policy: Policy,
    retries: bool,
    clock: Arc<dyn Clock>,
    json: bool,
}

impl Asking {
    async fn run(self) -> anyhow::Result<Exit> {
        let retry = PolicyRetry::new(self.policy.clone(), self.clock.clone());
        let retry: Option<&dyn RetryStrategy> = if self.retries { Some(&retry) } else { None };
        let cancel = CancellationToken::new();
        interrupt::cancel_on_signal(cancel.clone());
        let (control, handle) = Control::new(cancel);
        let Reached {
            adapter,
            accounts,
            is_shared,
            ..
        } = self.reached;
        let knowledge = knowledge::open(self.home.filter(|_| is_shared), &self.clock).await;
        let accounts = (!accounts.is_empty())
            .then(|| Accounts::new(accounts, knowledge.clone(), self.clock.clone()));
        let turn = Turn {
            retry,
            control,
            accounts: accounts.as_ref(),
            knowledge: is_shared.then_some(&knowledge),
            ..Turn::new(&adapter, &self.request, &*self.clock)
        };
        let screen = Mutex::new(Screen::new(self.json, handle));
        let ended = show_while_running(turn, &screen, &*self.clock).await;
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
