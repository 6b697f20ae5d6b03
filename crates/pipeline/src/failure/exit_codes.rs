//! What the exit code of a known program means, and what a signal does.
//!
//! Data: a new program or code goes here. Only what is documented by the program, and means one thing, settles a cause.

use super::command_line::SimpleCommand;
use outlast_kernel::verdict::Cause;

/// What an exit says by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitMeaning {
    /// That, whatever was printed.
    Settled(Cause),
    /// That, unless what was printed says more.
    Default(Cause),
}

use Cause::{
    Auth, CommandFailed, InvalidRequest, Misconfigured, MissingBinary, Network, Permission,
    Timeout, TruncatedStream, Unknown,
};

/// The program, the codes, and what they mean for it.
const CODES: &[(&[&str], &[i32], ExitMeaning)] = &[
    (
        &["curl"],
        &[5, 6, 7, 16, 35, 52, 55, 56, 92, 95, 96],
        ExitMeaning::Settled(Network),
    ),
    (&["curl"], &[28], ExitMeaning::Settled(Timeout)),
    (&["curl"], &[18], ExitMeaning::Settled(TruncatedStream)),
    (
        &["curl"],
        &[23, 51, 58, 60, 77, 83],
        ExitMeaning::Settled(Misconfigured),
    ),
    (&["curl"], &[67], ExitMeaning::Settled(Auth)),
    (&["curl"], &[1, 2, 3], ExitMeaning::Settled(InvalidRequest)),
    (&["wget"], &[4], ExitMeaning::Settled(Network)),
    (&["wget"], &[3, 5], ExitMeaning::Settled(Misconfigured)),
    (&["wget"], &[6], ExitMeaning::Settled(Auth)),
    (&["wget"], &[2], ExitMeaning::Settled(InvalidRequest)),
    // The connection itself; a refused key says so.
    (
        &["ssh", "scp", "sftp"],
        &[255],
        ExitMeaning::Default(Network),
    ),
    (&["rsync"], &[10, 12], ExitMeaning::Settled(Network)),
    (&["rsync"], &[30, 35], ExitMeaning::Settled(Timeout)),
    (&["rsync"], &[11], ExitMeaning::Settled(Misconfigured)),
    (&["gh"], &[4], ExitMeaning::Settled(Auth)),
    (&["aws"], &[252], ExitMeaning::Settled(InvalidRequest)),
    (&["aws"], &[253], ExitMeaning::Settled(Misconfigured)),
];

/// What the code means, if it means something for one of the programs that may have given it.
pub(super) fn meaning(code: i32, programs: &[SimpleCommand]) -> Option<ExitMeaning> {
    if code == 124 && programs.iter().any(|program| program.is_timed) {
        return Some(ExitMeaning::Settled(Timeout));
    }
    let known = programs.iter().find_map(|simple| {
        let fits = |(names, codes, _): &&(&[&str], &[i32], ExitMeaning)| {
            names.contains(&simple.program()) && codes.contains(&code)
        };
        CODES.iter().find(fits).map(|(_, _, meaning)| *meaning)
    });
    // What another program may have meant by it is not settled.
    match (known, programs) {
        (Some(ExitMeaning::Settled(cause)), [_, _, ..]) => Some(ExitMeaning::Default(cause)),
        (Some(meaning), _) => Some(meaning),
        (None, _) => conventional_meaning(code),
    }
}

/// What codes mean by themselves: those of shells, those of `sysexits`, and 128 and the number of a signal.
fn conventional_meaning(code: i32) -> Option<ExitMeaning> {
    Some(match code {
        127 => ExitMeaning::Default(MissingBinary),
        126 => ExitMeaning::Default(Permission),
        // EX_TEMPFAIL: the one code by which a program asks to be tried again.
        75 => ExitMeaning::Default(CommandFailed),
        77 => ExitMeaning::Default(Permission),
        78 => ExitMeaning::Default(Misconfigured),
        64 => ExitMeaning::Default(InvalidRequest),
        130 | 132 | 134..=139 | 143 | 152 | 153 => return meaning_of_signal(code - 128),
        _ => return None,
    })
}

/// What a signal means that was not ours.
pub(super) fn meaning_of_signal(signal: i32) -> Option<ExitMeaning> {
    Some(match signal {
        // Somebody or the system asked it to end: no failure of what it does.
        2 | 15 => ExitMeaning::Settled(Unknown),
        // Mostly the system, for want of memory. That seldom passes while everything else stays as it is, and each try
        // costs as much as the first: it is tried again only where somebody said so.
        9 => ExitMeaning::Default(Misconfigured),
        // Limits on processor time and on the size of files.
        24 | 25 => ExitMeaning::Settled(Misconfigured),
        // A fault of the program.
        4 | 6 | 7 | 8 | 11 => ExitMeaning::Default(Unknown),
        _ => return None,
    })
}

/// The name of a signal, where it has one that is known.
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
