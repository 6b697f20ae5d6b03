//! A request that is too large: compacted once and sent again, or ended with one error that suggests a solution.

use crate::pieces::error;
use crate::routes::Routes;
use crate::session_compaction::{compacting, compactions, scripted};
use crate::support::{Call, Listener, START, answers, describe_messages, fails};
use outlast_engine::token_estimate;
use outlast_engine::turn::TurnOutcome;
use outlast_kernel::decision::GiveUp;
use outlast_kernel::event::{Body, CompactionReason, TurnStatus};
use outlast_kernel::failure::Failure;
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::Setup;
use std::sync::Arc;
use std::time::Duration;

fn long() -> String {
    "The first half of the work is done. ".repeat(400)
}

fn refused(status: u16, message: &str) -> Call {
    fails(Failure::http("model", status, message, START))
}

/// Sends three prompts of which the last one is short; returns the session, its events and the last outcome.
async fn last_of_three(setup: Setup) -> (Arc<Session>, Listener, TurnOutcome) {
    let session = Arc::new(Session::in_memory(setup));
    for text in [long(), long()] {
        session.prompt(text.as_str().into()).await.unwrap();
    }
    let heard = Listener::new(&session);
    let ended = session.prompt("What is left?".into()).await.unwrap();
    (session, heard, ended)
}

/// Returns two completions, then these calls.
fn in_the_end<const N: usize>(calls: [Call; N]) -> Vec<Call> {
    let mut script = vec![answers("One."), answers("Two.")];
    script.extend(calls);
    script
}

/// Returns the reason for giving up from the error event; there must be exactly one.
fn reason(heard: &Listener) -> String {
    let errors = heard.bodies().into_iter().filter_map(|body| match body {
        Body::Error { reason, .. } => Some(reason),
        _ => None,
    });
    let errors: Vec<String> = errors.collect();
    let [reason] = &errors[..] else {
        panic!("{errors:?}");
    };
    reason.clone()
}

// --- Tokens ---

#[tokio::test(start_paused = true)]
async fn overflow_is_compacted_and_resent_at_once() {
    let routes = scripted(
        "ok:agent,times=2+window:6000,of=agent",
        "ok:agent,times=always",
    );
    // Larger than the real window: the size that the server states takes precedence.
    let routes = routes.with_windows([Some(200_000), None]);
    let (session, heard, ended) = last_of_three(compacting(&routes)).await;
    assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    let said = compactions(&heard);
    let [(CompactionReason::Overflow, before, after, true)] = said[..] else {
        panic!("{said:?}");
    };
    assert!(before > 6000 && after < 6000, "{said:?}");
    assert_eq!((heard.count("error"), heard.retries()), (0, vec![]));
    assert_eq!(routes.world.elapsed(), Duration::ZERO);
    let names = routes.names();
    assert_eq!(names[names.len() - 3..], ["model", "summariser", "model"]);
    let sent = routes.log().pop().unwrap().request.messages;
    let [before @ .., answer] = &session.messages()[..] else {
        panic!("an empty conversation");
    };
    assert_eq!(before, sent);
    assert_eq!(*answer, ended.message);
}

#[tokio::test(start_paused = true)]
async fn unsolvable_overflow_fails_after_three_requests() {
    // The request is refused at any size.
    let endless = in_the_end([refused(400, "prompt is too long")]);
    let mut routes = Routes::new([("model", endless)]);
    let summariser = scripted("ok", "ok:agent,times=always").list.remove(1);
    routes.push("summariser", summariser.provider);
    let (_, heard, ended) = last_of_three(compacting(&routes)).await;
    let names = &routes.names()[2..];
    assert_eq!(names, ["model", "summariser", "model"]);
    assert_eq!(
        (error(&ended).0, error(&ended).2),
        (Cause::ContextOverflow, GiveUp::Overflow)
    );
    let said = compactions(&heard);
    let [(_, before, after, true)] = said[..] else {
        panic!("{said:?}");
    };
    let expected = format!(
        "{}; it is too large although it was made smaller, from about {before} to about {after} tokens; begin a new \
         session, or choose a model that can read more",
        GiveUp::Overflow
    );
    assert_eq!(reason(&heard), expected);
    assert_eq!(routes.world.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn conversation_too_large_to_compact_fails_unchanged() {
    // The part that cannot be left out is larger than the window.
    let routes = scripted("window:500,of=agent", "ok:agent,times=always");
    let setup = Setup {
        system: Some("You are an agent. ".repeat(300)),
        ..compacting(&routes)
    };
    let session = Arc::new(Session::in_memory(setup));
    let heard = Listener::new(&session);
    let ended = session.prompt("What is left?".into()).await.unwrap();
    assert_eq!(
        (ended.seal, routes.names()),
        (TurnStatus::Error, vec!["model"])
    );
    let reason = reason(&heard);
    for part in [
        "the conversation has about ",
        "tokens and can only be cut to ",
        " in a window of 500",
        "start a new session, choose a model with a larger window",
    ] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(describe_messages(&session.messages()), ["What is left?"]);
}

// --- Bytes ---

#[tokio::test(start_paused = true)]
async fn too_many_bytes_are_elided_when_window_is_unknown() {
    let routes = scripted(
        "ok:agent,times=2+too-large:20000,of=agent",
        "ok:agent,times=always",
    );
    let (_, heard, ended) = last_of_three(compacting(&routes)).await;
    assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    let said = compactions(&heard);
    assert!(
        matches!(said[..], [(CompactionReason::TooManyBytes, _, _, true)]),
        "{said:?}"
    );
    assert_eq!(routes.names(), ["model"; 4]);
    let sent = token_estimate::request_bytes(&routes.log().pop().unwrap().request);
    assert!(sent < 20_000, "{sent}");
}

#[tokio::test(start_paused = true)]
async fn too_many_bytes_with_room_in_window_end_the_turn() {
    let routes = scripted(
        "ok:agent,times=2+too-large:20000,of=agent",
        "ok:agent,times=always",
    );
    let routes = routes.with_windows([Some(200_000), None]);
    let (session, heard, ended) = last_of_three(compacting(&routes)).await;
    assert_eq!(
        (ended.seal, routes.names()),
        (TurnStatus::Error, vec!["model"; 3])
    );
    assert_eq!(compactions(&heard), []);
    let reason = reason(&heard);
    assert!(
        reason.contains("the provider takes fewer bytes, whatever the tokens: the request has about 29 KiB, 0 KiB of them pictures"),
        "{reason}"
    );
    assert_eq!(session.messages().len(), 5);
    assert_eq!(session.messages()[0].text(), long());
}

// --- Time ---

const SLOW: &str = "Timed out reading request body. Try again, or use a smaller request size.";

#[tokio::test(start_paused = true)]
async fn slow_upload_is_compacted_and_resent_only_once() {
    let script = in_the_end([refused(408, SLOW), answers("Hello")]);
    let routes = Routes::new([("model", script)]);
    let (_, heard, ended) = last_of_three(compacting(&routes)).await;
    assert_eq!(ended.message.text(), "Hello");
    assert_eq!((heard.retries(), routes.names().len()), (vec![], 4));

    let script = in_the_end([refused(408, SLOW)]);
    let routes = Routes::new([("model", script)]);
    let (_, heard, ended) = last_of_three(compacting(&routes)).await;
    assert_eq!(
        (error(&ended).0, error(&ended).2),
        (Cause::Timeout, GiveUp::NotRetryable)
    );
    let said = compactions(&heard);
    assert!(
        matches!(said[..], [(CompactionReason::SlowUpload, _, _, true)]),
        "{said:?}"
    );
    assert!(reason(&heard).contains("although it was made smaller"));
    assert_eq!(
        (routes.names().len(), routes.world.elapsed()),
        (4, Duration::ZERO)
    );
}
