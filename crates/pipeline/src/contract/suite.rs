//! The contract that a test command succeeds.
//!
//! Invariants: failing tests are told apart from tests that could not run, which no rework would repair; the message
//! names the failed tests, so that two failures are equal only if the same tests fail. Not here: running a command, and
//! the problem of one that could not start (see `process`).

use super::{Breach, CheckContext, Finding, sanitize};
use crate::definition::CommandLine;
use crate::entry::Problem;
use crate::failure::summarize_failures;
use crate::process::{self, ProcessObserver, ProcessResult, Spec};
use outlast_kernel::verdict::Cause;
use outlast_session::process::output::HeadTailBuffer;
use std::time::Duration;

/// Maximum bytes kept of the beginning and of the end of the output to find the failed tests.
const OUTPUT_LIMITS: (usize, usize) = (64 * 1024, 192 * 1024);
/// Maximum bytes of the end of the output to report.
pub(super) const MAX_SHOWN_OUTPUT_BYTES: usize = 8 * 1024;
/// Maximum bytes of the command to show.
const MAX_COMMAND_BYTES: usize = 120;

pub(super) async fn check(
    scene: &CheckContext<'_>,
    command: &CommandLine,
    limit: Option<Duration>,
) -> Result<Finding, Problem> {
    let (ended, printed) = run(scene, command, limit).await?;
    let command = display_command(command);
    let (cause, how) = match (ended, limit) {
        (SuiteExit::Exited(ran), _) if ran.code == Some(0) => return Ok(Finding::default()),
        (SuiteExit::Exited(ran), _) => (Cause::TestsFailed, describe_exit(&ran)),
        (SuiteExit::TimedOut, limit) => {
            let limit = format_duration(limit.unwrap_or_default());
            (Cause::Timeout, format!("did not end within {limit}"))
        }
    };
    let printed = process::sanitize_and_redact(&printed);
    let failed = match cause {
        Cause::TestsFailed => summarize_failures(&printed),
        // Earlier test failures are not the reason why it took too long.
        _ => String::new(),
    };
    let separator = if failed.is_empty() { "" } else { ": " };
    Ok(Finding {
        warnings: Vec::new(),
        breach: Some(Breach {
            cause,
            message: format!("{command} {how}{separator}{failed}"),
            violations: vec![violation(&command, &how, &printed)],
        }),
    })
}

/// The end of a test command.
enum SuiteExit {
    Exited(ProcessResult),
    TimedOut,
}

/// Runs the tests; returns their output as well, and of long output the beginning and the end.
async fn run(
    scene: &CheckContext<'_>,
    command: &CommandLine,
    limit: Option<Duration>,
) -> Result<(SuiteExit, String), Problem> {
    let stop = scene.stop.child_token();
    let mut kept = HeadTailBuffer::with_limits(OUTPUT_LIMITS.0, OUTPUT_LIMITS.1);
    let ended = {
        let spec = Spec {
            line: command,
            directory: scene.directory,
            env: scene.env,
            hidden_variables: scene.hidden_variables,
            input: None,
        };
        let watching = ProcessObserver {
            on_start: &mut |_, _| {},
            on_output: &mut |_, bytes| {
                (scene.on_output)(bytes);
                kept.push(bytes);
            },
        };
        let mut work = Box::pin(process::run(spec, watching, &stop));
        tokio::select! {
            ran = &mut work => SuiteExit::Exited(ran?),
            () = timeout_elapsed(scene, limit) => {
                stop.cancel();
                match work.await? {
                    ran if ran.was_stopped => SuiteExit::TimedOut,
                    ran => SuiteExit::Exited(ran),
                }
            }
        }
    };
    if scene.stop.is_cancelled() {
        return Err(CheckContext::interrupted());
    }
    let printed = String::from_utf8_lossy(&kept.into_bytes()).into_owned();
    Ok((ended, printed))
}

async fn timeout_elapsed(scene: &CheckContext<'_>, limit: Option<Duration>) {
    match limit {
        Some(limit) => {
            let until = scene.clock.now() + limit;
            scene.clock.sleep_until(until).await;
        }
        None => std::future::pending().await,
    }
}

fn describe_exit(ran: &ProcessResult) -> String {
    match (ran.code, ran.signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "was killed".to_owned(),
    }
}

fn violation(command: &str, how: &str, printed: &str) -> String {
    let printed = printed.trim_end();
    match printed.is_empty() {
        true => format!("{command} {how}, and printed nothing"),
        false => format!(
            "{command} {how}. The end of what it printed:\n{}",
            last_lines(printed, MAX_SHOWN_OUTPUT_BYTES)
        ),
    }
}

/// Returns the end of a text within the limit in bytes, from the beginning of a line if there is one.
pub(crate) fn last_lines(text: &str, limit: usize) -> &str {
    let Some(mut start) = text.len().checked_sub(limit) else {
        return text;
    };
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let end = &text[start..];
    end.split_once('\n').map_or(end, |(_, lines)| lines)
}

/// Returns a command as it may be shown: one short line.
fn display_command(command: &CommandLine) -> String {
    let line = match command {
        CommandLine::Shell(line) => line.trim().to_owned(),
        CommandLine::Program(program) => program.join(" "),
    };
    format!(
        "`{}`",
        sanitize(&line, MAX_COMMAND_BYTES).replace(['\n', '\t'], " ")
    )
}

/// Writes a duration like a pipeline file does.
fn format_duration(time: Duration) -> String {
    let (seconds, millis) = (time.as_secs(), time.as_millis());
    match seconds {
        _ if !millis.is_multiple_of(1000) => format!("{millis}ms"),
        0 => "0s".to_owned(),
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_test_output_is_cut_to_last_lines() {
        let printed: String = (0..10_000).map(|line| format!("line é {line}\n")).collect();
        let said = violation("`make`", "ended with exit code 2", &printed);
        assert!(said.len() < MAX_SHOWN_OUTPUT_BYTES + 100, "{}", said.len());
        let (first, rest) = said.split_once('\n').unwrap();
        assert_eq!(
            first,
            "`make` ended with exit code 2. The end of what it printed:"
        );
        assert!(rest.starts_with("line é ") && rest.ends_with("line é 9999"));
        let one_line = "é".repeat(MAX_SHOWN_OUTPUT_BYTES);
        let end = last_lines(&one_line, 101);
        assert_eq!(end.len(), 100);
    }

    #[test]
    fn duration_is_formatted_as_in_pipeline_file() {
        let table = [
            (600_000, "10m"),
            (7_200_000, "2h"),
            (90_000, "90s"),
            (250, "250ms"),
            (0, "0s"),
        ];
        for (millis, expected) in table {
            assert_eq!(format_duration(Duration::from_millis(millis)), expected);
        }
    }
}
