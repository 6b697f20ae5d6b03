//! An answer with reasoning, text and two tool calls, cut off at every byte of the wire, in every dialect, whatever is
//! done about it: nobody sees a byte twice without being told, and no tool runs twice.

use crate::support::START;
use outlast_agent::Session;
use outlast_agent::session::Setup;
use outlast_dialect::{Dialect, Message, Part, Tool};
use outlast_engine::clock::TimerClock;
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::tools::{Effect, Output, Toolbox};
use outlast_engine::{BoxFuture, CancellationToken, Clock};
use outlast_kernel::decision::AfterContent;
use outlast_kernel::event::{Body, Event, Seal, ToolCall};
use outlast_kernel::models::ContinueBy;
use outlast_kernel::policy::Policy;
use outlast_mock::Scripted;
use serde_json::json;
use std::sync::{Arc, Mutex};

const PROMPT: &str = "call note {\"number\": 1}\nand note {\"number\": 2}";
const STEP: &str = "Step 1.";
const END: &str = "Done after 1 steps. noted | noted";

/// A tool that notes what it was called with.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Toolbox for Notes {
    fn admit<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, Result<Effect, String>> {
        Box::pin(async { Ok(Effect::AtMostOnce) })
    }

    fn run<'a>(&'a self, call: &'a ToolCall, _: CancellationToken) -> BoxFuture<'a, Output> {
        self.0.lock().unwrap().push(call.arguments.clone());
        Box::pin(async { Output::ok("noted") })
    }
}

/// One way to deal with a cut.
#[derive(Clone, Copy, Debug)]
struct Way {
    dialect: Dialect,
    after_content: AfterContent,
    continues_by: ContinueBy,
}

/// What came of a prompt.
struct Seen {
    seal: Seal,
    events: Vec<Event>,
    messages: Vec<Message>,
    ran: Vec<String>,
}

async fn prompt(way: Way, cut: usize) -> Seen {
    let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(START));
    let script = format!("cut:{cut},of=thinking-agent+ok:thinking-agent,times=always");
    let transport = Arc::new(Scripted::new(script.parse().unwrap(), Arc::clone(&clock)));
    let provider = Adapter::new(way.dialect, transport, Arc::clone(&clock));
    let policy = Policy::named("session").unwrap();
    let tools = Arc::new(Notes::default());
    let mut setup = Setup::new(Arc::new(provider), "m", Arc::clone(&clock));
    setup.retry = Some(Arc::new(PolicyRetry::new(policy, clock)));
    setup.tools = Some(tools.clone());
    setup.offered = vec![Tool {
        name: "note".to_owned(),
        description: "Notes a number.".to_owned(),
        parameters: json!({ "type": "object" }),
    }];
    setup.after_content = way.after_content;
    setup.traits.continues_by = way.continues_by;
    let session = Session::in_memory(setup);
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let _listening = session.subscribe(move |event| heard.lock().unwrap().push(event.clone()));
    let ended = session.prompt(PROMPT.into()).await.unwrap();
    let ran = tools.0.lock().unwrap().clone();
    let events = events.lock().unwrap().clone();
    Seen {
        seal: ended.seal,
        events,
        messages: session.messages(),
        ran,
    }
}

impl Seen {
    /// The text that a reader has before them in the end: attempts that were retracted are taken out.
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

    /// Whether something is handed on by an attempt that goes on with an earlier one before a seam was said.
    fn goes_on_without_a_seam(&self) -> bool {
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

fn check(way: Way, cut: usize, seen: &Seen) {
    let at = format!("{way:?}, cut after {cut} bytes");
    let text = seen.text();
    assert!(!seen.goes_on_without_a_seam(), "{at}");
    assert!(seen.every_call_has_one_result(), "{at}");
    let both = ["{\"number\": 1}", "{\"number\": 2}"];
    if seen.seal == Seal::Completed {
        assert_eq!(text, format!("{STEP}{END}"), "{at}");
        assert_eq!(seen.ran, both, "{at}");
        let said: Vec<String> = seen.messages.iter().map(Message::text).collect();
        assert_eq!(said, [PROMPT, STEP, "", END], "{at}");
    } else {
        assert_eq!(way.after_content, AfterContent::Fail, "{at}");
        assert!(STEP.starts_with(&text), "{at}: {text}");
        assert!(seen.ran.is_empty(), "{at}");
    }
}

/// Cuts the first answer everywhere; returns how often that changed anything, and how often there was a seam.
async fn cut_everywhere(way: Way) -> (usize, usize) {
    let (mut cuts, mut seams) = (0, 0);
    for cut in 0.. {
        let seen = prompt(way, cut).await;
        check(way, cut, &seen);
        seams += usize::from(seen.has(|body| matches!(body, Body::Seam { .. })));
        let attempts = seen.has(|body| matches!(body, Body::AttemptStarted { attempt: 3 }));
        // Cut behind its end, an answer is whole: two calls are made, and no third.
        if seen.seal == Seal::Completed && !attempts && cut > 0 && !salvaged(&seen) {
            break;
        }
        cuts += 1;
    }
    (cuts, seams)
}

fn salvaged(seen: &Seen) -> bool {
    seen.has(|body| matches!(body, Body::Warning { .. }))
}

fn ways(dialect: Dialect) -> Vec<(AfterContent, ContinueBy)> {
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
    for (after_content, continues_by) in ways(dialect) {
        let way = Way {
            dialect,
            after_content,
            continues_by,
        };
        let (cuts, seams) = cut_everywhere(way).await;
        assert!(cuts > 500, "{way:?}: only {cuts}");
        let goes_on =
            after_content == AfterContent::Continue && continues_by != ContinueBy::Restart;
        assert_eq!(seams > 0, goes_on, "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_byte_is_shown_twice_and_no_tool_runs_twice_wherever_an_anthropic_answer_is_cut() {
    cut_in(Dialect::Anthropic).await;
}

#[tokio::test(start_paused = true)]
async fn no_byte_is_shown_twice_and_no_tool_runs_twice_wherever_a_chat_completion_is_cut() {
    cut_in(Dialect::OpenaiChat).await;
}

#[tokio::test(start_paused = true)]
async fn no_byte_is_shown_twice_and_no_tool_runs_twice_wherever_a_response_is_cut() {
    cut_in(Dialect::OpenaiResponses).await;
}
