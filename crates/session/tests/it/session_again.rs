//! The next prompt or retry after a completion that was stopped or given up: no partial content, no duplicates.

use crate::pieces::{
    assert_well_formed, breaks, error, numbers, prompt, thinks, thought, with_tools,
};
use crate::support::{
    Fixture, Item, Listener, START, TestJournal, answers, calls, describe_messages, hangs, stop,
    text, tool_call_delta,
};
use outlast_kernel::decision::{AfterContent, GiveUp};
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_kernel::failure::Failure;
use outlast_kernel::verdict::{Cause, Scope, Verdict};
use outlast_session::Setup;

// --- Stopped by a person ---

#[tokio::test(start_paused = true)]
async fn aborted_reasoning_is_not_sent_again() {
    let begun = vec![thinks("First I "), thought("First I "), thinks("think.")];
    let world = Fixture::new([hangs(begun), answers("Hello")]);
    let kept = TestJournal::new();
    let session = kept.begin(world.setup()).await;
    let heard = Listener::with(&session, |session, body| {
        if matches!(body, Body::ReasoningDelta { text } if text == "think.") {
            session.abort();
        }
    });
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Aborted);
    session.prompt("go on".into()).await.unwrap();
    let asked = &world.provider.requests()[1].messages;
    assert_eq!(describe_messages(asked), ["hi", "go on"]);
    let id = session.id().to_owned();
    drop((heard, session));
    let session = kept.open(&id, world.setup()).await;
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "go on", "Hello"]
    );
}

#[tokio::test(start_paused = true)]
async fn tool_calls_aborted_before_start_are_reported_not_run() {
    let world = Fixture::new([calls(&[("c1", "send"), ("c2", "read")]), answers("Hello")]);
    let session = world.session();
    let _heard = Listener::with(&session, |session, body| {
        if matches!(body, Body::StepComplete { .. }) {
            session.abort();
        }
    });
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(world.tools.ran(), Vec::<String>::new());
    session.prompt("go on".into()).await.unwrap();
    let expected = [
        "hi",
        "send(c1)",
        "read(c2)",
        "c1! it was not run: the turn was cancelled before it began",
        "c2! it was not run: the turn was cancelled before it began",
        "go on",
    ];
    assert_eq!(
        describe_messages(&world.provider.requests()[1].messages),
        expected
    );
}

// --- Given up, and retried by hand ---

#[tokio::test(start_paused = true)]
async fn cut_completion_can_be_retried_by_the_next_process() {
    let begun: [Vec<Item>; 2] = [
        vec![text("I send.")],
        vec![text("I send."), tool_call_delta("c1", "send")],
    ];
    for begun in begun {
        let whole = vec![tool_call_delta("c2", "send"), stop(StopReason::ToolUse)];
        let world = Fixture::new([breaks(begun), whole.into(), answers("Sent.")]);
        let setup = || Setup {
            after_content: AfterContent::Fail,
            ..world.setup()
        };
        let kept = TestJournal::new();
        let session = kept.begin(setup()).await;
        let ended = session.prompt("hi".into()).await.unwrap();
        assert_eq!(error(&ended).2, GiveUp::ContentSent);
        let id = session.id().to_owned();
        drop(session);
        let session = kept.open(&id, setup()).await;
        assert_eq!(describe_messages(&session.messages()), ["hi"]);
        let ended = session.retry_last_turn("unused".into()).await.unwrap();
        assert_eq!(
            (ended.seal, world.tools.ran()),
            (TurnStatus::Completed, vec!["c2".to_owned()])
        );
        let expected = ["hi", "send(c2)", "c2: c2 is done", "Sent."];
        assert_eq!(describe_messages(&session.messages()), expected);
        assert_eq!(
            describe_messages(&world.provider.requests()[1].messages),
            ["hi"]
        );
    }
}

// --- Completions that can never be read ---

#[tokio::test(start_paused = true)]
async fn malformed_completion_is_corrected_three_times_at_most() {
    let message = "the arguments of a call are blanks without end";
    let failure = Failure::emitted("scripted", message, START)
        .with_verdict(Verdict::new(Cause::MalformedOutput, Scope::Request));
    let broken: Vec<Item> = vec![
        thought("Hm."),
        tool_call_delta("c1", "send"),
        Err(Box::new(failure)),
    ];
    let world = Fixture::new([broken.into()]);
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    let expected = (Cause::MalformedOutput, message, GiveUp::NotRetryable);
    assert_eq!((ended.seal, error(&ended)), (TurnStatus::Error, expected));
    assert_eq!(
        (numbers(&heard), world.provider.calls_made()),
        (vec![1, 2, 3], 4)
    );
    assert_eq!(world.tools.ran(), Vec::<String>::new());
    assert_well_formed(&session.messages());
}
