//! Permits: the calls that an account may have in flight, over all processes.
//!
//! Invariants: the requests of a process take permits in order; a permit is renewed while it is held, and given back when
//! it is dropped. Not here: the count over all processes (see `shared_state` and the store).

use crate::BoxFuture;
use crate::shared_state::SharedState;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Well within the lease that the store gives.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// The interval of requests for a permit while other processes hold all of them.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One of the calls that an account may have in flight; given back when it is dropped.
pub struct Permit {
    shared_state: SharedState,
    account: String,
    limit: u32,
    holder: String,
    renewal: Option<tokio::task::AbortHandle>,
    place: Option<OwnedSemaphorePermit>,
}

impl SharedState {
    /// Takes a permit of the account as soon as one is free.
    pub(crate) fn permit(&self, account: &str, limit: u32) -> BoxFuture<'static, Permit> {
        let mut permit = Permit {
            shared_state: self.clone(),
            account: account.to_owned(),
            limit,
            holder: uuid::Uuid::now_v7().to_string(),
            renewal: None,
            place: None,
        };
        let semaphore = self.permit_semaphore(account, limit);
        Box::pin(async move {
            // The semaphore is never closed.
            permit.place = semaphore.acquire_owned().await.ok();
            permit.acquire().await;
            permit
        })
    }
}

impl Permit {
    async fn acquire(&mut self) {
        let (shared_state, account) = (self.shared_state.clone(), self.account.clone());
        let (holder, limit) = (self.holder.clone(), self.limit);
        let clock = Arc::clone(shared_state.clock());
        while !shared_state.acquire_permit(&account, &holder, limit).await {
            clock.sleep_until(clock.now() + POLL_INTERVAL).await;
        }
        let renewal = tokio::spawn(async move {
            loop {
                clock.sleep_until(clock.now() + RENEW_INTERVAL).await;
                shared_state.acquire_permit(&account, &holder, limit).await;
            }
        });
        self.renewal = Some(renewal.abort_handle());
    }

    /// Returns whether it is a permit of that account.
    pub(crate) fn belongs_to(&self, account: &str) -> bool {
        self.account == account
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
        let (shared_state, holder) = (self.shared_state.clone(), std::mem::take(&mut self.holder));
        // Without a runtime the process ends; the lease in the store expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                shared_state.release_permit(&holder).await;
                drop(place);
            });
        }
    }
}
