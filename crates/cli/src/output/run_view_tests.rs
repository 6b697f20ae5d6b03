use super::painter::Size;
use super::*;
use outlast_kernel::event::Body;
use outlast_kernel::verdict::Cause;
use outlast_pipeline::entry::Entry;
use outlast_pipeline::run_view::Question;
use serde_json::Value;
use std::time::Duration;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const RUN: &str = "01900000-0000-7000-8000-000000000001";

fn at(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

/// Everything that can happen to a step: one line for each, `at` so many seconds after the beginning.
const EVENTFUL: &str = include_str!("run_view_tests/eventful.jsonl");
/// How many of them have happened when somebody looks in the middle.
const SO_FAR: usize = 32;

/// What has happened so far.
fn entries() -> Vec<(u64, Entry)> {
    all().drain(..SO_FAR).collect()
}

/// What happens then.
fn rest() -> Vec<(u64, Entry)> {
    all().split_off(SO_FAR)
}

fn all() -> Vec<(u64, Entry)> {
    let entry = |line: &str| {
        let json: Value = serde_json::from_str(line).unwrap();
        let time = json["at"].as_u64().unwrap();
        (time, serde_json::from_value(json).unwrap())
    };
    EVENTFUL.lines().map(entry).collect()
}

fn steps() -> Vec<PlannedStep> {
    let names = "fetch lint docs plan test fix approve cool push publish";
    let step = |id: &str| PlannedStep {
        id: id.to_owned(),
        max_attempts: (id != "push").then_some(5),
    };
    names.split(' ').map(step).collect()
}

fn run_of(entries: &[(u64, Entry)]) -> Run {
    Run::from_entries(entries.iter().map(|(time, entry)| (at(*time), entry)))
}

/// Times of day are those of the machine.
fn without_clocks(text: &str) -> String {
    [15 + 86_400, 616]
        .iter()
        .fold(text.to_owned(), |text, time| {
            text.replace(&time_of_day(at(*time), at(20)), "CLOCK")
        })
}

fn told<'a>(
    entries: impl IntoIterator<Item = &'a (u64, Entry)>,
    size: Option<fn() -> Size>,
) -> String {
    let mut out = Vec::new();
    let mut painter = Painter::new(&mut out, size, RUN);
    painter.set_steps(steps());
    for (time, entry) in entries {
        painter.entry(at(*time), entry);
        painter.tick(at(*time));
    }
    without_clocks(&String::from_utf8(out).unwrap())
}

// --- Where a run stands ---

#[test]
fn every_step_state_is_rendered() {
    let run = run_of(&entries());
    let mut live: BTreeMap<String, LiveStep> = BTreeMap::new();
    live.entry("approve".to_owned()).or_default().question = Some(Question {
        message: "Ship it?".to_owned(),
        choices: vec!["y".to_owned(), "n".to_owned()],
    });
    live.entry("plan".to_owned()).or_default().retry = Some(Countdown {
        cause: Some(Cause::Overloaded),
        until: at(24),
        retry: Some((2, Some(5))),
    });
    live.entry("fix".to_owned()).or_default().last_activity = Some("bash".to_owned());
    let steps = steps();
    let view = |status| StatusLines {
        steps: &steps,
        run: &run,
        live: &live,
        status,
        now: at(20),
    };
    let running = view(RunStatus::Running).lines(120).join("\n");
    let narrow = view(RunStatus::Running).lines(24).join("\n");
    let left = view(RunStatus::Unfinished).lines(120).join("\n");
    insta::assert_snapshot!(without_clocks(&[running, narrow, left].join("\n\n")));
}

#[test]
fn finished_run_shows_its_outcome() {
    let mut entries = entries();
    entries.extend(rest());
    let (run, steps) = (run_of(&entries), steps());
    let view = StatusLines {
        steps: &steps,
        run: &run,
        live: &BTreeMap::new(),
        status: RunStatus::Unfinished,
        now: at(1000),
    };
    insta::assert_snapshot!(without_clocks(&view.lines(120).join("\n")));
}

#[test]
fn run_without_pipeline_lists_steps_in_start_order() {
    let begun = recorded_steps(&run_of(&entries()));
    let names: Vec<&str> = begun.iter().map(|step| step.id.as_str()).collect();
    let order = [
        "fetch", "lint", "plan", "test", "fix", "approve", "cool", "push", "docs",
    ];
    assert_eq!(names, order);
}

// --- What happens ---

#[test]
fn pipe_gets_one_line_per_run_event() {
    let mut entries = entries();
    entries.extend(rest());
    insta::assert_snapshot!(told(&entries, None));
}

#[test]
fn terminal_shows_run_status_below_events() {
    let told = told(&entries()[..12], Some(|| (60, 24)));
    insta::assert_snapshot!(told.replace('\u{1b}', "ESC").replace('\r', "CR"));
}

#[test]
fn painted_status_fits_terminal_size() {
    let mut out = Vec::new();
    let mut painter = Painter::new(&mut out, Some(|| (20, 4)), RUN);
    painter.set_steps(steps());
    for (time, entry) in entries() {
        painter.apply(at(time), &entry);
    }
    painter.tick(at(20));
    painter.tick(at(20));
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert_eq!(text.lines().last(), Some("  … and 5 more"));
    assert!(
        text.lines().all(|line| formatting::width(line) <= 20),
        "{text}"
    );
}

#[test]
fn session_wait_is_printed_once_and_counts_down() {
    let scheduled = Body::RetryScheduled {
        attempt: 2,
        max_attempts: Some(5),
        delay_ms: 2000,
        retry_at: at(14),
        cause: Cause::Overloaded,
        message: "Overloaded".to_owned(),
        code: None,
    };
    let held = |until| Body::Held {
        until: at(until),
        cause: None,
    };
    let play = |painter: &mut Painter<&mut Vec<u8>>| {
        painter.set_steps(steps());
        for (time, entry) in &entries()[..15] {
            painter.apply(at(*time), entry);
        }
        painter.event("plan", &scheduled, at(12));
        painter.tick(at(12));
        painter.tick(at(13));
        // It is the session's own time still.
        painter.event("plan", &held(40), at(13));
        painter.event("plan", &Body::AttemptStarted { attempt: 3 }, at(14));
        painter.event("plan", &held(40), at(15));
        painter.event("plan", &held(41), at(15));
        painter.event(
            "plan",
            &Body::Warning {
                message: "odd".to_owned(),
            },
            at(15),
        );
        painter.event("plan", &Body::AttemptStarted { attempt: 3 }, at(16));
        let name = "bash".to_owned();
        painter.event(
            "plan",
            &Body::ToolStarted {
                id: "1".to_owned(),
                name,
            },
            at(17),
        );
        painter.tick(at(18));
    };
    let mut lines = Vec::new();
    play(&mut Painter::new(&mut lines, None, RUN));
    let mut screen = Vec::new();
    play(&mut Painter::new(&mut screen, Some(|| (70, 24)), RUN));
    let [lines, screen] = [lines, screen].map(|out| String::from_utf8(out).unwrap());
    let screen = screen.replace('\u{1b}', "ESC").replace('\r', "CR");
    insta::assert_snapshot!(format!("{lines}\n{screen}"));
}

// --- Text from outside ---

#[test]
fn external_text_adds_no_lines_and_no_escapes() {
    let hostile = format!(
        "\u{1b}[2J\u{1b}]0;x\u{7}a\nb\r\u{202e}c{}",
        "日本".repeat(500_000)
    );
    let mut all = entries();
    all.extend(rest());
    let mut text: String = serde_json::to_string(&all).unwrap();
    let quoted = serde_json::to_string(&hostile).unwrap();
    let quoted = quoted.trim_matches('"');
    for word in [
        "429 Too Many Requests",
        "no such program: linter",
        "Ship it?",
        "implement",
        "codex",
        "step test failed",
    ] {
        text = text.replace(word, quoted);
    }
    text = text.replace("\"plan\"", &format!("\"{quoted}\""));
    let all: Vec<(u64, Entry)> = serde_json::from_str(&text).unwrap();
    let lines = told(&all, None);
    let expected = told(entries().iter().chain(&rest()), None);
    assert_eq!(lines.lines().count(), expected.lines().count());
    assert!(lines.len() < 10_000, "{}", lines.len());
    assert!(!lines.contains(outlast_kernel::text::is_unprintable));
    let mut steps = steps();
    steps[3].id.clone_from(&hostile);
    let run = run_of(&all[..all.len() - 10]);
    let live = BTreeMap::new();
    let view = StatusLines {
        steps: &steps,
        run: &run,
        live: &live,
        status: RunStatus::Running,
        now: at(20),
    };
    for columns in [0, 1, 2, 3, 40, 200] {
        let lines = view.lines(columns);
        assert_eq!(lines.len(), 11);
        let is_right = |line: &String| {
            formatting::width(line) <= columns
                && !line.contains(outlast_kernel::text::is_unprintable)
                && !line.contains('\n')
        };
        assert!(lines.iter().all(is_right), "{columns}: {lines:#?}");
    }
}
