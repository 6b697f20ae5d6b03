//! Exit codes. The numbers are documented in `--help` and are a contract.

use crate::platform::signals::Signal;
use outlast_engine::turn::TurnOutcome;
use outlast_kernel::event::TurnStatus;
use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    Failed,
    Usage,
    BudgetSpent,
    /// The model has answered, but the session could not be written down.
    Unrecorded,
    Signalled(Signal),
    /// The exit code of a program that we ran.
    Program(u8),
}

/// An error in what the user typed or configured.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Formats an error with its causes, without those that the text already contains.
pub(crate) fn error_chain(error: &anyhow::Error) -> String {
    let mut said = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

impl Exit {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::BudgetSpent => 3,
            Self::Unrecorded => 4,
            Self::Signalled(signal) => signal.code(),
            Self::Program(code) => code,
        }
    }

    /// Ends the process at once.
    pub(crate) fn exit_process(self) -> ! {
        std::process::exit(self.code().into())
    }
}

impl From<&TurnOutcome> for Exit {
    fn from(ended: &TurnOutcome) -> Self {
        match (ended.seal, &ended.error) {
            (TurnStatus::Completed, _) if ended.is_recorded => Self::Success,
            (TurnStatus::Completed, _) => Self::Unrecorded,
            (TurnStatus::Aborted, _) => Self::Signalled(Signal::Interrupt),
            (TurnStatus::Error, Some((_, why))) if why.is_budget_exhausted() => Self::BudgetSpent,
            (TurnStatus::Error, _) => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
