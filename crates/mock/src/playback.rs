//! Executes a plan: sends each piece of the body at its time.

use crate::plan::{BodyEnd, Piece, Plan};
use crate::reply::Disconnect;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use outlast_engine::{BoxStream, Clock};
use std::sync::Arc;
use std::time::Duration;

/// The pieces of a body, or the end of its connection. A body that falls silent never ends.
pub(crate) type Body = BoxStream<'static, Result<Bytes, Disconnect>>;

pub(crate) async fn wait(clock: &dyn Clock, wait: Duration) {
    if !wait.is_zero() {
        clock.sleep_until(clock.now() + wait).await;
    }
}

/// Returns the body of a plan.
pub(crate) fn body(plan: Plan, clock: Arc<dyn Clock>) -> Body {
    let pieces = stream::iter(plan.pieces);
    let rest = match plan.end {
        BodyEnd::Finish => stream::empty().boxed(),
        BodyEnd::Disconnect(how) => stream::iter([Err(how)]).boxed(),
        BodyEnd::Silence => stream::pending().boxed(),
        BodyEnd::Repeat { bytes, every } => {
            let piece = move || Piece {
                wait: every,
                bytes: bytes.clone(),
            };
            let endless = stream::repeat_with(piece);
            endless.then(delayed(Arc::clone(&clock))).map(Ok).boxed()
        }
    };
    pieces.then(delayed(clock)).map(Ok).chain(rest).boxed()
}

/// Waits for a piece's time.
fn delayed(
    clock: Arc<dyn Clock>,
) -> impl FnMut(Piece) -> outlast_engine::BoxFuture<'static, Bytes> {
    move |piece| {
        let clock = Arc::clone(&clock);
        Box::pin(async move {
            wait(&*clock, piece.wait).await;
            piece.bytes
        })
    }
}
