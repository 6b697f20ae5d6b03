//! Invalid completions: the model is corrected a limited number of times, and nothing of them comes back.

use crate::pieces::{
    after_content, assert_well_formed, corrected, error, numbers, prompt, resume_elsewhere, shown,
    thinks, thought, with_tools,
};
use crate::support::{
    Call, Fate, Fixture, Item, Listener, START, TestJournal, answers, calls, describe_messages,
    fails, hang_at, overloaded, run_until, stop, text, usage_delta,
};
use outlast_dialect::Delta;
use outlast_kernel::completion::InvalidCompletion;
use outlast_kernel::decision::{AfterContent, GiveUp};
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_kernel::failure::Failure;
use outlast_kernel::policy::Policy;
use outlast_kernel::verdict::{Cause, Scope, Verdict};
use outlast_session::Session;
use outlast_session::Setup;
use std::sync::Arc;
use std::time::Duration;

/// An invalid completion, and the part of it that stays in the conversation.
struct InvalidCase {
    oddity: InvalidCompletion,
    call: Call,
    stays: &'static [&'static str],
}

fn invalid_case(
    oddity: InvalidCompletion,
    call: impl Into<Call>,
    stays: &'static [&'static str],
) -> InvalidCase {
    let call = call.into();
    InvalidCase {
        oddity,
        call,
        stays,
    }
}

/// Returns an incomplete call.
fn cut_call(name: &str) -> Item {
    let name = name.to_owned();
    Ok(Delta::IncompleteToolCall { name })
}

const CALL_AS_TEXT: &str = "<tool_call>{\"name\": \"read\", \"arguments\": {}}</tool_call>";
const ANNOUNCED: &str = "Now I'll run the tests:";

/// Returns the completions that are dropped.
fn dropped_cases() -> Vec<InvalidCase> {
    let end = || stop(StopReason::EndTurn);
    let billed = InvalidCompletion::Empty { billed: true };
    let empty = InvalidCompletion::Empty { billed: false };
    vec![
        invalid_case(empty, vec![end()], &[]),
        invalid_case(empty, vec![text(" \n"), end()], &[]),
        invalid_case(empty, vec![thinks("Hm."), usage_delta(10, 5), end()], &[]),
        invalid_case(billed, vec![usage_delta(10, 5), end()], &[]),
        invalid_case(
            InvalidCompletion::NoCall,
            vec![text("I look."), stop(StopReason::ToolUse)],
            &[],
        ),
        invalid_case(
            InvalidCompletion::LengthEmpty,
            vec![stop(StopReason::Length)],
            &[],
        ),
        invalid_case(
            InvalidCompletion::OnlyReasoned,
            vec![thinks("Hm."), thought("Hm."), stop(StopReason::Length)],
            &[],
        ),
        invalid_case(
            InvalidCompletion::NamelessCall,
            vec![cut_call(""), stop(StopReason::ToolUse)],
            &[],
        ),
        invalid_case(
            InvalidCompletion::NamelessCall,
            vec![text("I look."), cut_call(""), stop(StopReason::ToolUse)],
            &[],
        ),
        invalid_case(
            InvalidCompletion::CutCall,
            vec![cut_call("send"), stop(StopReason::Length)],
            &[],
        ),
    ]
}

/// Returns the completions that stay, and are followed by the missing part.
fn kept_cases() -> Vec<InvalidCase> {
    vec![
        invalid_case(
            InvalidCompletion::ReasoningOnly,
            vec![thinks("Hm."), thought("Hm."), stop(StopReason::EndTurn)],
            &["(Hm.)"],
        ),
        invalid_case(
            InvalidCompletion::CutCall,
            vec![text("I write."), cut_call("send"), stop(StopReason::Length)],
            &["I write."],
        ),
        invalid_case(
            InvalidCompletion::CallAsText,
            answers(CALL_AS_TEXT),
            &[CALL_AS_TEXT],
        ),
        invalid_case(
            InvalidCompletion::Announced,
            answers(ANNOUNCED),
            &[ANNOUNCED],
        ),
    ]
}

// --- Corrections ---

#[tokio::test(start_paused = true)]
async fn invalid_completion_is_corrected_at_once() {
    for InvalidCase {
        oddity,
        call,
        stays,
    } in dropped_cases().into_iter().chain(kept_cases())
    {
        let world = Fixture::new([call, answers("Hello")]);
        let (session, heard, ended) = prompt(with_tools(&world)).await;
        assert_eq!(ended.seal, TurnStatus::Completed, "{oddity:?}");
        let asked = world.provider.requests();
        let notice = oddity.correction().unwrap();
        let expected = [&["hi"][..], stays, &[notice]].concat();
        assert_eq!(
            (asked.len(), describe_messages(&asked[1].messages)),
            (2, expected.iter().map(|word| (*word).to_owned()).collect()),
            "{oddity:?}"
        );
        let expected = [&expected[..], &["Hello"]].concat();
        assert_eq!(
            describe_messages(&session.messages()),
            expected,
            "{oddity:?}"
        );
        let problem = oddity.user_message().to_owned();
        assert_eq!(corrected(&heard), [(oddity.cause(), problem, 1, 3)]);
        assert_eq!((world.elapsed(), heard.retries()), (Duration::ZERO, vec![]));
        assert_eq!(world.tools.ran(), Vec::<String>::new());
        // A client shows exactly the content that counts.
        let text = [stays.concat().replace("(Hm.)", ""), "Hello".to_owned()].concat();
        assert_eq!(shown(&heard), text, "{oddity:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_completion_is_dropped_in_continue_mode() {
    for InvalidCase { oddity, call, .. } in dropped_cases() {
        let world = Fixture::new([call, answers("Hello")]);
        let setup = Setup {
            after_content: AfterContent::Continue,
            ..with_tools(&world)
        };
        let (session, heard, _) = prompt(setup).await;
        let notice = oddity.correction().unwrap();
        assert_eq!(
            describe_messages(&session.messages()),
            ["hi", notice, "Hello"]
        );
        let asked = world.provider.requests();
        assert_eq!(
            describe_messages(&asked[1].messages),
            ["hi", notice],
            "{oddity:?}"
        );
        assert_eq!((shown(&heard).as_str(), heard.count("seam")), ("Hello", 0));
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_completion_is_corrected_with_its_error() {
    let message = "the arguments of a call are blanks without end";
    let failure = Failure::emitted("scripted", message, START)
        .with_verdict(Verdict::new(Cause::MalformedOutput, Scope::Request));
    let broken = vec![text("I look."), Err(Box::new(failure))];
    let notice = format!("Your last answer could not be used ({message}). Answer again.");
    for after_content in [AfterContent::Retract, AfterContent::Continue] {
        let world = Fixture::new([broken.clone().into(), answers("Hello")]);
        let setup = Setup {
            after_content,
            ..with_tools(&world)
        };
        let (session, heard, ended) = prompt(setup).await;
        assert_eq!(
            (ended.seal, numbers(&heard)),
            (TurnStatus::Completed, vec![1])
        );
        assert_eq!(
            describe_messages(&session.messages()),
            ["hi", &notice, "Hello"]
        );
        assert_eq!(shown(&heard), "Hello");
    }
}

// --- Three times, and no more ---

#[tokio::test(start_paused = true)]
async fn turn_fails_after_three_corrections_in_a_row() {
    let all = dropped_cases().into_iter().chain(kept_cases());
    for InvalidCase { oddity, call, .. } in
        all.filter(|odd| odd.oddity != InvalidCompletion::Announced)
    {
        let world = Fixture::new([call]);
        let (session, heard, ended) = prompt(with_tools(&world)).await;
        assert_eq!(ended.seal, TurnStatus::Error, "{oddity:?}");
        let expected = (oddity.cause(), oddity.user_message(), GiveUp::NotRetryable);
        assert_eq!(error(&ended), expected);
        assert_eq!((numbers(&heard), heard.count("error")), (vec![1, 2, 3], 1));
        tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
        assert_eq!(world.provider.calls_made(), 4, "{oddity:?}");
        assert!(session.unfinished_turn().is_none());
        assert_well_formed(&session.messages());
        // The last correction got no completion, and is not sent again.
        let notices = session
            .messages()
            .iter()
            .filter(|message| message.text() == oddity.correction().unwrap())
            .count();
        assert_eq!(notices, 3);
        assert_eq!(
            session.messages().last().unwrap().text(),
            oddity.correction().unwrap()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn billed_empty_completion_error_names_filter_or_proxy() {
    let world = Fixture::new([vec![usage_delta(10, 5), stop(StopReason::EndTurn)].into()]);
    let (_, heard, ended) = prompt(with_tools(&world)).await;
    let (cause, message, _) = error(&ended);
    assert_eq!(cause, Cause::EmptyOutput);
    assert!(message.contains("content filter or a proxy"), "{message}");
    let said = heard.bodies().into_iter().find_map(|body| match body {
        Body::Error { message, .. } => Some(message),
        _ => None,
    });
    assert_eq!(said.as_deref(), Some(message));
}

#[tokio::test(start_paused = true)]
async fn announcement_is_accepted_after_three_corrections() {
    let world = Fixture::new([answers(ANNOUNCED)]);
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Completed, 4)
    );
    assert_eq!((numbers(&heard), heard.count("done")), (vec![1, 2, 3], 1));
    let notice = InvalidCompletion::Announced.correction().unwrap();
    let expected = [
        "hi", ANNOUNCED, notice, ANNOUNCED, notice, ANNOUNCED, notice, ANNOUNCED,
    ];
    assert_eq!(describe_messages(&session.messages()), expected);
}

#[tokio::test(start_paused = true)]
async fn valid_step_resets_correction_count() {
    let empty = || Call::from(vec![stop(StopReason::EndTurn)]);
    let world = Fixture::new([
        empty(),
        empty(),
        calls(&[("c1", "read")]),
        empty(),
        empty(),
        empty(),
        answers("Hello"),
    ]);
    let (_, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(numbers(&heard), [1, 2, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn provider_failure_does_not_reset_correction_count() {
    let empty = || Call::from(vec![stop(StopReason::EndTurn)]);
    let world = Fixture::new([
        empty(),
        empty(),
        fails(overloaded()),
        empty(),
        fails(overloaded()),
        empty(),
    ]);
    let (_, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Error, 6)
    );
    assert_eq!(
        (numbers(&heard), heard.retries()),
        (vec![1, 2, 3], vec![(1, 2_000), (2, 4_000)])
    );
    let problem = InvalidCompletion::Empty { billed: false }
        .user_message()
        .to_owned();
    assert_eq!(heard.ends(), [(false, 2, Some(problem))]);
}

// --- Without retries ---

/// Returns the setups without retries.
fn without_retries(world: &Fixture) -> [Setup; 3] {
    let none = world.setup_by(Policy::named("none").unwrap()).retry;
    [
        Setup {
            retry: none,
            ..with_tools(world)
        },
        Setup {
            retry: None,
            ..with_tools(world)
        },
        Setup {
            retry_enabled: false,
            ..with_tools(world)
        },
    ]
}

#[tokio::test(start_paused = true)]
async fn without_retries_nothing_is_corrected() {
    for InvalidCase { oddity, call, .. } in dropped_cases().into_iter().chain(kept_cases()) {
        let world = Fixture::new([call]);
        let (seal, end) = match oddity {
            InvalidCompletion::Announced => (TurnStatus::Completed, "done"),
            _ => (TurnStatus::Error, "error"),
        };
        for setup in without_retries(&world) {
            let (_, heard, ended) = prompt(setup).await;
            assert_eq!((ended.seal, heard.count(end)), (seal, 1), "{oddity:?}");
            assert_eq!(heard.count("corrected"), 0, "{oddity:?}");
        }
        assert_eq!(world.provider.calls_made(), 3, "{oddity:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn disabling_retries_mid_turn_stops_corrections() {
    for InvalidCase { oddity, call, .. } in dropped_cases().into_iter().chain(kept_cases()) {
        let world = Fixture::new([calls(&[("c1", "read")]), call]);
        let session = Arc::new(Session::in_memory(with_tools(&world)));
        let heard = Listener::with(&session, |session, body| {
            if matches!(body, Body::ToolStarted { .. }) {
                session.set_auto_retry_enabled(false);
            }
        });
        session.prompt("hi".into()).await.unwrap();
        assert_eq!(heard.count("corrected"), 0, "{oddity:?}");
        assert_eq!(world.provider.calls_made(), 2, "{oddity:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn zero_max_corrections_accepts_every_completion() {
    for InvalidCase { oddity, call, .. } in dropped_cases().into_iter().chain(kept_cases()) {
        let world = Fixture::new([call, answers("Hello")]);
        let setup = Setup {
            max_corrections: 0,
            ..with_tools(&world)
        };
        let (session, heard, ended) = prompt(setup).await;
        assert_eq!(
            (ended.seal, heard.count("corrected")),
            (TurnStatus::Completed, 0),
            "{oddity:?}"
        );
        assert_well_formed(&session.messages());
    }
}

#[tokio::test(start_paused = true)]
async fn delivered_reasoning_is_not_corrected_in_fail_mode() {
    for stop_reason in [StopReason::EndTurn, StopReason::Length] {
        let world = Fixture::new([vec![thinks("Hm."), stop(stop_reason)].into()]);
        let (session, heard, ended) = prompt(after_content(&world, AfterContent::Fail)).await;
        assert_eq!(error(&ended).2, GiveUp::ContentSent);
        assert_eq!(
            (world.provider.calls_made(), heard.count("corrected")),
            (1, 0)
        );
        assert_eq!(describe_messages(&session.messages()), ["hi"]);
    }
}

// --- After a restart ---

#[tokio::test(start_paused = true)]
async fn dropped_completion_does_not_return_after_restart() {
    for InvalidCase {
        oddity,
        call,
        stays,
    } in dropped_cases().into_iter().chain(kept_cases())
    {
        let (kept, world) = (TestJournal::new(), Fixture::new([call, answers("Hello")]));
        let session = kept.begin(with_tools(&world)).await;
        let is_told = hang_at(&world.provider, |body| {
            matches!(body, Body::Corrected { .. })
        });
        let fate = run_until(&session, session.prompt("hi".into()), is_told).await;
        assert_eq!(fate, Fate::Died, "{oddity:?}");
        let id = session.id().to_owned();
        drop(session);
        world.provider.hang(false);
        let session = kept.open(&id, with_tools(&world)).await;
        let ended = session.resume().await.unwrap();
        assert_eq!(ended.seal, TurnStatus::Completed, "{oddity:?}");
        let notice = oddity.correction().unwrap();
        let expected = [&["hi"][..], stays, &[notice, "Hello"]].concat();
        assert_eq!(
            describe_messages(&session.messages()),
            expected,
            "{oddity:?}"
        );
        let last = world.provider.requests().pop().unwrap();
        assert_eq!(
            describe_messages(&last.messages),
            expected[..expected.len() - 1]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn kept_invalid_completion_resumes_with_its_correction() {
    for InvalidCase {
        oddity,
        call,
        stays,
    } in kept_cases()
    {
        let session = resume_elsewhere(&Fixture::new([call, answers("Hello")])).await;
        let notice = oddity.correction().unwrap();
        let expected = [&["hi"][..], stays, &[notice, "Hello"]].concat();
        assert_eq!(
            describe_messages(&session.messages()),
            expected,
            "{oddity:?}"
        );
    }
}
