//! `outlast doctor`: finds problems that would keep a prompt from being answered, and says how to fix them.
//!
//! Invariant: it changes nothing, calls no model and shows no secret.

mod checks;

use crate::args::DoctorArguments;
use crate::output::spinner::Spinner;
use crate::output::{print, print_json};
use crate::platform::exit::Exit;
use outlast_kernel::text;
use serde_json::{Value, json};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckStatus {
    Passed,
    Warning,
    Failed,
}

/// One check, its result and a remedy.
#[derive(Debug)]
struct Check {
    subject: &'static str,
    status: CheckStatus,
    message: String,
    hint: Option<String>,
}

impl Check {
    fn passed(subject: &'static str, says: impl Into<String>) -> Self {
        Self {
            subject,
            status: CheckStatus::Passed,
            message: says.into(),
            hint: None,
        }
    }

    fn warning(subject: &'static str, says: impl Into<String>, remedy: &str) -> Self {
        Self {
            status: CheckStatus::Warning,
            hint: Some(remedy.to_owned()),
            ..Self::passed(subject, says)
        }
    }

    fn failed(subject: &'static str, says: impl Into<String>, remedy: &str) -> Self {
        Self {
            status: CheckStatus::Failed,
            ..Self::warning(subject, says, remedy)
        }
    }

    fn json(&self) -> Value {
        let mut check = json!({
            "check": self.subject, "state": self.status.word(), "says": self.message,
            "remedy": self.hint,
        });
        // The name before 0.2; written until 0.3.
        if self.subject == "network" {
            check["formerly"] = "way".into();
        }
        check
    }

    fn lines(&self) -> String {
        let (word, subject, says) = (self.status.word(), self.subject, &self.message);
        let line = format!("{word:<8}  {subject:<11}  {says}\n");
        match &self.hint {
            Some(remedy) => format!("{line}{:>25}{remedy}\n", "-> "),
            None => line,
        }
    }
}

impl CheckStatus {
    const fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Warning => "warning",
            Self::Failed => "error",
        }
    }
}

pub(crate) fn run(arguments: &DoctorArguments) -> anyhow::Result<Exit> {
    let working = Spinner::start("looking at the files, the settings and the provider");
    let checks = checks::run_all(arguments)?;
    drop(working);
    if arguments.json {
        print_json(&checks.iter().map(Check::json).collect::<Value>())?;
    } else {
        let lines: String = checks.iter().map(Check::lines).collect();
        print(&text::plain(&lines))?;
    }
    let has_failed = |check: &Check| check.status == CheckStatus::Failed;
    Ok(match checks.iter().any(has_failed) {
        true => Exit::Failed,
        false => Exit::Success,
    })
}
