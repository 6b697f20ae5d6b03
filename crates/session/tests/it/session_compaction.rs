//! A conversation that is compacted before it is too large, or by hand: the content of the next request, and the tools
//! that have run.

use crate::pieces::assert_well_formed;
use crate::routes::Routes;
use crate::support::{
    Fate, Listener, TestJournal, answers, calls, describe_messages, fails, hang_at, overloaded,
    run_until, stop, tool_call_delta, usage_delta,
};
use outlast_dialect::{Dialect, Message};
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::tools::{Effect, Output, Toolbox};
use outlast_engine::{BoxFuture, CancellationToken, token_estimate};
use outlast_kernel::budget::Limits;
use outlast_kernel::event::{Body, CompactionReason, StopReason, ToolCall, TurnStatus};
use outlast_kernel::policy::Policy;
use outlast_session::Session;
use outlast_session::compaction::{Compaction, Settings};
use outlast_session::{Error, Setup};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WINDOW: u64 = 10_000;

/// Creates a model that follows its script, and one that summarises.
pub(crate) fn scripted(script: &str, summaries: &str) -> Routes {
    let mut routes = Routes::none();
    for (name, script) in [("model", script), ("summariser", summaries)] {
        let clock = Arc::clone(&routes.world.clock);
        let script = script.parse().unwrap();
        let transport = Arc::new(outlast_mock::ScriptedTransport::new(script, clock.clone()));
        let provider = Adapter::new(Dialect::Anthropic, transport, clock);
        routes.push(name, Arc::new(provider));
    }
    routes
}

/// Creates a setup with the first of these models; the others summarise its conversations.
pub(crate) fn compacting(routes: &Routes) -> Setup {
    let clock = || Arc::clone(&routes.world.clock);
    let retry = PolicyRetry::new(Policy::named("session").unwrap(), clock());
    let summarisers = routes.list[1..].to_vec();
    let settings = Settings::default();
    let compaction = Compaction::new(summarisers, Arc::new(retry), clock(), settings);
    Setup {
        fallbacks: Vec::new(),
        compaction: Some(Arc::new(compaction)),
        ..routes.setup()
    }
}

/// Returns the announced compactions: reason, size before, size after, whether the call is repeated.
pub(crate) fn compactions(heard: &Listener) -> Vec<(CompactionReason, u64, u64, bool)> {
    let ended = |body: Body| match body {
        Body::AutoCompactionEnded {
            reason,
            before,
            after,
            will_retry,
            ..
        } => Some((reason, before, after, will_retry)),
        _ => None,
    };
    heard.bodies().into_iter().filter_map(ended).collect()
}

// --- In a loop of tools ---

/// Long pages, each of which may be requested only once.
#[derive(Default)]
struct Pages(Mutex<Vec<String>>);

impl Pages {
    fn ran(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Toolbox for Pages {
    fn admit<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, Result<Effect, String>> {
        Box::pin(async { Ok(Effect::AtMostOnce) })
    }

    fn run<'a>(&'a self, call: &'a ToolCall, _: CancellationToken) -> BoxFuture<'a, Output> {
        self.0.lock().unwrap().push(call.arguments.clone());
        let page = format!("{} {}", call.arguments, "word ".repeat(1500));
        Box::pin(async { Output::ok(page) })
    }
}

fn page(number: u32) -> String {
    format!("{{\"number\":{number}}}")
}

/// Returns a prompt for that many pages, one after the other.
fn plan(pages: u32) -> String {
    let steps = (1..=pages).map(|number| format!("call page {}", page(number)));
    steps.collect::<Vec<_>>().join("\n")
}

fn all_pages(pages: u32) -> Vec<String> {
    (1..=pages).map(page).collect()
}

/// Creates an agent that reads pages, with a window that does not hold them all.
fn reader() -> (Routes, Arc<Pages>) {
    let window = format!("window:{WINDOW},of=agent");
    let routes = scripted(&window, "ok:agent,times=always");
    (
        routes.with_windows([Some(WINDOW), Some(WINDOW)]),
        Arc::default(),
    )
}

fn reading(routes: &Routes, pages: &Arc<Pages>) -> Setup {
    Setup {
        tools: Some(Arc::clone(pages) as Arc<dyn Toolbox>),
        ..compacting(routes)
    }
}

/// Asserts that each request after a summary begins with it, is smaller than the one before, and fits.
fn assert_goes_on_smaller(routes: &Routes) {
    let log = routes.log();
    let places = (1..log.len() - 1).filter(|place| log[*place].name == "summariser");
    let places: Vec<usize> = places.collect();
    assert!(!places.is_empty());
    for place in places {
        let (before, after) = (&log[place - 1].request, &log[place + 1].request);
        let first = after.messages[0].text();
        assert!(first.contains("Summary of "), "{first}");
        assert!(token_estimate::request_tokens(after) < token_estimate::request_tokens(before));
        assert_well_formed(&after.messages);
    }
    let sizes = log
        .iter()
        .map(|one| token_estimate::request_tokens(&one.request));
    assert!(sizes.max().unwrap() <= WINDOW);
}

#[tokio::test(start_paused = true)]
async fn tool_loop_continues_after_threshold_compaction() {
    let (routes, pages) = reader();
    let session = Arc::new(Session::in_memory(reading(&routes, &pages)));
    let heard = Listener::new(&session);
    let ended = session.prompt(plan(12).as_str().into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    assert_eq!(pages.ran(), all_pages(12));
    assert_goes_on_smaller(&routes);
    let said = compactions(&heard);
    for (reason, before, after, will_retry) in &said {
        assert_eq!((*reason, *will_retry), (CompactionReason::Threshold, false));
        assert!(before > after, "{said:?}");
    }
    // No request was refused: the conversation was compacted in time.
    let failed = (heard.count("retry_scheduled"), heard.count("error"));
    assert_eq!(failed, (0, 0));
    assert!(ended.message.text().starts_with("Done after "));
}

#[tokio::test(start_paused = true)]
async fn resume_after_death_uses_compacted_conversation() {
    let (routes, pages) = reader();
    let kept = TestJournal::new();
    let session = kept.begin(reading(&routes, &pages)).await;
    let is_enough = hang_at(&routes.world.provider, |body| {
        matches!(body, Body::AutoCompactionEnded { .. })
    });
    let plan = plan(12);
    let running = session.prompt(plan.as_str().into());
    assert_eq!(run_until(&session, running, is_enough).await, Fate::Died);
    let id = session.id().to_owned();
    drop(session);
    assert!(kept.kinds(&id).await.contains(&"compacted"));
    let (asked, ran) = (routes.log().len(), pages.ran().len());
    assert_eq!(routes.log()[asked - 1].name, "summariser");
    assert!((1..12).contains(&ran), "{ran}");
    routes.world.provider.hang(false);

    let session = kept.open(&id, reading(&routes, &pages)).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    assert_eq!(pages.ran(), all_pages(12));
    // The next process first sends the conversation of the journal.
    assert_eq!(routes.log()[asked].name, "model");
    assert_goes_on_smaller(&routes);
}

// --- By billed usage ---

#[tokio::test(start_paused = true)]
async fn billed_usage_triggers_only_one_compaction() {
    let step = vec![
        tool_call_delta("c1", "read"),
        usage_delta(9000, 10),
        stop(StopReason::ToolUse),
    ];
    let script = vec![step.into(), fails(overloaded()), answers("Hello")];
    let routes = Routes::new([("model", script)]).with_windows([Some(WINDOW)]);
    let session = Arc::new(Session::in_memory(compacting(&routes)));
    let heard = Listener::new(&session);
    // By our own estimate it is less than half of the window.
    let long = "word ".repeat(3000);
    let ended = session.prompt(long.as_str().into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
    let said = compactions(&heard);
    let [(CompactionReason::Threshold, before, after, false)] = said[..] else {
        panic!("{said:?}");
    };
    assert!(before >= 9000 && after < 7500, "{said:?}");
    assert_eq!(
        (routes.request_times().len(), heard.retries().len()),
        (3, 1)
    );
}

// --- By hand ---

/// Creates a finished conversation that is worth a summary.
async fn long_session(setup: Setup) -> Arc<Session> {
    let session = Arc::new(Session::in_memory(setup));
    let long = "The first half of the work is done. ".repeat(400);
    for text in [long.as_str(), &long, "What is left?"] {
        session.prompt(text.into()).await.unwrap();
    }
    session
}

#[tokio::test(start_paused = true)]
async fn prompt_during_compaction_waits_and_is_sent() {
    let routes = scripted("ok:agent,times=always", "drip:1000,of=agent,times=always");
    let session = long_session(compacting(&routes)).await;
    let before = token_estimate::messages_tokens(&session.messages());
    let heard = Listener::new(&session);
    let compacting = session.compact(None, Limits::default());
    let asking = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(session.snapshot().is_compacting);
        session.prompt("And now?".into()).await
    };
    let (compacted, asked) = tokio::join!(compacting, asking);
    assert_eq!(asked.unwrap().seal, TurnStatus::Completed);
    assert!(compacted.unwrap().after < before / 2);
    let kinds = heard.kinds();
    let place = |kind: &str| kinds.iter().position(|other| other == kind).unwrap();
    assert!(place("auto_compaction_ended") < place("start"), "{kinds:?}");
    let last = routes.log().pop().unwrap().request.messages;
    assert!(last[0].text().contains("Summary of "));
    assert_eq!(last.last(), Some(&Message::user("And now?")));
}

#[tokio::test(start_paused = true)]
async fn manual_compaction_is_refused_during_a_turn() {
    let script = vec![calls(&[("c1", "slow")]), answers("Hello")];
    let routes = Routes::new([("model", script)]);
    let session = Arc::new(Session::in_memory(compacting(&routes)));
    let asking = session.prompt("hi".into());
    let compacting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        session.compact(None, Limits::default()).await
    };
    let (ended, refused) = tokio::join!(asking, compacting);
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    assert_eq!(ended.unwrap().seal, TurnStatus::Completed);
    let conversation = ["hi", "slow(c1)", "c1: c1 is done", "Hello"];
    assert_eq!(describe_messages(&session.messages()), conversation);
}

#[tokio::test(start_paused = true)]
async fn manual_compaction_retries_failed_summary() {
    let routes = scripted(
        "ok:agent,times=always",
        "overloaded:2+ok:agent,times=always",
    );
    let session = long_session(compacting(&routes)).await;
    let heard = Listener::new(&session);
    let compacted = session.compact(None, Limits::default()).await.unwrap();
    assert_eq!(compacted.model.as_deref(), Some("summariser"));
    assert_eq!(heard.count("auto_compaction_retry"), 2);
    assert_eq!(routes.world.elapsed(), Duration::from_secs(6));
}
