//! The events while models change: the numbers of retries, the model of each completion, the single final error.

use crate::routes::{Routes, back, switch, switches};
use crate::support::{
    Call, Listener, START, TestJournal, answers, calls, fails, overloaded, stop, text,
};
use outlast_dialect::{Delta, Dialect, Part};
use outlast_engine::journal::Entry;
use outlast_kernel::decision::AfterContent;
use outlast_kernel::event::{Body, Proof, Reasoning, StopReason, TurnStatus};
use outlast_kernel::failure::Failure;
use outlast_kernel::fallback::Rules;
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::Setup;
use std::sync::Arc;

fn refused_key() -> Failure {
    Failure::http("one", 401, "invalid x-api-key", START)
}

/// Returns all announced retries: number, limit and delay in seconds.
fn numbers(heard: &Listener) -> Vec<(u32, Option<u32>, u64)> {
    let number = |body: Body| match body {
        Body::RetryScheduled {
            attempt,
            max_attempts,
            delay_ms,
            ..
        } => Some((attempt, max_attempts, delay_ms / 1000)),
        _ => None,
    };
    heard.bodies().into_iter().filter_map(number).collect()
}

// --- Numbers ---

#[tokio::test(start_paused = true)]
async fn fallback_has_its_own_retries_and_numbering_continues() {
    let routes = Routes::new([
        ("one", vec![fails(overloaded())]),
        ("two", vec![fails(overloaded())]),
        ("three", vec![fails(overloaded())]),
    ]);
    let session = routes.session();
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Error);
    let expected = [
        (1, Some(3), 2),
        (2, Some(3), 4),
        (3, Some(5), 2),
        (4, Some(5), 4),
        (5, Some(7), 2),
        (6, Some(7), 4),
        (7, Some(7), 8),
    ];
    assert_eq!(numbers(&heard), expected);
    let of = |name: &str| {
        routes
            .names()
            .iter()
            .filter(|other| **other == name)
            .count()
    };
    assert_eq!([of("one"), of("two"), of("three")], [3, 3, 4]);
    assert_eq!(heard.ends(), [(false, 7, Some("Overloaded".to_owned()))]);
    assert_eq!(heard.count("error"), 1);
    let kinds = heard.kinds();
    assert_eq!(kinds[kinds.len() - 3..], ["retry_ended", "error", "sealed"]);
}

#[tokio::test(start_paused = true)]
async fn successful_fallback_ends_retry_chain_once() {
    let routes = Routes::new([
        ("one", vec![fails(overloaded())]),
        ("two", vec![fails(overloaded()), answers("Hello")]),
    ]);
    let session = routes.session();
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(heard.ends(), [(true, 3, None)]);
    assert_eq!(heard.count("error"), 0);
    // The next chain counts from one.
    session.prompt("again".into()).await.unwrap();
    assert_eq!(numbers(&heard).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn hard_errors_of_all_models_report_only_the_last() {
    let failing = |name: &'static str, message: &str| {
        (name, vec![fails(Failure::http(name, 401, message, START))])
    };
    let routes = Routes::new([
        failing("one", "no key here"),
        failing("two", "no key there"),
        failing("three", "no key anywhere"),
    ]);
    let session = routes.session();
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.error.unwrap().0.failure.message, "no key anywhere");
    assert_eq!(
        routes.request_times(),
        [(0, "one"), (0, "two"), (0, "three")]
    );
    assert_eq!((heard.count("error"), heard.ends()), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn fallback_of_earlier_chain_has_all_retries_in_next_one() {
    let routes = Routes::new([
        ("one", vec![fails(refused_key()), fails(overloaded())]),
        ("two", vec![calls(&[("c1", "slow")]), fails(overloaded())]),
    ]);
    let session = routes.session();
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    // An hour later the first model is asked again, and is overloaded now, as the other one is.
    let there = switch("one", "two", Cause::Auth, 300);
    let again = switch("one", "two", Cause::Overloaded, 3906);
    assert_eq!(switches(&heard), [there, back("two", "one"), again]);
    let expected = [
        (1, Some(3), 2),
        (2, Some(3), 4),
        (3, Some(5), 2),
        (4, Some(5), 4),
        (5, Some(5), 8),
    ];
    assert_eq!(numbers(&heard), expected);
}

// --- The model of a completion ---

/// Returns the models that the events and the journal name for each completion.
async fn answering_models(
    kept: &TestJournal,
    session: &Session,
    heard: &Listener,
) -> [Vec<String>; 2] {
    let step = |body: Body| match body {
        Body::StepComplete { model, .. } => Some(model),
        _ => None,
    };
    let message = |entry: Entry| match entry {
        Entry::Message { model, .. } => Some(model),
        _ => None,
    };
    let said = heard.bodies().into_iter().filter_map(step).collect();
    let entries = kept.entries(session.id()).await;
    [said, entries.into_iter().filter_map(message).collect()]
}

#[tokio::test(start_paused = true)]
async fn every_completion_names_its_model() {
    let kept = TestJournal::new();
    let routes = Routes::new([
        (
            "one",
            vec![
                calls(&[("c1", "read")]),
                fails(refused_key()),
                answers("done"),
            ],
        ),
        // The fallback fails at once: it produced none of the earlier output.
        ("two", vec![fails(refused_key())]),
        ("three", vec![calls(&[("c2", "slow")])]),
    ]);
    let session = kept.begin(routes.setup()).await;
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(routes.names(), ["one", "one", "two", "three", "one"]);
    let [said, written] = answering_models(&kept, &session, &heard).await;
    assert_eq!(said, ["one", "three", "one"]);
    assert_eq!(written, said);
}

#[tokio::test(start_paused = true)]
async fn turn_starting_on_fallback_announces_cooldown_end() {
    let routes = Routes::new([
        ("one", vec![fails(refused_key())]),
        ("two", vec![answers("Hello")]),
    ]);
    let session = routes.session();
    session.prompt("hi".into()).await.unwrap();
    routes.wait_until(10).await;
    let heard = Listener::new(&session);
    session.prompt("again".into()).await.unwrap();
    let (from, to) = ("one".to_owned(), "two".to_owned());
    assert_eq!(switches(&heard), [(from, to, None, Some(300))]);
}

// --- Output before a failure ---

fn impatient() -> Rules {
    Rules {
        overload_retries: 0,
        ..Rules::default()
    }
}

/// `one` breaks off after a word, or refuses after it.
fn after_a_word() -> [(Vec<Call>, Cause); 2] {
    let broken = vec![text("Hel"), Err(Box::new(overloaded()))].into();
    let refused = vec![text("Hel"), stop(StopReason::Refusal)].into();
    [
        (vec![broken], Cause::Overloaded),
        (vec![refused], Cause::ContentFilter),
    ]
}

#[tokio::test(start_paused = true)]
async fn fallback_is_not_called_after_content_was_delivered() {
    for (script, cause) in after_a_word() {
        let routes = Routes::new([("one", script), ("two", vec![answers("Hello")])]);
        let setup = Setup {
            fallback_rules: impatient(),
            ..routes.setup()
        };
        let session = Arc::new(Session::in_memory(setup));
        let heard = Listener::new(&session);
        let ended = session.prompt("hi".into()).await.unwrap();
        assert_eq!(ended.seal, TurnStatus::Error);
        assert_eq!(ended.error.unwrap().0.verdict.cause, cause);
        assert_eq!(routes.names(), ["one"]);
        assert_eq!(heard.count("text_delta"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn delivered_content_is_retracted_before_fallback() {
    for (script, cause) in after_a_word() {
        let routes = Routes::new([("one", script), ("two", vec![answers("Hello")])]);
        let setup = Setup {
            fallback_rules: impatient(),
            after_content: AfterContent::Retract,
            ..routes.setup()
        };
        let session = Arc::new(Session::in_memory(setup));
        let heard = Listener::new(&session);
        let ended = session.prompt("hi".into()).await.unwrap();
        assert_eq!(
            (ended.seal, ended.message.text()),
            (TurnStatus::Completed, "Hello".to_owned())
        );
        assert_eq!(routes.names(), ["one", "two"], "{cause}");
        let kinds = heard.kinds();
        let expected = [
            "attempt_started",
            "text_delta",
            "retracted",
            "model_switched",
            "attempt_started",
            "text_delta",
        ];
        assert_eq!(kinds[2..8], expected, "{cause}");
        // The retracted output is in no conversation.
        assert_eq!(routes.log()[1].request.messages.len(), 1);
        assert_eq!(session.messages().len(), 2);
    }
}

// --- Reasoning signatures ---

#[tokio::test(start_paused = true)]
async fn reasoning_signature_is_sent_only_to_its_model() {
    let signature = "signed by two".to_owned();
    let reasoned = Reasoning {
        text: "hm".to_owned(),
        proof: Some(Proof::Signature { signature }),
        model: None,
    };
    let mut thoughtful = vec![Ok(Delta::ReasoningDone(reasoned))];
    thoughtful.extend([text("Hello"), stop(StopReason::EndTurn)]);
    let routes = Routes::new([
        ("one", vec![fails(refused_key()), answers("Hello")]),
        ("two", vec![thoughtful.into()]),
    ]);
    let session = routes.session();
    for time in [0, 1, 300] {
        routes.wait_until(time).await;
        session.prompt("hi".into()).await.unwrap();
    }
    assert_eq!(routes.names(), ["one", "two", "two", "one"]);
    let is_sent: Vec<bool> = routes
        .log()
        .iter()
        .map(|logged| {
            let body = Dialect::Anthropic.encode_request(&logged.request);
            String::from_utf8(body).unwrap().contains("signed by two")
        })
        .collect();
    assert_eq!(is_sent, [false, false, true, false]);
    let proven = |part: &Part| matches!(part, Part::Reasoning(reasoning) if reasoning.model.as_deref() == Some("two"));
    let messages = session.messages();
    let parts = messages.iter().flat_map(|message| &message.parts);
    assert_eq!(
        parts.filter(|part| proven(part)).count(),
        2,
        "it is kept all the same"
    );
}
