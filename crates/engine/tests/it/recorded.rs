//! A recorded stream of each dialect, cut at every byte: the verdict is correct, no content is lost or duplicated.

use crate::scripted_transport::{Body, ScriptedTransport, collect_deltas, reset};
use crate::support::{clock, policy, run};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Dialect};
use outlast_engine::provider::Adapter;
use outlast_kernel::classify::classify;
use outlast_kernel::event::{Body as Said, Event, TurnStatus};
use outlast_kernel::failure::Phase;
use outlast_kernel::verdict::Cause;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const STREAMS: [(Dialect, &str); 3] = [
    (
        Dialect::Anthropic,
        include_str!("../../../../corpus/streams/anthropic.sse"),
    ),
    (
        Dialect::OpenaiChat,
        include_str!("../../../../corpus/streams/openai_chat.sse"),
    ),
    (
        Dialect::OpenaiResponses,
        include_str!("../../../../corpus/streams/openai_responses.sse"),
    ),
];

#[derive(Clone, Copy, Debug)]
enum End {
    Clean,
    Reset,
}

fn cut(stream: &'static str, at: usize, end: End) -> Body {
    let bytes = Bytes::from_static(&stream.as_bytes()[..at]);
    let rest = match end {
        End::Clean => vec![],
        End::Reset => vec![Err(reset())],
    };
    stream::iter([Ok(bytes)]).chain(stream::iter(rest)).boxed()
}

fn adapter(dialect: Dialect, says: ScriptedTransport) -> Adapter {
    Adapter::new(dialect, Arc::new(says), clock())
}

#[tokio::test(start_paused = true)]
async fn stream_cut_at_any_byte_gives_prefix_and_right_verdict() {
    for (dialect, recorded) in STREAMS {
        let whole = adapter(
            dialect,
            ScriptedTransport::events(|| cut(recorded, recorded.len(), End::Clean)),
        );
        let (told, failure) = collect_deltas(&whole).await;
        assert_eq!(failure, None);
        for at in 0..recorded.len() {
            for end in [End::Clean, End::Reset] {
                let says = ScriptedTransport::events(move || cut(recorded, at, end));
                let (deltas, failure) = collect_deltas(&adapter(dialect, says)).await;
                let place = format!("{dialect:?} at {at}, {end:?}");
                match failure {
                    // Only a complete response may end without a failure.
                    None => assert_eq!(without_usage(&deltas), without_usage(&told), "{place}"),
                    Some(failure) => {
                        assert_eq!(deltas, told[..deltas.len()], "{place}");
                        let cause = match end {
                            End::Clean => Cause::TruncatedStream,
                            End::Reset => Cause::Network,
                        };
                        assert_eq!(classify(&failure).cause, cause, "{place}");
                        let content = deltas.iter().any(Delta::is_content);
                        let phase = if content {
                            Phase::AfterContent
                        } else {
                            Phase::BeforeContent
                        };
                        assert_eq!(failure.phase, phase, "{place}");
                    }
                }
            }
        }
    }
}

/// The final usage may be missing although the completion is whole.
fn without_usage(deltas: &[Delta]) -> Vec<&Delta> {
    let is_usage = |delta: &&Delta| matches!(delta, Delta::Usage(_));
    deltas.iter().filter(|delta| !is_usage(delta)).collect()
}

#[tokio::test(start_paused = true)]
async fn turn_after_cut_shows_full_text_or_fails_with_prefix() {
    for (dialect, recorded) in STREAMS {
        let shown_by = |says: ScriptedTransport| async move {
            let retry = policy("session");
            let (ended, events) = run(&adapter(dialect, says), Some(&retry)).await;
            (ended.seal, shown(&events))
        };
        let (_, told) = shown_by(ScriptedTransport::events(|| {
            cut(recorded, recorded.len(), End::Clean)
        }))
        .await;
        for at in (0..recorded.len()).step_by(7) {
            let first = AtomicBool::new(true);
            let says = ScriptedTransport::events(move || {
                let until = if first.swap(false, Ordering::Relaxed) {
                    at
                } else {
                    recorded.len()
                };
                cut(recorded, until, End::Reset)
            });
            let (seal, said) = shown_by(says).await;
            match seal {
                TurnStatus::Completed => assert_eq!(said, told, "{dialect:?} at {at}"),
                _ => {
                    let beginning = !said.is_empty() && told.starts_with(&said);
                    assert!(beginning, "{dialect:?} at {at}: {said:?}");
                }
            }
        }
    }
}

/// Returns all texts that a listener was shown, in order.
fn shown(events: &[Event]) -> String {
    let words = |event: &Event| match &event.body {
        Said::TextDelta { text } => Some(text.clone()),
        Said::ReasoningDelta { text } => Some(format!("({text})")),
        Said::ToolCall(call) => Some(format!("<{} {}>", call.id, call.arguments)),
        _ => None,
    };
    events.iter().filter_map(words).collect()
}
