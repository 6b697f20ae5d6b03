//! The settings of sessions over HTTP: initial values and changes.

use crate::serve_driver::{Serve, kinds, of_kind};
use crate::support::Outlast;
use serde_json::{Value, json};

const DOWN: &str = "error:503,times=always";

fn change(server: &Serve, id: &str, settings: &Value) -> Value {
    let path = format!("/api/sessions/{id}/settings");
    server.ask("PATCH", &path).json(settings).send().well()
}

#[test]
fn changed_settings_apply_from_next_turn() {
    let outlast = Outlast::new();
    let server = Serve::with(&outlast, &["--model", DOWN, "--policy", "session"]);
    let retries =
        |id: &str| of_kind(&server.prompt_and_follow(id, "hi").all(), "provider-retry").len();
    // Before and after the first message.
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
        let delays = server.prompt_and_follow(&id, "hi").all();
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
fn changed_model_and_title_survive_restart() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, DOWN);
    let id = server.begin(&json!({ "policy": "none" }));
    assert_eq!(
        server.prompt_and_follow(&id, "hi").all().last().unwrap()["status"],
        "error"
    );
    let wanted = json!({ "model": "ok:reasoning,times=always", "title": "Another" });
    let settings = change(&server, &id, &wanted);
    assert_eq!(
        (&settings["model"], &settings["title"]),
        (&wanted["model"], &wanted["title"])
    );
    assert_eq!(settings["provider"], "mock");
    let turn = server.prompt_and_follow(&id, "hi").all();
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
    assert_eq!(
        server.prompt_and_follow(&id, "hi").all()[0]["model"],
        wanted["model"]
    );
    // Only the title, in a session that is not open.
    let other = server.session();
    change(&server, &other, &json!({ "title": "New" }));
    assert_eq!(server.show(&other)["title"], "New");
}

#[test]
fn invalid_settings_change_nothing() {
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
            server.prompt_and_follow(&id, "hi").all();
        }
        for (wanted, named) in &table {
            let (status, code, detail) = server.ask("PATCH", &path).json(wanted).send().problem();
            assert_eq!((status, &*code), (422, "invalid_value"), "{wanted}");
            assert!(detail.contains(named), "{wanted}: {detail}");
        }
        let mut after = server.get(&path);
        // Without a title the first words take its place.
        after["title"] = before["title"].clone();
        assert_eq!(after, before);
    }
}

#[test]
fn after_content_follows_request_then_flag_then_file() {
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
            let turn = server.prompt_and_follow(&id, "hi").all();
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
