//! Models in a loop: in their reasoning, which is cut off, and in their calls, for which they are corrected.

use crate::pieces::{assert_well_formed, corrected, numbers, prompt, shown, thinks, with_tools};
use crate::support::{
    Call, Fixture, Item, answers, calls, describe_messages, hangs, stop, text, tool_call_delta,
};
use outlast_engine::target::ModelTarget;
use outlast_kernel::completion::InvalidCompletion;
use outlast_kernel::decision::{AfterContent, GiveUp};
use outlast_kernel::event::{StopReason, TurnStatus};
use outlast_kernel::verdict::Cause;
use outlast_session::Setup;
use std::sync::Arc;
use std::time::Duration;

const REPEATS: &str = "You have made the same tool calls with the same results several times in a row. They will not \
                       change. Do something else, or say what keeps you from going on.";

// --- Reasoning ---

/// Returns a call that yields these items, then repeats the same thought without an end.
fn looping_calls(before: Vec<Item>) -> Call {
    let again = (0..40).map(|_| thinks("Wait, let me check that once more. "));
    hangs(before.into_iter().chain(again).collect())
}

#[tokio::test(start_paused = true)]
async fn looping_reasoning_is_retracted_and_corrected() {
    for after_content in [AfterContent::Retract, AfterContent::Continue] {
        let world = Fixture::new([looping_calls(vec![]), answers("Hello")]);
        let setup = Setup {
            after_content,
            ..with_tools(&world)
        };
        let (session, heard, ended) = prompt(setup).await;
        assert_eq!(ended.seal, TurnStatus::Completed);
        let notice = InvalidCompletion::RepeatedReasoning.correction().unwrap();
        assert_eq!(
            describe_messages(&world.provider.requests()[1].messages),
            ["hi", notice]
        );
        assert_eq!(
            describe_messages(&session.messages()),
            ["hi", notice, "Hello"]
        );
        let problem = InvalidCompletion::RepeatedReasoning
            .user_message()
            .to_owned();
        assert_eq!(corrected(&heard), [(Cause::MalformedOutput, problem, 1, 3)]);
        let kinds = heard.kinds();
        let place = |kind: &str| kinds.iter().position(|other| other == kind).unwrap();
        assert!(place("retracted") < place("corrected"), "{kinds:?}");
        assert!(
            heard.count("reasoning_delta") < 20,
            "it is cut when it is seen"
        );
        assert_eq!((world.elapsed(), heard.retries()), (Duration::ZERO, vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn looping_reasoning_is_retracted_with_preceding_output() {
    for after_content in [AfterContent::Retract, AfterContent::Continue] {
        for before in [text("I look."), tool_call_delta("c1", "send")] {
            let world = Fixture::new([looping_calls(vec![before]), answers("Hello")]);
            let setup = Setup {
                after_content,
                ..with_tools(&world)
            };
            let (session, heard, _) = prompt(setup).await;
            let notice = InvalidCompletion::RepeatedReasoning.correction().unwrap();
            assert_eq!(
                describe_messages(&session.messages()),
                ["hi", notice, "Hello"]
            );
            assert_eq!(
                (shown(&heard).as_str(), world.tools.ran()),
                ("Hello", vec![])
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn endless_reasoning_loop_fails_without_fallback() {
    let world = Fixture::new([looping_calls(vec![])]);
    let other = Fixture::by(Arc::clone(&world.clock), [answers("Hello")]);
    let setup = Setup {
        fallbacks: vec![ModelTarget::new(other.setup().provider, "other")],
        ..with_tools(&world)
    };
    let (session, heard, ended) = prompt(setup).await;
    let (judged, why) = ended.error.unwrap();
    let problem = InvalidCompletion::RepeatedReasoning.user_message();
    assert_eq!(
        (judged.verdict.cause, judged.failure.message.as_str()),
        (Cause::MalformedOutput, problem)
    );
    assert_eq!((ended.seal, why), (TurnStatus::Error, GiveUp::NotRetryable));
    assert_eq!(
        (numbers(&heard), world.provider.calls_made()),
        (vec![1, 2, 3], 4)
    );
    assert_eq!(
        (other.provider.calls_made(), heard.count("model_switched")),
        (0, 0)
    );
    assert_eq!(
        session.messages().len(),
        4,
        "what was said, and three times what was wrong"
    );
}

#[tokio::test(start_paused = true)]
async fn reasoning_loop_ends_turn_in_fail_mode() {
    let world = Fixture::new([looping_calls(vec![]), answers("Hello")]);
    let setup = Setup {
        after_content: AfterContent::Fail,
        ..with_tools(&world)
    };
    let (session, heard, ended) = prompt(setup).await;
    assert_eq!(ended.error.unwrap().1, GiveUp::ContentSent);
    assert_eq!(
        (world.provider.calls_made(), heard.count("corrected")),
        (1, 0)
    );
    assert_eq!(describe_messages(&session.messages()), ["hi"]);
}

#[tokio::test(start_paused = true)]
async fn reasoning_loop_is_ignored_without_corrections() {
    let again = (0..40).map(|_| thinks("Wait, let me check that once more. "));
    let end = [text("Hello"), stop(StopReason::EndTurn)];
    let world = Fixture::new([again.chain(end).collect::<Vec<_>>().into()]);
    let setup = Setup {
        max_corrections: 0,
        ..with_tools(&world)
    };
    let (_, heard, ended) = prompt(setup).await;
    assert_eq!(
        (ended.seal, heard.count("reasoning_delta")),
        (TurnStatus::Completed, 40)
    );
}

#[tokio::test(start_paused = true)]
async fn loop_detection_restarts_after_a_correction() {
    let good = vec![thinks("I see."), text("Hello"), stop(StopReason::EndTurn)];
    let world = Fixture::new([looping_calls(vec![]), good.into()]);
    let (_, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, numbers(&heard)),
        (TurnStatus::Completed, vec![1])
    );
}

// --- Calls ---

fn same_calls() -> Call {
    calls(&[("c1", "read"), ("c2", "write")])
}

#[tokio::test(start_paused = true)]
async fn same_calls_five_times_in_a_row_are_corrected() {
    let same = (0..5).map(|_| same_calls());
    let world = Fixture::new(same.chain([answers("Hello")]));
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(ended.seal, TurnStatus::Completed);
    let problem = "the model made the same tool calls with the same results 5 times in a row";
    assert_eq!(
        corrected(&heard),
        [(Cause::MalformedOutput, problem.to_owned(), 1, 3)]
    );
    let asked = world.provider.requests();
    let told = |messages| describe_messages(messages).contains(&REPEATS.to_owned());
    assert!(!told(&asked[4].messages));
    assert_eq!(
        describe_messages(&asked[5].messages).last().unwrap(),
        REPEATS
    );
    assert_eq!(world.tools.ran().len(), 10);
    assert_well_formed(&session.messages());
}

#[tokio::test(start_paused = true)]
async fn same_calls_twenty_times_in_a_row_end_the_turn() {
    let world = Fixture::new([same_calls()]);
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Error, 20)
    );
    let (judged, why) = ended.error.unwrap();
    let problem = "the model made the same tool calls with the same results 20 times in a row";
    assert_eq!(
        (judged.failure.message.as_str(), why),
        (problem, GiveUp::NotRetryable)
    );
    assert_eq!(judged.verdict.cause, Cause::MalformedOutput);
    let told: Vec<u32> = corrected(&heard).iter().map(|told| told.2).collect();
    assert_eq!((told, heard.count("error")), (vec![1, 2, 3], 1));
    assert_well_formed(&session.messages());
    // Another prompt starts a new count.
    session.prompt("again".into()).await.unwrap();
    assert_eq!(world.provider.calls_made(), 40);
}

#[tokio::test(start_paused = true)]
async fn calls_with_different_results_are_not_repetitions() {
    // The result of a tool names its call.
    let ids: Vec<String> = (0..30).map(|number| format!("c{number}")).collect();
    let different = ids.iter().map(|id| calls(&[(id, "read")]));
    let world = Fixture::new(different.chain([answers("Hello")]));
    let (_, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, heard.count("corrected")),
        (TurnStatus::Completed, 0)
    );
    assert_eq!(world.tools.ran().len(), 30);
}

#[tokio::test(start_paused = true)]
async fn different_call_in_between_resets_repeat_count() {
    let four = || (0..4).map(|_| same_calls());
    let other = [calls(&[("c3", "read")])];
    let world = Fixture::new(four().chain(other).chain(four()).chain([answers("Hello")]));
    let (_, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, heard.count("corrected")),
        (TurnStatus::Completed, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_calls_are_ignored_without_corrections() {
    let same = (0..25).map(|_| same_calls());
    let world = Fixture::new(same.chain([answers("Hello")]));
    let setup = Setup {
        max_corrections: 0,
        ..with_tools(&world)
    };
    let (_, heard, ended) = prompt(setup).await;
    assert_eq!(
        (ended.seal, heard.count("corrected")),
        (TurnStatus::Completed, 0)
    );
}
