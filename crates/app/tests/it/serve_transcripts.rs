//! Whoever hears a session live and whoever comes later see the same.

use crate::mock_server::{MockServer, PLANTED};
use crate::rpc_driver::in_real_time;
use crate::serve_driver::transcript::Transcript;
use crate::serve_driver::{AN_HOUR, Serve, kinds, of_kind};
use crate::support::Outlast;
use serde_json::{Value, json};

const TOOLS: &str = "call grep {\"pattern\":\"x\"}\nand read {\"path\":\"missing\"}\ncall write {\"path\":\"a\",\"content\":\"b\"}\nsay done";
/// Keeps a turn busy until there is a file `go`.
const WAITS: &str = "call bash {\"command\": \"echo ran >> runs; until [ -e go ]; do sleep 0.02; done; echo gone\"}\nsay done";

/// What somebody heard who was there all the time.
fn heard(server: &Serve, id: &str, prompts: &[&str]) -> Vec<Value> {
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

/// Checks that a session that is wished so is told as it was heard, and ends as it should.
fn check(server: &Serve, wishes: &Value, (prompts, seals): (&[&str], &[&str])) -> Transcript {
    let id = server.begin(wishes);
    let live = heard(server, &id, prompts);
    let told = server.told(&id);
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
fn a_snapshot_says_what_was_heard_live_whatever_happened() {
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
        check(&server, &json!({ "model": model }), (prompts, seals));
    }
}

#[test]
fn so_it_is_with_answers_that_broke_off_and_were_left_taken_back_or_gone_on_with() {
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
            let transcript = check(&server, &wishes, (&[first, "again"], &seals));
            let texts = transcript.texts();
            if after_content == "retract" && model.ends_with("of=text") {
                assert!(texts[0].ends_with("You said: hi"), "{wishes}: {texts:?}");
                assert_eq!(texts[0].matches("Hello").count(), 1, "{wishes}: {texts:?}");
            }
        }
    }
}

#[test]
fn so_it_is_in_every_dialect() {
    let mock = MockServer::start();
    let outlast = Outlast::new();
    let url = mock.url();
    for provider in ["anthropic", "openai", "openai-responses"] {
        let arguments = ["--provider", provider, "--base-url", &url, "--model", "ok"];
        let before = ["serve", "--listen", "127.0.0.1:0", "--policy", "session"];
        let mut command = outlast.command(&[&before[..], &arguments].concat());
        command.env("ANTHROPIC_API_KEY", PLANTED);
        let server = Serve::spawn(command.env("OPENAI_API_KEY", PLANTED));
        for model in ["ok:reasoning", "ok:mixed", "drop-after:4,of=reasoning"] {
            // Of each script there is one for all who ask.
            let model = format!("{model}+error:400,code={provider}");
            let wishes = json!({ "model": model });
            let id = server.begin(&wishes);
            let live = Transcript::of(&heard(&server, &id, &["hi"]));
            assert_eq!(
                live,
                Transcript::of(&server.told(&id)),
                "{provider} {model}"
            );
        }
    }
}

#[test]
fn so_it_is_with_what_was_said_meanwhile() {
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
    let (live, told) = (Transcript::of(&live), Transcript::of(&server.told(&id)));
    assert_eq!(live, told);
    assert_eq!(
        live.inputs(),
        [&format!("{WAITS}|say steered"), "say queued"]
    );
    assert_eq!(live.texts(), ["Step 1.|steered", "queued"]);
}

// --- In the middle of a turn ---

/// What is shown to somebody who takes a snapshot now, and what follows its place until the turn has ended.
struct Late {
    shown: Transcript,
    place: String,
}

impl Late {
    fn comes(server: &Serve, id: &str) -> Self {
        let snapshot = server.snapshot(id);
        Self {
            shown: Transcript::of(snapshot["events"].as_array().unwrap()),
            place: snapshot["place"].as_str().unwrap().to_owned(),
        }
    }

    /// Everything that it has seen when that place was reached.
    fn at_end(mut self, server: &Serve, (id, end): (&str, &str)) -> Transcript {
        if self.place == end {
            return self.shown;
        }
        let mut lines = server.envelopes(id, &self.place);
        loop {
            let line = lines.try_next().unwrap().unwrap();
            self.shown.hear(&line["event"]);
            if line["place"] == end {
                return self.shown;
            }
        }
    }
}

#[test]
fn a_snapshot_in_the_middle_and_what_follows_it_say_everything() {
    let outlast = in_real_time();
    outlast.write("home/outlast.toml", AN_HOUR);
    let script = "ok:text+ok:agent+overloaded:1+ok:agent,times=always";
    let server = Serve::with(&outlast, &["--model", script, "--allow", "bash"]);
    let id = server.session();
    let first = server.say(&id, "hi").all();
    let mut stream = server.sse(&id, None);
    stream.next().unwrap();
    server.leave(&id, WAITS);
    let mut live = first.clone();
    let mut late = Vec::new();
    // While the tool runs.
    live.extend(stream.until("tool-call").into_iter().map(|it| it.data));
    late.push(Late::comes(&server, &id));
    let so_far = kinds(&server.told(&id));
    assert_eq!(so_far.last().map(String::as_str), Some("step-complete"));
    outlast.write("go", "");
    // While a retry is waited for: it is part of what is told.
    live.extend(stream.until("provider-retry").into_iter().map(|it| it.data));
    server.when_waiting(&id);
    late.push(Late::comes(&server, &id));
    assert_eq!(server.told(&id).last(), live.last());
    server.order(&id, "retry_now");
    let last = stream.until("sealed");
    live.extend(last.iter().map(|it| it.data.clone()));
    let end = &last.last().unwrap().id;
    late.push(Late::comes(&server, &id));
    let live = Transcript::of(&live);
    assert_eq!(live.seals(), ["completed", "completed"]);
    for late in late {
        let place = late.place.clone();
        assert_eq!(late.at_end(&server, (&id, end)), live, "after {place}");
    }
    let runs = std::fs::read_to_string(outlast.folder.path().join("runs")).unwrap();
    assert_eq!(runs, "ran\n");
}

#[test]
fn so_it_is_at_any_moment() {
    for after_content in ["fail", "retract"] {
        let outlast = Outlast::new();
        let script = "overloaded:1+drip:1800,of=thinking-agent+drop-after:7,of=thinking-agent+overloaded:2+drip:1800,of=thinking-agent,times=always";
        let server = Serve::with(&outlast, &["--model", script]);
        let id = server.begin(&json!({ "after_content": after_content }));
        let mut stream = server.sse(&id, None);
        stream.next().unwrap();
        server.leave(&id, TOOLS);
        let mut late = Vec::new();
        loop {
            late.push(Late::comes(&server, &id));
            if late.last().unwrap().shown.seals() == ["error"]
                || late.last().unwrap().shown.seals() == ["completed"]
            {
                break;
            }
        }
        let live = stream.until("sealed");
        let end = &live.last().unwrap().id;
        let live: Vec<Value> = live.iter().map(|it| it.data.clone()).collect();
        let retracted = of_kind(&live, "retracted").len();
        assert_eq!(retracted, usize::from(after_content == "retract"));
        let live = Transcript::of(&live);
        late.dedup_by(|next, last| next.place == last.place);
        assert!(late.len() > 2, "{} moments", late.len());
        for late in late {
            let place = late.place.clone();
            let shown = late.at_end(&server, (&id, end));
            assert!(
                shown == live,
                "{after_content}, after {place}: {shown:#?}\n{live:#?}"
            );
        }
    }
}

#[test]
fn an_answer_that_was_aborted_stays_as_far_as_it_had_come() {
    let outlast = in_real_time();
    let server = Serve::start(&outlast, "stall:3,of=text");
    let id = server.session();
    let mut turn = server.say(&id, "hi");
    let mut live = turn.until("text-delta");
    live.extend(turn.until("text-delta"));
    live.extend(turn.until("text-delta"));
    server.order(&id, "abort");
    live.extend(turn.all());
    assert_eq!(live.last().unwrap()["status"], "aborted");
    server.when_idle(&id);
    let (live, told) = (Transcript::of(&live), Transcript::of(&server.told(&id)));
    assert_eq!(live, told);
    assert_eq!(told.texts(), ["Hello from the "]);
}

#[test]
fn a_turn_that_is_tried_again_is_about_the_same() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "error:400");
    let id = server.session();
    let mut live = server.say(&id, "hi").all();
    let mut stream = server.sse(&id, Some(&server.place(&id)));
    server.when_idle(&id);
    server.order(&id, "resume");
    live.extend(stream.until("sealed").into_iter().map(|it| it.data));
    server.when_idle(&id);
    let (live, told) = (Transcript::of(&live), Transcript::of(&server.told(&id)));
    assert_eq!(live, told);
    assert_eq!(live.seals(), ["error", "completed"]);
    assert_eq!(live.inputs(), ["hi", "hi"]);
}
