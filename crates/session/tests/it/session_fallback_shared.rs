//! Other models combined with other accounts, and with a gate that other sessions share: the nearer remedy comes first.

use crate::routes::{Routes, switch, switches};
use crate::support::{Item, Listener, START, answers, fails, overloaded, stop, text};
use futures_util::{StreamExt, stream};
use outlast_dialect::Request;
use outlast_engine::accounts::{Account, Accounts, KeySource};
use outlast_engine::credential::Credential;
use outlast_engine::shared_state::SharedState;
use outlast_engine::{BoxFuture, BoxStream, Provider};
use outlast_kernel::event::{StopReason, TurnStatus};
use outlast_kernel::failure::Failure;
use outlast_kernel::fallback::{Condition, Rules};
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::Setup;
use std::sync::Arc;
use std::time::Duration;

// --- Accounts ---

struct Key(&'static str);

impl KeySource for Key {
    fn fetch(&self) -> BoxFuture<'_, Result<Credential, String>> {
        Box::pin(async { Ok(Credential::new(self.0.to_owned())) })
    }
}

/// Refuses each key with its own failure, and succeeds with any other.
struct KeyRefusingProvider {
    keys: Vec<(&'static str, Failure)>,
}

impl Provider for KeyRefusingProvider {
    fn name(&self) -> &str {
        "refuses"
    }

    fn stream(&self, _: &Request, credential: Option<&Credential>) -> BoxStream<'static, Item> {
        let is_used = |key: &str| {
            let key = Credential::new(key.to_owned());
            credential.is_some_and(|credential| credential.is_same(&key))
        };
        let refused = self.keys.iter().find(|(key, _)| is_used(key));
        let items = match refused {
            Some((_, failure)) => vec![Err(Box::new(failure.clone()))],
            None => vec![text("Hello"), stop(StopReason::EndTurn)],
        };
        stream::iter(items).boxed()
    }
}

/// `one` with two accounts, of which those are refused, and `two` without any.
fn with_accounts(refused: Vec<(&'static str, Failure)>) -> (Routes, SharedState) {
    let mut routes = Routes::none();
    let clock = Arc::clone(&routes.world.clock);
    let knowledge = SharedState::process_local(Arc::clone(&clock));
    routes.push("one", Arc::new(KeyRefusingProvider { keys: refused }));
    routes.push("two", Arc::new(KeyRefusingProvider { keys: Vec::new() }));
    let account = |name: &'static str| Account {
        name: name.to_owned(),
        source: Arc::new(Key(name)),
        max_in_flight: None,
    };
    let list = ["first", "second"].map(account).into();
    let accounts = Accounts::new(list, knowledge.clone(), clock);
    routes.list[0].accounts = Some(Arc::new(accounts));
    (routes, knowledge)
}

/// Sends a prompt and returns its status, the models asked, and the number of announced accounts.
async fn run_with(
    routes: &Routes,
    knowledge: SharedState,
) -> (TurnStatus, Vec<&'static str>, usize) {
    let setup = Setup {
        shared_state: Some(knowledge),
        ..routes.setup()
    };
    let session = Arc::new(Session::in_memory(setup));
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    let accounts = heard.count("account");
    (ended.seal, routes.names(), accounts)
}

fn credential_failures() -> Vec<Failure> {
    let http = |status, message| Failure::http("one", status, message, START);
    vec![
        http(401, "invalid x-api-key"),
        http(402, "Insufficient credits").with_code("billing_error"),
        http(429, "You have hit your usage limit. Try again in 2 hours."),
    ]
}

#[tokio::test(start_paused = true)]
async fn account_switch_precedes_model_switch() {
    for failure in credential_failures() {
        let what = failure.message.clone();
        let (routes, knowledge) = with_accounts(vec![("first", failure)]);
        let asked = run_with(&routes, knowledge).await;
        assert_eq!(
            asked,
            (TurnStatus::Completed, vec!["one", "one"], 2),
            "{what}"
        );
        assert_eq!(routes.world.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn model_switches_when_no_account_is_left() {
    for failure in credential_failures() {
        let what = failure.message.clone();
        let refused = vec![("first", failure.clone()), ("second", failure)];
        let (routes, knowledge) = with_accounts(refused);
        let asked = run_with(&routes, knowledge).await;
        let expected = vec!["one", "one", "two"];
        assert_eq!(asked, (TurnStatus::Completed, expected, 2), "{what}");
        assert_eq!(routes.world.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn model_failure_does_not_try_other_accounts() {
    let missing = Failure::http("one", 404, "model: one", START).with_code("model_not_found");
    let refused = vec![("first", missing.clone()), ("second", missing)];
    let (routes, knowledge) = with_accounts(refused);
    let asked = run_with(&routes, knowledge).await;
    assert_eq!(asked, (TurnStatus::Completed, vec!["one", "two"], 1));
}

// --- The gate ---

/// So many sessions meet the overload of `one` that it is proven, and wait before its gate; then another one sends a prompt.
struct HeldGate {
    routes: Routes,
    knowledge: SharedState,
    early: Vec<Arc<Session>>,
}

impl HeldGate {
    async fn new() -> Self {
        let routes = Routes::new([
            ("one", vec![fails(overloaded())]),
            ("two", vec![answers("Hello")]),
        ]);
        let knowledge = SharedState::process_local(Arc::clone(&routes.world.clock));
        let alone = Setup {
            shared_state: Some(knowledge.clone()),
            fallbacks: Vec::new(),
            ..routes.setup_by("overnight")
        };
        let early: Vec<Arc<Session>> = (0..24)
            .map(|_| Arc::new(Session::in_memory(alone.clone())))
            .collect();
        for session in early.clone() {
            tokio::spawn(async move { session.prompt("hi".into()).await });
        }
        routes.wait_until(5).await;
        Self {
            routes,
            knowledge,
            early,
        }
    }

    fn session(&self, fallback_rules: Rules) -> (Arc<Session>, Listener) {
        let setup = Setup {
            shared_state: Some(self.knowledge.clone()),
            fallback_rules,
            ..self.routes.setup_by("overnight")
        };
        let session = Arc::new(Session::in_memory(setup));
        let heard = Listener::new(&session);
        (session, heard)
    }

    fn end(&self) {
        self.early.iter().for_each(|session| session.abort());
    }
}

#[tokio::test(start_paused = true)]
async fn call_held_at_gate_for_ten_seconds_switches_model() {
    let late = HeldGate::new().await;
    let (session, heard) = late.session(Rules::default());
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.message.text(), "Hello");
    assert_eq!(late.routes.world.elapsed(), Duration::from_secs(15));
    let left = switch("one", "two", Cause::Overloaded, 315);
    assert_eq!(switches(&heard), [left]);
    let kinds = heard.kinds();
    let at = |kind: &str| kinds.iter().position(|other| other == kind).unwrap();
    assert!(at("held") < at("model_switched"));
    assert_eq!(heard.count("attempt_started"), 1, "nothing was sent to one");
    late.end();
}

#[tokio::test(start_paused = true)]
async fn model_left_at_gate_is_skipped_by_the_next_turn() {
    let late = HeldGate::new().await;
    let (session, heard) = late.session(Rules::default());
    session.prompt("hi".into()).await.unwrap();
    session.prompt("again".into()).await.unwrap();
    assert_eq!(late.routes.world.elapsed(), Duration::from_secs(15));
    assert_eq!(heard.count("attempt_started"), 2);
    late.end();
}

#[tokio::test(start_paused = true)]
async fn call_stays_held_when_overload_does_not_switch_models() {
    let late = HeldGate::new().await;
    let rules = Rules {
        conditions: vec![Condition::HardError],
        ..Rules::default()
    };
    let (session, heard) = late.session(rules);
    let hour = Duration::from_secs(3600);
    let turn = tokio::time::timeout(hour, session.prompt("hi".into()));
    assert!(turn.await.is_err());
    assert!(heard.count("held") > 0);
    assert_eq!(switches(&heard), []);
    assert!(!late.routes.names().contains(&"two"));
    late.end();
}
