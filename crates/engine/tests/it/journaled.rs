//! A turn whose journal, provider, tools and waits record their events in one shared list.

use crate::scripted_transport::question;
use crate::support::{
    AfterItems, Item, ScriptedProvider, clock, failure_item, hello, overloaded, policy,
};
use outlast_dialect::{Delta, Message, Request};
use outlast_engine::credential::Credential;
use outlast_engine::inbox::{Inbox, QueueKind, QueuedMessage};
use outlast_engine::journal::{AppendError, Entry, Journal};
use outlast_engine::strategy::Aborted;
use outlast_engine::tools::{Effect, Output, Toolbox};
use outlast_engine::turn::{Control, Handle, Turn, TurnOutcome};
use outlast_engine::{BoxFuture, BoxStream, CancellationToken, Provider, RetryStrategy, run_turn};
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::decision::RetryRules;
use outlast_kernel::event::{Body, Event, StopReason, ToolCall};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Log = Arc<Mutex<Vec<String>>>;

fn log(log: &Log, line: impl Into<String>) {
    log.lock().unwrap().push(line.into());
}

/// The result of each write, by its number from 1.
pub(crate) type WriteScript = fn(usize) -> Result<(), AppendError>;

pub(crate) fn write_succeeds(_: usize) -> Result<(), AppendError> {
    Ok(())
}

pub(crate) fn write_failed() -> Result<(), AppendError> {
    let why = "the disk is full".to_owned();
    Err(AppendError::Failed(why))
}

pub(crate) fn ownership_lost() -> Result<(), AppendError> {
    let why = "another process has it".to_owned();
    Err(AppendError::OwnershipLost(why))
}

struct RecordingJournal {
    log: Log,
    fate: Box<dyn Fn(usize) -> Result<(), AppendError> + Send + Sync>,
    tries: Mutex<usize>,
    written: Mutex<Vec<Entry>>,
}

impl Journal for RecordingJournal {
    fn append<'a>(&'a self, entries: &'a [Entry]) -> BoxFuture<'a, Result<(), AppendError>> {
        let mut tries = self.tries.lock().unwrap();
        *tries += 1;
        let fate = (self.fate)(*tries);
        let kinds: Vec<&str> = entries.iter().map(Entry::kind).collect();
        let verb = match &fate {
            Ok(()) => "write",
            Err(AppendError::Failed(_)) => "fail to write",
            Err(AppendError::OwnershipLost(_)) => "lose",
        };
        log(&self.log, format!("{verb} {}", kinds.join(" ")));
        if fate.is_ok() {
            self.written.lock().unwrap().extend_from_slice(entries);
        }
        Box::pin(async move { fate })
    }
}

struct LoggingProvider(ScriptedProvider, Log);

impl Provider for LoggingProvider {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn stream(&self, request: &Request, key: Option<&Credential>) -> BoxStream<'static, Item> {
        log(&self.1, "call");
        self.0.stream(request, key)
    }
}

/// `send` may run at most once, `hang` never ends, all other tools are pure.
struct LoggingToolbox(Log);

impl Toolbox for LoggingToolbox {
    fn admit<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Result<Effect, String>> {
        let effect = match call.name.as_str() {
            "send" => Effect::AtMostOnce,
            _ => Effect::Pure,
        };
        Box::pin(async move { Ok(effect) })
    }

    fn run<'a>(&'a self, call: &'a ToolCall, _: CancellationToken) -> BoxFuture<'a, Output> {
        log(&self.0, format!("run {}", call.name));
        Box::pin(async move {
            if call.name == "hang" {
                std::future::pending::<()>().await;
            }
            Output::ok("done")
        })
    }
}

/// The messages that are queued for each call, in order.
struct ScriptedInbox(Mutex<VecDeque<Vec<QueuedMessage>>>, Log);

impl Inbox for ScriptedInbox {
    fn take(&self) -> Vec<QueuedMessage> {
        let letters = self.0.lock().unwrap().pop_front().unwrap_or_default();
        if !letters.is_empty() {
            log(&self.1, "take");
        }
        letters
    }
}

pub(crate) fn queued_message(place: QueueKind, text: &str) -> QueuedMessage {
    QueuedMessage {
        id: text.to_owned(),
        place,
        message: Message::user(text),
    }
}

/// The strategy of sessions, which records its sleeps.
struct LoggingStrategy(Log);

impl RetryStrategy for LoggingStrategy {
    fn delay_for(&self, attempt: u32) -> Option<Duration> {
        policy("session").delay_for(attempt)
    }

    fn sleep<'a>(
        &'a self,
        delay: Duration,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Aborted>> {
        log(&self.0, format!("sleep {}", delay.as_secs()));
        Box::pin(async move {
            tokio::select! {
                () = cancel.cancelled() => Err(Aborted),
                () = tokio::time::sleep(delay) => Ok(()),
            }
        })
    }

    fn rules(&self) -> RetryRules {
        policy("session").rules()
    }
}

/// A scripted turn and the actions on it.
pub(crate) struct Case {
    pub(crate) script: Vec<(Vec<Item>, AfterItems)>,
    pub(crate) limits: Limits,
    pub(crate) fate: Box<dyn Fn(usize) -> Result<(), AppendError> + Send + Sync>,
    pub(crate) react: fn(&Body, &Handle),
    /// The messages that are queued for each call.
    pub(crate) waiting: Vec<Vec<QueuedMessage>>,
}

pub(crate) struct CaseOutcome {
    pub(crate) ended: TurnOutcome,
    pub(crate) events: Vec<Event>,
    pub(crate) log: Vec<String>,
    pub(crate) written: Vec<Entry>,
}

impl Case {
    pub(crate) fn new(script: impl IntoIterator<Item = Vec<Item>>, fate: WriteScript) -> Self {
        Self {
            script: script
                .into_iter()
                .map(|items| (items, AfterItems::End))
                .collect(),
            limits: Limits::default(),
            fate: Box::new(fate),
            react: |_, _| {},
            waiting: Vec::new(),
        }
    }

    pub(crate) async fn run(self) -> CaseOutcome {
        let lines = Log::default();
        let journal = RecordingJournal {
            log: Arc::clone(&lines),
            fate: self.fate,
            tries: Mutex::default(),
            written: Mutex::default(),
        };
        let provider =
            LoggingProvider(ScriptedProvider::with_ends(self.script), Arc::clone(&lines));
        let (tools, retry) = (
            LoggingToolbox(Arc::clone(&lines)),
            LoggingStrategy(Arc::clone(&lines)),
        );
        let (clock, request) = (clock(), question());
        let inbox = ScriptedInbox(Mutex::new(self.waiting.into()), Arc::clone(&lines));
        let (control, handle) = Control::new(CancellationToken::new());
        let budget = Prompt::new(self.limits);
        let prompt = Entry::Prompt {
            chosen: false,
            turn_id: "t".to_owned(),
            message: Some(Message::user("hi")),
            budget: budget.clone(),
            options: serde_json::Value::Null,
        };
        let turn = Turn {
            retry: Some(&retry),
            tools: Some(&tools),
            inbox: Some(&inbox),
            journal: Some(&journal),
            initial_entries: vec![prompt],
            budget,
            control,
            ..Turn::new(&provider, request, &*clock)
        };
        let mut events = Vec::new();
        let mut sink = |event: Event| {
            let body = serde_json::to_value(&event.body).unwrap();
            log(&lines, format!("say {}", body["type"].as_str().unwrap()));
            (self.react)(&event.body, &handle);
            events.push(event);
        };
        let ended = run_turn(turn, &mut sink).await;
        let log = lines.lock().unwrap().clone();
        let written = journal.written.into_inner().unwrap();
        CaseOutcome {
            ended,
            events,
            log,
            written,
        }
    }
}

impl CaseOutcome {
    pub(crate) fn count(&self, line: &str) -> usize {
        self.log.iter().filter(|other| *other == line).count()
    }

    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.written.iter().map(Entry::kind).collect()
    }

    /// Returns the lines that begin with one of these words.
    pub(crate) fn lines(&self, words: &[&str]) -> Vec<&str> {
        let is_wanted = |line: &&str| words.iter().any(|word| line.starts_with(word));
        self.log
            .iter()
            .map(String::as_str)
            .filter(is_wanted)
            .collect()
    }

    pub(crate) fn results(&self) -> Vec<(String, bool)> {
        let result = |event: &Event| match &event.body {
            Body::ToolResult {
                output, is_error, ..
            } => Some((output.clone(), *is_error)),
            _ => None,
        };
        self.events.iter().filter_map(result).collect()
    }
}

pub(crate) fn step(tools: &[&str]) -> Vec<Item> {
    let wanted = tools.iter().map(|name| {
        Ok(Delta::ToolCall(ToolCall {
            id: format!("{name}-1"),
            name: (*name).to_owned(),
            arguments: "{}".to_owned(),
        }))
    });
    let stopped = Ok(Delta::Stopped(StopReason::ToolUse));
    wanted.chain([stopped]).collect()
}

/// Returns a script: a failure, a step with two tool calls, the final completion.
pub(crate) fn retry_then_tools_script() -> Vec<Vec<Item>> {
    vec![
        vec![failure_item(overloaded())],
        step(&["read", "send"]),
        hello(),
    ]
}
