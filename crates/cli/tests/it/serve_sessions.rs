//! Sessions over HTTP: creating, listing and sharing them with other processes.

use crate::rpc_driver::{Rpc, word};
use crate::serve_driver::transcript::Transcript;
use crate::serve_driver::{AN_HOUR, Serve, of_kind};
use crate::support::Outlast;
use serde_json::{Value, json};

#[test]
fn new_session_keeps_options_and_is_saved_at_first_prompt() {
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
    let folder = outlast.folder.path().canonicalize().unwrap().join("work");
    assert_eq!(session["directory"], folder.to_str().unwrap());
    assert_eq!(session["settings"]["policy"], "patient");
    assert_eq!(session["model"]["id"], "ok:agent,times=always");
    assert_eq!(server.get(&place)["title"], "Tidy up");
    assert_eq!(outlast.run(&["sessions", "list", "--json"]).stdout, "[]\n");
    let turn = server
        .prompt_and_follow(id, "call read {\"path\":\"a.txt\"}")
        .all();
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
    assert_eq!(session["directory"], folder.to_str().unwrap());
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
    // Sessions with and without messages behave the same.
    for id in &ids[..3] {
        server.prompt_and_follow(id, "Say\n  something").all();
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
    let unknown = server.ask("GET", "/api/sessions?before=nobody").send();
    assert_eq!(unknown.problem().1, "invalid_value");
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
fn session_in_use_elsewhere_is_read_only_until_released() {
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
    let told = Transcript::of(&server.snapshot_events(&id));
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
    server.prompt_and_follow(&id, "from the browser").all();
    let told = Transcript::of(&server.snapshot_events(&id));
    assert_eq!(told.inputs(), ["from the terminal", "from the browser"]);
    // Now the server owns it.
    let ran = outlast.run(&["-p", "hi", "--session", &id]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("in use"), "{}", ran.stderr);
}

#[test]
fn available_models_are_listed() {
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
    // A picture of one pixel.
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

/// Invalid settings do not prevent reading.
#[test]
fn session_with_invalid_settings_is_read_only() {
    let outlast = Outlast::new();
    std::fs::create_dir(outlast.folder.path().join("work")).unwrap();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let id = server.begin(&json!({ "directory": "work" }));
    server.prompt_and_follow(&id, "before").all();
    server.kill();
    outlast.write("work/outlast.toml", "[retry\n");
    let server = Serve::start(&outlast, "ok:text,times=always");
    let session = server.show(&id);
    let problem = word(&session["problem"]);
    assert!(problem.contains("outlast.toml"), "{problem}");
    let model = &session["model"];
    assert_eq!(
        (&model["provider"], &model["id"]),
        (&json!("mock"), &json!("ok:text,times=always"))
    );
    let told = Transcript::of(&server.snapshot_events(&id));
    assert_eq!(told.inputs(), ["before"]);
    let snapshot = server.sse(&id, None).next().unwrap();
    assert_eq!(snapshot.data["session"]["problem"], problem);
    let path = format!("/api/sessions/{id}");
    let say = server.ask("POST", &format!("{path}/prompt"));
    let change = server.ask("PATCH", &format!("{path}/settings"));
    let models = server.ask("GET", &format!("{path}/models"));
    let asks = [
        say.json(&json!({ "text": "after" })),
        change.json(&json!({ "policy": "patient" })),
        models,
    ];
    for ask in asks {
        let (status, code, detail) = ask.send().problem();
        assert_eq!((status, &*code), (422, "invalid_value"));
        assert_eq!(detail, problem);
    }
    outlast.write("work/outlast.toml", "");
    assert_eq!(server.show(&id)["problem"], Value::Null);
    server.prompt_and_follow(&id, "after").all();
}

/// A request for a missing session gets an error, also as a stream.
#[test]
fn event_stream_of_deleted_session_is_not_found() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok:text,times=always");
    let mut rpc = Rpc::start(&outlast, "ok:text,times=always");
    rpc.prompt_and_wait("from the terminal");
    let id = word(&rpc.get("get_state")["sessionId"]);
    rpc.finish();
    server.show(&id);
    let deleted = outlast.run(&["sessions", "delete", &id]);
    assert_eq!(deleted.code, 0, "{}", deleted.stderr);
    let events = server.ask("GET", &format!("/api/sessions/{id}/events"));
    let events = events.with("accept", "text/event-stream");
    assert_eq!(events.send().problem().0, 404);
}
