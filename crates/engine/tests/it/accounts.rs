//! Turns with several accounts, on a paused clock.

use crate::support::{START, clock};
use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Message, Request};
use outlast_engine::accounts::{Account, Accounts, KeySource};
use outlast_engine::credential::Credential;
use outlast_engine::shared_state::SharedState;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::turn::{Turn, TurnOutcome};
use outlast_engine::{BoxFuture, BoxStream, Clock, Provider, run_turn};
use outlast_kernel::event::{Body, Event, StopReason, TurnStatus};
use outlast_kernel::failure::Failure;
use outlast_kernel::policy::{Overrides, Policy};
use outlast_kernel::verdict::Cause;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A key source whose key changes with each fetch, if so configured.
struct TestKeys {
    key: &'static str,
    renews: bool,
    fetched: AtomicU32,
}

impl KeySource for TestKeys {
    fn fetch(&self) -> BoxFuture<'_, Result<Credential, String>> {
        let number = self.fetched.fetch_add(1, Ordering::Relaxed);
        let key = match (self.key, self.renews) {
            ("", _) => return Box::pin(async { Err("the command failed".to_owned()) }),
            (key, true) => format!("{key}-{number}"),
            (key, false) => key.to_owned(),
        };
        Box::pin(async move { Ok(Credential::new(key)) })
    }
}

type Responses = fn(&str) -> Option<Failure>;

/// A provider whose response depends on the key.
struct KeyedProvider {
    responses: Responses,
    keys_used: Mutex<Vec<String>>,
    latency: Duration,
    in_flight: Arc<AtomicU32>,
    max_in_flight: Arc<AtomicU32>,
}

impl Provider for KeyedProvider {
    fn name(&self) -> &str {
        "p"
    }

    fn stream(
        &self,
        _: &Request,
        credential: Option<&Credential>,
    ) -> BoxStream<'static, Result<Delta, Box<Failure>>> {
        let keys = ["key-a", "key-b", "key-a-0", "key-a-1"];
        let is = |key: &&str| {
            let key = Credential::new((*key).to_owned());
            credential.is_some_and(|credential| credential.is_same(&key))
        };
        let key = keys.into_iter().find(is).unwrap_or_default();
        self.keys_used.lock().unwrap().push(key.to_owned());
        let items = match (self.responses)(key) {
            Some(failure) => vec![Err(Box::new(failure))],
            None => vec![
                Ok(Delta::Text("hi".to_owned())),
                Ok(Delta::Stopped(StopReason::EndTurn)),
            ],
        };
        let (takes, under_way) = (self.latency, Arc::clone(&self.in_flight));
        let most = Arc::clone(&self.max_in_flight);
        let answer = async move {
            let now = under_way.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(takes).await;
            under_way.fetch_sub(1, Ordering::Relaxed);
            stream::iter(items)
        };
        stream::once(answer).flatten().boxed()
    }
}

struct Fixture {
    clock: Arc<dyn Clock>,
    shared_state: SharedState,
    accounts: Accounts,
    provider: KeyedProvider,
    policy: Policy,
}

impl Fixture {
    fn new(accounts: &[(&'static str, bool)], responses: Responses) -> Self {
        let clock = clock();
        let shared_state = SharedState::process_local(clock.clone());
        let account = |(place, (key, renews)): (usize, &(&'static str, bool))| Account {
            name: ["first", "second", "third"][place].to_owned(),
            source: Arc::new(TestKeys {
                key,
                renews: *renews,
                fetched: AtomicU32::new(0),
            }),
            max_in_flight: None,
        };
        let list = accounts.iter().enumerate().map(account).collect();
        Self {
            accounts: Accounts::new(list, shared_state.clone(), clock.clone()),
            shared_state,
            clock,
            provider: KeyedProvider {
                responses,
                keys_used: Mutex::default(),
                latency: Duration::ZERO,
                in_flight: Arc::default(),
                max_in_flight: Arc::default(),
            },
            policy: Policy::named("session").unwrap(),
        }
    }

    async fn turn(&self) -> (TurnOutcome, Vec<Event>) {
        let retry = PolicyRetry::new(self.policy.clone(), self.clock.clone());
        let request = Request {
            model: "m".to_owned(),
            messages: vec![Message::user("hi")],
            ..Request::default()
        };
        let turn = Turn {
            retry: Some(&retry),
            accounts: Some(&self.accounts),
            shared_state: Some(&self.shared_state),
            ..Turn::new(&self.provider, request, &*self.clock)
        };
        let mut events = Vec::new();
        let ended = run_turn(turn, &mut |event| events.push(event)).await;
        (ended, events)
    }

    fn keys_used(&self) -> Vec<String> {
        self.provider.keys_used.lock().unwrap().clone()
    }
}

fn limit(reset: &str) -> Failure {
    let message = format!("You have hit your usage limit. Try again in {reset}.");
    Failure::http("p", 429, &message, START)
}

fn delays(events: &[Event]) -> Vec<u64> {
    let delay = |event: &Event| match event.body {
        Body::RetryScheduled { delay_ms, .. } => Some(delay_ms / 1000),
        _ => None,
    };
    events.iter().filter_map(delay).collect()
}

#[tokio::test(start_paused = true)]
async fn a_limit_on_one_account_costs_one_request_and_no_wait() {
    let world = Fixture::new(&[("key-a", false), ("key-b", false)], |key| {
        (key == "key-a").then(|| limit("2 hours"))
    });
    let (ended, events) = world.turn().await;
    assert_eq!(
        (ended.seal, delays(&events)),
        (TurnStatus::Completed, vec![0])
    );
    assert_eq!(world.keys_used(), ["key-a", "key-b"]);
    // Later calls know of the block.
    world.turn().await;
    world.turn().await;
    assert_eq!(world.keys_used(), ["key-a", "key-b", "key-b", "key-b"]);
    let accounts: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::Account { name } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(accounts, ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn all_blocked_waits_for_earliest_reset_if_allowed() {
    let answers: Responses = |key| match key {
        "key-a" => Some(limit("2 hours")),
        _ => Some(limit("1 hour")),
    };
    let both = [("key-a", false), ("key-b", false)];
    let world = Fixture::new(&both, answers);
    let (ended, events) = world.turn().await;
    assert_eq!(ended.seal, TurnStatus::Error);
    let reason = events.iter().find_map(|event| match &event.body {
        Body::Error { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(
        reason.as_deref(),
        Some("the provider asks to wait 1h, the policy accepts 5m")
    );

    let mut world = Fixture::new(&both, answers);
    let wait = Overrides {
        wait_for_reset: Some(true),
        ..Overrides::default()
    };
    world.policy = world.policy.with_overrides(wait).unwrap();
    let (_, events) = world.turn().await;
    assert_eq!(delays(&events)[..2], [0, 3600], "{:?}", delays(&events));
}

#[tokio::test(start_paused = true)]
async fn refused_key_is_refetched_once_then_next_account_used() {
    let answers: Responses = |key| {
        let revoked = key != "key-b";
        revoked.then(|| Failure::http("p", 401, "invalid key", START))
    };
    let world = Fixture::new(&[("key-a", false), ("key-b", false)], answers);
    let (ended, events) = world.turn().await;
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(world.keys_used(), ["key-a", "key-b"]);
    let said =
        |event: &Event| matches!(&event.body, Body::AccountBlocked { name, .. } if name == "first");
    assert!(events.iter().any(said), "{events:?}");

    let renewed: Responses =
        |key| (key == "key-a-0").then(|| Failure::http("p", 401, "expired", START));
    let world = Fixture::new(&[("key-a", true)], renewed);
    let (ended, events) = world.turn().await;
    assert_eq!(
        (ended.seal, delays(&events)),
        (TurnStatus::Completed, vec![0])
    );
    assert_eq!(world.keys_used(), ["key-a-0", "key-a-1"]);
    assert_eq!(world.shared_state.blocks().iter().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn revoked_key_blocks_account_for_one_hour() {
    let world = Fixture::new(&[("key-a", false)], |_| {
        Some(Failure::http("p", 401, "invalid key", START))
    });
    let (ended, _) = world.turn().await;
    assert_eq!(ended.seal, TurnStatus::Error);
    let blocks = world.shared_state.blocks();
    let block = blocks.active_block("first", "m", START).unwrap();
    assert_eq!(block.cause, Cause::Auth);
    assert!(block.until <= START + Duration::from_secs(3601));
    // Without an alternative, it is still asked.
    world.turn().await;
    assert_eq!(world.keys_used().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn keyless_accounts_are_skipped_and_no_key_is_an_error() {
    let world = Fixture::new(&[("", false), ("key-b", false)], |_| None);
    let (ended, _) = world.turn().await;
    assert_eq!(
        (ended.seal, world.keys_used()),
        (TurnStatus::Completed, vec!["key-b".to_owned()])
    );

    let world = Fixture::new(&[("", false)], |_| None);
    let (ended, _) = world.turn().await;
    let (judged, _) = ended.error.unwrap();
    let expected = "no usable API key: first: the command failed";
    assert_eq!(
        (ended.seal, judged.failure.message.as_str()),
        (TurnStatus::Error, expected)
    );
}

#[tokio::test(start_paused = true)]
async fn account_never_exceeds_max_in_flight() {
    let mut world = Fixture::new(&[("key-a", false)], |_| None);
    world.accounts = Accounts::new(
        vec![Account {
            name: "first".to_owned(),
            source: Arc::new(TestKeys {
                key: "key-a",
                renews: false,
                fetched: AtomicU32::new(0),
            }),
            max_in_flight: Some(2),
        }],
        world.shared_state.clone(),
        world.clock.clone(),
    );
    world.provider.latency = Duration::from_secs(90);
    let turns = (0..6).map(|_| world.turn());
    let ended = futures_util::future::join_all(turns).await;
    assert!(
        ended
            .iter()
            .all(|(ended, _)| ended.seal == TurnStatus::Completed)
    );
    assert_eq!(world.provider.max_in_flight.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn keyless_account_is_no_switch_target() {
    let world = Fixture::new(&[("key-a", false), ("", false)], |_| Some(limit("2 hours")));
    let (ended, _) = world.turn().await;
    assert_eq!(
        (ended.seal, world.keys_used()),
        (TurnStatus::Error, vec!["key-a".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn long_rate_limit_switches_to_other_account() {
    let world = Fixture::new(&[("key-a", false), ("key-b", false)], |key| {
        let slow = Failure::http("p", 429, "Rate limit reached", START);
        (key == "key-a").then(|| slow.with_headers([("retry-after", "500")]))
    });
    let (ended, _) = world.turn().await;
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(world.keys_used(), ["key-a", "key-b"]);
}

#[tokio::test(start_paused = true)]
async fn revoked_account_does_not_shorten_stated_reset_wait() {
    let mut world = Fixture::new(&[("key-a", false), ("key-b", false)], |key| match key {
        "key-a" => Some(Failure::http("p", 401, "invalid key", START)),
        _ => Some(limit("2 hours")),
    });
    let wait = Overrides {
        wait_for_reset: Some(true),
        ..Overrides::default()
    };
    world.policy = world.policy.with_overrides(wait).unwrap();
    let (_, events) = world.turn().await;
    assert_eq!(delays(&events)[..2], [0, 7200], "{:?}", delays(&events));
}

#[tokio::test(start_paused = true)]
async fn ever_changing_refused_key_is_retried_only_once() {
    let answers: Responses = |key| {
        let bad = key != "key-b";
        bad.then(|| Failure::http("p", 401, "expired", START))
    };
    let world = Fixture::new(&[("key-a", true), ("key-b", false)], answers);
    let (ended, _) = world.turn().await;
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(world.keys_used(), ["key-a-0", "key-a-1", "key-b"]);
}

#[tokio::test(start_paused = true)]
async fn success_lifts_a_block() {
    let world = Fixture::new(&[("key-a", false)], |_| None);
    let judged = outlast_kernel::failure::ClassifiedFailure::new(limit("2 hours"));
    let chosen = world.accounts.choose(None, &[], "m").await.unwrap();
    world
        .accounts
        .record_failure(&chosen, "m", &judged, true)
        .await;
    assert_eq!(world.shared_state.blocks().iter().count(), 1);
    world.turn().await;
    assert_eq!(world.shared_state.blocks().iter().count(), 0);
}
