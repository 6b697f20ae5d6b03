use super::*;
use serde_json::json;

const START: u64 = 1_800_000_000;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis((START + seconds) * 1000)
}

/// Returns a status with every part that a gateway can report.
fn busy() -> Value {
    let at = |seconds| at(seconds).to_string();
    json!({
        "version": "0.1.0", "now": at(3600), "listening_since": at(0), "address": "127.0.0.1:4180", "draining": true, "upstreams": [],
        "counters": {
            "requests": 100, "answered": 90, "attempts_failed": 20, "retries": 18, "taken_up": 3, "refused": 1,
            "connections": 12, "in_flight": 1, "held": 2,
        },
        "accounts": [
            { "name": "spare", "provider": "anthropic", "state": "free" },
            { "name": "work", "provider": "anthropic", "state": "blocked", "cause": "usage_limit", "until": at(7200) },
            { "name": "work", "provider": "anthropic", "state": "blocked", "cause": "rate_limited", "model": "claude-opus-4-5",
              "until": at(3612) },
            { "name": "over", "provider": "openai", "state": "blocked", "cause": "overloaded", "until": at(10) },
        ],
        "gates": [
            { "name": "anthropic/work/claude-opus-4-5", "cause": "overloaded", "until": at(3605), "waiting": 2,
              "state": "down for 10m; next probe in 5s; 2 wait" },
            { "name": "openai//gpt-5.1", "waiting": 0, "state": "12 % of calls fail; not waiting for others" },
        ],
        "waiting": [
            { "id": "req-1", "client": "claude-code", "dialect": "anthropic", "model": "claude-opus-4-5", "account": "work",
              "path": "/v1/messages", "cause": "overloaded", "attempts": 7, "resent": 0, "since": at(600), "wake": at(5400) },
            { "id": "req-2", "client": "codex", "dialect": "openai-responses", "model": "gpt-5.1\u{1b}[2J", "path": "/v1/responses",
              "cause": "rate_limited", "attempts": 1, "resent": 2, "since": at(3500), "wake": at(3601) },
            { "id": "req-3", "client": "openai-sdk-python", "dialect": "openai", "path": "/v1/embeddings", "attempts": 1, "resent": 1,
              "since": at(3590), "left": at(3595) },
        ],
    })
}

fn view_lines(status: &Value, columns: usize) -> String {
    let running = RunningGateway {
        address: "127.0.0.1:4180".parse().unwrap(),
        pid: 4711,
        for_program: false,
    };
    let status = serde_json::from_value(status.clone()).unwrap();
    let view = View {
        running: &running,
        status: &status,
    };
    let mut text = view.lines(columns).join("\n");
    // Times of day depend on the machine.
    for time in [7200, 3612, 3605, 3601, 5400] {
        text = text.replace(&time_of_day(at(time), at(3600)), "CLOCK");
    }
    text
}

#[test]
fn busy_gateway_view_shows_all_sections() {
    insta::assert_snapshot!([view_lines(&busy(), 1000), view_lines(&busy(), 40)].join("\n\n"));
}

#[test]
fn idle_gateway_view_is_one_line() {
    let mut idle = busy();
    for list in ["accounts", "gates", "waiting"] {
        idle[list] = json!([]);
    }
    for gauge in ["connections", "in_flight", "held"] {
        idle["counters"][gauge] = 0.into();
    }
    idle["draining"] = false.into();
    assert_eq!(
        view_lines(&idle, 100),
        "http://127.0.0.1:4180 (pid 4711, up 1h): 0 connections, 0 requests under way, 0 waiting"
    );
}
