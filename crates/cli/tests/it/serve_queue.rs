//! Input to a session over HTTP while a turn runs.

use crate::resume::{FIRST, SECOND};
use crate::rpc_driver::in_real_time;
use crate::serve_driver::transcript::Transcript;
use crate::serve_driver::{Serve, of_kind};
use crate::support::Outlast;
use crate::written::{self, LeftAs, prompt, typed};
use serde_json::{Value, json};

/// Keeps a turn busy until a file `go` exists.
const WAITS: &str = "call bash {\"command\": \"until [ -e go ]; do sleep 0.02; done\"}\nsay first";

/// Starts a server, and a session whose turn is in the middle of a tool call.
fn busy(outlast: &Outlast) -> (Serve, String) {
    let arguments = ["--model", "ok:agent,times=always", "--allow", "bash"];
    let server = Serve::with(outlast, &arguments);
    let id = server.session();
    server.prompt_and_follow(&id, WAITS).until("step-complete");
    (server, id)
}

fn send_prompt(server: &Serve, id: &str, body: &Value) -> Value {
    server.post(&format!("/api/sessions/{id}/prompt"), body)["disposition"].clone()
}

fn queue(server: &Serve, id: &str) -> Value {
    server.show(id)["queue"].clone()
}

#[test]
fn prompt_during_turn_is_queued_and_runs_after_it() {
    let outlast = in_real_time();
    let (server, id) = busy(&outlast);
    assert_eq!(
        send_prompt(&server, &id, &json!({ "text": "say second" })),
        "queued"
    );
    let late = json!({ "text": "say third", "deliver": "follow_up" });
    assert_eq!(send_prompt(&server, &id, &late), "queued");
    let expected = json!({ "steering": [], "follow_up": ["say second", "say third"] });
    assert_eq!(queue(&server, &id), expected);
    assert_eq!(server.show(&id)["state"], "running");
    outlast.write("go", "");
    let session = server.when(&id, |it| it["state"] == "idle" && it["turns"] == 3);
    assert_eq!(session["queue"], json!({ "steering": [], "follow_up": [] }));
    let told = Transcript::of(&server.snapshot_events(&id));
    assert_eq!(told.inputs(), [WAITS, "say second", "say third"]);
    assert_eq!(told.texts(), ["Step 1.|first", "second", "third"]);
}

#[test]
fn steering_is_sent_with_next_call_of_turn() {
    let outlast = in_real_time();
    let (server, id) = busy(&outlast);
    let steer = format!("/api/sessions/{id}/steer");
    assert_eq!(
        server.post(&steer, &json!({ "text": "say one" }))["disposition"],
        "queued"
    );
    let other = json!({ "text": "say two", "deliver": "steer" });
    assert_eq!(send_prompt(&server, &id, &other), "queued");
    let path = format!("/api/sessions/{id}/settings");
    server
        .ask("PATCH", &path)
        .json(&json!({ "steering_mode": "all" }))
        .send()
        .well();
    let expected = json!({ "steering": ["say one", "say two"], "follow_up": [] });
    assert_eq!(queue(&server, &id), expected);
    outlast.write("go", "");
    server.when_idle(&id);
    let told = Transcript::of(&server.snapshot_events(&id));
    assert_eq!(told.inputs(), [format!("{WAITS}|say one|say two")]);
    assert_eq!(told.seals(), ["completed"]);
}

#[test]
fn queued_prompt_returns_202_without_stream() {
    let outlast = in_real_time();
    let (server, id) = busy(&outlast);
    let path = format!("/api/sessions/{id}/prompt");
    let ask = server
        .ask("POST", &path)
        .json(&json!({ "text": "say second" }));
    let answer = ask.with("accept", "application/x-ndjson").send();
    assert_eq!(answer.status, 202);
    assert_eq!(answer.well()["disposition"], "queued");
    outlast.write("go", "");
    server.when_idle(&id);
}

#[test]
fn abort_ends_turn_and_keeps_queue() {
    let outlast = in_real_time();
    let (server, id) = busy(&outlast);
    assert_eq!(
        send_prompt(&server, &id, &json!({ "text": "say second" })),
        "queued"
    );
    server.order(&id, "abort");
    let session = server.when(&id, |it| it["state"] == "idle");
    assert_eq!(session["last_seal"], "aborted", "{session}");
    assert_eq!(session["queue"]["follow_up"], json!(["say second"]));
}

#[test]
fn concurrent_prompts_each_stream_their_own_turn() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:agent,times=always");
    let id = server.session();
    std::thread::scope(|scope| {
        for name in ["one", "two", "three", "four"] {
            let (server, id) = (&server, &id);
            scope.spawn(move || {
                for _ in 0..5 {
                    let said = format!("say {name}");
                    let path = format!("/api/sessions/{id}/prompt");
                    let ask = server.ask("POST", &path).json(&json!({ "text": said }));
                    let answer = ask.with("accept", "application/x-ndjson").send();
                    // A queued message has no stream.
                    if answer.status == 202 {
                        continue;
                    }
                    let turn = answer.lines().all();
                    assert_eq!(of_kind(&turn, "input")[0]["text"], said);
                }
            });
        }
    });
    // Between two turns the session is idle, too.
    server.when(&id, |it| it["turns"] == 20 && it["state"] == "idle");
}

/// A client that has received the end of a turn starts the next one, however quickly it sends the
/// prompt.
#[test]
fn prompt_right_after_turn_starts_new_turn() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:agent,times=always");
    let id = server.session();
    for number in 0..200 {
        let said = format!("say {number}");
        let turn = server.prompt_and_follow(&id, &said).all();
        assert_eq!(of_kind(&turn, "input")[0]["text"], said);
    }
}

/// The next message resumes an interrupted turn, even if it is a follow-up.
#[test]
fn queued_message_resumes_interrupted_turn() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:agent,times=always");
    for (id, deliver) in [(FIRST, "follow_up"), (SECOND, "steer")] {
        let begun = [vec![prompt("say left", typed("ok:agent,times=always"))]];
        written::session(&outlast, id, &begun, LeftAs::Abandoned);
        send_prompt(
            &server,
            id,
            &json!({ "text": "say next", "deliver": deliver }),
        );
        server.when(id, |it| it["state"] == "idle" && it["turns"] == 2);
        let told = Transcript::of(&server.snapshot_events(id));
        assert_eq!(told.texts(), ["left", "next"], "{deliver}");
    }
}
