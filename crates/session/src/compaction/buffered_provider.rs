//! A provider wrapper that hands on complete responses only.
//!
//! The caller never sees a partial summary, so a summary that was cut off may be requested again. A timeout is not
//! retried: a turn is waiting for the summary. Invariant: usage is reported as soon as it is known.

use futures_util::{StreamExt, future, stream};
use outlast_dialect::{Delta, Request};
use outlast_engine::credential::Credential;
use outlast_engine::{BoxStream, Provider};
use outlast_kernel::classify::classify;
use outlast_kernel::failure::{Failure, Phase};
use outlast_kernel::verdict::Cause;

type Item = Result<Delta, Box<Failure>>;

/// Wraps a provider and buffers its responses.
pub(super) struct BufferedProvider<'a>(pub(super) &'a dyn Provider);

impl Provider for BufferedProvider<'_> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn endpoint(&self) -> &str {
        self.0.endpoint()
    }

    fn stream(
        &self,
        request: &Request,
        credential: Option<&Credential>,
    ) -> BoxStream<'static, Item> {
        let pieces = self.0.stream(request, credential);
        let whole = pieces.scan(Vec::new(), |held, item| {
            future::ready(Some(release_ready(held, item)))
        });
        whole.flat_map(stream::iter).boxed()
    }
}

/// Returns the items that can be handed on now.
fn release_ready(held: &mut Vec<Item>, item: Item) -> Vec<Item> {
    match item {
        Ok(delta @ Delta::Usage(_)) => vec![Ok(delta)],
        Ok(delta) => {
            let is_last = matches!(delta, Delta::Stopped(_));
            held.push(Ok(delta));
            if is_last {
                std::mem::take(held)
            } else {
                Vec::new()
            }
        }
        Err(failure) => vec![Err(Box::new(as_before_content(*failure)))],
    }
}

fn as_before_content(failure: Failure) -> Failure {
    let cause = classify(&failure).cause;
    let failure = Failure {
        phase: failure.phase.min(Phase::BeforeContent),
        ..failure
    };
    match cause {
        Cause::Timeout | Cause::Stalled => failure.with_retryable(false),
        _ => failure,
    }
}
