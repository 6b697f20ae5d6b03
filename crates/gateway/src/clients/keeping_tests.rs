//! Tests of the keep-alive actions, to the second.

use super::super::named;
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

fn keeping(name: &str, form: ResponseFormat) -> KeepAliveSchedule {
    KeepAliveSchedule::new(named(name).unwrap(), form, at(0))
}

/// Returns the schedule of a request whose first attempt has failed; the next one is expected in half an hour.
fn troubled(name: &str, form: ResponseFormat) -> KeepAliveSchedule {
    let mut keeping = keeping(name, form);
    keeping.expects(Some(at(1_800)));
    keeping
}

/// Returns the actions until that second, each carried out on time.
fn acts(keeping: &mut KeepAliveSchedule, until: u64) -> Vec<(u64, KeepAliveAction)> {
    let mut acts = Vec::new();
    while let Some((time, act)) = keeping.next().filter(|(time, _)| second(*time) <= until) {
        keeping.done(time);
        acts.push((second(time), act));
    }
    acts
}

#[test]
fn the_beat_for_claude_code_stretches_until_its_budget_is_nearly_used_up() {
    let mut held = troubled("claude-code", MESSAGES);
    let acts = acts(&mut held, 1_000_000);
    let ping = KeepAliveAction::Beat(b"event: ping\ndata: {\"type\":\"ping\"}\n\n");
    assert_eq!(acts[0], (20, KeepAliveAction::Commit));
    assert_eq!(acts[1], (50, ping.clone()));
    assert_eq!(acts[10], (320, ping.clone()));
    assert_eq!(acts[11], (560, ping.clone()));
    assert_eq!(acts[28], (4_640, ping));
    assert_eq!(acts[29], (4_880, KeepAliveAction::End(HoldEnding::Drop)));
    assert_eq!(acts.len(), 30, "nothing comes after the end");
    assert_eq!(held.next(), None);
}

#[test]
fn a_quick_failure_has_time_to_keep_its_status() {
    let mut slow = keeping("claude-code", MESSAGES);
    assert_eq!(slow.next(), Some((at(40), KeepAliveAction::Commit)));
    slow.expects(Some(at(5)));
    assert_eq!(slow.next(), Some((at(20), KeepAliveAction::Commit)));
    // The next attempt is in progress: the earlier failure is not forgotten.
    slow.expects(None);
    assert_eq!(slow.next(), Some((at(20), KeepAliveAction::Commit)));
}

#[test]
fn a_status_stays_open_where_interim_responses_are_understood() {
    for name in ["openai-sdk-python", "anthropic-sdk-python", "ai-sdk"] {
        for form in [MESSAGES, CHAT, RESPONSES, ResponseFormat::Whole] {
            let mut held = troubled(name, form);
            let acts = acts(&mut held, 8 * 3_600);
            assert_eq!(acts.len(), 480, "{name}");
            assert!(
                acts.iter().all(|(_, act)| *act == KeepAliveAction::Interim),
                "{name}"
            );
            assert!(!held.has_sent_headers());
        }
    }
}

#[test]
fn the_timer_of_a_node_sdk_is_met_by_headers_after_nine_minutes() {
    let mut held = troubled("openai-sdk-node", CHAT);
    let acts = acts(&mut held, 900);
    assert_eq!(acts[7], (480, KeepAliveAction::Interim));
    assert_eq!(acts[8], (540, KeepAliveAction::Commit));
    assert_eq!(acts[9], (660, KeepAliveAction::Beat(b": outlast\n")));
    assert!(held.has_sent_headers());
}

#[test]
fn codex_is_left_alone() {
    for form in [RESPONSES, ResponseFormat::Whole] {
        assert_eq!(troubled("codex", form).next(), None);
    }
}

#[test]
fn a_json_answer_is_begun_with_white_space() {
    let mut held = troubled("opencode", ResponseFormat::Whole);
    let expected = [
        (60, KeepAliveAction::Commit),
        (120, KeepAliveAction::Beat(b"\n")),
        (180, KeepAliveAction::Beat(b"\n")),
    ];
    assert_eq!(acts(&mut held, 200), expected);
}

#[test]
fn nothing_is_put_into_a_body_that_is_not_understood() {
    for name in ["unknown", "opencode", "anthropic-sdk-ts", "pi"] {
        let mut held = troubled(name, ResponseFormat::Opaque);
        let acts = acts(&mut held, 3_600);
        assert!(
            acts.iter().all(|(_, act)| *act == KeepAliveAction::Interim),
            "{name}"
        );
    }
}

#[test]
fn an_end_before_the_headers_states_a_time_that_the_client_obeys() {
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
        let held = troubled(name, ResponseFormat::Whole);
        assert_eq!(held.ending(at(100)), expected, "{name}");
        let unknown_time = keeping(name, ResponseFormat::Whole).ending(at(100));
        assert!(
            matches!(unknown_time, HoldEnding::Status { retry_after, .. } if retry_after.as_secs() == 15)
        );
    }
    let mut held = troubled("claude-code", ResponseFormat::Whole);
    held.expects(Some(at(290)));
    assert_eq!(
        held.next(),
        Some((at(285), KeepAliveAction::End(status(503, 5))))
    );
}

#[test]
fn an_end_after_the_headers_is_one_that_the_dialect_knows() {
    let committed = |name, form| {
        let mut held = troubled(name, form);
        while !held.has_sent_headers() {
            let (time, _) = held.next().unwrap();
            held.done(time);
        }
        held.ending(at(1_770))
    };
    assert_eq!(committed("claude-code", MESSAGES), HoldEnding::Drop);
    assert_eq!(
        committed("opencode", ResponseFormat::Whole),
        HoldEnding::Drop
    );
    for (form, kind) in [(RESPONSES, "event: response.failed\n"), (CHAT, "")] {
        let HoldEnding::Frame(frame) = committed("opencode", form) else {
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
fn nobody_who_has_not_met_trouble_is_sent_away() {
    for name in ["goose", "claude-code", "openai-sdk-node"] {
        let mut slow = keeping(name, ResponseFormat::Whole);
        let ends = |acts: Vec<(u64, KeepAliveAction)>| {
            acts.iter()
                .any(|(_, act)| matches!(act, KeepAliveAction::End(_)))
        };
        assert!(!ends(acts(&mut slow, 3_600)), "{name}");
        slow.expects(Some(at(3_700)));
        assert!(ends(acts(&mut slow, 3_600)), "{name}");
    }
}

#[test]
fn amid_an_answer_only_silences_are_filled_and_nothing_ends() {
    let mut answer = troubled("claude-code", MESSAGES);
    answer.content_sent();
    answer.passed(at(100));
    assert!(answer.has_sent_headers());
    assert!(matches!(answer.next(), Some((time, KeepAliveAction::Beat(_))) if second(time) == 340));
    answer.passed(at(300));
    assert!(matches!(answer.next(), Some((time, KeepAliveAction::Beat(_))) if second(time) == 540));
    let acts = acts(&mut answer, 1_000_000);
    assert_eq!(acts.len(), 28, "no more than count, and no end");
    answer.passed(at(9_000));
    assert!(answer.next().is_some(), "something real gives them back");

    let mut codex = keeping("codex", RESPONSES);
    codex.content_sent();
    assert!(matches!(codex.next(), Some((time, KeepAliveAction::Beat(_))) if second(time) == 60));
    let mut json = keeping("opencode", ResponseFormat::Whole);
    json.content_sent();
    assert_eq!(json.next(), None);
}

#[test]
fn what_is_due_is_taken_once_and_not_before_its_time() {
    let mut held = troubled("claude-code", MESSAGES);
    assert_eq!(held.due(at(19)), None);
    assert_eq!(held.due(at(25)), Some(KeepAliveAction::Commit));
    assert_eq!(held.due(at(25)), None);
    assert_eq!(held.next().map(|(time, _)| second(time)), Some(55));
}

#[test]
fn a_stated_limit_is_kept_to() {
    let limited = |name: &str, form, seconds| {
        troubled(name, form).with_stated_timeout(Some(Duration::from_secs(seconds)))
    };
    let first = |keeping: &KeepAliveSchedule| keeping.next().map(|(time, act)| (second(time), act));
    // Silence: three tries within it.
    let short = limited("openai-sdk-python", CHAT, 45);
    assert_eq!(first(&short), Some((15, KeepAliveAction::Interim)));
    let long = limited("openai-sdk-python", CHAT, 3_600);
    assert_eq!(first(&long), Some((60, KeepAliveAction::Interim)));
    // Until the headers: these go out in time, however early or late that is.
    let short = limited("anthropic-sdk-ts", MESSAGES, 30);
    assert_eq!(first(&short), Some((27, KeepAliveAction::Commit)));
    let mut long = limited("anthropic-sdk-ts", MESSAGES, 3_600);
    assert!(
        !acts(&mut long, 3_000)
            .iter()
            .any(|(_, act)| *act == KeepAliveAction::Commit)
    );
    // Until the whole response is there.
    let mut json = limited("openai-sdk-node", ResponseFormat::Whole, 100);
    let acts = acts(&mut json, 3_600);
    assert!(matches!(
        acts[..],
        [
            (60, KeepAliveAction::Interim),
            (90, KeepAliveAction::End(_))
        ]
    ));
    // No interim responses: the headers are the first keep-alive.
    let unknown = limited("unknown", CHAT, 10);
    assert_eq!(first(&unknown), Some((9, KeepAliveAction::Commit)));
    // Claude Code states one that says nothing about its watchdog.
    let ignored = limited("claude-code", MESSAGES, 10);
    assert_eq!(first(&ignored), Some((20, KeepAliveAction::Commit)));
}

proptest! {
    /// However late each action is carried out, and whatever else happens, a client is committed once, heartbeats come
    /// only after that, and nothing comes after an end.
    #[test]
    fn acts_come_in_their_order(
        row in 0..crate::clients::ALL.len(),
        form in prop::sample::select(vec![MESSAGES, CHAT, RESPONSES, ResponseFormat::Gemini, ResponseFormat::Whole, ResponseFormat::Opaque]),
        delays in prop::collection::vec((0u64..400, any::<bool>(), prop::option::of(0u64..40_000)), 1..80),
    ) {
        let mut keeping = KeepAliveSchedule::new(&crate::clients::ALL[row], form, at(0));
        let mut now = at(0);
        let mut has_ended = false;
        for (delay, real, wake) in delays {
            keeping.expects(wake.map(at));
            let Some((time, act)) = keeping.next() else { continue };
            prop_assert!(!has_ended);
            now = now.max(time) + Duration::from_secs(delay);
            match act {
                KeepAliveAction::Interim | KeepAliveAction::Commit => prop_assert!(!keeping.has_sent_headers()),
                KeepAliveAction::Beat(_) => prop_assert!(keeping.has_sent_headers()),
                KeepAliveAction::End(HoldEnding::Status { retry_after, .. }) => {
                    prop_assert!(!keeping.has_sent_headers());
                    prop_assert!(retry_after >= Duration::from_secs(1));
                    prop_assert!(retry_after <= crate::clients::ALL[row].obeys.at_most());
                    has_ended = true;
                }
                KeepAliveAction::End(_) => { prop_assert!(keeping.has_sent_headers()); has_ended = true; }
            }
            keeping.done(now);
            if real && keeping.has_sent_headers() {
                keeping.content_sent();
                keeping.passed(now);
            }
        }
    }
}
