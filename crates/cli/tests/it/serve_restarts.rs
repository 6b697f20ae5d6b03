//! A server that is killed or stopped, and its successor: turns are resumed, and subscribers can reconnect.

use crate::mock_server::{MockServer, PLANTED, wait_for};
use crate::resume::{FIRST, SECOND, after_its_folder_is_gone};
use crate::serve_driver::http::{Message, Messages};
use crate::serve_driver::transcript::Transcript;
use crate::serve_driver::{AN_HOUR, Serve, kinds, of_kind};
use crate::support::{NO_TIMEOUTS, Outlast};
use crate::written::{self, LeftAs, prompt, typed};
use serde_json::{Value, json};

const HELLO: &str = "Hello from the scripted provider: no network, no key, no cost. You said: hi";

/// A home, and a provider that outlives its servers.
struct Scene {
    mock: MockServer,
    model: String,
    outlast: Outlast,
}

impl Scene {
    fn new(scale: &'static str, model: &str) -> Self {
        let outlast = || Outlast {
            scale,
            ..Outlast::new()
        };
        let scene = Self {
            mock: MockServer::start_in(outlast()),
            model: model.to_owned(),
            outlast: outlast(),
        };
        scene.outlast.write("home/outlast.toml", NO_TIMEOUTS);
        scene
    }

    fn start(&self) -> Serve {
        let url = self.mock.url();
        let asks = ["--provider", "anthropic", "--base-url", &url];
        let more = ["--model", &self.model, "--allow", "bash"];
        let before = ["serve", "--listen", "127.0.0.1:0"];
        let mut command = self.outlast.command(&[&before[..], &asks, &more].concat());
        command.env("PATH", "/usr/bin:/bin");
        Serve::spawn(command.env("ANTHROPIC_API_KEY", PLANTED))
    }

    /// Returns how many requests the provider has received.
    fn provider_request_count(&self) -> usize {
        self.mock.requests().matches(r#""number":"#).count()
    }

    /// Returns the entries of that kind in a session.
    fn entries(&self, id: &str, kind: &str) -> Vec<Value> {
        let ran = self
            .outlast
            .run(&["sessions", "export", id, "--format", "jsonl"]);
        let lines = ran.stdout.lines().skip(1);
        let entries = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.filter(|entry| entry["kind"] == kind).collect()
    }
}

/// A client that has shown some events, and reconnects to another server.
struct Watcher {
    shown: Vec<Message>,
}

impl Watcher {
    fn until(stream: &mut Messages, kind: &str) -> Self {
        Self {
            shown: stream.until(kind),
        }
    }

    /// Returns the transcript at the end of the turn. The other server does not know the cursor and repeats
    /// everything.
    fn comes_back(&self, server: &Serve, id: &str) -> Transcript {
        let mut stream = server.sse(id, Some(&self.shown.last().unwrap().id));
        let of_snapshot = |data: &Value| Transcript::of(data["events"].as_array().unwrap());
        let first = stream.next().unwrap();
        assert_eq!(first.event, "snapshot");
        let mut shown = of_snapshot(&first.data);
        while shown.seals().last() == Some(&"") {
            let next = stream.next().unwrap();
            match next.event.as_str() {
                // The lock of the killed server can outlive it for a moment; the session is told anew once it is free.
                "snapshot" => shown = of_snapshot(&next.data),
                _ => shown.apply(&next.data),
            }
        }
        shown
    }
}

fn time(value: &Value) -> jiff::Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[test]
fn restarted_server_keeps_wait_until_original_time() {
    let scene = Scene::new("1", "overloaded:1");
    scene.outlast.write("home/outlast.toml", AN_HOUR);
    let server = scene.start();
    let id = server.session();
    let mut stream = server.sse(&id, None);
    server.leave(&id, "hi");
    let watcher = Watcher::until(&mut stream, "provider-retry");
    let before = server.when_waiting(&id);
    server.kill();
    let server = scene.start();
    let after = server.when_waiting(&id);
    assert_eq!(after["retry"], before["retry"]);
    assert_eq!(after["turn_id"], before["turn_id"]);
    assert_eq!(scene.provider_request_count(), 1);
    // A new subscriber receives the wait with the time that is left.
    let told = server.snapshot_events(&id);
    assert_eq!(kinds(&told), ["start", "input", "provider-retry"]);
    let (retry, earlier) = (&told[2], &watcher.shown.last().unwrap().data);
    assert_eq!(
        (&retry["attempt"], &retry["code"]),
        (&json!(0), &json!("529"))
    );
    assert_eq!(
        (&retry["message"], &retry["turnId"]),
        (&earlier["message"], &earlier["turnId"])
    );
    server.order(&id, "retry_now");
    let shown = watcher.comes_back(&server, &id);
    assert_eq!(shown.texts(), [HELLO]);
    server.when_idle(&id);
    assert_eq!(shown, Transcript::of(&server.snapshot_events(&id)));
    assert_eq!(scene.provider_request_count(), 2);
    assert_eq!(scene.entries(&id, "settled").len(), 1);
}

#[test]
fn resumed_wait_fires_on_its_own_and_not_early() {
    // The first is due a while after the next server has started, the second before.
    for minutes in [10, 1] {
        let scene = Scene::new("600", "overloaded:1");
        let delay = minutes * 60_000;
        let settings = format!(
            "[retry]\nbase_delay_ms = {delay}\nmax_delay = \"1h\"\n[serve]\npolicy = \"session\"\n"
        );
        scene.outlast.write("home/outlast.toml", settings);
        let server = scene.start();
        let id = server.session();
        server.prompt_and_follow(&id, "hi").until("provider-retry");
        server.kill();
        let [wait] = &scene.entries(&id, "wait_scheduled")[..] else {
            panic!("no wait")
        };
        let until = time(&wait["until"]);
        let server = scene.start();
        server.when_idle(&id);
        // The first server may have been killed only when its wait was over: then two requests follow it.
        let started = scene.entries(&id, "attempt_started");
        assert!((2..=3).contains(&started.len()), "{started:?}");
        for attempt in &started[1..] {
            let began = time(&attempt["time"]);
            assert!(began >= until, "{began} {until}");
        }
        assert_eq!(scene.entries(&id, "settled").len(), 1);
        assert_eq!(
            Transcript::of(&server.snapshot_events(&id)).texts(),
            [HELLO]
        );
    }
}

#[test]
fn interrupted_completion_is_rerequested_and_shown_once() {
    let scene = Scene::new("1", "stall:3,of=text");
    let server = scene.start();
    let id = server.session();
    let mut stream = server.sse(&id, None);
    server.leave(&id, "hi");
    let mut watcher = Watcher::until(&mut stream, "text-delta");
    watcher.shown.extend(stream.until("text-delta"));
    watcher.shown.extend(stream.until("text-delta"));
    server.kill();
    let server = scene.start();
    let shown = watcher.comes_back(&server, &id);
    server.when_idle(&id);
    assert_eq!(shown, Transcript::of(&server.snapshot_events(&id)));
    assert_eq!(
        (shown.inputs(), shown.texts()),
        (vec!["hi".to_owned()], vec![HELLO.to_owned()])
    );
    assert_eq!(shown.seals(), ["completed"]);
    assert_eq!(scene.provider_request_count(), 2);
}

#[test]
fn tool_running_at_kill_is_not_rerun() {
    let scene = Scene::new("1", "ok:agent,times=always");
    let server = scene.start();
    let id = server.session();
    let mut stream = server.sse(&id, None);
    let prompt = "call bash {\"command\":\"echo ran >> runs; until [ -e go ]; do sleep 0.02; done\"}\nsay done";
    server.leave(&id, prompt);
    let watcher = Watcher::until(&mut stream, "step-complete");
    let runs = scene.outlast.folder.path().join("runs");
    wait_for("tool", || runs.exists());
    server.kill();
    let server = scene.start();
    let shown = watcher.comes_back(&server, &id);
    server.when_idle(&id);
    scene.outlast.write("go", "");
    let told = server.snapshot_events(&id);
    assert_eq!(shown, Transcript::of(&told));
    assert_eq!(
        (shown.texts(), shown.seals()),
        (vec!["Step 1.|done".to_owned()], vec!["completed"])
    );
    let [result] = of_kind(&told, "tool-result")[..] else {
        panic!("{told:?}")
    };
    assert_eq!(result["isError"], true);
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "ran\n");
    let calls = of_kind(&told, "tool-call");
    assert_eq!(calls.len(), 1);
}

#[test]
fn accepted_prompts_survive_kill() {
    let scene = Scene::new("1", "ok:agent,times=always");
    let server = scene.start();
    let (started, queued) = (server.session(), server.session());
    let waits = "call bash {\"command\":\"until [ -e go ]; do sleep 0.02; done\"}\nsay first";
    assert_eq!(server.leave(&queued, waits), "started");
    assert_eq!(server.leave(&queued, "say second"), "queued");
    assert_eq!(server.leave(&started, "hi"), "started");
    server.kill();
    scene.outlast.write("go", "");
    let server = scene.start();
    let is_over = |turns: u64| move |it: &Value| it["state"] == "idle" && it["turns"] == turns;
    server.when(&started, is_over(1));
    server.when(&queued, is_over(2));
    let texts = |id: &str| Transcript::of(&server.snapshot_events(id)).texts();
    assert_eq!(texts(&started), [HELLO]);
    assert_eq!(texts(&queued), ["Step 1.|first", "second"]);
}

#[test]
fn server_shutdown_leaves_turns_resumable() {
    let table = [
        ("-TERM", "overloaded:1", "provider-retry"),
        ("-INT", "stall:3,of=text", "text-delta"),
    ];
    for (signal, model, under_way) in table {
        let scene = Scene::new("1", model);
        scene.outlast.write("home/outlast.toml", AN_HOUR);
        let server = scene.start();
        let id = server.session();
        let mut turn = server.prompt_and_follow(&id, "hi");
        turn.until(under_way);
        let mut watcher = server.sse(&id, None);
        assert_eq!(watcher.next().unwrap().event, "snapshot");
        server.signal(signal);
        // Streams end properly, without an event for the end of the turn.
        assert!(of_kind(&turn.all(), "sealed").is_empty());
        while let Some(message) = watcher.next() {
            assert_ne!(message.data["type"], "sealed");
        }
        let (code, said) = server.ended();
        assert_eq!((code, said.as_str()), (Some(0), ""), "{signal}");
        let listed = scene.outlast.run(&["sessions", "list", "--json"]).stdout;
        let rows: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(rows[0]["state"], "unfinished", "{listed}");
        let server = scene.start();
        server.when(&id, |it| it["state"] == "waiting" || it["state"] == "idle");
        server.order(&id, "retry_now");
        server.when_idle(&id);
        let shown = Transcript::of(&server.snapshot_events(&id));
        assert_eq!(shown.seals(), ["completed"]);
    }
}

#[test]
fn startup_resumes_interrupted_turns_and_reports_failures() {
    let begun = |text: &str| [vec![prompt(text, typed("ok:reasoning"))]];
    let (outlast, folder) = after_its_folder_is_gone(&begun("gone"), LeftAs::Free);
    written::session(&outlast, SECOND, &begun("abandoned"), LeftAs::Abandoned);
    let server = Serve::start(&outlast, "ok:text,times=always");
    server.when_idle(SECOND);
    let shown = Transcript::of(&server.snapshot_events(SECOND));
    assert_eq!(shown.texts(), [HELLO.replace("hi", "abandoned")]);
    let asked = server.snapshot_events(SECOND)[0]["model"].clone();
    assert_eq!(asked, "ok:reasoning", "a turn asks whom it began with");
    let warning =
        format!("warning: session {FIRST} is not carried on: there is no folder {folder}\n");
    assert_eq!(server.complaint(), warning);
    // It can be read all the same.
    let session = server.show(FIRST);
    assert_eq!(
        (&session["state"], &session["title"]),
        (&json!("unfinished"), &json!("gone"))
    );
    assert_eq!(kinds(&server.snapshot_events(FIRST)), ["start", "input"]);
    let path = format!("/api/sessions/{FIRST}/prompt");
    let refused = server.ask("POST", &path).json(&json!({ "text": "hi" }));
    let (status, code, detail) = refused.send().problem();
    assert_eq!((status, &*code), (422, "invalid_value"));
    assert!(detail.contains(&folder), "{detail}");
}

/// A turn that the server is about to resume accepts commands.
#[test]
fn retry_now_works_right_after_restart() {
    for _ in 0..6 {
        let scene = Scene::new("1", "overloaded:1");
        scene.outlast.write("home/outlast.toml", AN_HOUR);
        let server = scene.start();
        let id = server.session();
        server.prompt_and_follow(&id, "hi").until("provider-retry");
        server.kill();
        let server = scene.start();
        server.order(&id, "retry_now");
        let session = server.when_idle(&id);
        assert_eq!(session["last_seal"], "completed");
    }
}
