//! The steps before an attempt: resuming an earlier sending of the request, choosing an account, and waiting.
//!
//! Invariants: a wait is recorded and reported before it begins; a hold of the gate costs no attempt; no request is
//! held for longer than its policy would wait.
//! Long because the attempt driver will replace it.

use crate::body_store::Body;
use crate::call::keepalive::{KeepAlive, KeepAliveResult};
use crate::call::{Call, EndReason, FailureState, response_metadata};
use crate::holds::{Command, Identity, Progress, RequestSummary};
use crate::observe::log::EventKind;
use crate::shared::Shared;
use bytes::Bytes;
use outlast_engine::RetryStrategy;
use outlast_engine::admission::{QueuePosition, Ticket};
use outlast_engine::shared_state::affects_other_callers;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Event, State, Wait, step};
use outlast_kernel::decision::GiveUp;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::verdict::{Cause, Scope, Verdict};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

/// Interval at which a request in the queue checks whether its wait still makes sense.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time that a request may be held: however short a policy's waits are, the gate may need this long.
const MIN_HOLD_LIMIT: Duration = Duration::from_secs(120);

/// Whether an attempt may be made.
pub(crate) enum GateReply {
    /// The gate admits the attempt, and its result is reported to the gate.
    Gated(Ticket),
    /// The attempt is made without asking the gate.
    Ungated,
    /// The target has to be chosen again first.
    Restart,
}

/// Why a wait is over.
enum WakeReason {
    Admitted(Ticket),
    RetryDue,
    HoldLimitReached,
    /// The provider told other requests to come back at that time, which is too late for this one.
    ResetBeyondLimit(Timestamp),
    /// The settings have changed, or it is time to look for another account.
    Recheck,
    Command(Command),
    Stopping,
}

/// Waits until the provider states a time beyond the limit to another request, and returns it: a queued request would
/// learn it only after hours.
async fn reset_beyond_limit(shared: &Shared, gate: &str, limit: Option<Timestamp>) -> Timestamp {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    loop {
        let stated = shared.admission.shared_state().stated_end(gate);
        if let Some(stated) = stated.filter(|stated| *stated > limit) {
            return stated;
        }
        let next = shared.now() + RECHECK_INTERVAL;
        shared.timers.sleep_until(Some(next)).await;
    }
}

impl Call {
    /// Resumes where an earlier sending of the same request stopped.
    pub(crate) async fn resume(&mut self) {
        if !self.shared.holds.has_abandoned() || !self.request.route.is_retried() {
            return;
        }
        let Some(identity) = self.identity().await else {
            return;
        };
        let Some((hold, progress)) = self.shared.holds.resume(&identity, self.hold_summary())
        else {
            return;
        };
        self.hold = Some(hold);
        let now = self.shared.now();
        self.failure_state = FailureState {
            failing_since: Some(progress.since),
            last_failed_at: Some(progress.since),
            attempts: progress.attempts,
            resent: progress.resent,
            waited: now.since(progress.since),
            last_cause: progress.cause,
            ..FailureState::default()
        };
        self.gauge_guards.push(self.shared.metrics.held());
        self.log_event(EventKind::Resumed {
            attempts: progress.attempts,
            resent: self.failure_state.resent,
            since: progress.since,
        });
        self.shared.metrics.resumed(self.request.profile.name);
        let rules = self.strategy.rules();
        self.state = State::new(rules, progress.prompt).with_chain(progress.chain);
        let Some(until) = progress.wake.filter(|wake| *wake > now) else {
            step(&mut self.state, Event::Started);
            return;
        };
        let cause = progress.cause.unwrap_or(Cause::ServerError);
        let name = &self.upstreams.for_route(self.request.route).name;
        let failure = Failure::thrown(name, "taken up after the client came back", now);
        let failure =
            ClassifiedFailure::new(failure.with_verdict(Verdict::new(cause, Scope::Provider)));
        let since = now;
        self.state.resume(
            Wait {
                since,
                until,
                failure,
            },
            now,
        );
        self.failure_state.retry_at = Some(until);
        self.failure_state.is_shared = affects_other_callers(cause);
    }

    /// Returns the identity of the request, by the parts that the client repeats in a resend.
    async fn identity(&self) -> Option<Identity> {
        let body = self.request.body.bytes().await.ok()?;
        Some(self.request.identity(&body))
    }

    /// Chooses the account for the attempt. Its key may have to be fetched, which can take a while.
    pub(crate) async fn choose_account(&mut self) -> Result<(), EndReason> {
        let accounts = &self.upstreams.for_route(self.request.route).accounts;
        let accounts = accounts
            .as_ref()
            .filter(|_| self.request.is_model_request());
        let Some(accounts) = accounts.map(Arc::clone) else {
            return Ok(());
        };
        let (left, model) = (self.excluded_accounts.clone(), self.request.model.clone());
        let in_use = self.account.as_ref().map(|account| account.name.clone());
        // A client that leaves does not end a command that fetches a key: the next one needs it, too.
        let choosing = async move { accounts.choose(in_use.as_deref(), &left, &model).await };
        let mut choosing = tokio::spawn(choosing);
        let kept = self.keep_client_alive(Pin::new(&mut choosing)).await;
        match kept {
            KeepAliveResult::Done(Ok(Ok(chosen))) => {
                if let Some(hold) = &self.hold {
                    hold.set_account(&chosen.name);
                }
                self.account = Some(chosen);
                Ok(())
            }
            KeepAliveResult::Done(problem) => {
                let problem = match problem {
                    Ok(Err(problem)) => problem,
                    _ => "it could not be fetched".to_owned(),
                };
                let failure = self.key_failure(&problem);
                self.failure_state.last_failure = Some(Box::new(failure));
                Err(EndReason::GaveUp(GiveUp::NotRetryable))
            }
            KeepAliveResult::ClientDisconnected => Err(EndReason::ClientDisconnected),
            KeepAliveResult::HoldEnded(ending) => Err(EndReason::SentBack(ending)),
        }
    }

    /// Returns the gate of the current account and model.
    pub(crate) fn gate_key(&self) -> Arc<str> {
        let upstream = self.upstreams.for_route(self.request.route);
        let account = match &self.account {
            Some(account) => account.name.as_str(),
            None => &self.request.credential_fingerprint,
        };
        let (name, place, model) = (&upstream.name, &upstream.address, &self.request.model);
        format!("{name}@{place}/{account}/{model}").into()
    }

    /// Waits for the own time of a retry and for the gate.
    pub(crate) async fn wait_for_gate(&mut self) -> Result<GateReply, EndReason> {
        if !self.request.route.is_retried() || self.strategy.rules().retries == Some(0) {
            return Ok(GateReply::Ungated);
        }
        let (gate, desk) = (self.gate_key(), self.shared.admission.clone());
        if self.failure_state.retry_at.is_some() && !self.failure_state.is_shared {
            let woken = self.wait(None, &gate).await?;
            self.record_wake(&woken);
            return Ok(match woken {
                WakeReason::Command(_) => GateReply::Ungated,
                _ => GateReply::Restart,
            });
        }
        if self.failure_state.retry_at.is_none() && self.is_reset_beyond_limit(&gate) {
            return Ok(GateReply::Ungated);
        }
        // A request that was admitted and failed queues behind those that were not admitted yet.
        let since = self
            .failure_state
            .last_failed_at
            .unwrap_or_else(|| self.shared.now());
        let place = match self.failure_state.retry_at {
            None => match desk.try_admit(&gate, since) {
                Ok(admission) => return Ok(GateReply::Gated(admission)),
                Err(place) => place,
            },
            Some(_) => desk.enqueue(&gate, since),
        };
        // A waiting call does not count against the account's concurrent calls.
        self.permit = None;
        let woken = self.wait(Some(place), &gate).await?;
        self.record_wake(&woken);
        Ok(match woken {
            WakeReason::Admitted(admission) if self.is_gate_unchanged(&gate).await? => {
                GateReply::Gated(admission)
            }
            WakeReason::Command(_) => GateReply::Ungated,
            _ => GateReply::Restart,
        })
    }

    /// Whether what was waited for is still what is to be asked: meanwhile the settings may have changed, and another
    /// account may have become free.
    async fn is_gate_unchanged(&mut self, gate: &str) -> Result<bool, EndReason> {
        self.upstreams = self.shared.upstreams();
        self.choose_account().await?;
        Ok(*self.gate_key() == *gate)
    }

    /// Takes a seat, where the account's are numbered. `false` when it had to be waited for: whatever was to be asked
    /// before has to be asked again.
    pub(crate) async fn acquire_permit(
        &mut self,
        admission: &mut GateReply,
    ) -> Result<bool, EndReason> {
        let upstream = self.upstreams.for_route(self.request.route);
        let (Some(accounts), Some(account)) = (&upstream.accounts, &self.account) else {
            return Ok(true);
        };
        let Some(most) = accounts.max_in_flight(&account.name) else {
            return Ok(true);
        };
        if self
            .permit
            .as_ref()
            .is_some_and(|seat| seat.belongs_to(&account.name))
        {
            return Ok(true);
        }
        let (desk, name) = (self.shared.admission.clone(), account.name.clone());
        let mut taking = Box::pin(async move { desk.acquire_permit(&name, most).await });
        if let Some(seat) = futures_util::FutureExt::now_or_never(taking.as_mut()) {
            self.permit = Some(seat);
            return Ok(true);
        }
        // No other call may wait for one that waits itself.
        *admission = GateReply::Restart;
        let now = self.shared.now();
        self.begin_hold(now).await?;
        self.keepalive.set_retry_at(Some(now));
        let shared = Arc::clone(&self.shared);
        let limit = self.max_hold().map(|patience| now + patience);
        let Some(hold) = self.hold.take() else {
            return Ok(false);
        };
        let mut work = Box::pin(async {
            tokio::select! {
                seat = taking => Ok(Some(seat)),
                command = hold.command() => match command {
                    Command::Cancel => Err(EndReason::Cancelled),
                    Command::RetryNow => Ok(None),
                },
                () = shared.timers.sleep_until(limit) => Err(EndReason::TooManyWaiting),
                () = shared.stopping.cancelled() => Ok(None),
            }
        });
        let kept = self.keep_client_alive(work.as_mut()).await;
        drop(work);
        self.hold = Some(hold);
        match kept {
            KeepAliveResult::Done(_) if self.shared.stopping.is_cancelled() => Err(
                EndReason::SentBack(self.keepalive.hold_ending(self.shared.now())),
            ),
            KeepAliveResult::Done(seat) => {
                self.permit = seat?;
                Ok(false)
            }
            KeepAliveResult::ClientDisconnected => Err(EndReason::ClientDisconnected),
            KeepAliveResult::HoldEnded(ending) => Err(EndReason::SentBack(ending)),
        }
    }

    /// Keeps the client alive until the work is done.
    async fn keep_client_alive<T>(
        &mut self,
        work: Pin<&mut impl Future<Output = T>>,
    ) -> KeepAliveResult<T> {
        let shared = Arc::clone(&self.shared);
        let metadata =
            response_metadata(&self.request.id, &self.failure_state, self.account.as_ref());
        let mut keeper = KeepAlive {
            response: &mut self.response,
            schedule: &mut self.keepalive,
            metadata,
            is_streamed: self.request.is_streamed,
            shared: &shared,
        };
        keeper.run(work).await
    }

    /// Returns the maximum time that this request may be held.
    fn max_hold(&self) -> Option<Duration> {
        let rules = self.strategy.rules();
        let longest = rules.sleep_budget.or(rules.max_stated_wait);
        let longest = longest.map(|longest| longest.max(MIN_HOLD_LIMIT));
        longest.filter(|_| !rules.wait_for_reset)
    }

    /// Whether the provider said to come back later than this request would wait: then it asks for itself, and hears it
    /// from the provider.
    fn is_reset_beyond_limit(&self, gate: &str) -> bool {
        let knowledge = self.shared.admission.shared_state();
        let until = knowledge.stated_end(gate);
        let now = self.shared.now();
        let since = self.failure_state.failing_since.unwrap_or(now);
        match (until, self.max_hold()) {
            (Some(until), Some(patience)) => until > since + patience,
            _ => false,
        }
    }

    /// Tells the kernel that the wait is over.
    fn record_wake(&mut self, woken: &WakeReason) {
        let now = self.shared.now();
        let Some(wake) = self.failure_state.retry_at.take() else {
            return;
        };
        if matches!(woken, WakeReason::Recheck) && now < wake {
            // Nothing has been waited for yet.
            self.failure_state.retry_at = Some(wake);
            return;
        }
        let event = match woken {
            // The gate admitted this attempt early; if it fails, the wait continues.
            WakeReason::Admitted(_) if now < wake => Event::AdmittedEarly { now },
            _ => Event::Woke { now },
        };
        step(&mut self.state, event);
    }

    /// Waits while the client is kept alive.
    async fn wait(
        &mut self,
        place: Option<QueuePosition>,
        gate: &str,
    ) -> Result<WakeReason, EndReason> {
        let begun = self.shared.now();
        self.begin_hold(begun).await?;
        self.release_buffers().await;
        let wake = match &place {
            Some(place) => place.next_attempt().or(self.failure_state.retry_at),
            None => self.failure_state.retry_at,
        };
        self.keepalive.set_retry_at(Some(wake.unwrap_or(begun)));
        let own_time = self.failure_state.retry_at.filter(|_| place.is_none());
        let several = self
            .upstreams
            .for_route(self.request.route)
            .accounts
            .as_ref();
        let several = several.is_some_and(|accounts| accounts.has_multiple());
        let look_again = self
            .failure_state
            .retry_at
            .filter(|_| place.is_some() && several);
        self.record_wait(wake, gate);
        let since = self.failure_state.failing_since.unwrap_or(begun);
        // What attempts took counts for a night, not for a policy that counts them.
        let has_budget = self.strategy.rules().sleep_budget.is_some();
        let first = if has_budget { since } else { begun };
        let limit = self.max_hold().map(|patience| first + patience);
        let shared = Arc::clone(&self.shared);
        let metadata =
            response_metadata(&self.request.id, &self.failure_state, self.account.as_ref());
        let Some(hold) = &self.hold else {
            return Ok(WakeReason::RetryDue);
        };
        // With several accounts another may be free long before.
        let stated_counts = place.is_some() && !several;
        let work = pin!(async {
            tokio::select! {
                biased;
                admission = async { match place { Some(place) => place.await, None => std::future::pending().await } } =>
                    WakeReason::Admitted(admission),
                command = hold.command() => WakeReason::Command(command),
                () = shared.timers.sleep_until(own_time) => WakeReason::RetryDue,
                () = shared.timers.sleep_until(limit.map(|limit| limit.max(own_time.unwrap_or(limit)))) => WakeReason::HoldLimitReached,
                () = shared.timers.sleep_until(look_again) => WakeReason::Recheck,
                until = reset_beyond_limit(&shared, gate, limit.filter(|_| stated_counts)) => WakeReason::ResetBeyondLimit(until),
                () = shared.upstreams_changed() => WakeReason::Recheck,
                () = shared.stopping.cancelled() => WakeReason::Stopping,
            }
        });
        let mut keeper = KeepAlive {
            response: &mut self.response,
            schedule: &mut self.keepalive,
            metadata,
            is_streamed: self.request.is_streamed,
            shared: &shared,
        };
        let kept = keeper.run(work).await;
        let now = self.shared.now();
        self.failure_state.waited += now.since(begun);
        self.wait_result(kept, first, limit)
    }

    /// What it means that a wait is over, which could have lasted from then until then.
    fn wait_result(
        &self,
        kept: KeepAliveResult<WakeReason>,
        first: Timestamp,
        limit: Option<Timestamp>,
    ) -> Result<WakeReason, EndReason> {
        let now = self.shared.now();
        let limit = limit.unwrap_or(now);
        match kept {
            KeepAliveResult::ClientDisconnected => Err(EndReason::ClientDisconnected),
            KeepAliveResult::HoldEnded(ending) => Err(EndReason::SentBack(ending)),
            KeepAliveResult::Done(WakeReason::Stopping) => {
                Err(EndReason::SentBack(self.keepalive.hold_ending(now)))
            }
            KeepAliveResult::Done(WakeReason::Command(Command::Cancel)) => {
                Err(EndReason::Cancelled)
            }
            KeepAliveResult::Done(WakeReason::HoldLimitReached) => {
                Err(EndReason::GaveUp(GiveUp::SleepBudgetExhausted {
                    budget: limit.since(first),
                }))
            }
            KeepAliveResult::Done(WakeReason::ResetBeyondLimit(until)) => {
                Err(EndReason::GaveUp(GiveUp::StatedWaitTooLong {
                    requested: until.since(now),
                    allowed: limit.since(now),
                }))
            }
            KeepAliveResult::Done(woken) => Ok(woken),
        }
    }

    /// Begins the first wait of a request: registers the hold, and frees the buffers that the wait does not need.
    async fn begin_hold(&mut self, now: Timestamp) -> Result<(), EndReason> {
        self.failure_state.failing_since.get_or_insert(now);
        if self.hold.is_some() {
            return Ok(());
        }
        if self.shared.holds.waiting_count() >= self.shared.limits.max_waiting {
            return Err(EndReason::TooManyWaiting);
        }
        let Some(identity) = self.identity().await else {
            return Err(EndReason::TooManyWaiting);
        };
        let hold = self
            .shared
            .holds
            .begin(identity, self.hold_summary(), self.progress(None));
        self.hold = Some(hold);
        self.gauge_guards.push(self.shared.metrics.held());
        Ok(())
    }

    /// Frees the buffers that a wait does not need.
    async fn release_buffers(&mut self) {
        self.request.pack_headers();
        let body = std::mem::replace(&mut self.request.body, Body::Memory(Bytes::new()));
        let was_kept = matches!(body, Body::File(_));
        self.request.body = self.shared.body_store.store(body).await;
        if let (Body::File(_), false) = (&self.request.body, was_kept) {
            let spooled = self.shared.metrics.spooled(self.request.body.len() as u64);
            self.gauge_guards.push(spooled);
        }
    }

    /// Returns the description of the request for people.
    fn hold_summary(&self) -> RequestSummary {
        let account = self.account.as_ref().map(|account| account.name.as_str());
        RequestSummary {
            id: self.request.id.as_str().into(),
            client: self.request.profile.name.into(),
            dialect: Some(self.request.dialect().name().into()),
            model: Some(self.request.model.clone()).filter(|model| !model.is_empty()),
            account: Some(
                account
                    .unwrap_or(&self.request.credential_fingerprint)
                    .into(),
            ),
            path: self.request.path().into(),
            begun: self.request.received_at,
        }
    }

    /// Records the wait and reports it.
    fn record_wait(&self, wake: Option<Timestamp>, gate: &str) {
        if let Some(hold) = &self.hold {
            hold.update(self.progress(self.failure_state.retry_at.or(wake)), wake);
        }
        let cause = self
            .failure_state
            .last_cause
            .or_else(|| self.shared.admission.shared_state().last_cause(gate));
        self.log_event(EventKind::Waiting {
            cause: cause.unwrap_or(Cause::Overloaded),
            attempt: self.failure_state.attempts,
            wake,
        });
    }

    /// An attempt that its client did not wait for was made all the same.
    pub(crate) fn save_progress(&self) {
        if let Some(hold) = &self.hold {
            hold.update(self.progress(None), None);
        }
    }

    fn progress(&self, wake: Option<Timestamp>) -> Progress {
        Progress {
            chain: *self.state.chain(),
            prompt: self.state.prompt().clone(),
            since: self
                .failure_state
                .failing_since
                .unwrap_or(self.request.received_at),
            wake,
            attempts: self.failure_state.attempts,
            resent: self.failure_state.resent,
            cause: self.failure_state.last_cause,
        }
    }
}
