//! The prompt of a scene, and its expected result.

use crate::mock_server::DIALECTS;
use std::fmt::Write;

/// A prompt and the faults of the mock server.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) dialect: &'static str,
    pub(crate) script: String,
    /// The lines that tell the scripted agent which tools to call.
    pub(crate) prompt: String,
    /// How many steps call tools.
    pub(crate) steps: usize,
    /// The lines that its commands append to `lines.txt`, each at most once.
    pub(crate) lines: Vec<String>,
    /// The expected content of its files at the end.
    pub(crate) files: Vec<(String, String)>,
    pub(crate) end: End,
}

/// How its turn is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answer,
    /// The server refuses the last call for good, or an earlier one if responses went to processes that were
    /// killed.
    Refusal,
}

/// A tool that the agent is told to call.
#[derive(Clone, Copy, Debug)]
enum ToolAction {
    Read,
    Search,
    Write,
    Command,
}

impl Plan {
    /// Creates a plan with two failures and their waits, one tool of each kind, and a completion.
    pub(crate) fn all_kinds() -> Self {
        let mut plan = Self::empty("openai");
        // Long enough that a resumed process still has to wait.
        plan.script = "overloaded:1+rate-limited:retry-after=20+ok:agent,times=always".to_owned();
        for deed in [ToolAction::Read, ToolAction::Write, ToolAction::Command] {
            plan.call(ScriptKeyword::Call, deed);
        }
        plan
    }

    /// Creates a plan with one call and no tools.
    pub(crate) fn plain(end: End) -> Self {
        let mut plan = Self::empty("openai");
        plan.prompt = "Say hello".to_owned();
        plan.end = end;
        plan.script = match end {
            End::Answer => "ok:agent,times=always",
            End::Refusal => "error:400,times=always",
        }
        .to_owned();
        plan
    }

    /// Creates a random plan.
    pub(crate) fn random(random: &mut fastrand::Rng) -> Self {
        let mut plan = Self::empty(random.choice(DIALECTS).unwrap());
        for _ in 0..random.usize(1..=4) {
            plan.call(ScriptKeyword::Call, deed(random));
            if random.u8(0..4) == 0 {
                plan.call(ScriptKeyword::And, deed(random));
            }
        }
        plan.end = match random.u8(0..6) {
            0 => End::Refusal,
            _ => End::Answer,
        };
        plan.script = script(random, &plan);
        plan
    }

    fn empty(dialect: &'static str) -> Self {
        Self {
            dialect,
            script: String::new(),
            prompt: "Do this:\n".to_owned(),
            steps: 0,
            lines: Vec::new(),
            files: Vec::new(),
            end: End::Answer,
        }
    }

    /// Adds a tool call, in a new step or in the previous one.
    fn call(&mut self, word: ScriptKeyword, deed: ToolAction) {
        let (word, step) = match word {
            ScriptKeyword::Call => ("call", 1),
            ScriptKeyword::And => ("and", 0),
        };
        self.steps += step;
        let call = match deed {
            ToolAction::Read => r#"read {"path":"note.txt"}"#.to_owned(),
            ToolAction::Search => r#"grep {"pattern":"remember"}"#.to_owned(),
            ToolAction::Write => {
                let name = format!("written-{}.txt", self.files.len());
                let content = format!("content of {name}");
                let call = format!(r#"write {{"path":"{name}","content":"{content}"}}"#);
                self.files.push((name, content));
                call
            }
            ToolAction::Command => {
                let line = format!("line-{}", self.lines.len());
                let call = format!(r#"bash {{"command":"echo {line} >>lines.txt"}}"#);
                self.lines.push(line);
                call
            }
        };
        writeln!(self.prompt, "{word} {call}").unwrap();
    }
}

#[derive(Clone, Copy)]
enum ScriptKeyword {
    Call,
    And,
}

fn deed(random: &mut fastrand::Rng) -> ToolAction {
    let deeds = [
        ToolAction::Read,
        ToolAction::Search,
        ToolAction::Write,
        ToolAction::Command,
    ];
    // Commands are the calls that must not happen twice.
    random
        .choice(deeds)
        .filter(|_| random.bool())
        .unwrap_or(ToolAction::Command)
}

/// Returns up to three failures, at any step: the policy allows no more.
fn script(random: &mut fastrand::Rng, plan: &Plan) -> String {
    const FAULTS: [&str; 7] = [
        "overloaded:1",
        "rate-limited:retry-after=5",
        "rate-limited:retry-after=20",
        "error:500",
        "reset",
        "close",
        "page:502",
    ];
    const SLOW: [&str; 2] = ["hold:3,of=agent", "drip:100,of=agent"];
    let mut faults = Vec::new();
    let mut left = plan.steps;
    for _ in 0..random.usize(0..=3) {
        let answered = random.usize(0..=left.min(2));
        if answered > 0 {
            faults.push(format!("ok:agent,times={answered}"));
            left -= answered;
        }
        let slow = random.u8(0..4) == 0 && plan.end == End::Answer;
        let fault = match slow {
            true => random.choice(SLOW),
            false => random.choice(FAULTS),
        };
        faults.push(fault.unwrap().to_owned());
    }
    faults.push(match plan.end {
        End::Answer => "ok:agent,times=always".to_owned(),
        End::Refusal if left == 0 => "error:400,times=always".to_owned(),
        End::Refusal => format!("ok:agent,times={left}+error:400,times=always"),
    });
    faults.join("+")
}
