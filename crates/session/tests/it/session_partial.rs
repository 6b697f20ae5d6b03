//! Completions that broke off after part of them was delivered: retracted, or continued.

use crate::pieces::{
    after_content, assert_well_formed, billed_twice, breaks, continuation_prompt, continues,
    prompt, shown, thinks, thought,
};
use crate::support::{
    Fate, Fixture, Listener, START, TestJournal, answers, calls, describe_messages, fails, hang_at,
    overloaded, run_until, stop, text, tool_call_delta,
};
use outlast_dialect::Role;
use outlast_engine::target::ModelTarget;
use outlast_kernel::decision::{AfterContent, GiveUp};
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_kernel::failure::Failure;
use outlast_kernel::model_info::ContinueBy;
use outlast_session::Setup;
use std::sync::Arc;
use std::time::Duration;

/// Returns the position of the first event of that kind.
fn event_index(heard: &Listener, kind: &str) -> usize {
    let kinds = heard.kinds();
    kinds.iter().position(|other| other == kind).unwrap()
}

fn seams(heard: &Listener) -> Vec<ContinueBy> {
    let seam = |body: Body| match body {
        Body::Seam { by } => Some(by),
        _ => None,
    };
    heard.bodies().into_iter().filter_map(seam).collect()
}

// --- Retracted ---

#[tokio::test(start_paused = true)]
async fn retraction_is_announced_before_its_retry() {
    let world = Fixture::new([breaks(vec![text("Hel")]), answers("Hello")]);
    let (session, heard, _) = prompt(after_content(&world, AfterContent::Retract)).await;
    let expected = [
        "start",
        "input",
        "attempt_started",
        "text_delta",
        "retracted",
        "retry_scheduled",
        "attempt_started",
        "text_delta",
        "step_complete",
        "retry_ended",
        "done",
        "billed_twice",
        "sealed",
    ];
    assert_eq!(heard.kinds(), expected);
    assert!(heard.bodies().contains(&Body::Retracted { attempt: 1 }));
    assert_eq!(shown(&heard), "Hello");
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
    assert_eq!(
        describe_messages(&world.provider.requests()[1].messages),
        ["hi"]
    );
}

#[tokio::test(start_paused = true)]
async fn each_broken_completion_is_retracted_once() {
    let world = Fixture::new([
        breaks(vec![text("H")]),
        fails(overloaded()),
        breaks(vec![text("He")]),
        answers("Hello"),
    ]);
    let (_, heard, _) = prompt(after_content(&world, AfterContent::Retract)).await;
    let retracted = heard.bodies().into_iter().filter_map(|body| match body {
        Body::Retracted { attempt } => Some(attempt),
        _ => None,
    });
    assert_eq!(
        retracted.collect::<Vec<_>>(),
        [1, 3],
        "nothing was heard of the second"
    );
    assert_eq!(
        (shown(&heard).as_str(), heard.retries().len()),
        ("Hello", 3)
    );
}

#[tokio::test(start_paused = true)]
async fn retracted_tool_call_is_not_run() {
    let broken = breaks(vec![text("I send."), tool_call_delta("c1", "send")]);
    let world = Fixture::new([broken, calls(&[("c2", "send")]), answers("Sent.")]);
    let (session, heard, _) = prompt(after_content(&world, AfterContent::Retract)).await;
    assert_eq!(world.tools.ran(), ["c2"]);
    let expected = ["hi", "send(c2)", "c2: c2 is done", "Sent."];
    assert_eq!(describe_messages(&session.messages()), expected);
    assert_eq!(shown(&heard), "Sent.");
}

#[tokio::test(start_paused = true)]
async fn last_broken_completion_is_not_retracted() {
    let world = Fixture::new([breaks(vec![text("Hel")])]);
    let (session, heard, ended) = prompt(after_content(&world, AfterContent::Retract)).await;
    assert_eq!(
        (ended.seal, heard.count("retracted")),
        (TurnStatus::Error, 3)
    );
    assert_eq!(
        (shown(&heard), ended.message.text()),
        ("Hel".to_owned(), "Hel".to_owned())
    );
    assert_eq!(describe_messages(&session.messages()), ["hi"]);
}

#[tokio::test(start_paused = true)]
async fn broken_completion_ends_turn_in_fail_mode() {
    for heard_piece in [text("Hel"), thinks("Hm."), tool_call_delta("c1", "read")] {
        let world = Fixture::new([breaks(vec![heard_piece]), answers("Hello")]);
        let (_, heard, ended) = prompt(after_content(&world, AfterContent::Fail)).await;
        assert_eq!(ended.error.unwrap().1, GiveUp::ContentSent);
        assert_eq!(
            (world.provider.calls_made(), heard.count("retracted")),
            (1, 0)
        );
    }
}

// --- Continued ---

#[tokio::test(start_paused = true)]
async fn continuation_prompt_quotes_partial_completion() {
    let world = Fixture::new([breaks(vec![text("Hel")]), answers("lo")]);
    let (session, heard, ended) = prompt(continues(&world, ContinueBy::Prompt)).await;
    let asked = world.provider.requests();
    assert_eq!(
        describe_messages(&asked[1].messages),
        ["hi", "Hel", &continuation_prompt("Hel")]
    );
    let roles = asked[1].messages.iter().map(|message| message.role);
    assert_eq!(
        roles.collect::<Vec<_>>(),
        [Role::User, Role::Assistant, Role::User]
    );
    assert_eq!(
        (shown(&heard).as_str(), seams(&heard)),
        ("Hel|lo", vec![ContinueBy::Prompt])
    );
    assert_eq!(
        (heard.count("retracted"), heard.retries()),
        (0, vec![(1, 2_000)])
    );
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
    assert_eq!(
        (ended.message.text().as_str(), ended.messages.len()),
        ("Hello", 1)
    );
}

#[tokio::test(start_paused = true)]
async fn continuation_prompt_quotes_only_the_tail() {
    let long = format!("{}{}", "x".repeat(50), "é".repeat(200));
    let world = Fixture::new([breaks(vec![text(&long)]), answers(".")]);
    prompt(continues(&world, ContinueBy::Prompt)).await;
    let asked = world.provider.requests();
    assert_eq!(
        describe_messages(&asked[1].messages),
        ["hi", &long, &continuation_prompt(&"é".repeat(200))]
    );
}

#[tokio::test(start_paused = true)]
async fn prefill_continues_partial_completion() {
    let world = Fixture::new([breaks(vec![text("Hello, ")]), answers("world")]);
    let (session, heard, _) = prompt(continues(&world, ContinueBy::Prefill)).await;
    let asked = world.provider.requests();
    assert_eq!(
        describe_messages(&asked[1].messages),
        ["hi", "Hello,"],
        "no space at the end"
    );
    assert_eq!(asked[1].messages[1].role, Role::Assistant);
    assert_eq!(
        (shown(&heard).as_str(), seams(&heard)),
        ("Hello, |world", vec![ContinueBy::Prefill])
    );
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "Hello, world"]
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_space_at_prefill_boundary_is_dropped() {
    for rest in [&[" world"][..], &[" ", "world"], &["world"]] {
        let mut items: Vec<_> = rest.iter().map(|piece| text(piece)).collect();
        items.push(stop(StopReason::EndTurn));
        let world = Fixture::new([breaks(vec![text("Hello, ")]), items.into()]);
        let (session, heard, _) = prompt(continues(&world, ContinueBy::Prefill)).await;
        assert_eq!(
            describe_messages(&session.messages()),
            ["hi", "Hello, world"],
            "{rest:?}"
        );
        assert_eq!(shown(&heard), "Hello, |world", "{rest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_continuation_has_one_seam_before_its_output() {
    let world = Fixture::new([
        breaks(vec![text("H")]),
        breaks(vec![text("el")]),
        fails(overloaded()),
        vec![
            thinks("Hm."),
            text("l"),
            text("o"),
            stop(StopReason::EndTurn),
        ]
        .into(),
    ]);
    let (session, heard, _) = prompt(continues(&world, ContinueBy::Prompt)).await;
    assert_eq!(
        (shown(&heard).as_str(), seams(&heard).len()),
        ("H|el|lo", 2)
    );
    let kinds = heard.kinds();
    let seam = kinds.iter().rposition(|kind| kind == "seam").unwrap();
    assert_eq!(
        kinds[seam - 1..=seam + 1],
        ["attempt_started", "seam", "reasoning_delta"]
    );
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
    let asked = world.provider.requests();
    assert_eq!(
        describe_messages(&asked[2].messages),
        ["hi", "Hel", &continuation_prompt("Hel")]
    );
    assert_eq!(
        describe_messages(&asked[3].messages),
        ["hi", "Hel", &continuation_prompt("Hel")]
    );
}

#[tokio::test(start_paused = true)]
async fn restart_mode_retracts_and_requests_again() {
    let world = Fixture::new([breaks(vec![text("Hel")]), answers("Hello")]);
    let (session, heard, _) = prompt(continues(&world, ContinueBy::Restart)).await;
    assert_eq!((heard.count("retracted"), seams(&heard)), (1, vec![]));
    assert_eq!(
        describe_messages(&world.provider.requests()[1].messages),
        ["hi"]
    );
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
    assert_eq!(shown(&heard), "Hello");
}

#[tokio::test(start_paused = true)]
async fn signed_reasoning_is_sent_with_partial_completion() {
    let broken = breaks(vec![thinks("Hm."), thought("Hm."), text("Hel")]);
    let world = Fixture::new([broken, answers("lo")]);
    let (session, _, _) = prompt(continues(&world, ContinueBy::Prompt)).await;
    let asked = world.provider.requests();
    assert_eq!(
        describe_messages(&asked[1].messages),
        ["hi", "(Hm.)", "Hel", &continuation_prompt("Hel")]
    );
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "(Hm.)", "Hello"]
    );
}

#[tokio::test(start_paused = true)]
async fn partial_reasoning_alone_is_retracted() {
    for broken in [
        vec![thinks("Hm.")],
        vec![thinks("Hm."), thought("Hm.")],
        vec![thinks("Hm."), text(" ")],
    ] {
        let world = Fixture::new([breaks(broken), answers("Hello")]);
        let (session, heard, _) = prompt(continues(&world, ContinueBy::Prompt)).await;
        assert_eq!((heard.count("retracted"), seams(&heard)), (1, vec![]));
        assert!(event_index(&heard, "retracted") < event_index(&heard, "retry_scheduled"));
        assert_eq!(
            describe_messages(&world.provider.requests()[1].messages),
            ["hi"]
        );
        assert_eq!(
            (
                shown(&heard).as_str(),
                describe_messages(&session.messages())
            ),
            ("Hello", vec!["hi".to_owned(), "Hello".to_owned()])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn partial_output_stays_visible_when_retries_run_out() {
    let world = Fixture::new([breaks(vec![text("He")]), breaks(vec![text("l")])]);
    let (session, heard, ended) = prompt(continues(&world, ContinueBy::Prompt)).await;
    assert_eq!(
        (ended.seal, ended.message.text().as_str()),
        (TurnStatus::Error, "Helll")
    );
    assert_eq!(shown(&heard), "He|l|l|l");
    assert_eq!(describe_messages(&session.messages()), ["hi"]);
}

// --- A prefix that the provider refuses ---

fn refused() -> Failure {
    let message = "This model does not support assistant message prefill.";
    Failure::http("scripted", 400, message, START).with_code("invalid_request_error")
}

#[tokio::test(start_paused = true)]
async fn refused_prefill_becomes_continuation_prompt_at_once() {
    let world = Fixture::new([
        breaks(vec![text("Hello, ")]),
        fails(refused()),
        answers("world"),
    ]);
    let (session, heard, ended) = prompt(continues(&world, ContinueBy::Prefill)).await;
    assert_eq!(
        (ended.seal, world.provider.called_at()),
        (TurnStatus::Completed, vec![0, 2, 2])
    );
    let asked = world.provider.requests();
    assert_eq!(
        describe_messages(&asked[2].messages),
        ["hi", "Hello, ", &continuation_prompt("Hello, ")]
    );
    assert_eq!(
        (shown(&heard).as_str(), seams(&heard)),
        ("Hello, |world", vec![ContinueBy::Prompt])
    );
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "Hello, world"]
    );
}

#[tokio::test(start_paused = true)]
async fn refused_prefill_does_not_switch_model() {
    let world = Fixture::new([breaks(vec![text("Hel")]), fails(refused()), answers("lo")]);
    let other = Fixture::by(Arc::clone(&world.clock), [answers("Good day")]);
    let setup = Setup {
        fallbacks: vec![ModelTarget::new(other.setup().provider, "other")],
        ..continues(&world, ContinueBy::Prefill)
    };
    let (session, _, _) = prompt(setup).await;
    assert_eq!(
        (world.provider.calls_made(), other.provider.calls_made()),
        (3, 0)
    );
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
}

#[tokio::test(start_paused = true)]
async fn refused_continuation_prompt_ends_the_turn() {
    let world = Fixture::new([breaks(vec![text("Hel")]), fails(refused())]);
    let (session, heard, ended) = prompt(continues(&world, ContinueBy::Prefill)).await;
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Error, 3)
    );
    assert_eq!(ended.error.unwrap().1, GiveUp::NotRetryable);
    assert_eq!(
        (
            shown(&heard).as_str(),
            describe_messages(&session.messages())
        ),
        ("Hel", vec!["hi".to_owned()])
    );
}

// --- Calls ---

#[tokio::test(start_paused = true)]
async fn complete_calls_of_broken_completion_run_once() {
    let broken = breaks(vec![
        text("I send."),
        tool_call_delta("c1", "send"),
        tool_call_delta("c2", "read"),
    ]);
    let world = Fixture::new([broken, answers("Sent.")]);
    let (session, heard, ended) = prompt(continues(&world, ContinueBy::Prompt)).await;
    assert_eq!(
        (ended.seal, world.tools.ran()),
        (
            TurnStatus::Completed,
            vec!["c1".to_owned(), "c2".to_owned()]
        )
    );
    assert_eq!(
        (world.provider.calls_made(), world.elapsed()),
        (2, Duration::ZERO)
    );
    let called = ["hi", "I send.", "send(c1)", "read(c2)"];
    let done = ["c1: c1 is done", "c2: c2 is done", "Sent."];
    assert_eq!(
        describe_messages(&session.messages()),
        [&called[..], &done].concat()
    );
    assert_eq!((heard.count("warning"), heard.count("retracted")), (1, 0));
    assert_eq!(
        (shown(&heard).as_str(), billed_twice(&heard)),
        ("I send.Sent.", None)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_after_a_seam_are_run() {
    let world = Fixture::new([
        breaks(vec![text("I ")]),
        breaks(vec![text("send."), tool_call_delta("c1", "send")]),
        answers("Sent."),
    ]);
    let (session, heard, _) = prompt(continues(&world, ContinueBy::Prompt)).await;
    assert_eq!(world.tools.ran(), ["c1"]);
    let expected = ["hi", "I send.", "send(c1)", "c1: c1 is done", "Sent."];
    assert_eq!(describe_messages(&session.messages()), expected);
    assert_eq!(
        (shown(&heard).as_str(), heard.ends()),
        ("I |send.Sent.", vec![(true, 1, None)])
    );
}

#[tokio::test(start_paused = true)]
async fn calls_before_a_permanent_failure_are_not_run() {
    let refused = overloaded().with_retryable(false);
    let broken = vec![tool_call_delta("c1", "send"), Err(Box::new(refused))];
    let world = Fixture::new([broken.into()]);
    let (session, _, ended) = prompt(continues(&world, ContinueBy::Prompt)).await;
    assert_eq!((ended.seal, world.tools.ran()), (TurnStatus::Error, vec![]));
    assert_eq!(describe_messages(&session.messages()), ["hi"]);
}

#[tokio::test(start_paused = true)]
async fn calls_without_toolbox_are_retracted_with_kept_text() {
    let world = Fixture::new([
        breaks(vec![text("I ")]),
        breaks(vec![text("se")]),
        breaks(vec![text("nd."), tool_call_delta("c1", "send")]),
        answers("I cannot send."),
    ]);
    let setup = Setup {
        tools: None,
        ..continues(&world, ContinueBy::Prompt)
    };
    let (session, heard, _) = prompt(setup).await;
    assert_eq!(
        (heard.count("retracted"), shown(&heard).as_str()),
        (3, "I cannot send.")
    );
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "I cannot send."]
    );
    assert_eq!(
        describe_messages(&world.provider.requests()[3].messages),
        ["hi"]
    );
}

#[tokio::test(start_paused = true)]
async fn calls_of_broken_completion_run_once_across_restart() {
    let broken = breaks(vec![
        tool_call_delta("c1", "send"),
        tool_call_delta("c2", "read"),
    ]);
    let (kept, world) = (TestJournal::new(), Fixture::new([broken, answers("Sent.")]));
    let setup = || continues(&world, ContinueBy::Prompt);
    let session = kept.begin(setup()).await;
    let is_done = hang_at(&world.provider, |body| {
        matches!(body, Body::ToolResult { .. })
    });
    let fate = run_until(&session, session.prompt("hi".into()), is_done).await;
    assert_eq!(fate, Fate::Died);
    let id = session.id().to_owned();
    drop(session);
    world.provider.hang(false);
    let session = kept.open(&id, setup()).await;
    session.resume().await.unwrap();
    let sent = world.tools.ran().iter().filter(|id| *id == "c1").count();
    assert_eq!((sent, world.provider.calls_made()), (1, 2));
    assert_well_formed(&session.messages());
}
