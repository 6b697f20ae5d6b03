//! One request before its gate, over all of its attempts.
//!
//! Invariants: a request is in the queue from the beginning of its trouble to its end; it takes a pass before its call, and
//! reports the result of the call once; it leaves the queue when it is dropped.
//! Not here: the gate's queue and its exchange with the store (see `admission`), the waits of a call (see `attempt`).

use super::{GateHost, PassSlot};
use crate::shared_state::SharedState;
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Call, CallOutcome, Mode, Pass, RequestId, RequestRecord};
use outlast_kernel::verdict::{Cause, Verdict};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;

/// A request before its gate, over all of its attempts. It leaves the queue when it is dropped.
pub struct GateRequest {
    host: Arc<GateHost>,
    id: RequestId,
    record: RequestRecord,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Its trouble has not begun, or is over.
    Absent,
    /// It neither waits nor calls: a call has failed.
    Failed,
    Waiting,
    Admitted(Pass),
    Calling(Call),
}

impl SharedState {
    /// Returns a request before the gate with that key, whose trouble began at that time: it is not in the queue yet.
    pub fn request(&self, key: &str, arrived: Timestamp) -> GateRequest {
        let admission = self.admission();
        let number = admission.requests.fetch_add(1, Ordering::Relaxed);
        GateRequest {
            host: admission.host(key),
            id: RequestId(number),
            record: RequestRecord::new(arrived),
            stage: Stage::Absent,
        }
    }
}

impl GateRequest {
    /// Returns the key of the gate.
    pub fn key(&self) -> &str {
        &self.host.key
    }

    /// Returns the time at which its trouble began.
    pub const fn arrived(&self) -> Timestamp {
        self.record.arrived
    }

    /// Returns whether its call may begin.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.stage, Stage::Admitted(_))
    }

    /// Enters the queue, if it is not there; returns whether the call may begin at once.
    pub fn enter(&mut self) -> bool {
        let (id, record, stage) = (self.id, self.record, self.stage);
        let pass = match stage {
            // Where everybody may call, nothing becomes due.
            Stage::Absent => self
                .host
                .change(|state, now| state.view.queue.arrive_open(now))
                .or_else(|| {
                    self.host.update(|state, now| {
                        state.slots.insert(id, PassSlot::default());
                        state.view.queue.arrive(id, &record, now);
                        None
                    })
                }),
            Stage::Failed => self.host.update(|state, now| {
                state.slots.insert(id, PassSlot::default());
                state.view.queue.requeue(id, &record, now);
                None
            }),
            Stage::Waiting | Stage::Admitted(_) | Stage::Calling(_) => return self.take_pass(),
        };
        self.stage = pass.map_or(Stage::Waiting, Stage::Admitted);
        self.take_pass()
    }

    /// Waits until its own time; `is_stated` says whether the provider stated it. A request that was admitted meanwhile stays
    /// so.
    pub fn wait_until(&mut self, own_wake: Timestamp, is_stated: bool) {
        let (id, record) = (self.id, self.record);
        let is_new = self.stage == Stage::Absent;
        let pass = self.host.update(|state, now| {
            let pass = state.slots.entry(id).or_default().pass.take();
            if pass.is_some() {
                state.slots.remove(&id);
                return pass;
            }
            let stated = is_stated.then_some(own_wake);
            match is_new {
                true => (state.view.queue).arrive_waiting(id, &record, own_wake, stated, now),
                false => state.view.queue.wait(id, &record, own_wake, stated, now),
            }
            None
        });
        self.stage = pass.map_or(Stage::Waiting, Stage::Admitted);
    }

    /// Ends its own wait: from now on only the gate may keep it waiting.
    pub fn wake(&mut self) {
        if self.stage == Stage::Waiting {
            let id = self.id;
            self.host
                .update(|state, now| state.view.queue.wake(id, now));
        }
    }

    /// Resolves when the call may begin. Cancel-safe: until then it keeps its place.
    pub async fn admitted(&mut self) {
        std::future::poll_fn(|context| {
            if self.take_pass() {
                return Poll::Ready(());
            }
            let mut state = self.host.state.lock();
            let slot = state.slots.entry(self.id).or_default();
            if slot.pass.is_some() {
                context.waker().wake_by_ref();
            } else {
                slot.waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Takes the pass that the queue has given, if it has.
    fn take_pass(&mut self) -> bool {
        if self.stage == Stage::Waiting {
            let mut state = self.host.state.lock();
            let pass = state
                .slots
                .get_mut(&self.id)
                .and_then(|slot| slot.pass.take());
            if let Some(pass) = pass {
                state.slots.remove(&self.id);
                self.stage = Stage::Admitted(pass);
            }
        }
        self.is_admitted()
    }

    /// Lets the call begin whatever the gate says: a person wants it, or the request will not wait for so long.
    pub fn bypass(&mut self) {
        if matches!(self.stage, Stage::Admitted(_) | Stage::Calling(_)) {
            return;
        }
        let (id, was_absent) = (self.id, self.stage == Stage::Absent);
        let pass = self.host.update(|state, now| {
            let pass = state.slots.remove(&id).and_then(|slot| slot.pass);
            if was_absent {
                state.view.queue.arrive(id, &RequestRecord::new(now), now);
            }
            state.view.queue.release(id);
            pass
        });
        self.stage = Stage::Admitted(pass.unwrap_or(Pass::Open));
    }

    /// Its call begins.
    pub fn begin(&mut self) {
        if let Stage::Admitted(pass) = self.stage {
            let request = self.id;
            let call = self.host.change(|state, now| {
                let call = Call {
                    request,
                    began: now,
                    pass,
                };
                state.view.queue.started(&call);
                call
            });
            self.stage = Stage::Calling(call);
        }
    }

    /// Returns whether the running call probes for all: its failure costs the request nothing.
    pub const fn is_probe_for_all(&self) -> bool {
        matches!(&self.stage, Stage::Calling(call) if call.is_probe_for_all())
    }

    /// The provider has begun to answer: the request's trouble is over. It begins anew with the next trouble.
    pub fn succeeded(&mut self) {
        if let Stage::Calling(call) = self.stage {
            let began_anew = self.host.update(|state, now| {
                state.count_recent(false, now);
                state.view.queue.succeeded(&call, now);
                RequestRecord::new(now)
            });
            (self.stage, self.record) = (Stage::Absent, began_anew);
        }
    }

    /// The running call failed.
    pub fn failed(&mut self, verdict: &Verdict) {
        let Stage::Calling(call) = self.stage else {
            return;
        };
        let record = &mut self.record;
        let outcome = self.host.update(|state, now| {
            let outcome = (state.view.queue).report_failure(&call, record, verdict, now);
            if let CallOutcome::Failed(_) = outcome {
                state.count_recent(true, now);
                (state.cause, state.is_cause_new) = (Some(verdict.cause), true);
            }
            outcome
        });
        self.stage = match outcome {
            CallOutcome::Succeeded => Stage::Absent,
            CallOutcome::Failed(_) | CallOutcome::Unknown => Stage::Failed,
        };
    }

    /// The call is over; one whose result nobody reported counts as given up.
    pub fn end_call(&mut self) {
        if let Stage::Calling(call) = self.stage {
            self.host
                .update(|state, now| state.view.queue.abandoned(&call, now));
            self.stage = Stage::Failed;
        }
    }

    /// Returns the delay of a quick retry, if others succeed; `jitter` is between 0 and 1.
    pub fn quick_delay(&mut self, jitter: f64) -> Option<Duration> {
        let record = &mut self.record;
        self.host
            .update(|state, now| state.view.queue.quick_delay(record, jitter, now))
    }

    /// Returns the time at which it may be expected to start.
    pub fn expected_start(&self) -> Option<Timestamp> {
        let now = self.host.clock.now();
        (self.host.state.lock().view.queue).expected_start(self.id, now)
    }

    /// Returns the latest time that the provider stated for everybody, while nobody may call before it.
    pub fn stated_end(&self) -> Option<Timestamp> {
        let state = self.host.state.lock();
        let gate = state.view.queue.gate();
        let now = self.host.clock.now();
        Some(gate.not_before()).filter(|end| gate.mode() == Mode::Down && *end > now)
    }

    /// Returns the cause of the last failure at this gate.
    pub fn cause(&self) -> Option<Cause> {
        let own = self.host.state.lock().cause;
        own.or_else(|| self.host.link.known(&self.host.key)?.1)
    }

    /// Follows the changes that move the times of waiting requests.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.host.changes.subscribe()
    }

    /// Leaves the queue; a running call counts as given up.
    pub fn leave(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Absent);
        if stage == Stage::Absent {
            return;
        }
        let id = self.id;
        self.host.update(|state, now| {
            let given = state.slots.remove(&id).and_then(|slot| slot.pass);
            let unused = |pass| Call {
                request: id,
                began: now,
                pass,
            };
            let given_up = match stage {
                Stage::Calling(call) => Some(call),
                Stage::Admitted(pass) => Some(unused(pass)),
                _ => given.map(unused),
            };
            if let Some(call) = given_up {
                state.view.queue.abandoned(&call, now);
            }
            state.view.queue.leave(id);
        });
    }
}

impl Drop for GateRequest {
    fn drop(&mut self) {
        self.leave();
    }
}
