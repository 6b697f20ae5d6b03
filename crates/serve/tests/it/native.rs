//! Real sessions in the native dialect: every line that is written matches the schema.

use crate::kinds::NOW;
use crate::schema::{definition_validator, encode_lines, line_validator};
use outlast_dialect::{Dialect, Tool};
use outlast_engine::clock::TimerClock;
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::target::ModelTarget;
use outlast_engine::tools::{Effect, Output, Toolbox};
use outlast_engine::{BoxFuture, CancellationToken, Clock};
use outlast_kernel::decision::AfterContent;
use outlast_kernel::event::{Event, ToolCall, TurnStatus};
use outlast_kernel::policy::Policy;
use outlast_kernel::verdict::Cause;
use outlast_mock::ScriptedTransport;
use outlast_serve::event_encoder::EventEncoder;
use outlast_serve::native::{FollowRequest, NativeLog, SnapshotView, WaitingView};
use outlast_session::Session;
use outlast_session::compaction::{Compaction, Settings};
use outlast_session::event_log::EventLog;
use outlast_session::{GateHold, RetryStatus, Setup, Snapshot};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A tool that notes its input and reports that it did.
struct Notes;

impl Toolbox for Notes {
    fn admit<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, Result<Effect, String>> {
        Box::pin(async { Ok(Effect::Pure) })
    }

    fn run<'a>(&'a self, _: &'a ToolCall, _: CancellationToken) -> BoxFuture<'a, Output> {
        Box::pin(async { Output::ok("noted") })
    }
}

const PROMPT: &str =
    "call note {\"number\": 1}\nand note {\"number\": 2}\ncall note {\"number\": 3}";
/// A summary, a completion that breaks off in its text, the two steps, an invalid completion, and the end.
const TROUBLE: &str = "ok:agent+drop-after:12,of=thinking-agent+ok:thinking-agent,times=2+ok:empty+ok:thinking-agent,times=always";

/// Two scripted models; the second one has a small window, and summarises.
fn setup([first, second]: [&str; 2]) -> Setup {
    let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(NOW));
    let [first, second] = [first, second].map(|script| {
        let transport = ScriptedTransport::new(script.parse().unwrap(), Arc::clone(&clock));
        let (transport, clock) = (Arc::new(transport), Arc::clone(&clock));
        Arc::new(Adapter::new(Dialect::Anthropic, transport, clock))
    });
    let mut second = ModelTarget::new(second, "second");
    (second.traits.window, second.max_tokens) = (Some(9600), Some(500));
    let policy = Policy::named("session").unwrap();
    let retry = Arc::new(PolicyRetry::new(policy, Arc::clone(&clock)));
    let summarisers = vec![second.clone()];
    let settings = Settings::default();
    let compaction = Compaction::new(summarisers, retry.clone(), Arc::clone(&clock), settings);
    let offered = Tool {
        name: "note".to_owned(),
        description: "Notes a number.".to_owned(),
        parameters: json!({ "type": "object" }),
    };
    Setup {
        fallbacks: vec![second],
        compaction: Some(Arc::new(compaction)),
        after_content: AfterContent::Continue,
        retry: Some(retry),
        tools: Some(Arc::new(Notes)),
        tool_definitions: vec![offered],
        ..Setup::new(first, "first", clock)
    }
}

/// All events of a session.
type RecordedEvents = Arc<Mutex<Vec<Event>>>;

/// Puts the session's events into the log, and collects those that the client follows.
fn listen(session: &Session, log: &NativeLog) -> RecordedEvents {
    let (heard, log) = (RecordedEvents::default(), log.clone());
    let aside = Arc::clone(&heard);
    let events = Arc::new(EventLog::after(session.snapshot().last_seq));
    log.begin(Arc::clone(&events));
    let hear = move |event: &Event| {
        events.push(event, 0);
        log.push(event, |event| aside.lock().unwrap().push(event.clone()));
    };
    std::mem::forget(session.subscribe(hear));
    heard
}

fn numbers(heard: &RecordedEvents) -> Vec<u64> {
    let heard = heard.lock().unwrap();
    heard.iter().map(|event| event.seq).collect()
}

/// Validates the collected events line by line, and returns their kinds.
fn kinds_in(heard: &RecordedEvents) -> BTreeSet<String> {
    let (lines, heard) = (line_validator(), heard.lock().unwrap());
    let said = encode_lines(|voice, out| {
        for event in heard.iter() {
            voice.encode(event.clone(), out);
        }
        voice.encode_run_end(false, out);
    });
    assert_eq!(said.len(), heard.len() + 1);
    for line in &said {
        if let Err(error) = lines.validate(line) {
            panic!("{line}: {error}");
        }
    }
    let word = |line: &Value| line["type"].as_str().unwrap().to_owned();
    said.iter().map(word).collect()
}

#[tokio::test(start_paused = true)]
async fn session_with_many_failures_matches_schema() {
    let session = Session::in_memory(setup(["ok:long+overloaded:9", TROUBLE]));
    let heard = listen(&session, &NativeLog::default());
    session.prompt("Say a lot".into()).await.unwrap();
    let ended = session.prompt(PROMPT.into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    let kinds = kinds_in(&heard);
    let expected = [
        "start",
        "input",
        "attempt_started",
        "text_delta",
        "reasoning_done",
        "tool_call",
        "tool_started",
        "tool_result",
        "usage",
        "retry_scheduled",
        "retry_ended",
        "model_switched",
        "auto_compaction_started",
        "auto_compaction_ended",
        "seam",
        "corrected",
        "step_complete",
        "done",
        "sealed",
        "settled",
    ];
    for kind in expected {
        assert!(kinds.contains(kind), "{kind} is not in {kinds:?}");
    }
    let all: Vec<u64> = (1..=session.snapshot().last_seq).collect();
    assert_eq!(numbers(&heard), all);
}

#[tokio::test(start_paused = true)]
async fn failed_session_matches_schema() {
    let session = Session::in_memory(setup(["error:401,times=9", "error:401,times=9"]));
    let heard = listen(&session, &NativeLog::default());
    let ended = session.prompt("hello".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Error);
    assert!(kinds_in(&heard).contains("error"));
}

/// A snapshot in the middle of a wait, and the events after its number, are all that a late client needs.
#[tokio::test(start_paused = true)]
async fn late_client_follows_from_snapshot_cursor() {
    let session = Session::in_memory(setup(["overloaded:1", "overloaded:1"]));
    let log = NativeLog::default();
    let heard = listen(&session, &log);
    let prompt = session.prompt("hello".into());
    let late = async {
        while session.snapshot().retry.is_none() {
            tokio::task::yield_now().await;
        }
        let view = SnapshotView::new(session.id(), session.snapshot(), WaitingView::default());
        let reply =
            json!({ "type": "response", "command": "snapshot", "success": true, "data": view });
        assert!(line_validator().is_valid(&reply), "{reply}");
        assert!(view.retry.unwrap().wake_at.unwrap() > NOW);
        view.events
    };
    let (ended, number) = tokio::join!(prompt, late);
    assert_eq!(ended.unwrap().seal, TurnStatus::Completed);
    let last = session.snapshot().last_seq;
    assert!((1..last).contains(&number));

    let mut again = Vec::new();
    let follow = FollowRequest::parse(&json!({ "type": "follow", "after": number })).unwrap();
    log.follow(follow, |followed, events| {
        assert_eq!(followed.events, last);
        again = events;
    })
    .unwrap();
    let number = usize::try_from(number).unwrap();
    assert_eq!(again, heard.lock().unwrap()[number..]);
}

#[tokio::test(start_paused = true)]
async fn client_gets_only_followed_kinds() {
    let session = Session::in_memory(setup(["overloaded:1", "overloaded:1"]));
    let log = NativeLog::default();
    let heard = listen(&session, &log);
    let only = json!({ "type": "follow", "only": ["retry_scheduled", "sealed"] });
    log.follow(FollowRequest::parse(&only).unwrap(), |_, _| ())
        .unwrap();
    session.prompt("hello".into()).await.unwrap();
    let kinds: Vec<String> = kinds_in(&heard).into_iter().collect();
    assert_eq!(kinds, ["retry_scheduled", "sealed", "settled"]);
}

#[test]
fn snapshot_has_absolute_times_and_matches_schema() {
    let full = Snapshot {
        last_seq: 7,
        turn_id: Some("turn".to_owned()),
        attempt: 2,
        retry: Some(RetryStatus {
            attempt: 1,
            max_attempts: Some(3),
            cause: Cause::Overloaded,
            message: "Overloaded".to_owned(),
            wake_at: Some(NOW),
        }),
        gate_hold: Some(GateHold {
            until: NOW,
            cause: Some(Cause::RateLimited),
        }),
        model: "m".to_owned(),
        is_compacting: true,
        auto_retry_enabled: true,
        ..Snapshot::default()
    };
    let waiting = WaitingView {
        steering: vec!["stop that".to_owned()],
        follow_up: Vec::new(),
    };
    let view = serde_json::to_value(SnapshotView::new("session", full, waiting)).unwrap();
    let expected = json!({
        "session_id": "session",
        "events": 7,
        "turn_id": "turn",
        "attempt": 2,
        "retry": {
            "attempt": 1,
            "max_attempts": 3,
            "cause": "overloaded",
            "message": "Overloaded",
            "wake_at": "2027-01-15T08:00:00.000Z",
        },
        "held": { "until": "2027-01-15T08:00:00.000Z", "cause": "rate_limited" },
        "model": "m",
        "is_compacting": true,
        "auto_retry_enabled": true,
        "usage": { "input": 0, "output": 0, "cache_read": 0, "cache_write": 0 },
        "waiting": { "steering": ["stop that"], "follow_up": [] },
    });
    assert_eq!(view, expected);
    let idle = SnapshotView::new("session", Snapshot::default(), WaitingView::default());
    let (snapshot, lines) = (definition_validator("Snapshot"), line_validator());
    for view in [view, serde_json::to_value(idle).unwrap()] {
        assert!(snapshot.is_valid(&view), "{view}");
        let reply =
            json!({ "type": "response", "command": "snapshot", "success": true, "data": view });
        assert!(lines.is_valid(&reply), "{reply}");
    }
}
