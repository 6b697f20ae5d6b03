//! Several models in order of preference, each at a provider of its own name, and one log of all requests.

use crate::support::{Call, Fixture, Item, Listener, START, Scripted};
use futures_util::{StreamExt, stream};
use outlast_dialect::Request;
use outlast_engine::credential::Credential;
use outlast_engine::target::ModelTarget;
use outlast_engine::{BoxStream, Clock, Provider};
use outlast_kernel::Timestamp;
use outlast_kernel::event::Body;
use outlast_kernel::policy::Policy;
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::Setup;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One request to one of the models.
#[derive(Clone, Debug)]
pub(crate) struct LoggedRequest {
    pub(crate) after: Duration,
    pub(crate) name: &'static str,
    pub(crate) request: Request,
}

/// A turn that makes requests without a pause would never end by the clock.
const MAX_REQUESTS: usize = 1000;

type Log = Arc<Mutex<Vec<LoggedRequest>>>;

/// A provider under another name, which records its requests in the common log.
struct LoggingProvider {
    name: &'static str,
    answers: Arc<dyn Provider>,
    log: Log,
    world: Arc<Scripted>,
    clock: Arc<dyn Clock>,
}

impl Provider for LoggingProvider {
    fn name(&self) -> &str {
        self.name
    }

    fn stream(
        &self,
        request: &Request,
        credential: Option<&Credential>,
    ) -> BoxStream<'static, Item> {
        if self.world.is_hanging() {
            return stream::pending().boxed();
        }
        let mut log = self.log.lock().unwrap();
        assert!(log.len() < MAX_REQUESTS, "models are asked without an end");
        log.push(LoggedRequest {
            after: self.clock.now().since(START),
            name: self.name,
            request: request.clone(),
        });
        drop(log);
        self.answers.stream(request, credential)
    }
}

/// Models in order of preference. Each has the same name as its provider.
pub(crate) struct Routes {
    /// The clock and the tools; its own provider is not asked, but while it hangs all of them do.
    pub(crate) world: Fixture,
    /// The models; they can be changed before a session is set up with them.
    pub(crate) list: Vec<ModelTarget>,
    log: Log,
}

impl Routes {
    /// Creates these models with their scripts; the last call of each is repeated.
    pub(crate) fn new<const N: usize>(scripts: [(&'static str, Vec<Call>); N]) -> Self {
        let mut routes = Self::none();
        for (name, calls) in scripts {
            let answers = Fixture::by(Arc::clone(&routes.world.clock), calls).provider;
            routes.push(name, answers);
        }
        routes
    }

    pub(crate) fn none() -> Self {
        Self {
            world: Fixture::new([]),
            list: Vec::new(),
            log: Log::default(),
        }
    }

    /// Adds a model with that provider.
    pub(crate) fn push(&mut self, name: &'static str, answers: Arc<dyn Provider>) {
        let provider = LoggingProvider {
            name,
            answers,
            log: Arc::clone(&self.log),
            world: Arc::clone(&self.world.provider),
            clock: Arc::clone(&self.world.clock),
        };
        self.list.push(ModelTarget::new(Arc::new(provider), name));
    }

    /// Sets the context windows of the models, in tokens.
    pub(crate) fn with_windows<const N: usize>(mut self, windows: [Option<u64>; N]) -> Self {
        for (route, window) in self.list.iter_mut().zip(windows) {
            route.traits.window = window;
        }
        self
    }

    /// Creates a setup with the policy of sessions, and tools.
    pub(crate) fn setup(&self) -> Setup {
        self.setup_by("session")
    }

    pub(crate) fn setup_by(&self, policy: &str) -> Setup {
        let first = self.list[0].clone();
        Setup {
            provider: first.provider,
            model: first.model,
            accounts: first.accounts,
            price: first.price,
            traits: first.traits,
            max_tokens: first.max_tokens,
            fallbacks: self.list[1..].to_vec(),
            ..self.world.setup_by(Policy::named(policy).unwrap())
        }
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::new(Session::in_memory(self.setup()))
    }

    pub(crate) fn log(&self) -> Vec<LoggedRequest> {
        self.log.lock().unwrap().clone()
    }

    /// Returns the models asked, each with the time in seconds after the start.
    pub(crate) fn request_times(&self) -> Vec<(u64, &'static str)> {
        let log = self.log();
        let asked = log.iter().map(|one| (one.after.as_secs(), one.name));
        asked.collect()
    }

    /// Returns the models asked, in order.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.log().iter().map(|one| one.name).collect()
    }

    /// Waits until that many seconds after the start.
    pub(crate) async fn wait_until(&self, seconds: u64) {
        let time = START + Duration::from_secs(seconds);
        self.world.clock.sleep_until(time).await;
    }
}

/// A provider whose completions depend on the time of day.
pub(crate) struct ByTime<F> {
    pub(crate) clock: Arc<dyn Clock>,
    /// The duration of a call.
    pub(crate) takes: Duration,
    /// Returns the outcome of a call that ends so long after the start.
    pub(crate) answer: F,
}

impl<F: Fn(Duration) -> Vec<Item> + Clone + Send + Sync + 'static> Provider for ByTime<F> {
    fn name(&self) -> &str {
        "by time"
    }

    fn stream(&self, _: &Request, _: Option<&Credential>) -> BoxStream<'static, Item> {
        let (clock, takes) = (Arc::clone(&self.clock), self.takes);
        let answer = self.answer.clone();
        let items = async move {
            tokio::time::sleep(takes).await;
            stream::iter(answer(clock.now().since(START)))
        };
        stream::once(items).flatten().boxed()
    }
}

/// An announced change of models: from, to, cause, and end in seconds after the start.
pub(crate) type Switch = (String, String, Option<Cause>, Option<u64>);

pub(crate) fn switches(heard: &Listener) -> Vec<Switch> {
    let seconds = |until: Timestamp| until.since(START).as_secs();
    let switch = |body: Body| match body {
        Body::ModelSwitched {
            from,
            to,
            cause,
            until,
        } => Some((from, to, cause, until.map(seconds))),
        _ => None,
    };
    heard.bodies().into_iter().filter_map(switch).collect()
}

/// Builds a switch in the form that [`switches`] returns.
pub(crate) fn switch(from: &str, to: &str, cause: Cause, until: impl Into<Option<u64>>) -> Switch {
    (from.to_owned(), to.to_owned(), Some(cause), until.into())
}

/// Builds the switch back to a model, which has no cause.
pub(crate) fn back(from: &str, to: &str) -> Switch {
    (from.to_owned(), to.to_owned(), None, None)
}
