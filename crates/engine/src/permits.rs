//! Permits: the calls that an account may have in flight, over all processes.
//!
//! Invariants: the requests of a process take permits in order; a permit is renewed while it is held, and given back when
//! it is dropped. Without the store, only the calls of this process count.

use crate::BoxFuture;
use crate::shared_state::SharedState;
use outlast_store::{PermitReply, PermitRequest};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The time after which a permit that is not renewed is free again: its holder has died.
const LEASE: Duration = Duration::from_secs(60);
const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// The interval of requests for a permit while other processes hold all of them.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The requests of this process that wait for a permit, by account and limit.
#[derive(Default)]
pub(crate) struct PermitQueues(Mutex<HashMap<(String, u32), Arc<Semaphore>>>);

impl PermitQueues {
    fn of(&self, account: &str, limit: u32) -> Arc<Semaphore> {
        let slots = usize::try_from(limit).unwrap_or(Semaphore::MAX_PERMITS);
        let new = || Arc::new(Semaphore::new(slots.min(Semaphore::MAX_PERMITS)));
        let mut queues = self.0.lock();
        let queue = queues
            .entry((account.to_owned(), limit))
            .or_insert_with(new);
        Arc::clone(queue)
    }
}

/// One of the calls that an account may have in flight; given back when it is dropped.
pub struct Permit {
    shared_state: SharedState,
    claim: PermitRequest,
    renewal: Option<tokio::task::AbortHandle>,
    place: Option<OwnedSemaphorePermit>,
}

impl SharedState {
    /// Takes a permit of the account as soon as one is free.
    pub(crate) fn permit(&self, account: &str, limit: u32) -> BoxFuture<'static, Permit> {
        let mut permit = Permit {
            shared_state: self.clone(),
            claim: PermitRequest {
                account: account.to_owned(),
                holder: uuid::Uuid::now_v7().to_string(),
                limit,
            },
            renewal: None,
            place: None,
        };
        let queue = self.permits().of(account, limit);
        Box::pin(async move {
            // The semaphore is never closed.
            permit.place = queue.acquire_owned().await.ok();
            permit.acquire().await;
            permit
        })
    }

    /// Takes or renews a permit; returns `false` when other processes hold all of them.
    async fn claim_permit(&self, claim: PermitRequest) -> bool {
        let now = self.clock().now();
        let taken = self.with_store(async |store| {
            let expires = now + LEASE;
            store.acquire_permit(claim, now, expires).await
        });
        taken
            .await
            .is_none_or(|reply| reply == PermitReply::Granted)
    }
}

impl Permit {
    async fn acquire(&mut self) {
        let (shared_state, claim) = (self.shared_state.clone(), self.claim.clone());
        let clock = Arc::clone(shared_state.clock());
        while !shared_state.claim_permit(claim.clone()).await {
            clock.sleep_until(clock.now() + POLL_INTERVAL).await;
        }
        let renewal = tokio::spawn(async move {
            loop {
                clock.sleep_until(clock.now() + RENEW_INTERVAL).await;
                shared_state.claim_permit(claim.clone()).await;
            }
        });
        self.renewal = Some(renewal.abort_handle());
    }

    /// Returns whether it is a permit of that account.
    pub(crate) fn belongs_to(&self, account: &str) -> bool {
        self.claim.account == account
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else {
            return;
        };
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
        let shared_state = self.shared_state.clone();
        let holder = std::mem::take(&mut self.claim.holder);
        // Without a runtime the process ends; the lease in the store expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let released =
                    shared_state.with_store(async |store| store.release_permit(&holder).await);
                released.await;
                drop(place);
            });
        }
    }
}
