//! Completions that are refused, cut by the output limit, or left without room in the window.

use crate::pieces::{
    assert_well_formed, corrected, error, numbers, prompt, resume_elsewhere, with_tools,
};
use crate::support::{
    Call, Fixture, answers, calls, describe_messages, stop, text, tool_call_delta, usage_delta,
};
use outlast_dialect::{Message, Request};
use outlast_engine::BoxFuture;
use outlast_engine::compaction::{CompactedConversation, Compactor, Job, Outcome, Size};
use outlast_kernel::completion::InvalidCompletion;
use outlast_kernel::decision::{AfterContent, GiveUp};
use outlast_kernel::event::{Body, CompactionReason, StopReason, TurnStatus, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::model_info::Capabilities;
use outlast_kernel::verdict::Cause;
use outlast_session::Setup;
use std::sync::Arc;

const NOT_RUN: &str = "it was not run: the answer reached its output limit before it was complete; split the work into \
                       smaller calls";

// --- Refusals ---

#[tokio::test(start_paused = true)]
async fn refusal_is_an_error_and_is_never_resent() {
    let refusal = || -> Call { vec![text("I can't."), stop(StopReason::Refusal)].into() };
    for after_content in [
        AfterContent::Fail,
        AfterContent::Retract,
        AfterContent::Continue,
    ] {
        let world = Fixture::new([refusal(), answers("Hello")]);
        let setup = Setup {
            after_content,
            ..with_tools(&world)
        };
        let (session, heard, ended) = prompt(setup).await;
        assert_eq!(
            (ended.seal, world.provider.calls_made()),
            (TurnStatus::Error, 1)
        );
        let (cause, message, _) = error(&ended);
        let problem = format!("{}: I can't.", InvalidCompletion::Refused.user_message());
        assert_eq!((cause, message), (Cause::ContentFilter, problem.as_str()));
        assert_eq!((heard.count("corrected"), heard.count("error")), (0, 1));
        session.prompt("again".into()).await.unwrap();
        let asked = world.provider.requests();
        assert_eq!(describe_messages(&asked[1].messages), ["hi", "again"]);
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_without_text_is_an_error() {
    let world = Fixture::new([vec![stop(StopReason::Refusal)].into()]);
    let (_, _, ended) = prompt(with_tools(&world)).await;
    let expected = (
        Cause::ContentFilter,
        InvalidCompletion::Refused.user_message(),
        GiveUp::NotRetryable,
    );
    assert_eq!(error(&ended), expected);
    assert_eq!(world.provider.calls_made(), 1);
}

#[tokio::test(start_paused = true)]
async fn tool_call_in_refused_completion_is_not_run() {
    let refused = vec![tool_call_delta("c1", "send"), stop(StopReason::Refusal)];
    let world = Fixture::new([refused.into()]);
    let (session, _, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, world.tools.ran().len()),
        (TurnStatus::Error, 0)
    );
    assert_eq!(describe_messages(&session.messages()), ["hi"]);
}

// --- The output limit ---

#[tokio::test(start_paused = true)]
async fn text_cut_by_output_limit_is_kept_with_warning() {
    let world = Fixture::new([vec![text("Once upon"), stop(StopReason::Length)].into()]);
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, ended.stop_reason),
        (TurnStatus::Completed, Some(StopReason::Length))
    );
    assert_eq!(describe_messages(&session.messages()), ["hi", "Once upon"]);
    let message = "the answer reached the output limit and is incomplete".to_owned();
    assert!(heard.bodies().contains(&Body::Warning { message }));
    assert_eq!((heard.count("corrected"), heard.count("done")), (0, 1));
    assert_eq!(world.provider.calls_made(), 1);
}

fn cut_calls() -> Call {
    let items = vec![
        text("I write."),
        tool_call_delta("c1", "send"),
        tool_call_delta("c2", "read"),
        stop(StopReason::Length),
    ];
    items.into()
}

#[tokio::test(start_paused = true)]
async fn calls_cut_by_output_limit_are_corrected_and_not_run() {
    let world = Fixture::new([cut_calls(), calls(&[("c3", "read")]), answers("Hello")]);
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, world.tools.ran()),
        (TurnStatus::Completed, vec!["c3".to_owned()])
    );
    let (first, second) = (format!("c1! {NOT_RUN}"), format!("c2! {NOT_RUN}"));
    let expected = ["hi", "I write.", "send(c1)", "read(c2)", &first, &second];
    let asked = world.provider.requests();
    assert_eq!(describe_messages(&asked[1].messages), expected);
    assert_well_formed(&session.messages());
    let problem = InvalidCompletion::CutCall.user_message().to_owned();
    assert_eq!(corrected(&heard), [(Cause::MalformedOutput, problem, 1, 3)]);
    assert_eq!(
        (heard.count("tool_started"), heard.count("tool_result")),
        (1, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_repeatedly_cut_by_output_limit_end_the_turn() {
    let world = Fixture::new([cut_calls()]);
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    let expected = (
        Cause::MalformedOutput,
        InvalidCompletion::CutCall.user_message(),
        GiveUp::NotRetryable,
    );
    assert_eq!((ended.seal, error(&ended)), (TurnStatus::Error, expected));
    assert_eq!(
        (world.provider.calls_made(), numbers(&heard)),
        (4, vec![1, 2, 3])
    );
    assert_eq!(world.tools.ran(), Vec::<String>::new());
    assert_well_formed(&session.messages());
}

#[tokio::test(start_paused = true)]
async fn resumed_process_does_not_run_cut_calls() {
    let world = Fixture::new([cut_calls(), answers("Hello")]);
    let session = resume_elsewhere(&world).await;
    assert_eq!(world.tools.ran(), Vec::<String>::new());
    let (first, second) = (format!("c1! {NOT_RUN}"), format!("c2! {NOT_RUN}"));
    let called = ["hi", "I write.", "send(c1)", "read(c2)"];
    let expected = [&called[..], &[&first, &second, "Hello"]].concat();
    assert_eq!(describe_messages(&session.messages()), expected);
}

// --- A full window ---

/// Drops all messages but the last.
struct UselessCompactor;

impl Compactor for UselessCompactor {
    fn should_compact(&self, _: Size) -> bool {
        false
    }

    fn reason_for(
        &self,
        judged: &ClassifiedFailure,
        _: &Request,
        _: Size,
    ) -> Option<CompactionReason> {
        (judged.verdict.cause == Cause::ContextOverflow).then_some(CompactionReason::Overflow)
    }

    fn compact<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Outcome> {
        let smaller = CompactedConversation {
            messages: vec![Message::user("hi, in short")],
            size: 1,
            model: None,
        };
        Box::pin(async move {
            Outcome {
                result: Ok(smaller),
                usage: Usage::default(),
                budget: job.budget,
            }
        })
    }
}

fn small_window(world: &Fixture) -> Setup {
    Setup {
        traits: Capabilities {
            window: Some(1000),
            ..Capabilities::default()
        },
        ..with_tools(world)
    }
}

fn out_of_room() -> Call {
    vec![usage_delta(985, 5), stop(StopReason::Length)].into()
}

#[tokio::test(start_paused = true)]
async fn empty_completion_in_full_window_is_an_overflow() {
    let world = Fixture::new([out_of_room()]);
    let (_, heard, ended) = prompt(small_window(&world)).await;
    let expected = (
        Cause::ContextOverflow,
        InvalidCompletion::OutOfRoom.user_message(),
        GiveUp::Overflow,
    );
    assert_eq!((ended.seal, error(&ended)), (TurnStatus::Error, expected));
    assert_eq!(
        (world.provider.calls_made(), heard.count("corrected")),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn overflow_seen_as_empty_completion_is_compacted() {
    let world = Fixture::new([out_of_room(), answers("Hello")]);
    let setup = Setup {
        compaction: Some(Arc::new(UselessCompactor)),
        ..small_window(&world)
    };
    let (session, heard, ended) = prompt(setup).await;
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi, in short", "Hello"]
    );
    assert_eq!(
        (
            heard.count("auto_compaction_ended"),
            heard.count("corrected")
        ),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn persistent_overflow_is_compacted_once() {
    let world = Fixture::new([out_of_room()]);
    let setup = Setup {
        compaction: Some(Arc::new(UselessCompactor)),
        ..small_window(&world)
    };
    let (_, heard, ended) = prompt(setup).await;
    assert_eq!(error(&ended).2, GiveUp::Overflow);
    assert_eq!(
        (
            world.provider.calls_made(),
            heard.count("auto_compaction_ended")
        ),
        (2, 1)
    );
}
