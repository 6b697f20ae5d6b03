//! Sessions over HTTP: beginning them, listing them, sharing them with other processes, and how they are led.

use crate::rpc_driver::{Rpc, word};
use crate::serve_driver::transcript::Transcript;
use crate::serve_driver::{AN_HOUR, Serve, kinds, of_kind};
use crate::support::Outlast;
use serde_json::{Value, json};

const DOWN: &str = "error:503,times=always";

fn change(server: &Serve, id: &str, settings: &Value) -> Value {
    let path = format!("/api/sessions/{id}/settings");
    server.ask("PATCH", &path).json(settings).send().well()
}

#[test]
fn a_session_is_begun_as_it_is_wished_and_written_down_with_its_first_prompt() {
    let outlast = Outlast::new();
    outlast.write("work/a.txt", "written here");
    let server = Serve::start(&outlast, "ok:text,times=always");
    let wishes = json!({
        "directory": "work", "title": "Tidy up", "model": "ok:agent,times=always", "policy": "patient",
    });
    let answer = server.ask("POST", "/api/sessions").json(&wishes).send();
    assert_eq!(answer.status, 201);
    let place = answer.header("location").unwrap().to_owned();
    let session = answer.value();
    let id = session["id"].as_str().unwrap();
    assert_eq!(place, format!("/api/sessions/{id}"));
    assert_eq!(
        (&session["state"], &session["turns"]),
        (&json!("new"), &json!(0))
    );
    assert_eq!(session["settings"]["policy"], "patient");
    assert_eq!(session["model"]["id"], "ok:agent,times=always");
    assert_eq!(server.get(&place)["title"], "Tidy up");
    assert_eq!(outlast.run(&["sessions", "list", "--json"]).stdout, "[]\n");
    let turn = server.say(id, "call read {\"path\":\"a.txt\"}").all();
    let [result] = of_kind(&turn, "tool-result")[..] else {
        panic!("{turn:?}")
    };
    assert!(
        result["output"].as_str().unwrap().contains("written here"),
        "{result}"
    );
    let session = server.when_idle(id);
    assert_eq!(
        (&session["title"], &session["turns"]),
        (&json!("Tidy up"), &json!(1))
    );
    assert!(word(&session["directory"]).ends_with("/work"), "{session}");
    let listed: Value =
        serde_json::from_str(&outlast.run(&["sessions", "list", "--json"]).stdout).unwrap();
    assert_eq!(
        (&listed[0]["id"], &listed[0]["title"]),
        (&json!(id), &json!("Tidy up"))
    );
}

#[test]
fn sessions_are_listed_in_pages_the_newest_first() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let mut ids: Vec<String> = (0..5).map(|_| server.session()).collect();
    // Whether something was said in them makes no difference.
    for id in &ids[..3] {
        server.say(id, "Say\n  something").all();
    }
    ids.reverse();
    let page = |query: &str| {
        let list = server.get(&format!("/api/sessions?{query}"));
        let rows = list["sessions"].as_array().unwrap().clone();
        let ids: Vec<String> = rows.iter().map(|row| word(&row["id"])).collect();
        (ids, list["more"] == true)
    };
    assert_eq!(page(""), (ids.clone(), false));
    assert_eq!(page("limit=2"), (ids[..2].to_vec(), true));
    assert_eq!(
        page(&format!("limit=2&before={}", ids[1])),
        (ids[2..4].to_vec(), true)
    );
    assert_eq!(
        page(&format!("limit=2&before={}", ids[3])),
        (ids[4..].to_vec(), false)
    );
    assert_eq!(
        page(&format!("limit=3&before={}", ids[1])),
        (ids[2..].to_vec(), false)
    );
    assert_eq!(page(&format!("before={}", ids[4])), (Vec::new(), false));
    assert_eq!(page("limit=0").0.len(), 1);
    let rows = server.get("/api/sessions")["sessions"].clone();
    assert_eq!(
        (&rows[0]["title"], &rows[4]["title"]),
        (&json!(""), &json!("Say something"))
    );
    assert_eq!(
        (&rows[0]["state"], &rows[4]["state"]),
        (&json!("new"), &json!("idle"))
    );
    for query in ["limit=many", "limit=-1", "page=2"] {
        let problem = server
            .ask("GET", &format!("/api/sessions?{query}"))
            .send()
            .problem();
        assert_eq!(
            (problem.0, &*problem.1),
            (400, "invalid_request"),
            "{query}"
        );
    }
}

#[test]
fn a_session_of_another_process_can_be_read_and_is_gone_on_with_when_that_has_left() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let mut rpc = Rpc::start(&outlast, "ok:text,times=always");
    rpc.prompt_and_wait("from the terminal");
    let id = word(&rpc.get("get_state")["sessionId"]);
    let session = server.show(&id);
    assert_eq!(
        (&session["state"], &session["title"]),
        (&json!("elsewhere"), &json!("from the terminal"))
    );
    let rows = server.get("/api/sessions")["sessions"].clone();
    assert_eq!(rows[0]["state"], "elsewhere");
    let told = Transcript::of(&server.told(&id));
    assert_eq!(told.inputs(), ["from the terminal"]);
    for (path, body) in [
        ("prompt", json!({ "text": "hi" })),
        ("steer", json!({ "text": "hi" })),
        ("resume", json!({})),
    ] {
        let ask = server
            .ask("POST", &format!("/api/sessions/{id}/{path}"))
            .json(&body);
        let (status, code, detail) = ask.send().problem();
        assert_eq!((status, &*code), (409, "in_use"), "{path}");
        assert!(detail.contains(&id), "{detail}");
    }
    rpc.finish();
    assert_eq!(server.show(&id)["state"], "idle");
    server.say(&id, "from the browser").all();
    let told = Transcript::of(&server.told(&id));
    assert_eq!(told.inputs(), ["from the terminal", "from the browser"]);
    // Now it is the server's.
    let ran = outlast.run(&["-p", "hi", "--session", &id]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("in use"), "{}", ran.stderr);
}

// --- How they are led ---

#[test]
fn settings_count_from_the_next_turn_on_and_for_a_session_that_is_not_open_when_it_is() {
    let outlast = Outlast::new();
    let server = Serve::with(&outlast, &["--model", DOWN, "--policy", "session"]);
    let retries = |id: &str| of_kind(&server.say(id, "hi").all(), "provider-retry").len();
    // Before anything was said, and after.
    for is_open in [false, true] {
        let id = server.session();
        if is_open {
            assert_eq!(retries(&id), 3);
        }
        let settings = change(
            &server,
            &id,
            &json!({ "auto_retry": false, "auto_compaction": false, "steering_mode": "all" }),
        );
        let shown = |name: &str| settings[name].clone();
        assert_eq!(["auto_retry", "auto_compaction"].map(shown), [false, false]);
        assert_eq!(
            ["steering_mode", "follow_up_mode"].map(shown),
            ["all", "one_at_a_time"]
        );
        assert_eq!(retries(&id), 0, "{is_open}");
        change(
            &server,
            &id,
            &json!({ "auto_retry": true, "policy": "patient" }),
        );
        let delays = server.say(&id, "hi").all();
        let delays: Vec<&Value> = of_kind(&delays, "provider-retry")
            .into_iter()
            .map(|it| &it["delayMs"])
            .collect();
        assert_eq!(delays, [5000, 15_000], "{is_open}");
        let settings = server.get(&format!("/api/sessions/{id}/settings"));
        assert_eq!(
            (&settings["policy"], &settings["auto_compaction"]),
            (&json!("patient"), &json!(false))
        );
    }
}

#[test]
fn the_model_and_the_title_can_be_changed_and_are_kept() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, DOWN);
    let id = server.begin(&json!({ "policy": "none" }));
    assert_eq!(
        server.say(&id, "hi").all().last().unwrap()["status"],
        "error"
    );
    let wanted = json!({ "model": "ok:reasoning,times=always", "title": "Another" });
    let settings = change(&server, &id, &wanted);
    assert_eq!(
        (&settings["model"], &settings["title"]),
        (&wanted["model"], &wanted["title"])
    );
    assert_eq!(settings["provider"], "mock");
    let turn = server.say(&id, "hi").all();
    assert!(kinds(&turn).contains(&"reasoning-delta".to_owned()));
    assert_eq!(turn[0]["model"], wanted["model"]);
    server.when_idle(&id);
    server.kill();
    let server = Serve::start(&outlast, DOWN);
    let session = server.show(&id);
    assert_eq!(
        (&session["title"], &session["model"]["id"]),
        (&wanted["title"], &wanted["model"])
    );
    assert_eq!(server.say(&id, "hi").all()[0]["model"], wanted["model"]);
    // A title alone, of one that is not open.
    let other = server.session();
    change(&server, &other, &json!({ "title": "New" }));
    assert_eq!(server.show(&other)["title"], "New");
}

#[test]
fn of_settings_that_cannot_be_had_none_is_taken() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.session();
    let path = format!("/api/sessions/{id}/settings");
    let before = server.get(&path);
    let table = [
        (json!({ "title": "x", "policy": "nonsense" }), "nonsense"),
        (
            json!({ "auto_retry": false, "model": "overloaded:x" }),
            "overloaded:x",
        ),
        (json!({ "provider": "anthropic" }), "provider: "),
        (json!({ "provider": "nobody", "model": "m" }), "nobody"),
        (json!({ "title": " " }), "title: "),
        (json!({ "auto_retry": "no" }), "auto_retry: "),
        (json!({ "steering_mode": "some" }), "steering_mode: "),
        (json!({ "colour": "red" }), "colour"),
    ];
    for is_open in [false, true] {
        if is_open {
            server.say(&id, "hi").all();
        }
        for (wanted, named) in &table {
            let (status, code, detail) = server.ask("PATCH", &path).json(wanted).send().problem();
            assert_eq!((status, &*code), (422, "invalid_value"), "{wanted}");
            assert!(detail.contains(named), "{wanted}: {detail}");
        }
        let mut after = server.get(&path);
        // The first words stand for a title that nobody has given.
        after["title"] = before["title"].clone();
        assert_eq!(after, before);
    }
}

#[test]
fn what_becomes_of_an_answer_that_breaks_off_is_as_wished_or_as_set() {
    let outlast = Outlast::new();
    outlast.write(
        "home/outlast.toml",
        "[serve]\nafter_content = \"retract\"\n",
    );
    for (flag, expected) in [
        (&[][..], "completed"),
        (&["--after-content", "fail"], "error"),
    ] {
        let arguments = [&["--model", "drop-after:3,of=text"], flag].concat();
        let server = Serve::with(&outlast, &arguments);
        let table = [
            (json!({}), expected),
            (json!({ "after_content": "fail" }), "error"),
            (json!({ "after_content": "retract" }), "completed"),
        ];
        for (wishes, seal) in table {
            let id = server.begin(&wishes);
            let turn = server.say(&id, "hi").all();
            assert_eq!(turn.last().unwrap()["status"], seal, "{wishes} {flag:?}");
            let retracted = of_kind(&turn, "retracted").len();
            assert_eq!(
                retracted,
                usize::from(seal == "completed"),
                "{wishes} {flag:?}"
            );
        }
    }
}

#[test]
fn the_models_that_can_be_chosen_are_listed() {
    let outlast = Outlast::new();
    let server = Serve::with(&outlast, &["--model", "ok", "--fallback", "ok:reasoning"]);
    let id = server.session();
    let models = server.get(&format!("/api/sessions/{id}/models"))["models"].clone();
    let names: Vec<String> = models
        .as_array()
        .unwrap()
        .iter()
        .map(|it| word(&it["id"]))
        .collect();
    assert!(
        names.contains(&"ok".to_owned()) && names.contains(&"ok:reasoning".to_owned()),
        "{names:?}"
    );
}

#[test]
fn pictures_reach_the_model() {
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", AN_HOUR);
    let server = Serve::start(&outlast, "ok:image-seen,times=always");
    let id = server.session();
    // A picture of one point.
    let data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let said = json!({ "text": "look", "images": [{ "media_type": "image/png", "data": data }] });
    let ask = server
        .ask("POST", &format!("/api/sessions/{id}/prompt"))
        .json(&said);
    let turn = ask
        .with("accept", "application/x-ndjson")
        .send()
        .lines()
        .all();
    let text = Transcript::of(&turn).texts().remove(0);
    assert!(text.contains("image/png"), "{text}");
}
