//! A completion with reasoning, text and two tool calls, cut at every place on the wire, in every dialect and mode of
//! recovery: a reader never gets a byte twice without a retraction or a seam, and no tool runs twice.

use crate::notes::{Notes, note};
use crate::support::START;
use futures_util::StreamExt;
use outlast_dialect::{Dialect, Message, Part};
use outlast_engine::clock::TimerClock;
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::transport::{Method, Request};
use outlast_engine::{Clock, Transport};
use outlast_kernel::decision::AfterContent;
use outlast_kernel::event::{Body, Event, TurnStatus};
use outlast_kernel::model_info::ContinueBy;
use outlast_kernel::policy::Policy;
use outlast_mock::ScriptedTransport;
use outlast_session::Session;
use outlast_session::Setup;
use std::sync::{Arc, Mutex};

const PROMPT: &str = "call note {\"number\": 1}\nand note {\"number\": 2}";
const STEP: &str = "Step 1.";
const END: &str = "Done after 1 steps. noted | noted";
const END_OF_ONE: &str = "Done after 1 steps. noted";

/// One way to recover from a cut.
#[derive(Clone, Copy, Debug)]
struct CutCase {
    dialect: Dialect,
    after_content: AfterContent,
    continues_by: ContinueBy,
}

/// The outcome of a prompt.
struct PromptResult {
    seal: TurnStatus,
    events: Vec<Event>,
    messages: Vec<Message>,
    ran: Vec<String>,
}

async fn prompt(way: CutCase, cut: usize) -> PromptResult {
    let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(START));
    let script = format!("cut:{cut},of=thinking-agent+ok:thinking-agent,times=always");
    let transport = Arc::new(ScriptedTransport::new(
        script.parse().unwrap(),
        Arc::clone(&clock),
    ));
    let provider = Adapter::new(way.dialect, transport, Arc::clone(&clock));
    let policy = Policy::named("session").unwrap();
    let tools = Arc::new(Notes::default());
    let mut setup = Setup::new(Arc::new(provider), "m", Arc::clone(&clock));
    setup.retry = Some(Arc::new(PolicyRetry::new(policy, clock)));
    setup.tools = Some(tools.clone());
    setup.tool_definitions = vec![note()];
    setup.after_content = way.after_content;
    setup.traits.continues_by = way.continues_by;
    let session = Session::in_memory(setup);
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let _listening = session.subscribe(move |event| heard.lock().unwrap().push(event.clone()));
    let ended = session.prompt(PROMPT.into()).await.unwrap();
    let ran = tools.noted();
    let events = events.lock().unwrap().clone();
    PromptResult {
        seal: ended.seal,
        events,
        messages: session.messages(),
        ran,
    }
}

impl PromptResult {
    /// Returns the text that a reader sees in the end, without the attempts that were retracted.
    fn text(&self) -> String {
        let mut shown: Vec<(Option<String>, String)> = Vec::new();
        for event in &self.events {
            match &event.body {
                Body::TextDelta { text } => shown.push((event.attempt_id.clone(), text.clone())),
                Body::Retracted { attempt } => {
                    let retracted = format!("{}.{attempt}", event.turn_id);
                    shown.retain(|(of, _)| of.as_deref() != Some(&retracted));
                }
                _ => {}
            }
        }
        shown.into_iter().map(|(_, text)| text).collect()
    }

    fn has(&self, is_it: impl Fn(&Body) -> bool) -> bool {
        self.events.iter().any(|event| is_it(&event.body))
    }

    /// Returns whether an attempt continues the output of an earlier one without a seam before it.
    fn has_silent_continuation(&self) -> bool {
        let (mut heard, mut may_speak): (Option<String>, bool) = (None, true);
        for event in &self.events {
            match &event.body {
                Body::Seam { .. } | Body::Retracted { .. } | Body::StepComplete { .. } => {
                    (heard, may_speak) = (None, true);
                }
                Body::TextDelta { .. } | Body::ReasoningDelta { .. } => {
                    may_speak &= heard.is_none() || heard == event.attempt_id;
                    heard.clone_from(&event.attempt_id);
                }
                _ => {}
            }
        }
        !may_speak
    }

    fn every_call_has_one_result(&self) -> bool {
        let parts = || self.messages.iter().flat_map(|message| &message.parts);
        let calls = parts().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.id.clone()),
            _ => None,
        });
        let results = parts().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result.id.clone()),
            _ => None,
        });
        calls.collect::<Vec<_>>() == results.collect::<Vec<_>>()
    }
}

fn check(way: CutCase, cut: usize, seen: &PromptResult) {
    let at = format!("{way:?}, cut after {cut} bytes");
    let text = seen.text();
    assert!(!seen.has_silent_continuation(), "{at}");
    assert!(seen.every_call_has_one_result(), "{at}");
    let both = ["{\"number\": 1}", "{\"number\": 2}"];
    if seen.seal == TurnStatus::Completed {
        // A stream that broke off between two calls has delivered one.
        let one = seen.ran.len() == 1 && seen.has(|body| matches!(body, Body::Warning { .. }));
        let (end, ran) = match one {
            true => (END_OF_ONE, &both[..1]),
            false => (END, &both[..]),
        };
        assert_eq!(text, format!("{STEP}{end}"), "{at}");
        assert_eq!(seen.ran, ran, "{at}");
        let said: Vec<String> = seen.messages.iter().map(Message::text).collect();
        assert_eq!(said, [PROMPT, STEP, "", end], "{at}");
    } else {
        assert_eq!(way.after_content, AfterContent::Fail, "{at}");
        assert!(STEP.starts_with(&text), "{at}: {text}");
        assert!(seen.ran.is_empty(), "{at}");
    }
}

/// Returns the places at which the first completion is cut: around the end of every frame, and within each. All places
/// within a frame have the same effect.
async fn cut_positions(dialect: Dialect) -> Vec<usize> {
    let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(START));
    let script = "ok:thinking-agent,times=always".parse().unwrap();
    let asked = outlast_dialect::Request {
        messages: vec![Message::user(PROMPT)],
        tools: vec![note()],
        resumable: true,
        ..outlast_dialect::Request::default()
    };
    let response = ScriptedTransport::new(script, clock).send(Request {
        method: Method::Post,
        path: dialect.path().to_owned(),
        headers: Vec::new(),
        body: dialect.encode_request(&asked).into(),
    });
    let pieces: Vec<_> = response.await.unwrap().body.collect().await;
    let wire: Vec<u8> = pieces
        .into_iter()
        .flat_map(|piece| piece.unwrap())
        .collect();
    let ends = wire
        .windows(2)
        .enumerate()
        .filter(|(_, two)| *two == b"\n\n");
    let ends = ends.map(|(place, _)| place + 2);
    let around = ends.flat_map(|end| [end - 20, end - 1, end, end + 1]);
    [0, 1].into_iter().chain(around).collect()
}

/// Cuts the first completion at every place; returns the number of seams.
async fn cut_everywhere(way: CutCase, places: &[usize]) -> usize {
    let mut seams = 0;
    for cut in places {
        let seen = prompt(way, *cut).await;
        check(way, *cut, &seen);
        seams += usize::from(seen.has(|body| matches!(body, Body::Seam { .. })));
    }
    seams
}

fn continuation_cases(dialect: Dialect) -> Vec<(AfterContent, ContinueBy)> {
    let mut ways = vec![
        (AfterContent::Fail, ContinueBy::Prompt),
        (AfterContent::Retract, ContinueBy::Prompt),
        (AfterContent::Continue, ContinueBy::Prompt),
        (AfterContent::Continue, ContinueBy::Restart),
    ];
    match dialect {
        Dialect::Anthropic => ways.push((AfterContent::Continue, ContinueBy::Prefill)),
        Dialect::OpenaiResponses => ways.push((AfterContent::Continue, ContinueBy::Resume)),
        Dialect::OpenaiChat => {}
    }
    ways
}

async fn cut_in(dialect: Dialect) {
    let places = cut_positions(dialect).await;
    assert!(places.len() > 80, "{dialect:?}: only {}", places.len());
    for (after_content, continues_by) in continuation_cases(dialect) {
        let way = CutCase {
            dialect,
            after_content,
            continues_by,
        };
        let seams = cut_everywhere(way, &places).await;
        let goes_on =
            after_content == AfterContent::Continue && continues_by != ContinueBy::Restart;
        assert_eq!(seams > 0, goes_on, "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn anthropic_cut_repeats_no_byte_and_no_tool() {
    cut_in(Dialect::Anthropic).await;
}

#[tokio::test(start_paused = true)]
async fn chat_completions_cut_repeats_no_byte_and_no_tool() {
    cut_in(Dialect::OpenaiChat).await;
}

#[tokio::test(start_paused = true)]
async fn responses_cut_repeats_no_byte_and_no_tool() {
    cut_in(Dialect::OpenaiResponses).await;
}
