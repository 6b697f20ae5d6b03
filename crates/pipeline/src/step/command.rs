//! An attempt of a step that runs a command.

use super::super::definition::CommandLine;
use super::super::entry::Problem;
use super::super::process::{self, ProcessObserver, ProcessResult, Spec, Stream};
use super::{AttemptContext, AttemptEvent, Job, WorkResult};
use super::{feedback, input_files};
use crate::failure;
use crate::step::watchdog::WatchEvent;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::text;
use outlast_kernel::verdict::Cause;
use std::collections::BTreeMap;
use std::io;

/// Maximum bytes of an output line to keep for a report.
const MAX_REPORTED_LINE_BYTES: usize = 200;

pub(super) async fn run(
    job: &Job,
    line: &CommandLine,
    inputs: &BTreeMap<String, Vec<u8>>,
    watched: &AttemptContext,
) -> WorkResult {
    let env = match watched.control.or_halt(variables(job, inputs)).await {
        Ok(env) => env,
        Err(problem) => return problem.into(),
    };
    let hidden = job.resources.host.hidden_variables();
    let spec = Spec {
        line,
        directory: &job.directory(),
        env: &env,
        hidden_variables: hidden,
        input: None,
    };
    let mut on_output = |_, bytes: &[u8]| {
        watched
            .watchdog
            .record(WatchEvent::Progress(last_printed_line(bytes)))
    };
    let output = match run_process(spec, watched, &mut on_output).await {
        Err(problem) => Err(problem),
        Ok(ran) if ran.is_success() => Ok(ran.stdout),
        Ok(ran) => {
            let now = job.resources.clock.now();
            Err(failure::command_problem(
                line,
                &ran,
                job.step.retry.is_explicit,
                now,
            ))
        }
    };
    WorkResult {
        output,
        usage: Usage::default(),
        cost: Cost::default(),
    }
}

/// Runs a process until it ends or is stopped.
pub(super) async fn run_process(
    spec: Spec<'_>,
    watched: &AttemptContext,
    on_output: &mut (dyn FnMut(Stream, &[u8]) + Send),
) -> Result<ProcessResult, Problem> {
    let tell = &watched.control.notify;
    let mut on_start = |pid, born| tell(AttemptEvent::Process(pid, born));
    let watching = ProcessObserver {
        on_start: &mut on_start,
        on_output,
    };
    let ran = process::run(spec, watching, &watched.stop).await?;
    match ran.was_stopped {
        true => Err(Problem::new(Cause::Interrupted, "it was stopped")),
        false => Ok(ran),
    }
}

/// Returns the last line of the output, for a report.
pub(super) fn last_printed_line(bytes: &[u8]) -> String {
    let end = bytes.len().saturating_sub(MAX_REPORTED_LINE_BYTES);
    let printed = String::from_utf8_lossy(&bytes[end..]);
    let last = printed.lines().rev().find(|line| !line.trim().is_empty());
    text::plain(last.unwrap_or_default().trim()).into_owned()
}

/// Returns the variables for a command of the step, in addition to ours.
pub(super) fn variables(
    job: &Job,
    inputs: &BTreeMap<String, Vec<u8>>,
) -> io::Result<Vec<(String, String)>> {
    let scratch = job.scratch();
    let mut variables = step_variables(job);
    variables.extend(input_files::write_inputs(inputs, &scratch, &[])?);
    if let Some(problem) = &job.previous_problem {
        let path = scratch.join("feedback");
        input_files::write_private_file(&path, feedback::violation_list(problem).as_bytes())?;
        variables.push((
            "OUTLAST_FEEDBACK_FILE".to_owned(),
            path.to_string_lossy().into_owned(),
        ));
    }
    Ok(variables)
}

/// Returns the variables for every command of the step.
pub(super) fn step_variables(job: &Job) -> Vec<(String, String)> {
    let given = job.step.env.clone();
    given.into_iter().chain(marker_variables(job)).collect()
}

/// Returns the marks of an attempt: variables that tell its processes from all others.
pub(super) fn marker_variables(job: &Job) -> Vec<(String, String)> {
    let own = [
        ("OUTLAST_RUN", job.run.clone()),
        ("OUTLAST_STEP", job.step.id.clone()),
        ("OUTLAST_VISIT", job.visit.to_string()),
        ("OUTLAST_ATTEMPT", job.attempt.number.to_string()),
    ];
    own.map(|(name, value)| (name.to_owned(), value)).to_vec()
}
