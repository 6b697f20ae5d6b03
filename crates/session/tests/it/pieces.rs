//! Completions that contain reasoning, are invalid or break off, and the text that a client shows of them.

use crate::support::{Call, Fixture, Item, Listener, START, TestJournal, on_other_thread};
use outlast_dialect::{Delta, Message, Part, Tool};
use outlast_engine::turn::TurnOutcome;
use outlast_kernel::decision::{AfterContent, GiveUp};
use outlast_kernel::event::{Body, Event, Proof, Reasoning, TurnStatus, Usage};
use outlast_kernel::failure::{Failure, IoKind};
use outlast_kernel::model_info::{Capabilities, ContinueBy};
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::{PromptRequest, Setup};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

// --- Completions ---

/// Returns a piece of reasoning.
pub(crate) fn thinks(text: &str) -> Item {
    Ok(Delta::Reasoning(text.to_owned()))
}

/// Returns the end of reasoning, with its signature.
pub(crate) fn thought(text: &str) -> Item {
    let signature = "signed".to_owned();
    Ok(Delta::ReasoningDone(Reasoning {
        text: text.to_owned(),
        proof: Some(Proof::Signature { signature }),
        ..Reasoning::default()
    }))
}

pub(crate) fn lost() -> Failure {
    Failure::thrown("scripted", "the connection was lost", START).with_io(IoKind::Reset)
}

/// Returns a call that yields these items and then loses the connection.
pub(crate) fn breaks(mut items: Vec<Item>) -> Call {
    items.push(Err(Box::new(lost())));
    items.into()
}

/// Creates a setup with that reaction to completions that break off.
pub(crate) fn after_content(world: &Fixture, after_content: AfterContent) -> Setup {
    Setup {
        after_content,
        ..world.setup()
    }
}

/// Creates a setup that continues broken completions in that way.
pub(crate) fn continues(world: &Fixture, continues_by: ContinueBy) -> Setup {
    Setup {
        traits: Capabilities {
            continues_by,
            ..Capabilities::default()
        },
        ..after_content(world, AfterContent::Continue)
    }
}

/// Creates a setup that offers a tool, and retracts broken completions.
pub(crate) fn with_tools(world: &Fixture) -> Setup {
    Setup {
        tool_definitions: vec![Tool {
            name: "read".to_owned(),
            description: "Reads.".to_owned(),
            parameters: serde_json::json!({}),
        }],
        ..after_content(world, AfterContent::Retract)
    }
}

// --- Events ---

/// Returns the text in a client that drops retracted output; a `|` marks the place where a completion continues.
pub(crate) fn shown(heard: &Listener) -> String {
    let mut attempts: BTreeMap<(String, u32), String> = BTreeMap::new();
    for event in heard.events() {
        let number = number(&event);
        let turn = event.turn_id;
        match event.body {
            Body::TextDelta { text } => {
                let said = attempts.entry((turn, number)).or_default();
                said.push_str(&text);
            }
            Body::Seam { .. } => attempts.entry((turn, number)).or_default().push('|'),
            Body::Retracted { attempt } => drop(attempts.remove(&(turn, attempt))),
            _ => {}
        }
    }
    attempts.into_values().collect()
}

/// Returns the number of an event's attempt; 0 before the first one.
pub(crate) fn number(event: &Event) -> u32 {
    let id = event.attempt_id.as_deref();
    let number = id.and_then(|id| {
        id.strip_prefix(&format!("{}.", event.turn_id))?
            .parse()
            .ok()
    });
    number.unwrap_or_default()
}

/// Asserts that every call has one result, in the message that follows it, and that every result has its call.
pub(crate) fn assert_well_formed(messages: &[Message]) {
    let mut wanted: Vec<&str> = Vec::new();
    for message in messages {
        assert!(!message.parts.is_empty(), "{messages:?}");
        let results = message.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result.id.as_str()),
            _ => None,
        });
        assert_eq!(results.collect::<Vec<_>>(), wanted, "{messages:?}");
        wanted = message.tool_calls().map(|call| call.id.as_str()).collect();
    }
    assert_eq!(wanted, Vec::<&str>::new(), "{messages:?}");
}

/// Returns the request to continue after these words.
pub(crate) fn continuation_prompt(end: &str) -> String {
    format!(
        "Your last answer was cut off by a failed connection. Go on exactly where it ended, without repeating any of it \
         and without a remark about it. It ended with:\n{end}"
    )
}

pub(crate) fn billed_twice(heard: &Listener) -> Option<(Usage, bool)> {
    heard.bodies().into_iter().find_map(|body| match body {
        Body::BilledTwice { usage, estimated } => Some((usage, estimated)),
        _ => None,
    })
}

// --- Sessions ---

/// Returns the announced corrections: the cause, the text of the cause, the number in a row, and the maximum.
pub(crate) fn corrected(heard: &Listener) -> Vec<(Cause, String, u32, u32)> {
    let correction = |body: Body| match body {
        Body::Corrected {
            cause,
            message,
            attempt,
            max_attempts,
        } => Some((cause, message, attempt, max_attempts)),
        _ => None,
    };
    heard.bodies().into_iter().filter_map(correction).collect()
}

/// Returns the numbers of the corrections.
pub(crate) fn numbers(heard: &Listener) -> Vec<u32> {
    corrected(heard)
        .iter()
        .map(|correction| correction.2)
        .collect()
}

pub(crate) fn error(ended: &TurnOutcome) -> (Cause, &str, GiveUp) {
    let (judged, why) = ended.error.as_ref().unwrap();
    (judged.verdict.cause, &judged.failure.message, *why)
}

pub(crate) async fn prompt(setup: Setup) -> (Arc<Session>, Listener, TurnOutcome) {
    prompt_with(setup, "hi".into()).await
}

/// Prompts the session; panics after a day, so that a stream that never ends does not hang the test.
pub(crate) async fn prompt_with(
    setup: Setup,
    ask: PromptRequest,
) -> (Arc<Session>, Listener, TurnOutcome) {
    let session = Arc::new(Session::in_memory(setup));
    let heard = Listener::new(&session);
    let day = Duration::from_secs(24 * 3600);
    let ended = tokio::time::timeout(day, session.prompt(ask)).await;
    (session, heard, ended.unwrap().unwrap())
}

/// Prompts, and resumes in another process from the journal as it was after the first step.
pub(crate) async fn resume_elsewhere(world: &Fixture) -> Arc<Session> {
    let kept = Arc::new(TestJournal::new());
    let session = kept.begin(with_tools(world)).await;
    let (other, hold) = (Arc::clone(&kept), Arc::new(Mutex::new(None)));
    let taken = Arc::clone(&hold);
    let heard = Listener::with(&session, move |session, body| {
        if matches!(body, Body::StepComplete { .. }) {
            other.remove_locks();
            let hold = on_other_thread(other.open_again().claim(session.id())).unwrap();
            *taken.lock().unwrap() = Some(hold);
        }
    });
    session.prompt("hi".into()).await.unwrap();
    let id = session.id().to_owned();
    drop((heard, session));
    let hold = hold.lock().unwrap().take().unwrap();
    kept.open_again().release(hold).await.unwrap();
    let session = kept.open(&id, with_tools(world)).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
    session
}
