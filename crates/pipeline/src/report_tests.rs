use super::*;
use crate::entry::Entry;
use crate::state::WaitPeriod;
use outlast_kernel::verdict::Cause;
use serde_json::{Value, json};
use std::time::Duration;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const ID: &str = "01900000-0000-7000-8000-000000000001";

fn at(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

fn run_of(entries: &[(u64, Value)]) -> Run {
    let mut run = Run::default();
    for (time, json) in entries {
        let entry: Entry = serde_json::from_value(json.clone()).unwrap();
        run.apply(at(*time), &entry);
    }
    run
}

fn started() -> (u64, Value) {
    let inputs = json!({"topic": "birds of <Berlin>", "key": "sk-proj-abcdefghijklmnop1234"});
    let json = json!({"type": "run_started", "name": "implement", "file": "/project/implement.yaml", "folder": "/project",
        "source": "", "inputs": inputs});
    (0, json)
}

/// A step begins, and its first attempt.
fn begins(time: u64, step: &str, visit: u32) -> [(u64, Value); 2] {
    [
        (
            time,
            json!({"type": "step_started", "step": step, "visit": visit}),
        ),
        attempt(time, step, visit, 1),
    ]
}

fn attempt(time: u64, step: &str, visit: u32, attempt: u32) -> (u64, Value) {
    (
        time,
        json!({"type": "attempt_started", "step": step, "visit": visit, "attempt": attempt}),
    )
}

fn fails(time: u64, step: &str, rest: (u32, u32, Value, Value)) -> (u64, Value) {
    let (visit, attempt, problem, next) = rest;
    let json = json!({"type": "attempt_ended", "step": step, "visit": visit, "attempt": attempt, "problem": problem,
        "next": next});
    (time, json)
}

/// An attempt succeeds, and its step with it.
fn completes(time: u64, step: &str, visit: u32, attempt: u32) -> [(u64, Value); 2] {
    let usage = json!({"input": 1200, "output": 300, "cache_read": 0, "cache_write": 0});
    let artifacts = json!({"output": {"hash": "ab".repeat(32), "size": 1234}});
    [
        (
            time,
            json!({"type": "attempt_ended", "step": step, "visit": visit, "attempt": attempt, "usage": usage,
            "cost": 4500, "next": {"do": "finish"}}),
        ),
        (
            time,
            json!({"type": "step_ended", "step": step, "visit": visit, "outcome": "completed", "artifacts": artifacts}),
        ),
    ]
}

/// A run in which everything happens that can.
fn eventful() -> Run {
    let entries = [prepared(), tested(), next_morning()].concat();
    let mut run = run_of(&entries);
    // The waits of the session of `plan`.
    let waits = [
        (200, 230, Cause::RateLimited),
        (250, 370, Cause::Overloaded),
    ];
    let plan = &mut run.steps.get_mut("plan").unwrap().visits[0].attempts[0];
    plan.warnings.push("the plan is long".to_owned());
    plan.waits = waits
        .map(|(since, until, cause)| WaitPeriod {
            since: at(since),
            until: at(until),
            ended: Some(at(until)),
            cause: Some(cause),
        })
        .to_vec();
    run
}

fn stop(why: &str) -> Value {
    json!({"do": "stop", "why": why})
}

/// A wait, a step that cannot succeed, and a step that is skipped.
fn prepared() -> Vec<(u64, Value)> {
    let transient =
        json!({"class": "transient", "cause": "network", "message": "connection reset by peer"});
    let missing = json!({"class": "deterministic", "cause": "missing_binary", "message": "no such program: linter"});
    let wait = json!({"do": "wait", "since": at(65), "until": at(125)});
    let mut entries = vec![started()];
    entries.extend(begins(5, "fetch", 1));
    entries.push(fails(65, "fetch", (1, 1, transient, wait)));
    entries.push((125, json!({"type": "wait_ended", "step": "fetch"})));
    entries.push(attempt(125, "fetch", 1, 2));
    entries.extend(completes(160, "fetch", 1, 2));
    entries.extend(begins(160, "plan", 1));
    entries.extend(begins(170, "lint", 1));
    entries.push(fails(
        180,
        "lint",
        (1, 1, missing, stop("it fails the same way every time")),
    ));
    entries.push((180, json!({"type": "step_ended", "step": "lint", "visit": 1, "outcome": "continued", "reason": "Program not found"})));
    entries.push((
        180,
        json!({"type": "step_ended", "step": "docs", "visit": 0, "outcome": "skipped"}),
    ));
    entries
}

/// Tests that fail in every way, until another step repairs them.
fn tested() -> Vec<(u64, Value)> {
    let tests = json!({"class": "test_failure", "cause": "tests_failed", "message": "3 of 12 failed",
        "violations": ["test a::b failed", "test <c> failed | really"]});
    let stalled = json!({"class": "transient", "cause": "stalled", "message": "no activity for 30m",
        "last_events": ["08:10:00 read src/main.rs", "08:10:05 thinks"], "retries_spent": true});
    let mut entries = Vec::new();
    entries.extend(completes(400, "plan", 1, 1));
    entries.extend(begins(400, "test", 1));
    entries.push(fails(
        430,
        "test",
        (1, 1, tests.clone(), json!({"do": "again"})),
    ));
    entries.push(attempt(430, "test", 1, 2));
    entries.push(fails(
        470,
        "test",
        (1, 2, stalled, json!({"do": "fall_back", "to": "codex"})),
    ));
    entries.push(attempt(470, "test", 1, 3));
    entries.push(fails(
        500,
        "test",
        (1, 3, tests, stop("3 attempts were used up")),
    ));
    entries.push((
        500,
        json!({"type": "rework_started", "step": "test", "by": "fix"}),
    ));
    entries.extend(begins(500, "fix", 1));
    entries
}

/// The process has died, and is started again.
fn next_morning() -> Vec<(u64, Value)> {
    let mut entries = vec![(40_000, json!({"type": "run_resumed"}))];
    entries.push(attempt(40_000, "fix", 1, 2));
    entries.extend(completes(40_060, "fix", 1, 2));
    entries.extend(begins(40_060, "test", 2));
    entries.extend(completes(40_090, "test", 2, 1));
    entries.push((
        40_090,
        json!({"type": "step_started", "step": "approve", "visit": 1}),
    ));
    entries.push((
        40_090,
        json!({"type": "gate_opened", "step": "approve", "visit": 1, "message": "Ship it?",
        "choices": ["y", "n"], "until": at(90_000)}),
    ));
    entries.push((
        40_290,
        json!({"type": "gate_closed", "step": "approve", "choice": "y"}),
    ));
    entries.push((
        40_290,
        json!({"type": "step_ended", "step": "approve", "visit": 1, "outcome": "completed"}),
    ));
    entries.extend(begins(40_290, "publish", 1));
    entries.extend(completes(40_320, "publish", 1, 1));
    entries.push((40_320, json!({"type": "run_ended", "outcome": "completed"})));
    entries
}

/// Returns the part of a page between two texts, the first included.
fn part<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let rest = &page[page.find(from).unwrap()..];
    &rest[..rest.find(to).unwrap()]
}

fn timeline(run: &Run, now: Timestamp) -> String {
    part(&html(run, ID, now), "<figure", "</figure>").to_owned()
}

#[test]
fn run_report_renders_as_markdown() {
    insta::assert_snapshot!(markdown(&eventful(), ID, at(50_000)));
}

#[test]
fn run_report_renders_as_html() {
    let page = html(&eventful(), ID, at(50_000));
    insta::assert_snapshot!(part(&page, "<p>", "</html>"));
}

#[test]
fn timeline_of_unfinished_run_ends_now() {
    let problem = json!({"class": "transient", "cause": "rate_limited", "message": "slow down"});
    let next = json!({"do": "wait", "since": at(12), "until": at(60)});
    let mut entries = vec![started()];
    entries.extend(begins(0, "fetch", 1));
    entries.extend(completes(4, "fetch", 1, 1));
    entries.extend(begins(4, "plan", 1));
    entries.extend(begins(4, "review", 1));
    entries.push(fails(12, "review", (1, 1, problem, next)));
    insta::assert_snapshot!(timeline(&run_of(&entries), at(30)));
}

/// Many steps, each with a few attempts.
fn large(steps: usize, attempts: u32) -> Run {
    let problem =
        json!({"class": "transient", "cause": "overloaded", "message": "come back later"});
    let mut entries = vec![started()];
    for index in 0..steps as u64 {
        let (name, from) = (format!("step-{index:03}"), index * 20);
        entries.push((
            from,
            json!({"type": "step_started", "step": name, "visit": 1}),
        ));
        for number in 1..=attempts {
            let from = from + u64::from(number - 1) * 40;
            entries.push(attempt(from, &name, 1, number));
            if number < attempts {
                let next = json!({"do": "wait", "since": at(from + 10), "until": at(from + 40)});
                entries.push(fails(from + 10, &name, (1, number, problem.clone(), next)));
                entries.push((from + 40, json!({"type": "wait_ended", "step": name})));
            }
        }
        entries.extend(completes(
            from + u64::from(attempts - 1) * 40 + 35,
            &name,
            1,
            attempts,
        ));
    }
    let end = steps as u64 * 20 + u64::from(attempts) * 40;
    entries.push((end, json!({"type": "run_ended", "outcome": "completed"})));
    run_of(&entries)
}

#[test]
fn timeline_shows_all_of_two_hundred_steps() {
    let picture = timeline(&large(200, 3), at(50_000));
    for index in 0..200 {
        let name = format!(">step-{index:03}</b>");
        assert!(picture.contains(&name), "{index}");
    }
    assert!(!picture.contains("no room"));
}

#[test]
fn large_report_is_bounded_and_counts_omissions() {
    let run = large(510, 18);
    let page = html(&run, ID, at(50_000));
    let left_out = "There is no room for 260 more steps and 750 more bars.";
    assert!(page.contains(left_out));
    assert!(markdown(&run, ID, at(50_000)).contains(left_out));
    assert!(page.contains("Left out to keep this short: 10 steps."));
    assert!(page.contains("Left out to keep this short: 8470 attempts that failed."));
    assert!(page.len() < 6_000_000, "{}", page.len());
}

#[test]
fn run_without_steps_renders_report() {
    for run in [Run::default(), run_of(&[started()])] {
        let documents = [markdown, html].map(|document| document(&run, ID, at(0)));
        for document in documents {
            assert!(document.contains(ID), "{document}");
        }
    }
}

#[test]
fn unstarted_steps_are_listed_in_file_order() {
    let source = "steps:\n  - {id: fetch, command: a}\n  - {id: zip, command: b, needs: [fetch]}\n  \
                  - {id: mail, command: c, needs: [zip]}\n";
    let mut run = run_of(&[started()]);
    run.parameters.source = source.to_owned();
    let document = markdown(&run, ID, at(10));
    let rows: Vec<&str> = document
        .lines()
        .filter(|line| line.contains("| not begun |"))
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!(rows, ["fetch", "zip", "mail"]);
    let picture = timeline(&run, at(10));
    assert_eq!(picture.matches(">not begun<").count(), 3);
}

#[test]
fn time_without_process_counts_for_no_step() {
    let document = markdown(&eventful(), ID, at(50_000));
    let row = document
        .lines()
        .find(|line| line.starts_with("| fix |"))
        .unwrap();
    assert_eq!(
        row,
        "| fix | completed | 1 | 2 | 1m | – | 1500 | \\$0.0045 |"
    );
}

// --- Text from outside ---

const HOSTILE: &str = "</title></svg><script>alert(1)</script>\u{1b}[31m\u{202e}\u{ffff}]]>--><!-- &amp; \" ' | \
    ![x](http://evil.example/x.png) [x]: y\n# heading\n```\n</main><img src=x onerror=alert(1)>";

/// The same run, in which everything with a name has the given name.
fn hostile(name: &str) -> Run {
    let mut run = eventful();
    run.parameters.name = name.to_owned();
    run.parameters.file = name.to_owned();
    run.parameters.inputs = [(name.to_owned(), name.to_owned())].into();
    let mut step = run.steps.remove("test").unwrap();
    for visit in &mut step.visits {
        visit.choice = Some(name.to_owned());
        for attempt in &mut visit.attempts {
            attempt.fallback = Some(name.to_owned());
            attempt.warnings = vec![name.to_owned(); 3];
            if let Some(problem) = &mut attempt.problem {
                problem.message = name.to_owned();
                problem.violations = vec![name.to_owned(); 100];
                problem.last_events = vec![name.to_owned(); 100];
            }
        }
    }
    let artifact = run.steps["fetch"].artifacts["output"].clone();
    step.artifacts = [(name.to_owned(), artifact)].into();
    run.steps.insert(name.to_owned(), step);
    run
}

#[test]
fn external_text_is_escaped_in_html() {
    let page = html(&hostile(HOSTILE), HOSTILE, at(50_000));
    for mark in [
        "<script", "<img", "<!--", "-->", "]]>", "\u{1b}", "\u{202e}",
    ] {
        assert!(!page.contains(mark), "{mark}");
    }
    assert_eq!(page.matches("</main>").count(), 1);
    let ours = ["figure", "div", "i", "span", "b", "figcaption"];
    for tag in part(&page, "<figure", "</figure>").split('<').skip(1) {
        let name = tag.trim_start_matches('/');
        let name = name.split([' ', '>']).next().unwrap();
        assert!(ours.contains(&name), "{tag}");
    }
}

#[test]
fn external_text_is_escaped_in_markdown() {
    let document = markdown(&hostile(HOSTILE), HOSTILE, at(50_000));
    let mut fence: Option<String> = None;
    for line in document.lines() {
        let ticks: String = line.chars().take_while(|c| *c == '`').collect();
        match &fence {
            // A fence ends with as many marks as it began with, and no other text.
            Some(open) if line == open => fence = None,
            None if ticks.len() >= 3 => fence = Some(ticks),
            None => check(line),
            _ => {}
        }
    }
    assert_eq!(fence, None);
}

/// Checks a line outside of any fence.
fn check(line: &str) {
    let bare = line.replace("\\<", "").replace("\\!\\[", "");
    assert!(!bare.contains("<script") && !bare.contains("!["), "{line}");
    assert_ne!(line, "# heading");
    if line.starts_with('|') {
        let cells = line.replace("\\|", "").matches('|').count();
        assert!(cells == 9 || cells == 5, "{line}");
    }
}

#[test]
fn report_of_huge_texts_stays_small() {
    let run = hostile(&HOSTILE.repeat(8000));
    for document in [markdown, html] {
        let length = document(&run, ID, at(50_000)).len();
        assert!(length < 400_000, "{length}");
    }
}

#[test]
fn api_keys_are_redacted_in_report() {
    for document in [markdown, html] {
        let document = document(&eventful(), ID, at(50_000));
        assert!(!document.contains("sk-proj-abcdefghijklmnop1234"));
    }
}
