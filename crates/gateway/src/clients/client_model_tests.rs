//! Tests of every known client against every keep-alive of the gateway.

use super::client_model::{
    ALL, CLAUDE_CODE, FailureVisibility, GatewayMode, Outcome, ProviderResponse, by_name,
};
use super::{ResponseFormat, by_name as profile};
use outlast_dialect::Dialect;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const OUTAGES: [u64; 4] = [7 * MINUTE, 15 * MINUTE, HOUR, 8 * HOUR];

const PING: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";
const COMMENT: &[u8] = b": hb\n";
const KEEPALIVE: &[u8] = b"event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n";
const UNKNOWN: &[u8] = b"event: news\ndata: {}\n\n";

fn kept_alive(name: &str, told: FailureVisibility) -> GatewayMode {
    GatewayMode::KeptAlive(profile(name).expect("a row of that name"), told)
}

// --- the model reproduces the measurements ---

/// Returns whether a request that the provider answers after that many seconds succeeds at the first send.
fn lives(name: &str, way: GatewayMode, seconds: u64) -> bool {
    let outcome = by_name(name).run(way, ProviderResponse::After(seconds));
    outcome.served.is_some() && outcome.sends == 1
}

#[test]
fn client_models_match_measured_timeouts() {
    use GatewayMode::{Frames, HeadersOnly, NoResponse};
    // Held for 120 s and 400 s, silent for 400 s, comments for 400 s, and the frame of the dialect.
    let measured = [
        ("Claude Code", [true, false, false, true], PING),
        ("anthropic SDK, Python", [true, true, true, true], PING),
        ("opencode", [true, false, false, true], PING),
        ("AI SDK", [true, false, false, true], PING),
        ("pi", [true, true, true, true], PING),
        ("Codex", [true, true, false, false], KEEPALIVE),
        (
            "openai SDK, Python (Responses)",
            [true, true, true, true],
            KEEPALIVE,
        ),
        (
            "openai SDK, Python (Chat)",
            [true, true, true, true],
            COMMENT,
        ),
        ("opencode (Chat)", [true, false, false, true], COMMENT),
        ("AI SDK (Chat)", [true, false, false, true], COMMENT),
        ("AI SDK (Responses)", [true, false, false, true], KEEPALIVE),
        ("Gemini CLI", [false, false, false, false], b"\n"),
    ];
    for (name, expected, frame) in measured {
        let found = [
            lives(name, NoResponse, 120),
            lives(name, NoResponse, 400),
            lives(name, HeadersOnly, 400),
            lives(name, Frames(COMMENT, 15), 400),
        ];
        assert_eq!(found, expected, "{name}");
        assert!(lives(name, HeadersOnly, 120), "{name}: silent for 120 s");
        assert!(lives(name, Frames(frame, 15), 400), "{name}: its own frame");
    }
    for name in ["openai SDK, Python (Chat)", "opencode (Chat)", "AI SDK"] {
        assert!(!lives(name, Frames(UNKNOWN, 15), 120), "{name}");
    }
}

#[test]
fn claude_code_model_matches_measured_watchdog() {
    for (pace, measured) in [(15, 761.0), (60, 2_111.0)] {
        for frame in [PING, COMMENT] {
            let mut client = CLAUDE_CODE;
            client.resends = 0;
            let outcome = client.run(
                GatewayMode::Frames(frame, pace),
                ProviderResponse::After(9_999),
            );
            let gave_up = outcome.gave_up.expect("its watchdog ends it");
            assert!((measured - gave_up).abs() < 15.0, "{pace} s: {gave_up}");
        }
    }
    assert!(lives("Claude Code", GatewayMode::Frames(PING, 150), 4_200));
}

#[test]
fn client_models_match_measured_hour_long_waits() {
    assert!(lives("Codex", GatewayMode::NoResponse, 3_700));
    assert!(lives("Codex", GatewayMode::Frames(KEEPALIVE, 15), 3_700));
    for name in [
        "openai SDK, Python (Chat)",
        "anthropic SDK, Python",
        "opencode",
        "pi",
        "aider",
        "AI SDK",
    ] {
        assert!(
            lives(name, GatewayMode::Frames(COMMENT, 15), 3_700),
            "{name}"
        );
    }
    assert!(!lives("Claude Code", GatewayMode::Frames(PING, 5), 3_700));
    for name in [
        "anthropic SDK, Python",
        "openai SDK, Python (Chat)",
        "pi",
        "aider",
    ] {
        let outcome = by_name(name).run(GatewayMode::NoResponse, ProviderResponse::After(1_000));
        assert_eq!((outcome.served, outcome.sends), (None, 3), "{name}");
    }
}

// --- which clients survive, and which do not ---

#[test]
fn every_client_survives_outages_up_to_its_maximum() {
    for client in ALL {
        for outage in OUTAGES {
            let outcome = client.run(
                kept_alive(client.profile, FailureVisibility::Failing),
                ProviderResponse::From(outage),
            );
            let can_be_kept = client.max_outage.is_none_or(|longest| outage <= longest);
            assert_eq!(
                outcome.served.is_some(),
                can_be_kept,
                "{}, {outage} s: {outcome:?}",
                client.name
            );
            if can_be_kept {
                assert_served_soon(client.name, outage, &outcome);
            }
        }
    }
}

fn assert_served_soon(name: &str, outage: u64, outcome: &Outcome) {
    let late = outcome.served.unwrap_or(f64::MAX) - f64::from(u32::try_from(outage).unwrap());
    assert!(late <= 120.0, "{name}, {outage} s: {late} s late");
    let resends = outcome.sends - 1;
    let most = if name == "Claude Code, whole" { 10 } else { 5 };
    assert!(resends <= most, "{name}, {outage} s: {resends} re-sends");
}

#[test]
fn most_clients_never_notice_an_outage_of_eight_hours() {
    for client in ALL.iter().filter(|client| client.max_outage.is_none()) {
        let outcome = client.run(
            kept_alive(client.profile, FailureVisibility::Failing),
            ProviderResponse::From(8 * HOUR),
        );
        let expected = if client.name == "Claude Code" { 6 } else { 1 };
        assert_eq!(outcome.sends, expected, "{}", client.name);
    }
}

#[test]
fn slow_response_loses_no_client() {
    for client in ALL {
        let outcome = client.run(
            kept_alive(client.profile, FailureVisibility::Unreported),
            ProviderResponse::After(280),
        );
        let found = (outcome.served, outcome.sends);
        assert_eq!(found, (Some(280.0), 1), "{}", client.name);
    }
}

#[test]
fn clients_give_up_without_their_keepalives() {
    let lost = |way, outage| -> Vec<&str> {
        let is_lost = |client: &&super::client_model::ClientModel| {
            client
                .run(way, ProviderResponse::From(outage))
                .served
                .is_none()
        };
        ALL.iter()
            .filter(is_lost)
            .map(|client| client.name)
            .collect()
    };
    let waits_for_headers = ["Codex", "Codex, whole", "requests", "requests, whole"];
    let all_but = |spared: &[&str]| -> Vec<&str> {
        let is_lost = |name: &&str| !spared.contains(name);
        ALL.iter()
            .map(|client| client.name)
            .filter(is_lost)
            .collect()
    };
    assert_eq!(
        lost(GatewayMode::NoResponse, 8 * HOUR),
        all_but(&waits_for_headers)
    );
    // Claude Code has eleven requests of six minutes each to spend on an hour.
    let an_hour = [&waits_for_headers[..], &["Claude Code"]].concat();
    assert_eq!(lost(GatewayMode::NoResponse, HOUR), all_but(&an_hour));
    assert_eq!(
        lost(GatewayMode::NoResponse, 7 * MINUTE),
        ["something with a minute of patience"]
    );
    assert!(lost(GatewayMode::HeadersOnly, HOUR).contains(&"Codex"));
    assert!(lost(GatewayMode::Frames(COMMENT, 15), HOUR).contains(&"Codex"));
    assert!(lost(GatewayMode::Frames(PING, 15), 7 * MINUTE).contains(&"Gemini CLI"));
}

#[test]
fn client_gives_up_under_another_profile() {
    // The rows differ for a reason: a client that is taken for a certain other one does not survive.
    let taken_for = |name: &str, row: &str, outage: u64| {
        by_name(name).run(
            kept_alive(row, FailureVisibility::Failing),
            ProviderResponse::From(outage),
        )
    };
    for (name, row) in [
        ("opencode", "anthropic-sdk-python"),
        ("Gemini CLI", "codex"),
        ("requests", "openai-sdk-python"),
        ("pi", "ai-sdk"),
        ("openai SDK, Node", "openai-sdk-python"),
        ("goose", "aider"),
    ] {
        let outcome = taken_for(name, row, 8 * HOUR);
        assert!(outcome.served.is_none(), "{name} as {row}: {outcome:?}");
    }
    let outcome = taken_for("Claude Code", "codex", 8 * HOUR);
    assert!(outcome.served.is_none(), "{outcome:?}");
}

#[test]
fn heartbeat_interval_has_a_minimum() {
    for client in ALL {
        let outcome = client.run(
            kept_alive(client.profile, FailureVisibility::Failing),
            ProviderResponse::From(8 * HOUR),
        );
        let least = if client.profile == "gemini-cli" {
            20.0
        } else {
            30.0
        };
        assert!(outcome.pace >= least, "{}: {} s", client.name, outcome.pace);
    }
    let codex = by_name("Codex").run(
        kept_alive("codex", FailureVisibility::Failing),
        ProviderResponse::From(8 * HOUR),
    );
    assert_eq!(codex.keepalive_writes, 0);
}

#[test]
fn endless_profile_holds_claude_code_for_8h() {
    // The event counts as a real one, so nothing is used up.
    let mut client = CLAUDE_CODE;
    client.budget = None;
    let way = kept_alive("claude-code-endless", FailureVisibility::Failing);
    assert_eq!(client.run(way, ProviderResponse::From(8 * HOUR)).sends, 1);
    let frame = profile("claude-code-endless").and_then(|row| {
        row.frames
            .for_format(ResponseFormat::Streamed(Dialect::Anthropic))
    });
    assert!(frame.is_some_and(|frame| frame.starts_with(b"event: session.status_running\n")));
}
