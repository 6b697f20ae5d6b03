//! What a turn writes down, and when; and what it does when that fails.

use crate::says::question;
use crate::support::{Item, Scripted, Then, clock, fails, hello, overloaded, policy, stop, text};
use outlast_dialect::{Delta, Message, Request};
use outlast_engine::credential::Credential;
use outlast_engine::journal::{Entry, Journal, Unrecorded};
use outlast_engine::strategy::Aborted;
use outlast_engine::tools::{Effect, Output, Toolbox};
use outlast_engine::turn::{Control, Ended, Handle, Turn};
use outlast_engine::{BoxFuture, BoxStream, CancellationToken, Provider, RetryStrategy, run_turn};
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::decision::Rules;
use outlast_kernel::event::{Body, Event, Seal, StopReason, ToolCall};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Log = Arc<Mutex<Vec<String>>>;

fn log(log: &Log, line: impl Into<String>) {
    log.lock().unwrap().push(line.into());
}

/// What becomes of each write, by its number from 1.
type Fate = fn(usize) -> Result<(), Unrecorded>;

fn well(_: usize) -> Result<(), Unrecorded> {
    Ok(())
}

fn failed() -> Result<(), Unrecorded> {
    let why = "the disk is full".to_owned();
    Err(Unrecorded::Failed { why })
}

fn lost() -> Result<(), Unrecorded> {
    let why = "another process has it".to_owned();
    Err(Unrecorded::Lost { why })
}

struct Recording {
    log: Log,
    fate: Box<dyn Fn(usize) -> Result<(), Unrecorded> + Send + Sync>,
    tries: Mutex<usize>,
    written: Mutex<Vec<Entry>>,
}

impl Journal for Recording {
    fn append<'a>(&'a self, entries: &'a [Entry]) -> BoxFuture<'a, Result<(), Unrecorded>> {
        let mut tries = self.tries.lock().unwrap();
        *tries += 1;
        let fate = (self.fate)(*tries);
        let kinds: Vec<&str> = entries.iter().map(Entry::kind).collect();
        let verb = match &fate {
            Ok(()) => "write",
            Err(Unrecorded::Failed { .. }) => "fail to write",
            Err(Unrecorded::Lost { .. }) => "lose",
        };
        log(&self.log, format!("{verb} {}", kinds.join(" ")));
        if fate.is_ok() {
            self.written.lock().unwrap().extend_from_slice(entries);
        }
        Box::pin(async move { fate })
    }
}

struct Calls(Scripted, Log);

impl Provider for Calls {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn stream(&self, request: &Request, key: Option<&Credential>) -> BoxStream<'static, Item> {
        log(&self.1, "call");
        self.0.stream(request, key)
    }
}

/// `send` may run at most once, `hang` comes to no end, all else is pure.
struct Tools(Log);

impl Toolbox for Tools {
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

/// The strategy of sessions, which notes that it sleeps.
struct Sleeps(Log);

impl RetryStrategy for Sleeps {
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

    fn rules(&self) -> Rules {
        policy("session").rules()
    }
}

/// A turn and what is done to it.
struct Case {
    script: Vec<(Vec<Item>, Then)>,
    limits: Limits,
    fate: Box<dyn Fn(usize) -> Result<(), Unrecorded> + Send + Sync>,
    react: fn(&Body, &Handle),
}

struct Came {
    ended: Ended,
    events: Vec<Event>,
    log: Vec<String>,
    written: Vec<Entry>,
}

impl Case {
    fn new(script: impl IntoIterator<Item = Vec<Item>>, fate: Fate) -> Self {
        Self {
            script: script.into_iter().map(|items| (items, Then::End)).collect(),
            limits: Limits::default(),
            fate: Box::new(fate),
            react: |_, _| {},
        }
    }

    async fn run(self) -> Came {
        let lines = Log::default();
        let journal = Recording {
            log: Arc::clone(&lines),
            fate: self.fate,
            tries: Mutex::default(),
            written: Mutex::default(),
        };
        let provider = Calls(Scripted::with_ends(self.script), Arc::clone(&lines));
        let (tools, retry) = (Tools(Arc::clone(&lines)), Sleeps(Arc::clone(&lines)));
        let (clock, request) = (clock(), question());
        let (control, handle) = Control::new(CancellationToken::new());
        let budget = Prompt::new(self.limits);
        let prompt = Entry::Prompt {
            turn_id: "t".to_owned(),
            message: Some(Message::user("hi")),
            budget: budget.clone(),
            options: serde_json::Value::Null,
        };
        let turn = Turn {
            retry: Some(&retry),
            tools: Some(&tools),
            journal: Some(&journal),
            opening: vec![prompt],
            budget,
            control,
            ..Turn::new(&provider, &request, &*clock)
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
        Came {
            ended,
            events,
            log,
            written,
        }
    }
}

impl Came {
    fn count(&self, line: &str) -> usize {
        self.log.iter().filter(|other| *other == line).count()
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.written.iter().map(Entry::kind).collect()
    }

    /// The lines that begin with one of these words.
    fn lines(&self, words: &[&str]) -> Vec<&str> {
        let is_wanted = |line: &&str| words.iter().any(|word| line.starts_with(word));
        self.log
            .iter()
            .map(String::as_str)
            .filter(is_wanted)
            .collect()
    }

    fn results(&self) -> Vec<(String, bool)> {
        let result = |event: &Event| match &event.body {
            Body::ToolResult {
                output, is_error, ..
            } => Some((output.clone(), *is_error)),
            _ => None,
        };
        self.events.iter().filter_map(result).collect()
    }
}

fn step(tools: &[&str]) -> Vec<Item> {
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

/// A failure, a step of two tools, the answer.
fn usual() -> Vec<Vec<Item>> {
    vec![vec![fails(overloaded())], step(&["read", "send"]), hello()]
}

// --- Before anything is done ---

#[tokio::test(start_paused = true)]
async fn everything_is_written_down_before_it_is_done_and_said_after() {
    let came = Case::new(usual(), well).run().await;
    assert_eq!(
        (came.ended.seal, came.ended.recorded),
        (Seal::Completed, true)
    );
    let expected = [
        "say start",
        "say input",
        "write prompt",
        "write attempt_started",
        "say attempt_started",
        "call",
        "write attempt_failed wait_scheduled",
        "say retry_scheduled",
        "sleep 2",
        "write wait_ended attempt_started",
        "say attempt_started",
        "call",
        "say tool_call",
        "say tool_call",
        "write message",
        "say step_complete",
        "say retry_ended",
        "write tool_started",
        "say tool_started",
        "run read",
        "write tool_finished",
        "say tool_result",
        "write tool_started",
        "say tool_started",
        "run send",
        "write tool_finished",
        "say tool_result",
        "write attempt_started",
        "say attempt_started",
        "call",
        "say text_delta",
        "write message settled",
        "say step_complete",
        "say done",
        "say sealed",
    ];
    assert_eq!(came.log, expected);
}

#[tokio::test(start_paused = true)]
async fn every_turn_is_settled_exactly_once_however_it_ends() {
    type React = fn(&Body, &Handle);
    let failing = || vec![fails(overloaded())];
    let at_wait: React = |body, handle| {
        if matches!(body, Body::RetryScheduled { .. }) {
            handle.abort();
        }
    };
    let retry_at_wait: React = |body, handle| {
        if matches!(body, Body::RetryScheduled { .. }) {
            handle.abort_retry();
        }
    };
    let at_text: React = |body, handle| {
        if matches!(body, Body::TextDelta { .. }) {
            handle.abort();
        }
    };
    let at_tool: React = |body, handle| {
        if matches!(body, Body::ToolStarted { .. }) {
            handle.abort();
        }
    };
    let at_start: React = |body, handle| {
        if matches!(body, Body::Start { .. }) {
            handle.abort();
        }
    };
    let nothing: React = |_, _| {};
    let (text, end, hang) = (vec![text("Hel")], Then::End, Then::Hang);
    let cut = vec![
        step(&["send"])[0].clone(),
        Ok(Delta::Stopped(StopReason::Length)),
    ];
    for (name, script, react, seal) in [
        ("answered", vec![(hello(), end)], nothing, Seal::Completed),
        (
            "with tools",
            vec![(step(&["read"]), end), (hello(), end)],
            nothing,
            Seal::Completed,
        ),
        ("cut short", vec![(cut, end)], nothing, Seal::Completed),
        ("spent", vec![(failing(), end)], nothing, Seal::Error),
        (
            "after content",
            vec![([text.clone(), failing()].concat(), end)],
            nothing,
            Seal::Error,
        ),
        (
            "too late in a stream",
            vec![(text.clone(), hang)],
            nothing,
            Seal::Error,
        ),
        (
            "too late in a tool",
            vec![(step(&["hang"]), end), (hello(), end)],
            nothing,
            Seal::Error,
        ),
        (
            "aborted at once",
            vec![(hello(), end)],
            at_start,
            Seal::Aborted,
        ),
        (
            "aborted in a stream",
            vec![(text, hang)],
            at_text,
            Seal::Aborted,
        ),
        (
            "aborted in a wait",
            vec![(failing(), end)],
            at_wait,
            Seal::Aborted,
        ),
        (
            "aborted in a tool",
            vec![(step(&["hang", "read"]), end)],
            at_tool,
            Seal::Aborted,
        ),
        (
            "without its retry",
            vec![(failing(), end)],
            retry_at_wait,
            Seal::Error,
        ),
    ] {
        let limits = Limits {
            deadline: Some(crate::support::START + Duration::from_secs(60)),
            ..Limits::default()
        };
        let case = Case {
            limits,
            react,
            ..Case::new([], well)
        };
        let came = Case { script, ..case }.run().await;
        assert_eq!(
            (came.ended.seal, came.ended.recorded),
            (seal, true),
            "{name}"
        );
        let kinds = came.kinds();
        let settled = kinds.iter().filter(|kind| **kind == "settled").count();
        assert_eq!(
            (settled, kinds.last()),
            (1, Some(&"settled")),
            "{name}: {kinds:?}"
        );
        assert_eq!(kinds[0], "prompt", "{name}");
        let Some(Entry::Settled {
            seal: written,
            error,
            ..
        }) = came.written.last()
        else {
            panic!("{name}");
        };
        assert_eq!(
            (*written, error.is_some()),
            (seal, seal == Seal::Error),
            "{name}"
        );
        assert_eq!(came.count("say sealed"), 1, "{name}");
        // Each call and each tool that began has an end, too.
        let count = |wanted: &str| kinds.iter().filter(|kind| **kind == wanted).count();
        assert_eq!(
            count("attempt_started"),
            count("attempt_failed") + count("message"),
            "{name}"
        );
        assert_eq!(count("wait_scheduled"), count("wait_ended"), "{name}");
        assert!(count("tool_started") <= count("tool_finished"), "{name}");
    }
}

// --- A journal that fails ---

#[tokio::test(start_paused = true)]
async fn a_journal_that_fails_stops_nothing_but_what_may_run_once_only() {
    let came = Case::new(usual(), |_| failed()).run().await;
    assert_eq!(
        (came.ended.seal, came.ended.recorded),
        (Seal::Completed, false)
    );
    assert_eq!(came.ended.message.text(), "Hello");
    assert_eq!((came.count("say unrecorded"), came.count("call")), (1, 3));
    assert_eq!(came.lines(&["run", "sleep"]), ["sleep 2", "run read"]);
    let refused = "`send` was not run: that it runs could not be written down first";
    let results = [("done".to_owned(), false), (refused.to_owned(), true)];
    assert_eq!(came.results(), results);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_written_in_order_once_it_can_be() {
    let whole = Case::new(usual(), well).run().await.kinds();
    let writes = 11;
    for fails_until in 1..writes {
        let case = Case {
            fate: Box::new(move |number| {
                if number <= fails_until {
                    failed()
                } else {
                    Ok(())
                }
            }),
            ..Case::new(usual(), well)
        };
        let came = case.run().await;
        assert_eq!(
            (came.ended.seal, came.ended.recorded),
            (Seal::Completed, true)
        );
        assert_eq!(came.kinds(), whole, "{fails_until} writes failed");
        assert_eq!(came.count("say unrecorded"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn each_outage_of_the_journal_is_said_once() {
    let fate: Fate = |number| match number {
        1..=3 | 6..=7 => failed(),
        _ => Ok(()),
    };
    let came = Case::new(usual(), fate).run().await;
    assert!(came.ended.recorded);
    assert_eq!(came.count("say unrecorded"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_works_again_lets_everything_run() {
    let fate: Fate = |number| if number <= 5 { failed() } else { Ok(()) };
    let came = Case::new(usual(), fate).run().await;
    assert_eq!(came.lines(&["run"]), ["run read", "run send"]);
    assert!(came.ended.recorded);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_could_not_be_written_down_is_handed_on_all_the_same() {
    let fate: Fate = |number| if number >= 3 { failed() } else { Ok(()) };
    let came = Case::new([hello()], fate).run().await;
    assert_eq!(
        (came.ended.seal, came.ended.recorded),
        (Seal::Completed, false)
    );
    assert_eq!(came.kinds(), ["prompt", "attempt_started"]);
    let expected = [
        "say unrecorded",
        "say step_complete",
        "say done",
        "say sealed",
    ];
    assert_eq!(came.log[came.log.len() - 4..], expected);
}

// --- A journal that is another's ---

#[tokio::test(start_paused = true)]
async fn nothing_is_called_and_nothing_run_once_the_turn_is_anothers() {
    let whole = Case::new(usual(), well).run().await;
    let writes = whole.lines(&["write"]).len();
    assert_eq!(writes, 11);
    for number in 1..=writes {
        let case = Case {
            fate: Box::new(move |tried| if tried >= number { lost() } else { Ok(()) }),
            ..Case::new(usual(), well)
        };
        let came = case.run().await;
        assert!(!came.ended.recorded, "write {number}");
        let first = came.log.iter().position(|line| line.starts_with("lose"));
        let rest = &came.log[first.unwrap()..];
        let is_act = |line: &&String| {
            ["call", "run", "sleep", "write"]
                .iter()
                .any(|act| line.starts_with(act))
        };
        assert_eq!(rest.iter().find(is_act), None, "write {number}: {rest:?}");
        assert_eq!(came.count("say sealed"), 1);
        // The last answer had come when it was lost; before that there is none.
        let seal = if number == writes {
            Seal::Completed
        } else {
            Seal::Error
        };
        assert_eq!(came.ended.seal, seal, "write {number}");
        let kept = whole.kinds();
        assert_eq!(came.kinds(), kept[..came.written.len()], "write {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_turn_says_why_and_closes_its_chain() {
    let fate: Fate = |number| if number >= 3 { lost() } else { Ok(()) };
    let came = Case::new(usual(), fate).run().await;
    let tail = ["say retry_scheduled", "say retry_ended", "say error"];
    assert_eq!(came.lines(&["say retry", "say error"]), tail);
    let fate: Fate = |number| if number >= 4 { lost() } else { Ok(()) };
    let came = Case::new(usual(), fate).run().await;
    let (judged, _) = came.ended.error.unwrap();
    assert_eq!(judged.failure.message, "another process has it");
}

// --- Without one ---

#[tokio::test(start_paused = true)]
async fn a_turn_without_a_journal_counts_as_recorded() {
    let provider = Scripted::new([hello()]);
    let (clock, request) = (clock(), question());
    let turn = Turn::new(&provider, &request, &*clock);
    let ended = run_turn(turn, &mut |_| {}).await;
    assert!(ended.recorded);
}

#[tokio::test(start_paused = true)]
async fn what_came_of_a_failed_call_is_written_with_its_verdict() {
    let broken = vec![text("Hel"), fails(overloaded())];
    let came = Case::new([broken, vec![stop()]], well).run().await;
    let Some(Entry::AttemptFailed {
        attempt,
        judged: Some(judged),
        message,
        ..
    }) = came.written.get(2)
    else {
        panic!("{:?}", came.written);
    };
    assert_eq!((*attempt, message.text().as_str()), (1, "Hel"));
    assert_eq!(judged.failure.message, overloaded().message);
}
