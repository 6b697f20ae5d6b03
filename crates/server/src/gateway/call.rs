//! One request from its coming to its end: attempts, waits, and what the client is told.
//!
//! The kernel decides what a failure means; here it is carried out. Invariants: one budget for each request, over all
//! its re-sends; nothing is asked again once content was sent; a wait is written down before it begins; whoever waits is
//! kept alive, and whoever hangs up is forgotten by the provider at once.
//! Not here: one attempt (see `attempt`), the answer from its first content on (see `passing`), what ends it (see `ends`).

use super::asked::Asked;
use super::attempt::{Answer, Attempt, Failed};
use super::client::{Ending, Keeping};
use super::holds::{About, Command, Hold, Identity, Progress};
use super::keep::{Keeper, Kept};
use super::log::{Event as Said, What};
use super::reply::Reply;
use super::shared::Shared;
use super::socket::Socket;
use super::upstreams::Upstreams;
use http::{HeaderMap, HeaderValue};
use outlast_engine::accounts::{Chosen, Standing};
use outlast_engine::desk::{Admission, Place};
use outlast_engine::{RetryStrategy, strategy::PolicyRetry};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::decision::{GiveUp, Remedies, Rules};
use outlast_kernel::failure::{Failure, Judged};
use outlast_kernel::policy::Switches;
use outlast_kernel::recovery::{Effect, Event, State, Wait, step};
use outlast_kernel::verdict::{Cause, Scope, Verdict};
use std::sync::Arc;
use std::time::Duration;

/// A request that is being answered.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) asked: Asked,
    pub(super) reply: Reply,
    pub(super) keeping: Keeping,
    strategy: PolicyRetry,
    state: State,
    /// Who is asked with, if not with the client's own key.
    pub(super) account: Option<Chosen>,
    left: Vec<String>,
    refreshed: Vec<String>,
    hold: Option<Hold>,
    pub(super) trouble: Trouble,
    /// How long it took until the provider's answer began to come.
    pub(super) first_byte: Option<Duration>,
}

/// What went wrong so far.
#[derive(Default)]
pub(super) struct Trouble {
    /// When it began, over all re-sends.
    pub(super) since: Option<Timestamp>,
    pub(super) attempts: u32,
    pub(super) resent: u32,
    pub(super) waited: Duration,
    pub(super) last: Option<Box<Failed>>,
    pub(super) cause: Option<Cause>,
    /// The own time of a wait that is under way.
    wake: Option<Timestamp>,
    /// Whether others meet the same, so that the gate is waited for.
    is_shared: bool,
}

/// How a request ends without an answer.
pub(super) enum End {
    /// The client has hung up.
    Gone,
    /// The client is made to come back.
    Back(Ending),
    /// The failure is final.
    Final(GiveUp),
    /// A person ended it.
    Cancelled,
    /// Too many wait already.
    Full,
}

/// Why a wait is over.
enum Woken {
    Admitted(Admission),
    OwnTime,
    TooLong,
    Told(Command),
    Stopping,
}

impl Call {
    pub(super) fn new(
        shared: Arc<Shared>,
        upstreams: Arc<Upstreams>,
        asked: Asked,
        reply: Reply,
    ) -> Self {
        let stated = super::client::stated_timeout(asked.profile, &asked.headers());
        let keeping = Keeping::new(asked.profile, asked.form(), asked.begun).limited_to(stated);
        let strategy = PolicyRetry::new(asked.policy.clone(), Arc::clone(&shared.clock));
        let rules = match asked.route.is_retried() {
            true => strategy.rules(),
            false => Rules::NONE,
        };
        let mut state = State::new(rules, Prompt::new(Limits::default()));
        step(&mut state, Event::Started);
        Self {
            shared,
            upstreams,
            asked,
            reply,
            keeping,
            strategy,
            state,
            account: None,
            left: Vec::new(),
            refreshed: Vec::new(),
            hold: None,
            trouble: Trouble::default(),
            first_byte: None,
        }
    }

    /// Answers the request; what is left is the connection, if another request may come over it.
    pub(super) async fn run(mut self) -> Option<Socket> {
        self.take_up().await;
        loop {
            if let Err(problem) = self.choose_account().await {
                let failure = self.no_key(&problem);
                self.trouble.last = Some(Box::new(failure));
                return self.end(End::Final(GiveUp::NotRetryable)).await;
            }
            let admission = match self.be_admitted().await {
                Ok(admission) => admission,
                Err(end) => return self.end(end).await,
            };
            let begun = self.shared.now();
            match self.attempt().await {
                Ok(Ok(answer)) => {
                    self.accepted(admission, begun).await;
                    return self.pass_on(answer).await;
                }
                Ok(Err(failed)) => {
                    if let Some(end) = self.failed(failed, admission).await {
                        return self.end(end).await;
                    }
                }
                Err(end) => {
                    drop(admission);
                    return self.end(end).await;
                }
            }
        }
    }

    /// Makes one attempt while the client is kept.
    async fn attempt(&mut self) -> Result<Result<Answer, Box<Failed>>, End> {
        self.trouble.attempts += 1;
        let shared = Arc::clone(&self.shared);
        let upstreams = Arc::clone(&self.upstreams);
        let attempt = Attempt {
            asked: &self.asked,
            upstreams: &upstreams,
            credential: self.account.as_ref().map(|account| &account.credential),
            clock: &*shared.clock,
            alarms: &shared.alarms,
        };
        let headers = said(&self.asked.id, &self.trouble, self.account.as_ref());
        let mut keeper = Keeper {
            reply: &mut self.reply,
            keeping: &mut self.keeping,
            headers: &headers,
            is_streamed: self.asked.is_streamed,
            shared: &shared,
        };
        match keeper.keep(Box::pin(attempt.make())).await {
            Kept::Done(outcome) => Ok(outcome),
            Kept::Gone => Err(End::Gone),
            Kept::Ended(ending) => Err(End::Back(ending)),
        }
    }

    /// The headers that say what happened so far.
    pub(super) fn said(&self) -> HeaderMap {
        said(&self.asked.id, &self.trouble, self.account.as_ref())
    }
}

/// The headers that say what happened so far.
fn said(id: &str, trouble: &Trouble, account: Option<&Chosen>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    let waited = outlast_kernel::time::millis(trouble.waited);
    headers.insert("x-outlast-attempts", trouble.attempts.into());
    headers.insert("x-outlast-waited-ms", waited.into());
    let name = account.map(|account| account.name.as_str());
    for (header, value) in [
        ("x-outlast-request-id", Some(id)),
        ("x-outlast-account", name),
    ] {
        // A name that no header can hold is left out.
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(header, value);
        }
    }
    headers
}

// --- before an attempt ---

impl Call {
    /// Goes on where an earlier sending of the same request was left.
    async fn take_up(&mut self) {
        if !self.shared.holds.has_abandoned() || !self.asked.route.is_retried() {
            return;
        }
        let Some(identity) = self.identity().await else {
            return;
        };
        let Some((hold, progress)) = self.shared.holds.take_up(&identity, self.about()) else {
            return;
        };
        self.hold = Some(hold);
        let now = self.shared.now();
        self.trouble = Trouble {
            since: Some(progress.since),
            attempts: progress.attempts,
            resent: progress.resent.saturating_add(1),
            waited: now.since(progress.since),
            cause: progress.cause,
            ..Trouble::default()
        };
        self.say(What::TakenUp {
            attempts: progress.attempts,
            resent: self.trouble.resent,
            since: progress.since,
        });
        self.shared.metrics.taken_up(self.asked.profile.name);
        let rules = self.strategy.rules();
        self.state = State::new(rules, progress.prompt).with_chain(progress.chain);
        let Some(until) = progress.wake.filter(|wake| *wake > now) else {
            step(&mut self.state, Event::Started);
            return;
        };
        let cause = progress.cause.unwrap_or(Cause::ServerError);
        let name = &self.upstreams.of(self.asked.route).name;
        let failure = Failure::thrown(name, "taken up after the client came back", now);
        let failure = Judged::new(failure.with_verdict(Verdict::of(cause, Scope::Provider)));
        let since = now;
        self.state.take_up(
            Wait {
                since,
                until,
                failure,
            },
            now,
        );
        self.trouble.wake = Some(until);
        self.trouble.is_shared = outlast_engine::knowledge::is_shared(cause);
    }

    /// Who the request is, by what the client sends again with it.
    async fn identity(&self) -> Option<Identity> {
        let body = self.asked.body.bytes().await.ok()?;
        Some(self.asked.identity(&body))
    }

    async fn choose_account(&mut self) -> Result<(), String> {
        let upstream = self.upstreams.of(self.asked.route);
        let Some(accounts) = upstream
            .accounts
            .as_ref()
            .filter(|_| self.asked.asks_a_model())
        else {
            return Ok(());
        };
        let in_use = self.account.as_ref().map(|account| account.name.as_str());
        let chosen = accounts.choose(in_use, &self.left, &self.asked.model).await;
        self.account = Some(chosen?);
        Ok(())
    }

    /// The gate of the account and the model that are asked.
    fn gate(&self) -> Arc<str> {
        let upstream = self.upstreams.of(self.asked.route);
        let account = match &self.account {
            Some(account) => account.name.as_str(),
            None => &self.asked.mark,
        };
        let (name, place, model) = (&upstream.name, &upstream.place, &self.asked.model);
        format!("{name}@{place}/{account}/{model}").into()
    }

    /// Waits for the own time of a retry and for the gate.
    async fn be_admitted(&mut self) -> Result<Option<Admission>, End> {
        if !self.asked.route.is_retried() || self.strategy.rules().retries == Some(0) {
            return Ok(None);
        }
        let (gate, now) = (self.gate(), self.shared.now());
        let since = self.trouble.since.unwrap_or(now);
        if self.trouble.wake.is_some() && !self.trouble.is_shared {
            let woken = self.wait(None, &gate).await?;
            self.woke(&woken);
            if let Woken::Told(_) = woken {
                return Ok(None);
            }
        }
        let desk = self.shared.desk.clone();
        if self.trouble.wake.is_none() && self.is_closed_for_too_long(&gate) {
            return Ok(None);
        }
        let place = match self.trouble.wake {
            None => match desk.ask(&gate, since) {
                Ok(admission) => return Ok(Some(admission)),
                Err(place) => place,
            },
            Some(_) => desk.stand_in_line(&gate, since),
        };
        let woken = self.wait(Some(place), &gate).await?;
        self.woke(&woken);
        Ok(match woken {
            Woken::Admitted(admission) => Some(admission),
            Woken::OwnTime | Woken::TooLong | Woken::Told(_) | Woken::Stopping => None,
        })
    }

    /// The longest that this request may be held.
    fn patience(&self) -> Option<Duration> {
        let rules = self.strategy.rules();
        let longest = rules.sleep_budget.or(rules.longest_stated_wait);
        longest.filter(|_| !rules.wait_for_reset)
    }

    /// Whether the provider said to come back later than this request would wait: then it asks for itself, and hears it
    /// from the provider.
    fn is_closed_for_too_long(&self, gate: &str) -> bool {
        let knowledge = self.shared.desk.knowledge();
        let until = knowledge.stated_end(gate);
        let now = self.shared.now();
        let since = self.trouble.since.unwrap_or(now);
        match (until, self.patience()) {
            (Some(until), Some(patience)) => until > since + patience,
            _ => false,
        }
    }

    /// Tells the kernel that the wait is over.
    fn woke(&mut self, woken: &Woken) {
        let now = self.shared.now();
        let Some(wake) = self.trouble.wake.take() else {
            return;
        };
        let event = match woken {
            // It was the gate's try; should it fail, the wait goes on.
            Woken::Admitted(_) if now < wake => Event::LetPass { now },
            _ => Event::Woke { now },
        };
        step(&mut self.state, event);
    }

    /// Waits while the client is kept.
    async fn wait(&mut self, place: Option<Place>, gate: &str) -> Result<Woken, End> {
        let begun = self.shared.now();
        self.begin_hold(begun).await?;
        let wake = match &place {
            Some(place) => place.next_ask().or(self.trouble.wake),
            None => self.trouble.wake,
        };
        self.keeping.expects(Some(wake.unwrap_or(begun)));
        let own_time = self.trouble.wake.filter(|_| place.is_none());
        self.note_wait(wake, gate);
        let since = self.trouble.since.unwrap_or(begun);
        let limit = self.patience().map(|patience| since + patience);
        let shared = Arc::clone(&self.shared);
        let headers = self.said();
        let Some(hold) = &self.hold else {
            return Ok(Woken::OwnTime);
        };
        let work = async {
            tokio::select! {
                biased;
                admission = async { match place { Some(place) => place.await, None => std::future::pending().await } } =>
                    Woken::Admitted(admission),
                command = hold.command() => Woken::Told(command),
                () = shared.alarms.at(own_time) => Woken::OwnTime,
                () = shared.alarms.at(limit.max(own_time)) => Woken::TooLong,
                () = shared.stopping.cancelled() => Woken::Stopping,
            }
        };
        let mut keeper = Keeper {
            reply: &mut self.reply,
            keeping: &mut self.keeping,
            headers: &headers,
            is_streamed: self.asked.is_streamed,
            shared: &shared,
        };
        let kept = keeper.keep(work).await;
        let now = self.shared.now();
        self.trouble.waited += now.since(begun);
        match kept {
            Kept::Gone => Err(End::Gone),
            Kept::Ended(ending) => Err(End::Back(ending)),
            Kept::Done(Woken::Stopping) => Err(End::Back(self.keeping.ending(now))),
            Kept::Done(Woken::Told(Command::Cancel)) => Err(End::Cancelled),
            Kept::Done(Woken::TooLong) => Err(End::Final(GiveUp::SleepSpent {
                budget: now.since(since),
            })),
            Kept::Done(woken) => Ok(woken),
        }
    }

    /// The first wait of a request: it is registered, and lets go of what it does not need meanwhile.
    async fn begin_hold(&mut self, now: Timestamp) -> Result<(), End> {
        self.trouble.since.get_or_insert(now);
        if self.hold.is_some() {
            return Ok(());
        }
        if self.shared.holds.live() >= self.shared.limits.waiting {
            return Err(End::Full);
        }
        let Some(identity) = self.identity().await else {
            return Err(End::Full);
        };
        self.asked.pack();
        let body = std::mem::replace(
            &mut self.asked.body,
            super::spool::Body::Memory(bytes::Bytes::new()),
        );
        self.asked.body = self.shared.spool.put(body).await;
        let hold = self
            .shared
            .holds
            .begin(identity, self.about(), self.progress(None));
        self.hold = Some(hold);
        Ok(())
    }

    /// What a person is told of it.
    fn about(&self) -> About {
        let account = self.account.as_ref().map(|account| account.name.as_str());
        About {
            id: self.asked.id.as_str().into(),
            client: self.asked.profile.name.into(),
            dialect: Some(self.asked.dialect().name().into()),
            model: Some(self.asked.model.clone()).filter(|model| !model.is_empty()),
            account: Some(account.unwrap_or(&self.asked.mark).into()),
            path: self.asked.path().into(),
            begun: self.asked.begun,
        }
    }

    /// Writes the wait down and says it.
    fn note_wait(&self, wake: Option<Timestamp>, gate: &str) {
        if let Some(hold) = &self.hold {
            hold.update(self.progress(self.trouble.wake.or(wake)), wake);
        }
        let cause = self
            .trouble
            .cause
            .or_else(|| self.shared.desk.knowledge().cause(gate));
        self.say(What::Waiting {
            cause: cause.unwrap_or(Cause::Overloaded),
            attempt: self.trouble.attempts,
            wake,
        });
    }

    fn progress(&self, wake: Option<Timestamp>) -> Progress {
        Progress {
            chain: *self.state.chain(),
            prompt: self.state.prompt().clone(),
            since: self.trouble.since.unwrap_or(self.asked.begun),
            wake,
            attempts: self.trouble.attempts,
            resent: self.trouble.resent,
            cause: self.trouble.cause,
        }
    }

    pub(super) fn say(&self, what: What<'_>) {
        self.shared.log.say(&Said {
            at: self.shared.now(),
            request: Some(&self.asked.id),
            what,
        });
    }

    /// The request is over for good: nobody takes it up.
    pub(super) fn settle(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.ended();
        }
    }

    /// The client has left or is sent back: its next sending takes the request up.
    pub(super) fn leave(&mut self) {
        self.hold = None;
    }
}

// --- after an attempt ---

impl Call {
    async fn accepted(&mut self, admission: Option<Admission>, begun: Timestamp) {
        if let Some(admission) = admission {
            admission.accepted().await;
        } else if self.trouble.since.is_some() {
            // Whoever did not ask the gate has still shown that all is well.
            self.shared.desk.proved(&self.gate()).await;
        }
        let upstream = self.upstreams.of(self.asked.route);
        if let (Some(accounts), Some(account)) = (&upstream.accounts, &self.account) {
            let model = &self.asked.model;
            accounts.succeeded(&account.name, model, begun).await;
        }
        self.settle();
    }

    /// Takes note of a failure and lets the kernel decide; the answer is how the request ends, if it does.
    async fn failed(&mut self, failed: Box<Failed>, admission: Option<Admission>) -> Option<End> {
        let now = self.shared.now();
        let judged = Judged::new(Failure {
            at: now,
            ..failed.failure.clone()
        });
        self.note_failure(&failed, &judged);
        self.trouble.last = Some(failed);
        if let Some(admission) = admission {
            admission.failed(&judged).await;
        }
        let (judged, remedies) = self.with_accounts(judged).await;
        let own_delay = self.strategy.delay_for(self.state.chain().schedule_index());
        let mut effects = step(
            &mut self.state,
            Event::Failed {
                failure: judged,
                own_delay,
                remedies,
                now,
            },
        );
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::SleepUntil(at) => {
                    self.trouble.since.get_or_insert(now);
                    self.trouble.wake = Some(at);
                    return None;
                }
                Effect::Apply(_) => {
                    self.leave_account();
                    step(&mut self.state, Event::RemedyDone);
                    return None;
                }
                Effect::Report(_, why) => return Some(End::Final(why)),
                _ => {}
            }
        }
        Some(End::Final(GiveUp::NotRetryable))
    }

    fn note_failure(&mut self, failed: &Failed, judged: &Judged) {
        let cause = judged.verdict.cause;
        self.trouble.cause = Some(cause);
        self.trouble.is_shared = outlast_engine::knowledge::is_shared(cause);
        let dialect = self.asked.route.is_retried().then(|| self.asked.dialect());
        self.shared.metrics.attempt_failed(dialect, cause);
        let status = failed
            .refusal
            .as_ref()
            .map(|refusal| refusal.status.as_u16());
        self.say(What::AttemptFailed {
            cause,
            attempt: self.trouble.attempts,
            status,
            account: self.account.as_ref().map(|account| account.name.as_str()),
            message: &judged.failure.message,
        });
    }

    /// A failure with all accounts in view, and whether another one could be asked.
    async fn with_accounts(&mut self, judged: Arc<Judged>) -> (Arc<Judged>, Remedies) {
        let upstream = self.upstreams.of(self.asked.route);
        let (Some(accounts), Some(account)) = (&upstream.accounts, &self.account) else {
            return (judged, Remedies::NONE);
        };
        let model = &self.asked.model;
        let may_refresh = !self.refreshed.contains(&account.name);
        let standing = accounts
            .failed(account, model, (&judged, may_refresh))
            .await;
        let renewed = standing == Standing::Renewed;
        if renewed {
            self.refreshed.push(account.name.clone());
        }
        let another = renewed
            || accounts
                .has_free_sibling(&account.name, &self.left, model)
                .await;
        let switch = Switches {
            account: another,
            ..Switches::NONE
        };
        let remedies = Remedies {
            switch,
            ..Remedies::NONE
        };
        let verdict = accounts.seen_together(&judged.verdict, model);
        let failure = judged.failure.clone();
        (Arc::new(Judged { failure, verdict }), remedies)
    }

    /// Goes on without the account in use, unless it has just got a new key.
    fn leave_account(&mut self) {
        let account = self.account.take();
        let left = account.filter(|account| self.refreshed.last() != Some(&account.name));
        self.left.extend(left.map(|account| account.name));
    }

    fn no_key(&self, problem: &str) -> Failed {
        let message = format!("no key can be had: {problem}");
        let name = &self.upstreams.of(self.asked.route).name;
        let failure = Failure::thrown(name, &message, self.shared.now());
        Failed {
            failure: failure.with_io(outlast_kernel::failure::IoKind::Misconfigured),
            refusal: None,
        }
    }
}
