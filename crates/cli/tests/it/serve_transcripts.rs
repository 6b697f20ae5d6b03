//! A live subscriber and a later one see the same session.

use crate::mock_server::{MockServer, PLANTED};
use crate::rpc_driver::in_real_time;
use crate::serve_driver::Serve;
use crate::serve_driver::transcript::Transcript;
use crate::support::{NO_TIMEOUTS, Outlast};
use serde_json::{Value, json};

const TOOLS: &str = "call grep {\"pattern\":\"x\"}\nand read {\"path\":\"missing\"}\ncall write {\"path\":\"a\",\"content\":\"b\"}\nsay done";
/// Keeps a turn busy until a file `go` exists.
const WAITS: &str = "call bash {\"command\": \"echo ran >> runs; until [ -e go ]; do sleep 0.02; done; echo gone\"}\nsay done";

/// Returns the events that a live subscriber receives.
fn uninterrupted_events(server: &Serve, id: &str, prompts: &[&str]) -> Vec<Value> {
    let mut stream = server.sse(id, None);
    let first = stream.next().unwrap();
    assert_eq!(first.data["events"], json!([]));
    let mut events = Vec::new();
    for prompt in prompts {
        server.leave(id, prompt);
        events.extend(stream.until("sealed").into_iter().map(|it| it.data));
        server.when_idle(id);
    }
    events
}

/// Checks that a session with these settings is replayed as it was streamed, and ends as expected.
fn check(server: &Serve, wishes: &Value, prompts: &[&str], seals: &[&str]) -> Transcript {
    let id = server.begin(wishes);
    let live = uninterrupted_events(server, &id, prompts);
    let told = server.snapshot_events(&id);
    let lines =
        |events: &[Value]| -> String { events.iter().map(|it| format!("{it}\n")).collect() };
    let context = format!("{wishes}:\n{}told:\n{}", lines(&live), lines(&told));
    let (live, told) = (Transcript::of(&live), Transcript::of(&told));
    assert!(live == told, "{context}");
    assert_eq!(live.seals(), seals, "{context}");
    assert_eq!(live.inputs(), prompts, "{context}");
    told
}

#[test]
fn snapshot_matches_live_events_for_every_outcome() {
    let table = [
        ("ok:text,times=always", &["hi"][..], &["completed"][..]),
        ("ok:reasoning,times=always", &["hi"], &["completed"]),
        ("ok:agent,times=always", &[TOOLS], &["completed"]),
        (
            "ok:thinking-agent,times=always",
            &[TOOLS, "again"],
            &["completed", "completed"],
        ),
        (
            "overloaded:2+ok:mixed+ok:text,times=always",
            &["hi"],
            &["completed"],
        ),
        ("error:503,times=always", &["hi"], &["error"]),
        ("error:400", &["hi", "again"], &["error", "completed"]),
        ("ok:length", &["hi"], &["completed"]),
        ("ok:refusal", &["hi"], &["error"]),
        ("ok:empty+ok:text", &["hi"], &["completed"]),
        ("cut:40,of=text", &["hi"], &["completed"]),
        ("overflow+ok:text,times=always", &["hi"], &["error"]),
    ];
    let outlast = Outlast::new();
    let server = Serve::with(&outlast, &["--policy", "session"]);
    for (model, prompts, seals) in table {
        check(&server, &json!({ "model": model }), prompts, seals);
    }
}

#[test]
fn snapshot_matches_live_events_after_truncation() {
    let outlast = Outlast::new();
    let server = Serve::with(&outlast, &["--policy", "session"]);
    for model in [
        "drop-after:4,of=reasoning",
        "drop-after:3,of=text",
        "ok:agent+drop-after:3,of=agent",
        "drop-after:9,of=mixed",
        "stall:3,of=text",
        "drop-after:3,of=text,times=2",
    ] {
        for after_content in ["fail", "retract", "continue"] {
            let wishes = json!({ "model": model, "after_content": after_content });
            let seals = match (after_content, model.contains("times=2")) {
                ("fail", true) => ["error", "error"],
                ("fail", false) => ["error", "completed"],
                _ => ["completed", "completed"],
            };
            let first = if model.ends_with("agent") {
                TOOLS
            } else {
                "hi"
            };
            let transcript = check(&server, &wishes, &[first, "again"], &seals);
            let texts = transcript.texts();
            if after_content == "retract" && model.ends_with("of=text") {
                assert!(texts[0].ends_with("You said: hi"), "{wishes}: {texts:?}");
                assert_eq!(texts[0].matches("Hello").count(), 1, "{wishes}: {texts:?}");
            }
        }
    }
}

#[test]
fn snapshot_matches_live_events_for_every_provider() {
    let mock = MockServer::start();
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", NO_TIMEOUTS);
    let url = mock.url();
    for provider in ["anthropic", "openai", "openai-responses"] {
        let arguments = ["--provider", provider, "--base-url", &url, "--model", "ok"];
        let before = ["serve", "--listen", "127.0.0.1:0", "--policy", "session"];
        let mut command = outlast.command(&[&before[..], &arguments].concat());
        command.env("ANTHROPIC_API_KEY", PLANTED);
        let server = Serve::spawn(command.env("OPENAI_API_KEY", PLANTED));
        for model in ["ok:reasoning", "ok:mixed", "drop-after:4,of=reasoning"] {
            // All requests with the same script share its state.
            let model = format!("{model}+error:400,code={provider}");
            let wishes = json!({ "model": model });
            let id = server.begin(&wishes);
            let live = Transcript::of(&uninterrupted_events(&server, &id, &["hi"]));
            assert_eq!(
                live,
                Transcript::of(&server.snapshot_events(&id)),
                "{provider} {model}"
            );
        }
    }
}

#[test]
fn snapshot_matches_live_events_with_queued_messages() {
    let outlast = in_real_time();
    let arguments = ["--model", "ok:agent,times=always", "--allow", "bash"];
    let server = Serve::with(&outlast, &arguments);
    let id = server.session();
    let mut stream = server.sse(&id, None);
    stream.next().unwrap();
    server.leave(&id, WAITS);
    let mut live: Vec<Value> = Vec::new();
    live.extend(stream.until("tool-call").into_iter().map(|it| it.data));
    let steer = json!({ "text": "say steered" });
    let path = format!("/api/sessions/{id}/steer");
    assert_eq!(server.post(&path, &steer)["disposition"], "queued");
    assert_eq!(server.leave(&id, "say queued"), "queued");
    outlast.write("go", "");
    for _ in 0..2 {
        live.extend(stream.until("sealed").into_iter().map(|it| it.data));
    }
    server.when_idle(&id);
    let (live, told) = (
        Transcript::of(&live),
        Transcript::of(&server.snapshot_events(&id)),
    );
    assert_eq!(live, told);
    assert_eq!(
        live.inputs(),
        [&format!("{WAITS}|say steered"), "say queued"]
    );
    assert_eq!(live.texts(), ["Step 1.|steered", "queued"]);
}

#[test]
fn aborted_completion_keeps_its_partial_text() {
    let outlast = in_real_time();
    let server = Serve::start(&outlast, "stall:3,of=text");
    let id = server.session();
    let mut turn = server.prompt_and_follow(&id, "hi");
    let mut live = turn.until("text-delta");
    live.extend(turn.until("text-delta"));
    live.extend(turn.until("text-delta"));
    server.order(&id, "abort");
    live.extend(turn.all());
    assert_eq!(live.last().unwrap()["status"], "aborted");
    server.when_idle(&id);
    let (live, told) = (
        Transcript::of(&live),
        Transcript::of(&server.snapshot_events(&id)),
    );
    assert_eq!(live, told);
    assert_eq!(told.texts(), ["Hello from the "]);
}

#[test]
fn resume_of_failed_turn_shows_same_input_again() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "error:400");
    let id = server.session();
    let mut live = server.prompt_and_follow(&id, "hi").all();
    let mut stream = server.sse(&id, Some(&server.current_cursor(&id)));
    server.when_idle(&id);
    server.order(&id, "resume");
    live.extend(stream.until("sealed").into_iter().map(|it| it.data));
    server.when_idle(&id);
    let (live, told) = (
        Transcript::of(&live),
        Transcript::of(&server.snapshot_events(&id)),
    );
    assert_eq!(live, told);
    assert_eq!(live.seals(), ["error", "completed"]);
    assert_eq!(live.inputs(), ["hi", "hi"]);
}
