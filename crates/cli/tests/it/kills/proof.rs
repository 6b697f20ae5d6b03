//! Checks that must hold of a prompt, no matter which of its processes were killed.

use super::plan::End;
use super::scene::Scene;
use serde_json::Value;

const INTERRUPTED: &str = "interrupted by a restart";

/// The evidence that remains when the prompt is finished.
pub(crate) struct Proof<'a> {
    scene: &'a Scene<'a>,
    label: &'a str,
    entries: Vec<Value>,
    /// The arrival times of requests, in milliseconds.
    requests: Vec<i64>,
}

impl<'a> Proof<'a> {
    pub(crate) fn of(scene: &'a Scene<'a>, label: &'a str) -> Self {
        let log: Value = serde_json::from_str(&scene.mock.requests()).unwrap();
        let requests = log["requests"].as_array().unwrap().iter();
        Self {
            scene,
            label,
            entries: scene.entries(),
            requests: requests.map(|request| millis(&request["time"])).collect(),
        }
    }

    pub(crate) fn holds(&self) {
        if self.entries.is_empty() {
            self.nothing_was_begun();
            return;
        }
        self.journal_holds();
        self.commands_ran_once_at_most();
        self.files_are_written();
        self.the_end_was_said();
    }

    /// Checks the journal, if it has any entries.
    pub(crate) fn journal_holds(&self) {
        if self.entries.is_empty() {
            return;
        }
        self.it_was_settled_once();
        self.attempts_only_go_up();
        self.waits_were_kept();
        self.every_call_has_one_result();
    }

    /// Returns the calls whose commands append lines, each with its line.
    pub(crate) fn commands(&self) -> Vec<(Value, String)> {
        let calls = self.calls();
        let line_of = |call: &Value| {
            let lines = &self.scene.plan.lines;
            let line = lines
                .iter()
                .find(|line| text(&call["arguments"]).contains(*line));
            Some((call["id"].clone(), line?.clone()))
        };
        calls.iter().filter_map(line_of).collect()
    }

    /// Checks that a prompt without an entry in the journal has had no effect.
    fn nothing_was_begun(&self) {
        self.check(self.requests.is_empty(), "a request without a prompt");
        self.check(self.scene.said.is_empty(), "words without a prompt");
        self.check(self.scene.lines().is_empty(), "a tool without a prompt");
    }

    fn it_was_settled_once(&self) {
        let numbers = self.entries.iter().map(|entry| entry["seq"].as_u64());
        let numbered = numbers.eq((1..=self.entries.len() as u64).map(Some));
        self.check(numbered, "the entries have a gap");
        self.check(self.of_kind("prompt").count() == 1, "not one prompt");
        let settled = self.of_kind("settled").count() == 1;
        self.check(settled, "not settled once");
        let last = self.entries.last().unwrap();
        let seal = match self.scene.plan.end {
            End::Answer => "completed",
            End::Refusal => "error",
        };
        let ended = last["kind"] == "settled" && last["seal"] == seal;
        self.check(ended, &format!("it does not end in `{seal}`"));
        let steps = self.of_kind("message").count();
        let planned = self.scene.plan.steps;
        let all = match self.scene.plan.end {
            End::Answer => steps == planned + 1,
            End::Refusal => steps <= planned,
        };
        self.check(all, &format!("{steps} steps of {planned}"));
        let sessions = self.scene.sessions();
        let finished = sessions.iter().all(|session| {
            ["finished", "failed", "empty"]
                .map(Value::from)
                .contains(&session["state"])
        });
        self.check(finished, &format!("{sessions:?}"));
    }

    fn attempts_only_go_up(&self) {
        let attempts = self.of_kind("attempt_started");
        let attempts: Vec<u64> = attempts
            .map(|entry| entry["attempt"].as_u64().unwrap())
            .collect();
        let up = attempts.is_sorted_by(|one, next| one < next);
        self.check(up, &format!("attempts {attempts:?}"));
        // An attempt is written to the journal before its request, so every request has one.
        let known = self.requests.len() <= attempts.len();
        self.check(known, &format!("{} requests", self.requests.len()));
    }

    /// Checks that a wait is in the journal once, and that no request precedes its end.
    fn waits_were_kept(&self) {
        let waits = self.of_kind("wait_scheduled");
        let waits: Vec<(i64, i64)> = waits
            .map(|wait| (millis(&wait["since"]), millis(&wait["until"])))
            .collect();
        let ends_in_order = waits.is_sorted_by(|one, next| one.1 < next.1);
        self.check(ends_in_order, &format!("waits {waits:?}"));
        for (since, until) in waits {
            let early = self
                .requests
                .iter()
                .find(|at| (since + 1..until).contains(at));
            let text = format!("asked at {early:?}, in the wait from {since} to {until}");
            self.check(early.is_none(), &text);
        }
    }

    /// Checks that each call of each completion has exactly one result, and that a result says "interrupted" only
    /// after a kill.
    fn every_call_has_one_result(&self) {
        let mut wanted: Vec<String> = self.calls().iter().map(|call| text(&call["id"])).collect();
        let results = self.of_kind("tool_finished");
        let mut found: Vec<String> = results.map(|result| text(&result["id"])).collect();
        wanted.sort();
        found.sort();
        self.check(wanted == found, &format!("{wanted:?} but {found:?}"));
        let failed = self.of_kind("tool_finished");
        let failed = failed.filter(|result| result["is_error"] == true);
        let failed: Vec<String> = failed.map(|result| text(&result["output"])).collect();
        let interrupted = failed.iter().all(|output| output.contains(INTERRUPTED));
        let blamed = interrupted && failed.len() <= self.scene.kills;
        self.check(blamed, &format!("tools failed: {failed:?}"));
    }

    /// Checks that commands ran at most once, and that every command with a successful result ran.
    fn commands_ran_once_at_most(&self) {
        let ran = self.scene.lines();
        for line in &self.scene.plan.lines {
            let times = ran.iter().filter(|ran| *ran == line).count();
            let succeeded = self.succeeded(line);
            let right = times <= 1 && (times == 1 || !succeeded);
            let text = format!("{line} came {times} times, and well: {succeeded}");
            self.check(right, &text);
        }
    }

    fn files_are_written(&self) {
        for (name, content) in &self.scene.plan.files {
            let found = std::fs::read_to_string(self.scene.work().join(name));
            let is_right = found.is_ok_and(|found| found == *content);
            let text = format!("{name} is not as it was written");
            self.check(is_right || !self.succeeded(name), &text);
        }
    }

    /// Returns the tool calls of all completions.
    fn calls(&self) -> Vec<Value> {
        let messages = self.of_kind("message");
        let parts = messages.filter_map(|entry| entry["message"]["parts"].as_array());
        let parts = parts.flatten().filter(|part| part["type"] == "tool_call");
        parts.cloned().collect()
    }

    /// Whether the call with that text in its arguments has a successful result.
    fn succeeded(&self, argument: &str) -> bool {
        let calls = self.calls();
        let call = calls
            .iter()
            .find(|call| text(&call["arguments"]).contains(argument));
        let result = call.and_then(|call| {
            let mut results = self.of_kind("tool_finished");
            results.find(|result| result["id"] == call["id"])
        });
        result.is_some_and(|result| result["is_error"] == false)
    }

    /// Checks that the completion or the error was printed at least once, and at most once by each process.
    fn the_end_was_said(&self) {
        let (said, end) = match self.scene.plan.end {
            End::Answer => (&self.scene.said, self.answer()),
            End::Refusal => (&self.scene.complained, "error: ".to_owned()),
        };
        let times = said.matches(&end).count();
        let text = format!("`{end}` was said {times} times in:\n{said}");
        self.check((1..=self.scene.kills + 1).contains(&times), &text);
        if self.scene.plan.end == End::Refusal {
            self.check(self.scene.said.is_empty(), "an answer to what failed");
        }
    }

    /// Returns the text of the last completion.
    pub(crate) fn answer(&self) -> String {
        let last = self.of_kind("message").last();
        let parts = last.map(|last| last["message"]["parts"].clone());
        let text = parts.map(|parts| parts[0]["text"].as_str().unwrap_or_default().to_owned());
        text.unwrap_or_default()
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.entries
            .iter()
            .filter(move |entry| entry["kind"] == kind)
    }

    fn check(&self, holds: bool, otherwise: &str) {
        if holds {
            return;
        }
        let entries: Vec<String> = self.entries.iter().map(Value::to_string).collect();
        panic!(
            "{}: {otherwise}\n{:?}\n{}\nrequests {:?}\nstderr:\n{}",
            self.label,
            self.scene.plan,
            entries.join("\n"),
            self.requests,
            self.scene.complained
        );
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns a timestamp in milliseconds.
pub(crate) fn millis(time: &Value) -> i64 {
    let time: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
    time.as_millisecond()
}
