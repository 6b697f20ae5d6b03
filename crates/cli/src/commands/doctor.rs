//! `outlast doctor`: finds problems that would keep a prompt from being answered, and says how to fix them.
//!
//! Invariant: it changes nothing, calls no model and shows no secret.

mod checks;

use crate::args::DoctorArguments;
use crate::output::print;
use crate::output::spinner::Spinner;
use crate::platform::exit::Exit;
use outlast_kernel::text;
use serde_json::{Value, json};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckStatus {
    Well,
    Doubtful,
    Wrong,
}

/// One check, its result and a remedy.
#[derive(Debug)]
struct Check {
    subject: &'static str,
    state: CheckStatus,
    says: String,
    remedy: Option<String>,
}

impl Check {
    fn well(subject: &'static str, says: impl Into<String>) -> Self {
        Self {
            subject,
            state: CheckStatus::Well,
            says: says.into(),
            remedy: None,
        }
    }

    fn doubtful(subject: &'static str, says: impl Into<String>, remedy: &str) -> Self {
        Self {
            state: CheckStatus::Doubtful,
            remedy: Some(remedy.to_owned()),
            ..Self::well(subject, says)
        }
    }

    fn wrong(subject: &'static str, says: impl Into<String>, remedy: &str) -> Self {
        Self {
            state: CheckStatus::Wrong,
            ..Self::doubtful(subject, says, remedy)
        }
    }

    fn json(&self) -> Value {
        json!({
            "check": self.subject, "state": self.state.word(), "says": self.says,
            "remedy": self.remedy,
        })
    }

    fn lines(&self) -> String {
        let (word, subject, says) = (self.state.word(), self.subject, &self.says);
        let line = format!("{word:<8}  {subject:<11}  {says}\n");
        match &self.remedy {
            Some(remedy) => format!("{line}{:>25}{remedy}\n", "-> "),
            None => line,
        }
    }
}

impl CheckStatus {
    const fn word(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Doubtful => "warning",
            Self::Wrong => "error",
        }
    }
}

pub(crate) fn run(arguments: &DoctorArguments) -> anyhow::Result<Exit> {
    let working = Spinner::on("looking at the files, the settings and the provider");
    let checks = checks::all(arguments)?;
    drop(working);
    let shown = if arguments.json {
        let checks: Value = checks.iter().map(Check::json).collect();
        serde_json::to_string_pretty(&checks)? + "\n"
    } else {
        checks.iter().map(Check::lines).collect()
    };
    print(&text::plain(&shown))?;
    Ok(
        if checks.iter().any(|check| check.state == CheckStatus::Wrong) {
            Exit::Failed
        } else {
            Exit::Success
        },
    )
}
