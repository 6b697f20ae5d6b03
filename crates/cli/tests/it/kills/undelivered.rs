//! Kills between the last entry and the output of the result.

use super::SYNCS;
use super::plan::{End, Plan};
use super::scene::Scene;
use crate::recorder::{Moment, Recorder};
use crate::support::CommandResult;
use serde_json::Value;

/// Kills a prompt at the first sync after which its session has the given state, and checks the remains.
fn killed_when(state: &str, plan: &Plan, look: impl FnOnce(&mut Scene<'_>)) {
    for at in 1..100 {
        let is_there = Scene::alone(plan, |scene| {
            let recorder = Recorder::new(SYNCS);
            scene.run(recorder.kill(&mut scene.prompt(), at, Moment::After));
            let sessions = scene.sessions();
            sessions.iter().any(|session| session["state"] == state)
        });
        if is_there {
            return Scene::alone(plan, |scene| {
                let recorder = Recorder::new(SYNCS);
                scene.run(recorder.kill(&mut scene.prompt(), at, Moment::After));
                assert_eq!(scene.said, "", "{state}");
                look(scene);
            });
        }
    }
    panic!("no session is ever {state}");
}

fn events(ran: &CommandResult) -> Vec<Value> {
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn nothing_is_left(scene: &mut Scene<'_>) {
    let ran = scene.run(&mut scene.resume());
    let said = (ran.code, ran.stdout.as_str(), ran.stderr.as_str());
    assert_eq!(said, (0, "", "Nothing to resume.\n"));
}

#[test]
fn resume_ignores_session_without_journaled_prompt() {
    let plan = Plan::plain(End::Answer);
    killed_when("empty", &plan, nothing_is_left);
}

#[test]
fn resume_prints_undelivered_completion() {
    const ANSWER: &str = "no cost. You said: Say hello\n";
    let plan = Plan::plain(End::Answer);
    killed_when("undelivered", &plan, |scene| {
        let ran = scene.run(&mut scene.resume());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.ends_with(ANSWER), "{}", ran.stdout);
        nothing_is_left(scene);
    });
    killed_when("undelivered", &plan, |scene| {
        let ran = scene.run(scene.resume().arg("--json"));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let events = events(&ran);
        let types: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
        assert_eq!(types, ["text_delta", "done", "sealed"], "{events:?}");
        let text = events[0]["text"].as_str().unwrap();
        assert!(text.ends_with(ANSWER.trim_end()), "{text}");
        assert_eq!(events[2]["status"], "completed");
        nothing_is_left(scene);
    });
}

#[test]
fn resume_reports_undelivered_error() {
    let plan = Plan::plain(End::Refusal);
    killed_when("undelivered", &plan, |scene| {
        let ran = scene.run(&mut scene.resume());
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("\nerror: "), "{}", ran.stderr);
        nothing_is_left(scene);
    });
    killed_when("undelivered", &plan, |scene| {
        let ran = scene.run(scene.resume().arg("--json"));
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        let events = events(&ran);
        let types: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
        assert_eq!(types, ["error", "sealed"], "{events:?}");
        assert_eq!(events[1]["status"], "error");
    });
}
