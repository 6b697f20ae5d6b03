//! Tests of the keep-alive actions, to the second.

use super::super::by_name;
use super::*;
use proptest::prelude::*;

const MESSAGES: ResponseFormat = ResponseFormat::Streamed(Dialect::Anthropic);
const CHAT: ResponseFormat = ResponseFormat::Streamed(Dialect::OpenaiChat);
const RESPONSES: ResponseFormat = ResponseFormat::Streamed(Dialect::OpenaiResponses);

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(1_794_700_000_000) + Duration::from_secs(second)
}

fn second(time: Timestamp) -> u64 {
    time.since(at(0)).as_secs()
}

fn schedule(name: &str, form: ResponseFormat) -> KeepAliveSchedule {
    KeepAliveSchedule::new(by_name(name).unwrap(), form, at(0))
}

/// Returns the schedule of a request whose first attempt has failed; the next one is expected in half an hour.
fn failing_schedule(name: &str, form: ResponseFormat) -> KeepAliveSchedule {
    let mut keeping = schedule(name, form);
    keeping.set_retry_at(Some(at(1_800)));
    keeping
}

/// Returns the actions until that second, each carried out on time.
fn acts(keeping: &mut KeepAliveSchedule, until: u64) -> Vec<(u64, KeepAliveAction)> {
    let mut acts = Vec::new();
    while let Some((time, act)) = keeping
        .next_action()
        .filter(|(time, _)| second(*time) <= until)
    {
        keeping.mark_done(time);
        acts.push((second(time), act));
    }
    acts
}

#[test]
fn claude_code_pings_slow_down_then_hold_ends() {
    let mut held = failing_schedule("claude-code", MESSAGES);
    let acts = acts(&mut held, 1_000_000);
    let ping = KeepAliveAction::SendHeartbeat(b"event: ping\ndata: {\"type\":\"ping\"}\n\n");
    assert_eq!(acts[0], (20, KeepAliveAction::SendHeaders));
    assert_eq!(acts[1], (50, ping.clone()));
    assert_eq!(acts[10], (320, ping.clone()));
    assert_eq!(acts[11], (560, ping.clone()));
    assert_eq!(acts[28], (4_640, ping));
    assert_eq!(
        acts[29],
        (4_880, KeepAliveAction::EndHold(HoldEnding::Disconnect))
    );
    assert_eq!(acts.len(), 30, "nothing comes after the end");
    assert_eq!(held.next_action(), None);
}

#[test]
fn headers_are_sent_earlier_once_an_attempt_failed() {
    let mut slow = schedule("claude-code", MESSAGES);
    assert_eq!(
        slow.next_action(),
        Some((at(40), KeepAliveAction::SendHeaders))
    );
    slow.set_retry_at(Some(at(5)));
    assert_eq!(
        slow.next_action(),
        Some((at(20), KeepAliveAction::SendHeaders))
    );
    // The next attempt is in progress: the earlier failure is not forgotten.
    slow.set_retry_at(None);
    assert_eq!(
        slow.next_action(),
        Some((at(20), KeepAliveAction::SendHeaders))
    );
}

#[test]
fn interim_responses_keep_status_open() {
    for name in ["openai-sdk-python", "anthropic-sdk-python", "ai-sdk"] {
        for form in [MESSAGES, CHAT, RESPONSES, ResponseFormat::Whole] {
            let mut held = failing_schedule(name, form);
            let acts = acts(&mut held, 8 * 3_600);
            assert_eq!(acts.len(), 480, "{name}");
            assert!(
                acts.iter()
                    .all(|(_, act)| *act == KeepAliveAction::SendInterim),
                "{name}"
            );
            assert!(!held.has_sent_headers());
        }
    }
}

#[test]
fn node_sdk_gets_headers_after_nine_minutes() {
    let mut held = failing_schedule("openai-sdk-node", CHAT);
    let acts = acts(&mut held, 900);
    assert_eq!(acts[7], (480, KeepAliveAction::SendInterim));
    assert_eq!(acts[8], (540, KeepAliveAction::SendHeaders));
    assert_eq!(
        acts[9],
        (660, KeepAliveAction::SendHeartbeat(b": outlast\n"))
    );
    assert!(held.has_sent_headers());
}

#[test]
fn codex_gets_no_keepalive_before_content() {
    for form in [RESPONSES, ResponseFormat::Whole] {
        assert_eq!(failing_schedule("codex", form).next_action(), None);
    }
}

#[test]
fn json_response_is_kept_alive_with_newlines() {
    let mut held = failing_schedule("opencode", ResponseFormat::Whole);
    let expected = [
        (60, KeepAliveAction::SendHeaders),
        (120, KeepAliveAction::SendHeartbeat(b"\n")),
        (180, KeepAliveAction::SendHeartbeat(b"\n")),
    ];
    assert_eq!(acts(&mut held, 200), expected);
}

#[test]
fn opaque_body_gets_only_interim_responses() {
    for name in ["unknown", "opencode", "anthropic-sdk-ts", "pi"] {
        let mut held = failing_schedule(name, ResponseFormat::Opaque);
        let acts = acts(&mut held, 3_600);
        assert!(
            acts.iter()
                .all(|(_, act)| *act == KeepAliveAction::SendInterim),
            "{name}"
        );
    }
}

#[test]
fn hold_end_before_headers_sends_retry_after() {
    let status = |status, seconds| HoldEnding::Status {
        status,
        retry_after: Duration::from_secs(seconds),
    };
    for (name, expected) in [
        ("claude-code", status(503, 60)),
        ("anthropic-sdk-python", status(503, 60)),
        ("openai-sdk-python", status(429, 120)),
        ("codex", status(429, 120)),
        ("opencode", status(429, 1_700)),
        ("ai-sdk", status(429, 59)),
    ] {
        let held = failing_schedule(name, ResponseFormat::Whole);
        assert_eq!(held.hold_ending(at(100)), expected, "{name}");
        let unknown_time = schedule(name, ResponseFormat::Whole).hold_ending(at(100));
        assert!(
            matches!(unknown_time, HoldEnding::Status { retry_after, .. } if retry_after.as_secs() == 15)
        );
    }
    let mut held = failing_schedule("claude-code", ResponseFormat::Whole);
    held.set_retry_at(Some(at(290)));
    assert_eq!(
        held.next_action(),
        Some((at(285), KeepAliveAction::EndHold(status(503, 5))))
    );
}

#[test]
fn hold_end_after_headers_is_error_frame_or_disconnect() {
    let committed = |name, form| {
        let mut held = failing_schedule(name, form);
        while !held.has_sent_headers() {
            let (time, _) = held.next_action().unwrap();
            held.mark_done(time);
        }
        held.hold_ending(at(1_770))
    };
    assert_eq!(committed("claude-code", MESSAGES), HoldEnding::Disconnect);
    assert_eq!(
        committed("opencode", ResponseFormat::Whole),
        HoldEnding::Disconnect
    );
    for (form, kind) in [(RESPONSES, "event: response.failed\n"), (CHAT, "")] {
        let HoldEnding::ErrorFrame(frame) = committed("opencode", form) else {
            panic!("a frame ends it");
        };
        let data = frame.strip_prefix(kind).unwrap();
        let data = data.strip_prefix("data: ").unwrap();
        let json: serde_json::Value = serde_json::from_str(data).unwrap();
        assert!(frame.ends_with("}\n\n"), "{frame}");
        assert!(
            json.to_string().contains("Please try again in 30s."),
            "{frame}"
        );
    }
}

#[test]
fn hold_never_ends_before_a_failure() {
    for name in ["goose", "claude-code", "openai-sdk-node"] {
        let mut slow = schedule(name, ResponseFormat::Whole);
        let ends = |acts: Vec<(u64, KeepAliveAction)>| {
            acts.iter()
                .any(|(_, act)| matches!(act, KeepAliveAction::EndHold(_)))
        };
        assert!(!ends(acts(&mut slow, 3_600)), "{name}");
        slow.set_retry_at(Some(at(3_700)));
        assert!(ends(acts(&mut slow, 3_600)), "{name}");
    }
}

#[test]
fn after_content_only_heartbeats_are_sent() {
    let mut answer = failing_schedule("claude-code", MESSAGES);
    answer.content_sent();
    answer.record_activity(at(100));
    assert!(answer.has_sent_headers());
    assert!(
        matches!(answer.next_action(), Some((time, KeepAliveAction::SendHeartbeat(_))) if second(time) == 340)
    );
    answer.record_activity(at(300));
    assert!(
        matches!(answer.next_action(), Some((time, KeepAliveAction::SendHeartbeat(_))) if second(time) == 540)
    );
    let acts = acts(&mut answer, 1_000_000);
    assert_eq!(acts.len(), 28, "no more than count, and no end");
    answer.record_activity(at(9_000));
    assert!(
        answer.next_action().is_some(),
        "something real gives them back"
    );

    let mut codex = schedule("codex", RESPONSES);
    codex.content_sent();
    assert!(
        matches!(codex.next_action(), Some((time, KeepAliveAction::SendHeartbeat(_))) if second(time) == 60)
    );
    let mut json = schedule("opencode", ResponseFormat::Whole);
    json.content_sent();
    assert_eq!(json.next_action(), None);
}

#[test]
fn due_action_is_taken_once_and_not_early() {
    let mut held = failing_schedule("claude-code", MESSAGES);
    assert_eq!(held.take_due(at(19)), None);
    assert_eq!(held.take_due(at(25)), Some(KeepAliveAction::SendHeaders));
    assert_eq!(held.take_due(at(25)), None);
    assert_eq!(held.next_action().map(|(time, _)| second(time)), Some(55));
}

#[test]
fn keepalive_respects_stated_client_timeout() {
    let limited = |name: &str, form, seconds| {
        failing_schedule(name, form).with_stated_timeout(Some(Duration::from_secs(seconds)))
    };
    let first =
        |keeping: &KeepAliveSchedule| keeping.next_action().map(|(time, act)| (second(time), act));
    // Silence: three tries within it.
    let short = limited("openai-sdk-python", CHAT, 45);
    assert_eq!(first(&short), Some((15, KeepAliveAction::SendInterim)));
    let long = limited("openai-sdk-python", CHAT, 3_600);
    assert_eq!(first(&long), Some((60, KeepAliveAction::SendInterim)));
    // Until the headers: these go out in time, however early or late that is.
    let short = limited("anthropic-sdk-ts", MESSAGES, 30);
    assert_eq!(first(&short), Some((27, KeepAliveAction::SendHeaders)));
    let mut long = limited("anthropic-sdk-ts", MESSAGES, 3_600);
    assert!(
        !acts(&mut long, 3_000)
            .iter()
            .any(|(_, act)| *act == KeepAliveAction::SendHeaders)
    );
    // Until the whole response is there.
    let mut json = limited("openai-sdk-node", ResponseFormat::Whole, 100);
    let acts = acts(&mut json, 3_600);
    assert!(matches!(
        acts[..],
        [
            (60, KeepAliveAction::SendInterim),
            (90, KeepAliveAction::EndHold(_))
        ]
    ));
    // No interim responses: the headers are the first keep-alive.
    let unknown = limited("unknown", CHAT, 10);
    assert_eq!(first(&unknown), Some((9, KeepAliveAction::SendHeaders)));
    // Claude Code states one that says nothing about its watchdog.
    let ignored = limited("claude-code", MESSAGES, 10);
    assert_eq!(first(&ignored), Some((20, KeepAliveAction::SendHeaders)));
}

proptest! {
    /// However late each action is carried out, and whatever else happens, a client is committed once, heartbeats come
    /// only after that, and nothing comes after an end.
    #[test]
    fn keepalive_actions_are_well_ordered(
        row in 0..crate::clients::ALL.len(),
        form in prop::sample::select(vec![MESSAGES, CHAT, RESPONSES, ResponseFormat::Gemini, ResponseFormat::Whole, ResponseFormat::Opaque]),
        delays in prop::collection::vec((0u64..400, any::<bool>(), prop::option::of(0u64..40_000)), 1..80),
    ) {
        let mut keeping = KeepAliveSchedule::new(&crate::clients::ALL[row], form, at(0));
        let mut now = at(0);
        let mut has_ended = false;
        for (delay, real, wake) in delays {
            keeping.set_retry_at(wake.map(at));
            let Some((time, act)) = keeping.next_action() else { continue };
            prop_assert!(!has_ended);
            now = now.max(time) + Duration::from_secs(delay);
            match act {
                KeepAliveAction::SendInterim | KeepAliveAction::SendHeaders => prop_assert!(!keeping.has_sent_headers()),
                KeepAliveAction::SendHeartbeat(_) => prop_assert!(keeping.has_sent_headers()),
                KeepAliveAction::EndHold(HoldEnding::Status { retry_after, .. }) => {
                    prop_assert!(!keeping.has_sent_headers());
                    prop_assert!(retry_after >= Duration::from_secs(1));
                    prop_assert!(retry_after <= crate::clients::ALL[row].retry_after.max_delay());
                    has_ended = true;
                }
                KeepAliveAction::EndHold(_) => { prop_assert!(keeping.has_sent_headers()); has_ended = true; }
            }
            keeping.mark_done(now);
            if real && keeping.has_sent_headers() {
                keeping.content_sent();
                keeping.record_activity(now);
            }
        }
    }
}
