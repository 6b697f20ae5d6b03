//! Completions that broke off, combined with restarts, prices, deadlines and aborts.

use crate::pieces::{
    after_content, billed_twice, breaks, continuation_prompt, continues, prompt, prompt_with, shown,
};
use crate::support::{
    Fate, Fixture, Listener, START, TestJournal, answers, describe_messages, fails, is_wait,
    overloaded, run_until, text, tool_call_delta, usage, usage_delta,
};
use outlast_engine::target::ModelTarget;
use outlast_kernel::budget::{Cost, Limits, Price};
use outlast_kernel::decision::{AfterContent, GiveUp};
use outlast_kernel::event::{Body, TurnStatus, Usage};
use outlast_kernel::failure::Failure;
use outlast_kernel::model_info::ContinueBy;
use outlast_session::Session;
use outlast_session::{PromptRequest, Setup};
use std::sync::Arc;
use std::time::Duration;

// --- After a restart ---

/// Sends a prompt, and dies in the wait of that number.
async fn die_waiting(kept: &TestJournal, setup: Setup, number: u32) -> String {
    let session = kept.begin(setup).await;
    let is_it = move |body: &Body| matches!(body, Body::RetryScheduled { attempt, .. } if *attempt == number);
    let fate = run_until(&session, session.prompt("hi".into()), is_it).await;
    assert_eq!(fate, Fate::Died);
    session.id().to_owned()
}

#[tokio::test(start_paused = true)]
async fn next_process_continues_partial_completion() {
    let failing = || fails(overloaded());
    // The number of calls that failed since does not matter.
    for (failures, number) in [
        (vec![], 1),
        (vec![failing()], 2),
        (vec![failing(), failing()], 3),
    ] {
        let first = [breaks(vec![text("Hel")])].into_iter().chain(failures);
        let (kept, world) = (
            TestJournal::new(),
            Fixture::new(first.chain([answers("lo")])),
        );
        let setup = || continues(&world, ContinueBy::Prompt);
        let id = die_waiting(&kept, setup(), number).await;
        let session = kept.open(&id, setup()).await;
        let heard = Listener::new(&session);
        let ended = session.resume().await.unwrap();
        assert_eq!(
            (ended.seal, ended.message.text().as_str()),
            (TurnStatus::Completed, "Hello")
        );
        let last = world.provider.requests().pop().unwrap();
        assert_eq!(
            describe_messages(&last.messages),
            ["hi", "Hel", &continuation_prompt("Hel")]
        );
        assert_eq!(
            shown(&heard),
            "Hel|lo",
            "who listens now has heard nothing before"
        );
        assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
    }
}

#[tokio::test(start_paused = true)]
async fn next_process_can_retract_replayed_output() {
    let world = Fixture::new([
        breaks(vec![text("I ")]),
        breaks(vec![text("send."), tool_call_delta("c1", "send")]),
        answers("I cannot send."),
    ]);
    let kept = TestJournal::new();
    let setup = || Setup {
        tools: None,
        ..continues(&world, ContinueBy::Prompt)
    };
    let id = die_waiting(&kept, setup(), 1).await;
    let session = kept.open(&id, setup()).await;
    let heard = Listener::new(&session);
    session.resume().await.unwrap();
    assert_eq!(shown(&heard), "I cannot send.");
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "I cannot send."]
    );
}

#[tokio::test(start_paused = true)]
async fn retracted_output_does_not_return_after_restart() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([breaks(vec![text("Hel")]), answers("Hello")]),
    );
    let setup = || after_content(&world, AfterContent::Retract);
    let id = die_waiting(&kept, setup(), 1).await;
    let session = kept.open(&id, setup()).await;
    let heard = Listener::new(&session);
    session.resume().await.unwrap();
    assert_eq!((shown(&heard).as_str(), heard.count("seam")), ("Hello", 0));
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
}

#[tokio::test(start_paused = true)]
async fn next_process_does_not_continue_with_abandoned_model() {
    let gone =
        || Failure::http("scripted", 404, "model not found", START).with_code("model_not_found");
    let world = Fixture::new([fails(gone())]);
    let other = Fixture::by(
        Arc::clone(&world.clock),
        [breaks(vec![text("Hel")]), answers("lo")],
    );
    let kept = TestJournal::new();
    let setup = || Setup {
        fallbacks: vec![ModelTarget::new(other.setup().provider, "other")],
        ..continues(&world, ContinueBy::Prompt)
    };
    let id = die_waiting(&kept, setup(), 1).await;
    let session = kept.open(&id, setup()).await;
    session.resume().await.unwrap();
    assert_eq!(
        (world.provider.calls_made(), other.provider.calls_made()),
        (1, 2)
    );
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
}

// --- Cost ---

#[tokio::test(start_paused = true)]
async fn extra_retry_usage_uses_provider_counts() {
    let broken = || breaks(vec![usage_delta(100, 7), text("Hel")]);
    let cases = [
        (AfterContent::Retract, usage(100, 7)),
        (AfterContent::Continue, usage(100, 0)),
    ];
    for (mode, twice) in cases {
        let world = Fixture::new([broken(), answers("lo")]);
        let (_, heard, ended) = prompt(after_content(&world, mode)).await;
        assert_eq!(billed_twice(&heard), Some((twice, false)), "{mode:?}");
        assert_eq!(
            (ended.extra_retry_usage, ended.usage),
            (twice, usage(100, 7))
        );
        assert_eq!(
            heard.kinds().iter().rev().take(2).collect::<Vec<_>>(),
            ["sealed", "billed_twice"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn extra_retry_usage_is_estimated_without_counts() {
    let world = Fixture::new([
        breaks(vec![text("Hello, world, how are you?")]),
        answers("Fine."),
    ]);
    let (_, heard, ended) = prompt(after_content(&world, AfterContent::Retract)).await;
    let (twice, estimated) = billed_twice(&heard).unwrap();
    assert!(
        estimated && twice.input > 0 && twice.output > 4,
        "{twice:?}"
    );
    assert_eq!(
        (ended.extra_retry_usage, ended.usage),
        (twice, Usage::default())
    );
}

#[tokio::test(start_paused = true)]
async fn retry_without_content_has_no_extra_usage() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let (_, heard, ended) = prompt(after_content(&world, AfterContent::Retract)).await;
    assert_eq!(
        (billed_twice(&heard), ended.extra_retry_usage),
        (None, Usage::default())
    );
}

// --- Limits ---

const AFTER_CONTENT_MODES: [AfterContent; 2] = [AfterContent::Retract, AfterContent::Continue];

#[tokio::test(start_paused = true)]
async fn deadline_ends_turn_in_retract_and_continue_modes() {
    for mode in AFTER_CONTENT_MODES {
        let world = Fixture::new([breaks(vec![text("Hel")])]);
        let limits = Limits {
            deadline: Some(START + Duration::from_secs(5)),
            ..Limits::default()
        };
        let ask = PromptRequest {
            limits,
            ..PromptRequest::from("hi")
        };
        let (_, heard, ended) = prompt_with(after_content(&world, mode), ask).await;
        assert_eq!(
            (ended.seal, world.provider.called_at()),
            (TurnStatus::Error, vec![0, 2]),
            "{mode:?}"
        );
        assert_eq!(
            (ended.error.unwrap().1, heard.count("error")),
            (GiveUp::DeadlineExceeded, 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn cost_limit_ends_turn_in_retract_and_continue_modes() {
    for mode in AFTER_CONTENT_MODES {
        let world = Fixture::new([breaks(vec![usage_delta(10, 10), text("Hel")])]);
        let setup = Setup {
            price: Some(Price {
                output: Cost(1_000_000),
                ..Price::default()
            }),
            ..after_content(&world, mode)
        };
        let ask = PromptRequest {
            limits: Limits {
                cost: Some(Cost(15)),
                ..Limits::default()
            },
            ..PromptRequest::from("hi")
        };
        let (_, _, ended) = prompt_with(setup, ask).await;
        assert_eq!(
            (ended.error.unwrap().1, world.provider.calls_made()),
            (GiveUp::CostLimitReached, 2),
            "{mode:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn abort_ends_turn_in_retract_and_continue_modes() {
    for mode in AFTER_CONTENT_MODES {
        let world = Fixture::new([breaks(vec![text("Hel")]), answers("lo")]);
        let session = Arc::new(Session::in_memory(after_content(&world, mode)));
        let heard = Listener::with(&session, |session, body| {
            if is_wait(body) {
                session.abort();
            }
        });
        let ended = session.prompt("hi".into()).await.unwrap();
        assert_eq!(
            (ended.seal, world.provider.calls_made()),
            (TurnStatus::Aborted, 1),
            "{mode:?}"
        );
        assert_eq!(
            heard.ends(),
            [(false, 1, Some("Retry cancelled".to_owned()))]
        );
        session.prompt("again".into()).await.unwrap();
        let asked = world.provider.requests();
        assert_eq!(
            describe_messages(&asked[1].messages),
            ["hi", "again"],
            "nothing is gone on with"
        );
    }
}
