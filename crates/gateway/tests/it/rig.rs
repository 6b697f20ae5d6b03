//! A provider and a gateway in front of it, on real sockets, with a clock that may run fast and can be paused.

use super::clock::TestClock;
use super::wire::{TestRequest, TestResponse};
use outlast_engine::accounts::{Account, Accounts, KeySource};
use outlast_engine::credential::Credential;
use outlast_engine::provider::Timeouts;
use outlast_engine::shared_state::SharedState;
use outlast_engine::transport::{Forwarder, HttpSettings};
use outlast_engine::{BoxFuture, CancellationToken, Clock};
use outlast_gateway::auth::{AllowedNames, Token};
use outlast_gateway::{Gateway, Handle, Limits, Setup, Upstream, Upstreams};
use outlast_kernel::policy::Policy;
use outlast_mock::{Options, Server};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const ANY: &str = "127.0.0.1:0";
/// The timeout of a test that would hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);
const DAY: Duration = Duration::from_secs(86_400);

/// Limits that no test reaches by accident, however slow the machine is while the clock runs fast.
pub(super) const NO_TIMEOUTS: Timeouts = Timeouts {
    connect: DAY,
    headers: DAY,
    first_event: DAY,
    idle: DAY,
};

/// The setup of a rig.
#[derive(Clone)]
pub(super) struct Plan {
    /// The speed of everything, as a multiple of the wall clock's.
    pub(super) scale: u32,
    /// The script of the scripted provider, and its scripts for each of these models.
    pub(super) script: String,
    pub(super) models: Vec<(String, String)>,
    /// A provider of the test's own, instead of the scripted one.
    pub(super) provider: Option<SocketAddr>,
    pub(super) timeouts: Timeouts,
    /// The policy of requests that name none.
    pub(super) policy: &'static str,
    /// The stored accounts: their names and keys.
    pub(super) accounts: Vec<(&'static str, &'static str)>,
    /// The maximum number of concurrent calls of each account.
    pub(super) max_in_flight: Option<u32>,
    /// Whether waits and large bodies are stored in files.
    pub(super) is_persistent: bool,
}

impl Plan {
    /// Creates a plan with a provider that plays that script, and a clock that runs that many times as fast.
    pub(super) fn new(script: &str, scale: u32) -> Self {
        Self {
            scale,
            script: script.to_owned(),
            models: Vec::new(),
            provider: None,
            timeouts: NO_TIMEOUTS,
            policy: "gateway",
            accounts: Vec::new(),
            max_in_flight: None,
            is_persistent: false,
        }
    }

    /// Creates a plan with a gateway before that provider.
    pub(super) fn before(provider: SocketAddr, scale: u32) -> Self {
        Self {
            provider: Some(provider),
            ..Self::new("ok", scale)
        }
    }

    pub(super) async fn start(self) -> Rig {
        let clock = TestClock::start(self.scale);
        let stop = CancellationToken::new();
        let provider = match self.provider {
            Some(provider) => provider,
            None => self.play(clock.clone(), stop.clone()).await,
        };
        let home = tempfile::TempDir::new().unwrap();
        let mut rig = Rig {
            plan: self,
            token: Token::load_or_create_in(home.path()).unwrap(),
            home,
            clock,
            provider,
            gateway: provider,
            gateway_stop: CancellationToken::new(),
            serving: None,
            handle: None,
            stop,
        };
        rig.start_gateway().await;
        rig
    }

    /// Starts the scripted provider.
    async fn play(&self, clock: Arc<dyn Clock>, stop: CancellationToken) -> SocketAddr {
        let mut options = Options::new(self.script.parse().unwrap());
        let models = self.models.iter();
        options.models = models
            .map(|(model, script)| (model.clone(), script.parse().unwrap()))
            .collect();
        let server = Server::bind(ANY.parse().unwrap(), clock, options);
        let server = server.await.unwrap();
        let address = server.address();
        tokio::spawn(server.serve(stop));
        address
    }
}

/// A provider and a gateway that run until they are dropped.
pub(super) struct Rig {
    plan: Plan,
    home: tempfile::TempDir,
    /// The token of the gateway's own endpoints.
    token: Token,
    pub(super) clock: Arc<TestClock>,
    pub(super) provider: SocketAddr,
    pub(super) gateway: SocketAddr,
    gateway_stop: CancellationToken,
    serving: Option<tokio::task::JoinHandle<()>>,
    handle: Option<Handle>,
    stop: CancellationToken,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.gateway_stop.cancel();
        self.stop.cancel();
    }
}

impl Rig {
    /// Sends a request to the gateway and reads all that comes back.
    pub(super) async fn ask(&self, ask: &TestRequest) -> TestResponse {
        ask.send(self.gateway).await
    }

    /// Returns the scripted provider's own first response for that script. Scripts of the same text are one, so this
    /// one is written in another way than the gateway's.
    pub(super) async fn ask_provider(&self, ask: &TestRequest, script: &str) -> TestResponse {
        let ask = ask.clone().with("x-outlast-script", format!("{script}+ok"));
        ask.send(self.provider).await
    }

    /// Returns the requests of the gateway to the scripted provider: all that named no script of their own.
    pub(super) async fn provider_requests(&self) -> Vec<Value> {
        let log = TestRequest::plain("GET", "/_outlast/requests");
        let log = log.send(self.provider).await.json();
        assert_eq!(log["dropped"], 0, "the log is too short for this test");
        let requests = log["requests"].as_array().unwrap().iter();
        let by_gateway = |request: &&Value| request["headers"]["x-outlast-script"].is_null();
        requests.filter(by_gateway).cloned().collect()
    }

    /// Returns a request for one of the gateway's own endpoints, with its token.
    pub(super) fn own(&self, method: &str, path: &str) -> TestRequest {
        let ask = TestRequest::plain(method, path);
        ask.with("authorization", format!("Bearer {}", self.token.reveal()))
    }

    /// Returns the requests that the gateway holds, and those whose clients have left.
    pub(super) async fn held(&self) -> Vec<Value> {
        let ask = self.own("GET", "/_outlast/status");
        let status = self.ask(&ask).await.json();
        status["waiting"].as_array().unwrap().clone()
    }

    /// Waits until that many are held while their clients wait.
    pub(super) async fn until_held(&self, count: usize) {
        let waits = |held: &&Value| held["left"].is_null();
        loop {
            let status = self.ask(&self.own("GET", "/_outlast/status")).await.json();
            let shown = status["waiting"].as_array().unwrap().iter();
            let counted = &status["counters"]["held"];
            if shown.filter(waits).count() == count && *counted == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Starts a gateway in the state after a crash of this one at this moment: with a copy of its files.
    pub(super) async fn as_after_a_crash(&self) -> Self {
        let home = tempfile::TempDir::new().unwrap();
        for file in std::fs::read_dir(self.home.path()).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                std::fs::copy(file.path(), home.path().join(file.file_name())).unwrap();
            }
        }
        let mut next = Self {
            plan: self.plan.clone(),
            token: Token::load_or_create_in(home.path()).unwrap(),
            home,
            clock: Arc::clone(&self.clock),
            provider: self.provider,
            gateway: self.gateway,
            gateway_stop: CancellationToken::new(),
            serving: None,
            handle: None,
            stop: CancellationToken::new(),
        };
        next.start_gateway().await;
        next
    }

    /// Stops the gateway, and starts another one after that.
    pub(super) async fn restart(&mut self) {
        self.stop_gateway().await;
        self.start_gateway().await;
    }

    /// Stops the gateway, and waits for its end.
    pub(super) async fn stop_gateway(&mut self) {
        self.gateway_stop.cancel();
        if let Some(serving) = self.serving.take() {
            serving.await.unwrap();
        }
    }

    async fn start_gateway(&mut self) {
        let gateway = Gateway::bind(self.setup()).await.unwrap();
        self.gateway = gateway.address();
        self.handle = Some(gateway.handle());
        self.gateway_stop = CancellationToken::new();
        self.serving = Some(tokio::spawn(gateway.serve(self.gateway_stop.clone())));
    }

    /// Sends all further attempts to another provider.
    pub(super) fn change_provider(&mut self, provider: SocketAddr) {
        self.provider = provider;
        let shared_state = SharedState::process_local(self.clock.clone());
        let upstreams = self.upstreams(&shared_state);
        self.handle.as_ref().unwrap().reload(upstreams);
    }

    fn setup(&self) -> Setup {
        let shared_state = SharedState::process_local(self.clock.clone());
        let kept = |name: &str| self.plan.is_persistent.then(|| self.home.path().join(name));
        Setup {
            listen: ANY.parse().unwrap(),
            upstreams: self.upstreams(&shared_state),
            limits: Limits::default(),
            shared_state,
            clock: self.clock.clone(),
            holds_file: kept("gateway.db"),
            body_dir: kept("spool"),
            allowed_names: AllowedNames::new("gateway", [], []),
            token: Some(self.token.clone()),
            client_keys: None,
            log: Arc::new(()),
            store_listener: Arc::new(|notice| panic!("{notice:?}")),
        }
    }

    fn upstreams(&self, knowledge: &SharedState) -> Upstreams {
        let settings = HttpSettings {
            base_url: format!("http://{}", self.provider),
            ..HttpSettings::default()
        };
        let forward = Forwarder::new(&settings).unwrap();
        let accounts = (!self.plan.accounts.is_empty()).then(|| {
            let accounts = self.plan.accounts.iter().map(|(name, key)| Account {
                name: (*name).to_owned(),
                source: Arc::new(Key(key)),
                max_in_flight: self.plan.max_in_flight,
            });
            let (knowledge, clock) = (knowledge.clone(), self.clock.clone());
            Arc::new(Accounts::new(accounts.collect(), knowledge, clock))
        });
        let upstream = |name: &str| Upstream {
            name: name.to_owned(),
            address: self.provider.to_string(),
            forward: forward.clone(),
            accounts: accounts.clone(),
        };
        Upstreams {
            anthropic: upstream("anthropic"),
            openai: upstream("openai"),
            policy: Policy::named(self.plan.policy).unwrap().into(),
            policies: Vec::new(),
            client: None,
            timeouts: self.plan.timeouts,
            min_throughput: 0,
        }
    }
}

/// A key that stays as it is.
struct Key(&'static str);

impl KeySource for Key {
    fn fetch(&self) -> BoxFuture<'_, Result<Credential, String>> {
        Box::pin(async { Ok(Credential::new(self.0.to_owned())) })
    }
}

/// Fails a test that hangs.
pub(super) async fn limited<T>(test: impl Future<Output = T>) -> T {
    match tokio::time::timeout(HANG_TIMEOUT, Box::pin(test)).await {
        Ok(done) => done,
        Err(_) => panic!("it hangs"),
    }
}
