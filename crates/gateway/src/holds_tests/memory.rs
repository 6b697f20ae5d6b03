//! Tests of holds without a file: the right to resume, its expiry, and the view and commands of people.

use super::super::registry::Key;
use super::*;
use futures_util::FutureExt;

#[tokio::test]
async fn abandoned_hold_is_resumed_once_with_its_budget() {
    let gateway = TestGateway::in_memory().await;
    let hold = gateway.begin("hello", "first");
    let spent = Progress {
        wake: Some(at(300)),
        ..progress(0, 7)
    };
    hold.update(spent.clone(), None);
    assert!(!gateway.holds.has_abandoned());
    drop(hold);
    assert!(gateway.holds.has_abandoned());
    gateway.clock.set(60);
    assert!(gateway.resume("other words").is_none());
    let (again, taken) = gateway.resume("hello").unwrap();
    assert_eq!(taken, Progress { resent: 1, ..spent });
    assert!(!gateway.holds.has_abandoned());
    assert!(gateway.resume("hello").is_none());
    let shown = gateway.holds.list();
    assert_eq!(shown.len(), 1);
    assert_eq!((&*shown[0].id, shown[0].resent), ("again", 1));
    again.finish();
    assert_eq!(gateway.views(), []);
}

#[tokio::test]
async fn identical_request_gets_own_hold_while_first_waits() {
    let gateway = TestGateway::in_memory().await;
    let first = gateway.begin("hello", "first");
    assert!(gateway.resume("hello").is_none());
    let second = gateway.begin("hello", "second");
    drop(gateway.begin("elsewhere", "third"));
    // A hold can be resumed, but not this one.
    assert!(gateway.holds.has_abandoned());
    assert!(gateway.resume("hello").is_none());
    drop((first, second));
    assert_eq!(gateway.holds.waiting_count(), 0);
    assert_eq!(gateway.views().len(), 3);
}

#[tokio::test]
async fn oldest_abandoned_hold_is_resumed_first() {
    let gateway = TestGateway::in_memory().await;
    let holds: Vec<Hold> = [30, 10, 20]
        .iter()
        .map(|seconds| {
            gateway.clock.set(*seconds);
            gateway.begin("hello", &seconds.to_string())
        })
        .collect();
    drop(holds);
    let taken: Vec<Timestamp> = std::iter::from_fn(|| {
        let (hold, progress) = gateway.resume("hello")?;
        hold.finish();
        Some(progress.since)
    })
    .collect();
    assert_eq!(taken, [at(10), at(20), at(30)]);
}

#[tokio::test]
async fn hold_is_kept_each_time_client_disconnects() {
    let gateway = TestGateway::in_memory().await;
    drop(gateway.begin("hello", "first"));
    for resent in 1..=5 {
        let (hold, taken) = gateway.resume("hello").unwrap();
        assert_eq!(taken.resent, resent);
        drop(hold);
    }
    let (hold, _) = gateway.resume("hello").unwrap();
    hold.finish();
    assert!(!gateway.holds.has_abandoned());
    assert!(gateway.resume("hello").is_none());
}

#[tokio::test]
async fn abandoned_hold_expires_after_resume_window() {
    let half_an_hour = RESUME_WINDOW.as_secs();
    for (told, kept) in [(None, half_an_hour), (Some(9000), 9000 + half_an_hour)] {
        for (come, is_there) in [(kept, true), (kept + 1, false)] {
            let gateway = TestGateway::in_memory().await;
            let hold = gateway.begin("hello", "first");
            // Its own wake time is unknown to its client.
            let waits = Progress {
                wake: Some(at(5000)),
                ..progress(0, 1)
            };
            hold.update(waits, told.map(at));
            drop(hold);
            gateway.clock.set(come);
            assert_eq!(gateway.resume("hello").is_some(), is_there, "{come}");
            assert!(!gateway.holds.has_abandoned() || is_there);
        }
    }
}

#[tokio::test]
async fn expired_hold_is_removed_on_any_access() {
    type Look = fn(&TestGateway);
    let looks: [Look; 3] = [
        |gateway| drop(gateway.resume("other words")),
        |gateway| drop(gateway.holds.list()),
        |gateway| gateway.begin("other words", "second").finish(),
    ];
    for look in looks {
        let gateway = TestGateway::in_memory().await;
        drop(gateway.begin("hello", "first"));
        gateway.clock.set(RESUME_WINDOW.as_secs() + 1);
        look(&gateway);
        assert!(!gateway.holds.has_abandoned());
        assert!(
            gateway
                .holds
                .0
                .state
                .lock()
                .registry
                .iter()
                .next()
                .is_none()
        );
    }
}

#[tokio::test]
async fn oldest_abandoned_holds_are_evicted_beyond_limit() {
    let gateway = TestGateway::in_memory().await;
    for number in 0..MAX_ABANDONED + 3 {
        let name = number.to_string();
        gateway.clock.set(number as u64 / 1000);
        drop(gateway.begin(&name, &name));
    }
    assert_eq!(
        gateway.holds.0.state.lock().registry.abandoned_count(),
        MAX_ABANDONED
    );
    let last = (MAX_ABANDONED + 2).to_string();
    assert!(gateway.resume("0").is_none());
    assert!(gateway.resume(&last).is_some());
}

#[tokio::test]
async fn list_shows_waiting_holds_by_age_then_abandoned() {
    let gateway = TestGateway::in_memory().await;
    gateway.clock.set(5);
    let young = gateway.begin("a", "young");
    gateway.clock.set(3);
    let left = gateway.begin("b", "left");
    gateway.clock.set(4);
    let old = gateway.begin("c", "old");
    let waits = Progress {
        wake: Some(at(60)),
        attempts: 4,
        cause: Some(Cause::RateLimited),
        ..progress(4, 1)
    };
    old.update(waits, None);
    old.set_account("work");
    gateway.clock.set(9);
    drop(left);
    let expected = [("old", false), ("young", false), ("left", true)];
    let expected = expected.map(|(id, left)| (id.to_owned(), left));
    assert_eq!(gateway.views(), expected);
    assert_eq!(gateway.holds.waiting_count(), 2);
    let shown = gateway.holds.list();
    let text = serde_json::to_value(&shown[0]).unwrap();
    let expected = serde_json::json!({
        "id": "old", "client": "codex", "dialect": "openai_responses", "model": "gpt-5", "account": "work",
        "path": "/v1/responses", "since": at(4), "attempts": 4, "resent": 0, "cause": "rate_limited",
        "wake": at(60),
    });
    assert_eq!(text, expected);
    assert_eq!(
        serde_json::from_value::<WaitingRequest>(text).unwrap(),
        shown[0]
    );
    assert_eq!(shown[2].left, Some(at(9)));
    drop((young, old));
}

#[tokio::test]
async fn wait_can_be_retried_now_or_cancelled() {
    let gateway = TestGateway::in_memory().await;
    let (one, other) = (gateway.begin("a", "one"), gateway.begin("b", "other"));
    drop(gateway.begin("c", "left"));
    assert_eq!(gateway.holds.retry_now(Some("nobody")), 0);
    assert_eq!(gateway.holds.retry_now(Some("left")), 0);
    assert_eq!(one.command().now_or_never(), None);
    assert_eq!(gateway.holds.retry_now(Some("one")), 1);
    assert_eq!(one.command().now_or_never(), Some(Command::RetryNow));
    assert_eq!(one.command().now_or_never(), None);
    // Both wait for the same target: one is enough to find out.
    assert_eq!(gateway.holds.retry_now(None), 1);
    let hurried = [&one, &other].map(|hold| hold.command().now_or_never());
    assert!(hurried.contains(&Some(Command::RetryNow)) && hurried.contains(&None));
    // A waiter is woken.
    let (heard, ()) = tokio::join!(other.command(), async {
        tokio::task::yield_now().await;
        assert!(gateway.holds.cancel("other"));
        gateway.holds.retry_now(None);
    });
    assert_eq!(heard, Command::Cancel);
    assert!(!gateway.holds.cancel("nobody"));
    assert!(gateway.holds.cancel("left"));
    assert!(!gateway.holds.has_abandoned());
    assert_eq!(ids(&gateway.views()), ["one", "other"]);
}

#[tokio::test]
async fn retry_all_wakes_each_hold_with_request_scoped_cause() {
    let gateway = TestGateway::in_memory().await;
    let holds = ["a", "b", "c"].map(|id| gateway.begin(id, id));
    for hold in &holds {
        let cause = Some(Cause::TruncatedStream);
        let progress = Progress {
            cause,
            ..progress(0, 1)
        };
        hold.update(progress, None);
    }
    assert_eq!(gateway.holds.retry_now(None), 3);
}

#[tokio::test]
async fn retry_now_during_attempt_does_not_skip_next_wait() {
    let gateway = TestGateway::in_memory().await;
    let hold = gateway.begin("a", "one");
    gateway.holds.retry_now(None);
    hold.begin_wait(progress(0, 2), None);
    assert_eq!(hold.command().now_or_never(), None);
    // A cancel is final.
    gateway.holds.cancel("one");
    hold.begin_wait(progress(0, 3), None);
    assert_eq!(hold.command().now_or_never(), Some(Command::Cancel));
}

#[test]
fn hold_size_is_bounded() {
    // Beside its strings: itself, its place in the table (half of which may be empty), and the channel of commands.
    let place = 2 * (size_of::<Key>() + size_of::<Box<HeldRequest>>() + 1);
    let signal = size_of::<Signal>() + 2 * size_of::<usize>();
    let all = size_of::<HeldRequest>() + place + signal + size_of::<Hold>();
    assert!(all < 700, "{all} bytes");
}

// --- identity ---

fn identity(headers: &[(&str, &str)], change: impl FnOnce(&mut Parts<'_>)) -> Identity {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    let mut parts = Parts {
        credential: b"mark",
        client: "codex",
        method: "POST",
        path: "/v1/responses",
        headers: &map,
    };
    change(&mut parts);
    let mut making = Identity::builder(&parts);
    making.update_body(b"hello");
    making.finish()
}

#[test]
fn identity_differs_by_each_significant_part() {
    let same = || identity(&[], |_| {});
    assert_eq!(same(), identity_of("hello"));
    let others = [
        identity_of("Hello"),
        identity(&[], |parts| parts.credential = b"another"),
        identity(&[], |parts| parts.client = "claude-code"),
        identity(&[], |parts| parts.method = "PUT"),
        identity(&[], |parts| parts.path = "/v1/responses?x"),
        identity(&[("user-agent", "codex/1")], |_| {}),
        identity(&[("user-agent", "codex/2")], |_| {}),
        identity(&[("idempotency-key", "k")], |_| {}),
        identity(&[("x-claude-code-session-id", "s")], |_| {}),
        identity(&[("session_id", "s")], |_| {}),
        identity(&[("x-session-id", "s")], |_| {}),
        identity(&[("conversation_id", "s")], |_| {}),
        // The boundary between two parts is significant, too.
        identity(&[], |parts| {
            (parts.client, parts.method) = ("codexP", "OST")
        }),
    ];
    let mut all = others.to_vec();
    all.push(same());
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn identity_ignores_insignificant_headers() {
    let base = [("session_id", "s"), ("user-agent", "x")];
    let expected = identity(&base, |_| {});
    let more = [
        ("x-stainless-retry-count", "2"),
        ("traceparent", "00-1-1-00"),
        ("authorization", "Bearer of which there is a mark"),
        base[0],
        base[1],
    ];
    assert_eq!(identity(&more, |_| {}), expected);
}

#[test]
fn identity_is_same_for_body_in_pieces() {
    let headers = HeaderMap::new();
    let making = Identity::builder(&Parts {
        credential: b"mark",
        client: "codex",
        method: "POST",
        path: "/v1/responses",
        headers: &headers,
    });
    let body = "many words ".repeat(10_000);
    let expected = identity_of(&body);
    let mut in_pieces = making;
    body.as_bytes()
        .chunks(777)
        .for_each(|piece| in_pieces.update_body(piece));
    assert_eq!(in_pieces.finish(), expected);
}

#[test]
fn identity_round_trips_through_json() {
    let expected = identity_of("hello");
    let text = serde_json::to_string(&expected).unwrap();
    assert_eq!(text.len(), 66);
    assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), expected);
    for broken in ["\"\"", "\"00\"", "\"ää\"", "7"] {
        assert!(serde_json::from_str::<Identity>(broken).is_err());
    }
}
