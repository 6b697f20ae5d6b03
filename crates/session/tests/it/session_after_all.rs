//! Combinations of remedies: a compaction, another model, a correction, and the effect of a restart on each.

use crate::pieces::{breaks, continues, shown, with_tools};
use crate::routes::Routes;
use crate::support::{
    Call, Fixture, Item, Listener, START, Scripted, TestJournal, answers, calls, describe_messages,
    fails, is_wait, on_other_thread, overloaded, run_until, stop, text, tool_call_delta,
    usage_delta,
};
use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Request, StreamCursor};
use outlast_engine::credential::Credential;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::target::ModelTarget;
use outlast_engine::{BoxStream, Provider};
use outlast_kernel::budget::{Cost, Limits, Price};
use outlast_kernel::decision::{AfterContent, GiveUp};
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_kernel::failure::{Failure, IoKind};
use outlast_kernel::fallback::Rules;
use outlast_kernel::model_info::ContinueBy;
use outlast_kernel::policy::Policy;
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::compaction::{Compaction, Settings};
use outlast_session::{PromptRequest, Setup};
use std::sync::Arc;
use std::sync::Mutex;

fn refused_key() -> Failure {
    Failure::http("two", 401, "invalid x-api-key", START)
}

/// Returns a price of that many millionths of a dollar for each token, input and output.
fn price(of_a_token: u64) -> Option<Price> {
    let cost = Cost(of_a_token * 1_000_000);
    Some(Price {
        input: cost,
        output: cost,
        ..Price::default()
    })
}

fn ask(words: &str, limits: Limits) -> PromptRequest {
    PromptRequest {
        limits,
        ..words.into()
    }
}

fn at_most(cost: u64) -> Limits {
    Limits {
        cost: Some(Cost(cost)),
        ..Limits::default()
    }
}

/// Creates a compaction with the summaries of that provider.
fn compaction(world: &Fixture, summariser: Arc<Scripted>, price: Option<Price>) -> Arc<Compaction> {
    let policy = Policy::named("session").unwrap();
    let retry = Arc::new(PolicyRetry::new(policy, Arc::clone(&world.clock)));
    let route = ModelTarget {
        price,
        ..ModelTarget::new(summariser as Arc<dyn Provider>, "summariser")
    };
    let clock = Arc::clone(&world.clock);
    Arc::new(Compaction::new(
        vec![route],
        retry,
        clock,
        Settings::default(),
    ))
}

fn answers_for(answer: &str, tokens: u64) -> Call {
    vec![
        text(answer),
        usage_delta(tokens, 0),
        stop(StopReason::EndTurn),
    ]
    .into()
}

fn summariser(world: &Fixture, calls: Vec<Call>) -> Arc<Scripted> {
    Fixture::by(Arc::clone(&world.clock), calls).provider
}

// --- A compaction that does not help ---

#[tokio::test(start_paused = true)]
async fn slow_upload_of_small_request_is_retried_as_timeout() {
    let slow = || Failure::http("scripted", 408, "Timed out reading request body", START);
    let world = Fixture::new([fails(slow()), answers("Hello")]);
    let summaries = summariser(&world, vec![answers("never")]);
    let setup = Setup {
        compaction: Some(compaction(&world, summaries, None)),
        ..world.setup()
    };
    let session = Arc::new(Session::in_memory(setup));
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, ended.message.text()),
        (TurnStatus::Completed, "Hello".to_owned())
    );
    assert_eq!(heard.retries(), [(1, 2000)]);
    assert_eq!(heard.ends(), [(true, 1, None)]);
    let told = ["auto_compaction_started", "auto_compaction_ended"];
    assert_eq!(told.map(|kind| heard.count(kind)), [1, 1]);
}

// --- Cost ---

/// Creates a setup whose conversation is compacted before the next call.
fn long(world: &Fixture, compaction: Arc<Compaction>) -> Setup {
    let mut setup = Setup {
        compaction: Some(compaction),
        price: price(1),
        ..world.setup()
    };
    setup.traits.window = Some(20_000);
    setup
}

#[tokio::test(start_paused = true)]
async fn summary_cost_over_limit_prevents_the_next_call() {
    let world = Fixture::new([answers(&"word ".repeat(15_000)), answers("Hello")]);
    let summaries = summariser(&world, vec![answers_for("All of it, in short.", 500)]);
    let compaction = compaction(&world, Arc::clone(&summaries), price(1));
    let session = Arc::new(Session::in_memory(long(&world, compaction)));
    session.prompt("first".into()).await.unwrap();
    let ended = session.prompt(ask("second", at_most(400))).await.unwrap();
    assert_eq!(summaries.calls_made(), 1);
    assert_eq!(
        ended.error.map(|(_, why)| why),
        Some(GiveUp::CostLimitReached)
    );
    assert_eq!(
        world.provider.calls_made(),
        1,
        "nothing is left for the call"
    );
    assert_eq!(ended.budget.cost(), Cost(500));
}

#[tokio::test(start_paused = true)]
async fn cost_before_compaction_counts_toward_cost_limit() {
    let wanted: Call = vec![
        text(&"word ".repeat(5000)),
        tool_call_delta("c1", "read"),
        usage_delta(300, 0),
        stop(StopReason::ToolUse),
    ]
    .into();
    let world = Fixture::new([answers(&"word ".repeat(10_000)), wanted, answers("Hello")]);
    let fails_dearly: Call = vec![usage_delta(60, 0), Err(Box::new(overloaded()))].into();
    let summaries = summariser(&world, vec![fails_dearly]);
    let compaction = compaction(&world, Arc::clone(&summaries), price(1));
    let session = Arc::new(Session::in_memory(long(&world, compaction)));
    session.prompt("first".into()).await.unwrap();
    let ended = session.prompt(ask("second", at_most(350))).await.unwrap();
    assert_eq!(
        summaries.calls_made(),
        1,
        "the second would exceed the ceiling"
    );
    assert_eq!(ended.budget.cost(), Cost(360));
    assert_eq!(
        ended.error.map(|(_, why)| why),
        Some(GiveUp::CostLimitReached)
    );
}

/// An expensive model that is down and a cheap one that takes its place; the process dies in the wait after the first
/// step.
async fn resumed_after_a_switch(prices: [u64; 2]) -> Vec<Cost> {
    let kept = TestJournal::new();
    let step: Call = vec![
        tool_call_delta("c1", "read"),
        usage_delta(100, 0),
        stop(StopReason::ToolUse),
    ]
    .into();
    let mut costs = Vec::new();
    for dies in [false, true] {
        let mut routes = Routes::new([
            ("one", vec![fails(refused_key()), answers_for("Hello", 50)]),
            (
                "two",
                vec![step.clone(), fails(overloaded()), answers_for("Hello", 50)],
            ),
        ]);
        for (route, of_a_token) in routes.list.iter_mut().zip(prices) {
            route.price = price(of_a_token);
        }
        let session = kept.begin(routes.setup()).await;
        if !dies {
            let ended = session.prompt("hi".into()).await.unwrap();
            costs.push(ended.budget.cost());
            continue;
        }
        run_until(&session, session.prompt("hi".into()), is_wait).await;
        let id = session.id().to_owned();
        drop(session);
        kept.journal.sessions().await.unwrap();
        let session = kept.open(&id, routes.setup()).await;
        let ended = session.resume().await.unwrap();
        assert_eq!(ended.seal, TurnStatus::Completed);
        costs.push(ended.budget.cost());
    }
    costs
}

#[tokio::test(start_paused = true)]
async fn restart_prices_usage_by_the_model_that_produced_it() {
    assert_eq!(resumed_after_a_switch([100, 1]).await, [Cost(150); 2]);
    assert_eq!(resumed_after_a_switch([1, 100]).await, [Cost(15_000); 2]);
}

#[tokio::test(start_paused = true)]
async fn usage_of_removed_model_is_charged_at_known_price() {
    let kept = TestJournal::new();
    let step: Call = vec![
        tool_call_delta("c1", "read"),
        usage_delta(100, 0),
        stop(StopReason::ToolUse),
    ]
    .into();
    let mut routes = Routes::new([
        ("one", vec![fails(refused_key()), answers_for("Hello", 50)]),
        ("two", vec![step]),
    ]);
    routes.list[0].price = price(1);
    routes.list[1].price = price(2);
    let session = kept.begin(routes.setup()).await;
    let starts = |body: &Body| matches!(body, Body::ToolStarted { .. });
    routes.world.tools.hang(true);
    run_until(&session, session.prompt("hi".into()), starts).await;
    routes.world.tools.hang(false);
    let id = session.id().to_owned();
    drop(session);
    kept.journal.sessions().await.unwrap();
    let alone = Setup {
        fallbacks: Vec::new(),
        ..routes.setup()
    };
    let ended = kept.open(&id, alone).await.resume().await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    assert_eq!(ended.budget.cost(), Cost(150), "at the price that is known");
}

// --- The way back to a model ---

fn impatient() -> Rules {
    Rules {
        overload_retries: 0,
        ..Rules::default()
    }
}

#[tokio::test(start_paused = true)]
async fn restart_remembers_model_that_may_recover() {
    let kept = TestJournal::new();
    let routes = Routes::new([
        ("one", vec![fails(overloaded()), answers("Hello")]),
        ("two", vec![fails(overloaded()), fails(refused_key())]),
    ]);
    let setup = || Setup {
        fallback_rules: impatient(),
        ..routes.setup()
    };
    let session = kept.begin(setup()).await;
    // Both are overloaded; the process dies in the wait for the second.
    run_until(&session, session.prompt("hi".into()), is_wait).await;
    assert_eq!(routes.names(), ["one", "two"]);
    let id = session.id().to_owned();
    drop(session);
    kept.journal.sessions().await.unwrap();
    let session = kept.open(&id, setup()).await;
    let heard = Listener::new(&session);
    let ended = session.resume().await.unwrap();
    assert_eq!(routes.names(), ["one", "two", "two", "one"]);
    assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    assert_eq!(heard.count("error"), 0);
}

#[tokio::test(start_paused = true)]
async fn wait_for_recovering_model_keeps_its_cause_after_restart() {
    let kept = TestJournal::new();
    let routes = Routes::new([
        ("one", vec![fails(overloaded()), answers("Hello")]),
        ("two", vec![fails(refused_key())]),
    ]);
    let setup = || Setup {
        fallback_rules: impatient(),
        ..routes.setup()
    };
    let session = kept.begin(setup()).await;
    run_until(&session, session.prompt("hi".into()), is_wait).await;
    let id = session.id().to_owned();
    drop(session);
    kept.journal.sessions().await.unwrap();
    let session = kept.open(&id, setup()).await;
    let heard = Listener::new(&session);
    session.resume().await.unwrap();
    let cause = |body: Body| match body {
        Body::RetryScheduled { cause, .. } => Some(cause),
        _ => None,
    };
    let causes: Vec<Cause> = heard.bodies().into_iter().filter_map(cause).collect();
    assert_eq!(causes, [Cause::Overloaded]);
    assert_eq!(routes.names(), ["one", "two", "one"]);
}

#[tokio::test(start_paused = true)]
async fn restart_calls_the_model_that_was_waited_for() {
    let kept = TestJournal::new();
    let routes = Routes::new([
        ("one", vec![fails(refused_key())]),
        ("two", vec![fails(overloaded()), answers("Hello")]),
        ("three", vec![fails(refused_key())]),
    ]);
    let setup = || Setup {
        fallback_rules: impatient(),
        ..routes.setup()
    };
    let session = kept.begin(setup()).await;
    run_until(&session, session.prompt("hi".into()), is_wait).await;
    let id = session.id().to_owned();
    drop(session);
    kept.journal.sessions().await.unwrap();
    let session = kept.open(&id, setup()).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(routes.names(), ["one", "two", "three", "two"]);
    assert_eq!(ended.seal, TurnStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn output_is_retracted_once_when_returning_to_model() {
    let mut broken = vec![text("Hel")];
    broken.push(Err(Box::new(Failure {
        phase: outlast_kernel::failure::Phase::AfterContent,
        ..overloaded()
    })));
    let routes = Routes::new([
        ("one", vec![broken.into(), answers("Hello")]),
        ("two", vec![fails(refused_key())]),
    ]);
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
    let retracted = heard.bodies().into_iter().filter_map(|body| match body {
        Body::Retracted { attempt } => Some(attempt),
        _ => None,
    });
    assert_eq!(retracted.collect::<Vec<_>>(), [1]);
}

// --- Corrections ---

#[tokio::test(start_paused = true)]
async fn compaction_does_not_mistake_correction_for_prompt() {
    let announced: Call = vec![text("Now I'll run the tests:"), stop(StopReason::EndTurn)].into();
    let wanted: Call = vec![
        text(&"word ".repeat(5000)),
        tool_call_delta("c1", "read"),
        stop(StopReason::ToolUse),
    ]
    .into();
    let world = Fixture::new([
        answers(&"word ".repeat(10_000)),
        announced,
        wanted,
        answers("Done."),
    ]);
    let summaries = summariser(&world, vec![answers("All of it, in short.")]);
    let mut setup = Setup {
        compaction: Some(compaction(&world, Arc::clone(&summaries), None)),
        ..with_tools(&world)
    };
    setup.traits.window = Some(20_000);
    let session = Arc::new(Session::in_memory(setup));
    session.prompt("first".into()).await.unwrap();
    let prompt = "Never touch the file called dear.txt.";
    session.prompt(prompt.into()).await.unwrap();
    assert_eq!(summaries.calls_made(), 1);
    let asked = describe_messages(&world.provider.requests().last().unwrap().messages);
    assert!(asked.iter().any(|said| said.contains(prompt)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn correction_is_announced_after_it_is_recorded() {
    let kept = Arc::new(TestJournal::new());
    let empty: Call = vec![stop(StopReason::EndTurn)].into();
    let world = Fixture::new([empty, answers("Hello")]);
    let session = kept.begin(world.setup()).await;
    let written: Arc<Mutex<Vec<Vec<&'static str>>>> = Arc::default();
    let (noted, journal) = (Arc::clone(&written), Arc::clone(&kept));
    let _heard = Listener::with(&session, move |session, body| {
        if matches!(body, Body::Corrected { .. }) {
            let kinds = on_other_thread(journal.kinds(session.id()));
            noted.lock().unwrap().push(kinds);
        }
    });
    session.prompt("hi".into()).await.unwrap();
    let written = written.lock().unwrap().clone();
    assert_eq!(written.len(), 1);
    assert!(written[0].contains(&"noticed"), "{written:?}");
}

// --- A session that belongs to another process ---

#[tokio::test(start_paused = true)]
async fn lost_session_does_not_switch_models() {
    let kept = Arc::new(TestJournal::new());
    let routes = Routes::new([
        ("one", vec![fails(overloaded()), calls(&[("c1", "read")])]),
        ("two", vec![answers("Hello")]),
    ]);
    let session = kept.begin(routes.setup()).await;
    let other = Arc::clone(&kept);
    let heard = Listener::with(&session, move |session, body| {
        if matches!(body, Body::ToolStarted { .. }) {
            other.remove_locks();
            let hold = on_other_thread(other.open_again().claim(session.id())).unwrap();
            std::mem::forget(hold);
        }
    });
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Error);
    assert_eq!(routes.names(), ["one", "one"]);
    assert_eq!(heard.count("model_switched"), 0);
}

// --- A completion that its provider stores ---

/// Breaks off once, and then fails when the rest is requested.
struct FailingResume {
    answers: Arc<Scripted>,
}

impl Provider for FailingResume {
    fn name(&self) -> &str {
        "keeps"
    }

    fn stream(
        &self,
        request: &Request,
        credential: Option<&Credential>,
    ) -> BoxStream<'static, Item> {
        self.answers.stream(request, credential)
    }

    fn resume(&self, _: &StreamCursor, _: Option<&Credential>) -> Option<BoxStream<'static, Item>> {
        let message = "the answer came as a whole in place of its rest";
        let failure = Failure::thrown("keeps", message, START).with_io(IoKind::Protocol);
        let failure = failure.with_retryable(false);
        Some(stream::iter([Err(Box::new(failure))]).boxed())
    }
}

#[tokio::test(start_paused = true)]
async fn failed_stream_resume_falls_back_to_continuation_prompt() {
    let place = StreamCursor {
        response: "r1".to_owned(),
        after: 3,
    };
    let world = Fixture::new([
        breaks(vec![text("Hel"), Ok(Delta::Cursor(place))]),
        answers("lo"),
    ]);
    let provider = FailingResume {
        answers: Arc::clone(&world.provider),
    };
    let setup = Setup {
        provider: Arc::new(provider),
        ..continues(&world, ContinueBy::Resume)
    };
    let session = Arc::new(Session::in_memory(setup));
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    assert_eq!(shown(&heard), "Hel|lo");
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
}
