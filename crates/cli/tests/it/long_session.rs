//! Resuming a session of ten thousand turns takes work in proportion to its length, and little memory.

use crate::mock_server::MockServer;
use crate::support::{CommandResult, Outlast};
use crate::written::{self, LeftAs, answer, completed, prompt};
use outlast_engine::journal::Entry;
use serde_json::{Value, json};
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

const TURNS: usize = 10_000;
/// The length of the session that it is compared with.
const FEWER_TURNS: usize = TURNS / 4;
/// Limit for the ratio of work: four times as long is four times the work if it is linear, sixteen times if it is
/// quadratic. Both are measured by the same run on the same machine.
const MAX_WORK_RATIO: u32 = 9;
const MAX_MEMORY: u64 = 100 << 20;
const ID: &str = "01900000-0000-7000-8000-000000000001";

/// Builds that many finished turns, and an open one.
fn turns(count: usize, typed: &Value) -> Vec<Vec<Entry>> {
    let said =
        "What a person asks is a sentence or two, and sometimes a piece of a file. ".repeat(3);
    // Some have two steps, so that pages of entries are cut at all positions of a turn.
    let turn = |number: usize| {
        let mut turn = vec![prompt(&format!("{number}: {said}"), typed.clone())];
        let steps = 1 + usize::from(number.is_multiple_of(7));
        for (step, attempt) in (0..steps).zip(1..) {
            turn.push(Entry::AttemptStarted { attempt });
            turn.push(answer(&format!(
                "{number}, {step}: {}",
                said.repeat(2 / steps)
            )));
        }
        turn.push(completed());
        turn
    };
    let last = vec![
        prompt("And now?", typed.clone()),
        Entry::AttemptStarted { attempt: 1 },
    ];
    (1..=count).map(turn).chain([last]).collect()
}

/// The resources that a process has used.
#[derive(Default)]
struct Used {
    memory: u64,
    work: Duration,
}

impl Used {
    /// Watches a process to its end. Both numbers only grow, so only the very end can be missed.
    fn until_the_end(child: &mut Child) -> Self {
        let mut used = Self::default();
        while child.try_wait().unwrap().is_none() {
            let read = |name| fs::read_to_string(format!("/proc/{}/{name}", child.id()));
            let (status, stat) = (read("status"), read("stat"));
            used.memory = used.memory.max(memory(&status.unwrap_or_default()));
            used.work = used.work.max(work(&stat.unwrap_or_default()));
            std::thread::sleep(Duration::from_millis(1));
        }
        used
    }
}

/// Returns the peak memory, which the system keeps count of.
fn memory(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Returns the processor time, user and system, which is counted in hundredths of a second.
fn work(stat: &str) -> Duration {
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// Resumes a session of that many turns to its end.
fn resumed(count: usize) -> Used {
    // The provider is a process of its own, so that its resources are not counted. Nothing waits, and no response
    // timeout may be reached while the turns are read.
    let mock = MockServer::start_in(Outlast::in_real_time());
    let typed = json!({"settings": {"provider": "openai", "model": "ok"}, "base_url": mock.url()});
    written::session(&mock.outlast, ID, &turns(count, &typed), LeftAs::Free);
    let mut child = mock
        .outlast
        .command(&["resume"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let used = Used::until_the_end(&mut child);
    let ran = CommandResult::ended(child);
    let (memory, work) = (used.memory >> 20, used.work);
    println!("{count} turns: {work:?} of work, {memory} MiB");
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, ""),
        "nothing is waited for"
    );
    assert!(
        ran.stdout.ends_with("You said: And now?\n"),
        "{}",
        ran.stdout
    );
    // The open turn was resumed: none was lost in reading.
    let listed = mock.outlast.run(&["sessions", "list", "--json"]).stdout;
    let rows: Value = serde_json::from_str(&listed).unwrap();
    let (state, turns) = (&rows[0]["state"], &rows[0]["turns"]);
    assert_eq!((state, turns), (&"finished".into(), &(count + 1).into()));
    used
}

#[test]
fn resume_of_ten_thousand_turns_takes_linear_work() {
    let (few, many) = (resumed(FEWER_TURNS), resumed(TURNS));
    assert!(
        (1..MAX_MEMORY).contains(&many.memory),
        "{} bytes",
        many.memory
    );
    let most = MAX_WORK_RATIO * few.work;
    assert!(
        !few.work.is_zero() && many.work < most,
        "{:?} {most:?}",
        many.work
    );
}
