//! Events of every kind, with all of their fields and with as few as possible.

use outlast_kernel::Timestamp;
use outlast_kernel::event::{
    Body, CompactionReason, Event, Proof, Reasoning, StopReason, ToolCall, TurnStatus, Usage,
    VERSION,
};
use outlast_kernel::model_info::ContinueBy;
use outlast_kernel::verdict::{Cause, Class};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn s(text: &str) -> String {
    text.to_owned()
}

pub(crate) fn event(seq: u64, body: Body) -> Event {
    Event {
        v: VERSION,
        seq,
        time: NOW,
        session_id: s("session"),
        turn_id: s("turn"),
        attempt_id: Some(s("turn.1")).filter(|_| seq.is_multiple_of(2)),
        body,
    }
}

/// Returns at least one event of every kind; the test against the schema finds a missing one.
pub(crate) fn all() -> Vec<Event> {
    let bodies = [plain(), tools(), remedies(), retries(), ends()].concat();
    (1..).zip(bodies).map(|(n, body)| event(n, body)).collect()
}

fn usage() -> Usage {
    Usage {
        input: 10,
        output: 3,
        cache_read: 7,
        cache_write: u64::MAX,
    }
}

fn plain() -> Vec<Body> {
    let (provider, model) = (s("anthropic"), s("m"));
    let (steering, follow_up) = (vec![s("stop that")], Vec::new());
    let reasoning = |proof| Reasoning {
        text: s("Let me see"),
        model: Some(s("m")),
        proof,
    };
    let signature = s("c2ln");
    let encrypted = |content| Proof::Encrypted {
        id: s("rs_1"),
        content,
    };
    vec![
        Body::Start { provider, model },
        Body::Input {
            text: s("hello\u{2028}"),
        },
        Body::QueueChanged {
            steering,
            follow_up,
        },
        Body::Renamed {
            title: s("A title"),
        },
        Body::Account { name: s("work") },
        Body::AccountBlocked {
            name: s("work"),
            cause: Cause::UsageLimit,
            until: NOW,
        },
        Body::AttemptStarted { attempt: 1 },
        Body::TextDelta { text: s("Hel") },
        Body::ReasoningDelta { text: s("Let") },
        Body::ReasoningDone(Reasoning::default()),
        Body::ReasoningDone(reasoning(Some(Proof::Signature { signature }))),
        Body::ReasoningDone(reasoning(Some(Proof::Redacted { data: s("x") }))),
        Body::ReasoningDone(reasoning(Some(encrypted(None)))),
        Body::ReasoningDone(reasoning(Some(encrypted(Some(s("x")))))),
    ]
}

fn tools() -> Vec<Body> {
    let (id, name, arguments) = (s("call_1"), s("read"), s("{\"path\":\"a\"}"));
    let (output, is_error) = (s("text"), false);
    vec![
        Body::ToolCall(ToolCall {
            id: id.clone(),
            name: name.clone(),
            arguments,
        }),
        Body::ToolStarted {
            id: id.clone(),
            name,
        },
        Body::ToolResult {
            id,
            output,
            is_error,
        },
        Body::Usage(usage()),
    ]
}

fn remedies() -> Vec<Body> {
    let switched = |cause, until| Body::ModelSwitched {
        from: s("m"),
        to: s("n"),
        cause,
        until,
    };
    let reason = CompactionReason::Overflow;
    let compacted = |summary, error| Body::AutoCompactionEnded {
        reason,
        before: 9_000,
        after: 900,
        will_retry: true,
        summary,
        error,
    };
    let mut all = vec![
        Body::Unrecorded {
            message: s("disk full"),
        },
        Body::Retracted { attempt: 1 },
        switched(None, None),
        switched(Some(Cause::Overloaded), Some(NOW)),
        Body::Corrected {
            cause: Cause::EmptyOutput,
            message: s("empty"),
            attempt: 1,
            max_attempts: 3,
        },
        Body::Warning {
            message: s("careful"),
        },
        Body::BilledTwice {
            usage: usage(),
            estimated: true,
        },
        Body::AutoCompactionRetry {
            attempt: 1,
            retry_at: NOW,
            cause: Cause::RateLimited,
            message: s("slow down"),
        },
        compacted(Some(s("They talked.")), None),
        compacted(None, Some(s("nothing to leave out"))),
    ];
    all.extend(ContinueBy::ALL.map(|by| Body::Seam { by }));
    let reasons = [
        CompactionReason::Manual,
        CompactionReason::Threshold,
        CompactionReason::Overflow,
        CompactionReason::TooManyBytes,
        CompactionReason::SlowUpload,
    ];
    all.extend(reasons.map(|reason| Body::AutoCompactionStarted {
        reason,
        tokens: 9_000,
    }));
    all
}

fn retries() -> Vec<Body> {
    let scheduled = |max_attempts, cause: Cause, code| Body::RetryScheduled {
        attempt: 1,
        max_attempts,
        delay_ms: 2_000,
        retry_at: NOW,
        cause,
        message: s("Overloaded"),
        code,
    };
    let ended = |error: Option<String>| Body::RetryEnded {
        success: error.is_none(),
        attempt: 1,
        error,
    };
    let mut all = vec![
        scheduled(Some(3), Cause::Overloaded, Some(s("529"))),
        Body::Held {
            until: NOW,
            cause: None,
        },
        Body::Held {
            until: NOW,
            cause: Some(Cause::Overloaded),
        },
        ended(None),
        ended(Some(s("Retry cancelled"))),
    ];
    let every_cause = Cause::ALL.iter().map(|cause| scheduled(None, *cause, None));
    all.extend(every_cause);
    all
}

fn ends() -> Vec<Body> {
    let error = |class, code| Body::Error {
        class,
        cause: Cause::Auth,
        message: s("no such key"),
        code,
        reason: s("it fails the same way every time"),
    };
    let stops = [
        StopReason::EndTurn,
        StopReason::ToolUse,
        StopReason::Length,
        StopReason::Refusal,
        StopReason::Other,
    ];
    let mut all = vec![error(Class::Deterministic, Some(s("401")))];
    all.extend(Class::ALL.map(|class| error(class, None)));
    for stop_reason in stops {
        let model = s("m");
        all.push(Body::StepComplete { model, stop_reason });
        all.push(Body::Done { stop_reason });
    }
    let seals = [
        TurnStatus::Completed,
        TurnStatus::Error,
        TurnStatus::Aborted,
    ];
    all.extend(seals.map(|status| Body::Sealed { status }));
    all
}
