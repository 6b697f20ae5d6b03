//! The causes that the exit codes of known programs and the signals stand for.
//!
//! Data: add new programs and codes here. Only a code that its program documents, with a single meaning, settles a
//! cause.

use super::command_line::SimpleCommand;
use outlast_kernel::verdict::Cause;

/// The meaning of an exit by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitMeaning {
    /// The cause, whatever the output says.
    Definite(Cause),
    /// The cause, unless the output says more.
    Default(Cause),
}

use Cause::{
    Auth, CommandFailed, InvalidRequest, Misconfigured, MissingBinary, Network, Permission,
    Timeout, TruncatedStream, Unknown,
};

/// The programs, their codes, and the meaning of those.
const CODES: &[(&str, &[i32], ExitMeaning)] = &[
    (
        "curl",
        &[5, 6, 7, 16, 35, 52, 55, 56, 92, 95, 96],
        ExitMeaning::Definite(Network),
    ),
    ("curl", &[28], ExitMeaning::Definite(Timeout)),
    ("curl", &[18], ExitMeaning::Definite(TruncatedStream)),
    (
        "curl",
        &[23, 51, 58, 60, 77, 83],
        ExitMeaning::Definite(Misconfigured),
    ),
    ("curl", &[67], ExitMeaning::Definite(Auth)),
    ("curl", &[1, 2, 3], ExitMeaning::Definite(InvalidRequest)),
    ("wget", &[4], ExitMeaning::Definite(Network)),
    ("wget", &[3, 5], ExitMeaning::Definite(Misconfigured)),
    ("wget", &[6], ExitMeaning::Definite(Auth)),
    ("wget", &[2], ExitMeaning::Definite(InvalidRequest)),
    // The connection failed; a refused key shows in the output.
    ("ssh scp sftp", &[255], ExitMeaning::Default(Network)),
    ("rsync", &[10, 12], ExitMeaning::Definite(Network)),
    ("rsync", &[30, 35], ExitMeaning::Definite(Timeout)),
    ("rsync", &[11], ExitMeaning::Definite(Misconfigured)),
    ("gh", &[4], ExitMeaning::Definite(Auth)),
    ("aws", &[252], ExitMeaning::Definite(InvalidRequest)),
    ("aws", &[253], ExitMeaning::Definite(Misconfigured)),
];

/// Returns the meaning of a code for the program that returned it.
pub(super) fn meaning_of_code(code: i32, program: Option<&SimpleCommand>) -> Option<ExitMeaning> {
    if code == 124 && program.is_some_and(|program| program.has_timeout) {
        return Some(ExitMeaning::Definite(Timeout));
    }
    let name = program.map_or("", SimpleCommand::program);
    let known = CODES
        .iter()
        .find(|(names, codes, _)| names.split(' ').any(|it| it == name) && codes.contains(&code));
    known
        .map(|(_, _, meaning)| *meaning)
        .or_else(|| conventional_meaning(code))
}

/// Returns the conventional meaning of a code: those of shells, of `sysexits`, and 128 plus the number of a signal.
fn conventional_meaning(code: i32) -> Option<ExitMeaning> {
    Some(match code {
        127 => ExitMeaning::Default(MissingBinary),
        126 => ExitMeaning::Default(Permission),
        // EX_TEMPFAIL: the only code by which a program asks for a retry.
        75 => ExitMeaning::Default(CommandFailed),
        77 => ExitMeaning::Default(Permission),
        78 => ExitMeaning::Default(Misconfigured),
        64 => ExitMeaning::Default(InvalidRequest),
        130 | 132 | 134..=139 | 143 | 152 | 153 => return meaning_of_signal(code - 128),
        _ => return None,
    })
}

/// Returns the meaning of a signal that we did not send.
pub(super) fn meaning_of_signal(signal: i32) -> Option<ExitMeaning> {
    Some(match signal {
        // A person or the system asked the program to end: its work did not fail.
        2 | 15 => ExitMeaning::Definite(Unknown),
        // Usually the system, for lack of memory. That seldom passes while everything else stays the same, and each
        // attempt costs as much as the first: it is retried only if the step asks for it.
        9 => ExitMeaning::Default(Misconfigured),
        // Limits on processor time and on the size of files.
        24 | 25 => ExitMeaning::Definite(Misconfigured),
        // A bug in the program.
        4 | 6 | 7 | 8 | 11 => ExitMeaning::Default(Unknown),
        _ => return None,
    })
}

/// Returns the name of a signal, if it is known.
pub(super) const fn signal_name(signal: i32) -> &'static str {
    match signal {
        2 => " (interrupt)",
        4 => " (illegal instruction)",
        6 => " (abort)",
        7 => " (bus error)",
        8 => " (arithmetic fault)",
        9 => " (kill; often for want of memory)",
        11 => " (segmentation fault)",
        13 => " (nobody read what it printed)",
        15 => " (termination)",
        24 => " (limit on processor time)",
        25 => " (limit on file size)",
        _ => "",
    }
}
