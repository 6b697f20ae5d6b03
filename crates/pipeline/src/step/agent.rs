//! An attempt of a step that runs an agent program.

use super::super::definition::{Agent, CommandLine, Work};
use super::super::entry::Problem;
use super::super::process::{Spec, Stream};
use super::{AttemptContext, Job, WorkResult, command};
use super::{feedback, input_files};
use crate::step::watchdog::WatchEvent;
use crate::{agents, failure, template};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Cost;
use outlast_kernel::verdict::Cause;
use std::collections::BTreeMap;

pub(super) async fn run(
    job: &Job,
    agent: &Agent,
    inputs: &BTreeMap<String, Vec<u8>>,
    watched: &AttemptContext,
) -> WorkResult {
    let stand_in = job.attempt.fallback.as_ref().map(|name| Agent {
        name: name.clone(),
        program: configured_program(name, job),
        // Another program does not know the models of the first one.
        model: None,
        ..agent.clone()
    });
    let agent = stand_in.as_ref().unwrap_or(agent);
    let prepared = prepare(job, agent, inputs, watched).await;
    let (invocation, env) = match prepared {
        Ok(prepared) => prepared,
        Err(problem) => return problem.into(),
    };
    let line = CommandLine::Program(invocation.program);
    let spec = Spec {
        line: &line,
        directory: &job.directory(),
        env: &env,
        // The agent has its own key, or finds it where we do.
        hidden_variables: &[],
        input: invocation.input.as_deref(),
    };
    let mut reader = invocation.reader;
    let mut on_output = |stream: Stream, bytes: &[u8]| match stream {
        Stream::Stdout => {
            for sign in reader.push(bytes) {
                watched.watchdog.record(sign);
            }
        }
        Stream::Stderr => watched
            .watchdog
            .record(WatchEvent::Activity(command::last_printed_line(bytes))),
    };
    let ran = command::run_process(spec, watched, &mut on_output).await;
    let answer = reader.finish();
    job.budget.add(answer.usage, Cost::default());
    let output = match ran {
        Err(problem) => Err(problem),
        Ok(ran) if ran.code == Some(0) && answer.error.is_none() => Ok(answer.text.into_bytes()),
        Ok(ran) => {
            let now = job.resources.clock.now();
            let is_explicit = job.step.retry.is_explicit;
            let error = answer.error.as_deref();
            let problem = failure::agent_problem(error, &ran, is_explicit, now);
            Err(with_limit_reset(problem, answer.not_before))
        }
    };
    WorkResult {
        output,
        usage: answer.usage,
        cost: answer.cost,
    }
}

/// Sets the end of a limit in the problem, as exactly as it is known.
fn with_limit_reset(problem: Problem, end: Option<Timestamp>) -> Problem {
    let is_limit = matches!(problem.cause, Cause::RateLimited | Cause::UsageLimit);
    Problem {
        not_before: end.filter(|_| is_limit).or(problem.not_before),
        ..problem
    }
}

/// Returns the program that the pipeline configures for the agent of the given name, if any.
fn configured_program(name: &str, job: &Job) -> Option<Vec<String>> {
    let agents = job
        .pipeline
        .steps
        .iter()
        .filter_map(|step| match &step.work {
            Work::Agent(agent) => Some(agent),
            _ => None,
        });
    let mut named = agents.filter(|agent| agent.name == name);
    named.find_map(|agent| agent.program.clone())
}

type PreparedInvocation = (agents::Invocation, Vec<(String, String)>);

async fn prepare(
    job: &Job,
    agent: &Agent,
    inputs: &BTreeMap<String, Vec<u8>>,
    watched: &AttemptContext,
) -> Result<PreparedInvocation, Problem> {
    let filled = template::fill(&agent.prompt, &|name: &str| {
        let bytes = inputs.get(name)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    });
    let mut prompt =
        filled.map_err(|error| Problem::new(Cause::InvalidRequest, error.to_string()))?;
    if let Some(problem) = &job.previous_problem {
        let (attempt, most) = (job.attempt.number, job.max_attempts());
        prompt = feedback::program_prompt(&prompt, problem, attempt, most);
    }
    let live = &watched.control;
    let env = live.or_halt(command::variables(job, inputs)).await?;
    let file = job.scratch().join("prompt");
    live.or_halt(input_files::write_private_file(&file, prompt.as_bytes()))
        .await?;
    let mut invocation = agents::invocation(agent, &prompt, &file);
    // The step's own variables come last and override.
    let env = invocation.env.drain(..).chain(env).collect();
    Ok((invocation, env))
}
