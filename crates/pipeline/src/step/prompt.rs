//! An attempt of a step that asks a model: a turn in a session of ours.
//!
//! The turn waits and tries again by the step's policy; what it could not outlast, the step does not wait for again. The
//! session is the same for all attempts of a visit, so that a model that is told what was wrong knows what it did, and it
//! is found again after a crash.

use super::super::contract::JudgeClient as AskJudge;
use super::super::definition::{Judge, Prompt};
use super::super::entry::Problem;
use super::super::host::SessionRequest;
use super::feedback;
use super::{AttemptContext, AttemptEvent, Job, WorkResult};
use crate::step::watchdog::ActivityTracker;
use crate::template;
use outlast_dialect::{Message, Role};
use outlast_engine::journal::Entry as SessionEntry;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::turn::TurnOutcome;
use outlast_engine::{BoxFuture, CancellationToken};
use outlast_kernel::budget::{Cost, Limits};
use outlast_kernel::decision::GiveUp;
use outlast_kernel::event::{Body, StopReason, TurnStatus, Usage};
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::{Error, PromptRequest, Setup, Subscription};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(super) async fn run(
    job: &Job,
    prompt: &Prompt,
    inputs: &BTreeMap<String, Vec<u8>>,
    watched: &AttemptContext,
) -> WorkResult {
    let wanted = SessionRequest {
        provider: prompt.provider.as_deref(),
        model: prompt.model.as_deref(),
        fallbacks: &prompt.fallbacks,
        allow: prompt.tools.then_some(prompt.allow.as_slice()),
        directory: &job.directory(),
    };
    let opened: Result<(String, Session), Problem> = async {
        let text = fill_prompt(prompt, inputs)?;
        let mut setup = setup(job, wanted).await?;
        if let Some(system) = &prompt.system {
            let before = setup.system.take();
            setup.system =
                Some(before.map_or(system.clone(), |before| format!("{before}\n\n{system}")));
        }
        Ok((text, open(job, setup, watched).await))
    }
    .await;
    match opened {
        Err(problem) => problem.into(),
        Ok((text, session)) => {
            let worked = run_turn(job, &session, text, watched).await;
            // What was settled is written down; a session that cannot be let go of is let go of when we end.
            session.close().await.ok();
            worked
        }
    }
}

fn fill_prompt(prompt: &Prompt, inputs: &BTreeMap<String, Vec<u8>>) -> Result<String, Problem> {
    let filled = template::fill(&prompt.text, &|name: &str| {
        let bytes = inputs.get(name)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    });
    filled.map_err(|error| Problem::new(Cause::InvalidRequest, error.to_string()))
}

/// What the session is made of, with the step's policy.
async fn setup(job: &Job, wanted: SessionRequest<'_>) -> Result<Setup, Problem> {
    let setup = job.resources.host.setup(wanted).await;
    let setup = setup.map_err(|why| Problem::new(Cause::Misconfigured, why))?;
    if job.budget.cost_left().is_some() && setup.price.is_none() {
        let why = "the run has a ceiling on its cost (runtime.budget), and what the model costs is not known: set `price` for it";
        return Err(Problem::new(Cause::Misconfigured, why));
    }
    let retry = PolicyRetry::new(
        job.step.retry.policy.clone(),
        Arc::clone(&job.resources.clock),
    );
    Ok(Setup {
        retry: Some(Arc::new(retry)),
        ..setup
    })
}

async fn open(job: &Job, setup: Setup, watched: &AttemptContext) -> Session {
    let id = job.attempt.session.clone().unwrap_or_default();
    let sessions = &job.resources.sessions;
    if job.is_resumed || job.session_attempts > 1 {
        match Session::open(sessions, &id, setup.clone()).await {
            // Its process died before it was begun.
            Err(Error::Store(outlast_store::Error::NoSuchSession { .. })) => {}
            Err(error) => return watched.control.halt(session_error(&error)).await,
            Ok(session) => return session,
        }
    }
    let directory = job.directory();
    let directory = directory.to_string_lossy();
    match Session::create_with_id(sessions, id, &directory, &job.step.id, setup).await {
        Ok(session) => session,
        Err(error) => watched.control.halt(session_error(&error)).await,
    }
}

fn session_error(error: &Error) -> String {
    format!("the session of a step: {error}")
}

async fn run_turn(
    job: &Job,
    session: &Session,
    text: String,
    watched: &AttemptContext,
) -> WorkResult {
    let _listening = forward_events(job, session, watched);
    let abort = watched.stop.child_token();
    let has_turn = session.turn_count() >= job.session_attempts;
    let ended = if session.unfinished_turn().is_some() {
        await_turn(session, session.resume_cancellable(abort), watched).await
    } else if has_turn && session.last_seal() != Some(TurnStatus::Aborted) {
        return settled_turn_result(job, session).await;
    } else {
        let ask = PromptRequest {
            limits: Limits {
                deadline: job.deadline,
                cost: job.budget.cost_left(),
                sleep: None,
            },
            abort,
            ..PromptRequest::default()
        };
        match next_message(job, session, text) {
            Some(text) => {
                let message = Some(Message::user(&text));
                await_turn(
                    session,
                    session.prompt(PromptRequest { message, ..ask }),
                    watched,
                )
                .await
            }
            None => await_turn(session, session.retry_last_turn(ask), watched).await,
        }
    };
    match ended {
        Ok(ended) => turn_result(ended),
        Err(error) => Problem::new(Cause::Internal, error.to_string()).into(),
    }
}

/// What is said to the model; nothing when it only has to go on.
fn next_message(job: &Job, session: &Session, text: String) -> Option<String> {
    let is_first = session.turn_count() == 0;
    let (attempt, most) = (job.attempt.number, job.max_attempts());
    match &job.previous_problem {
        Some(problem) if is_first => Some(feedback::program_prompt(&text, problem, attempt, most)),
        None if is_first => Some(text),
        Some(problem) => Some(feedback::session_prompt(problem, attempt, most)),
        None => None,
    }
}

/// Waits for a turn, and hurries it when somebody wants it to.
async fn await_turn(
    session: &Session,
    turn: impl Future<Output = Result<TurnOutcome, Error>>,
    watched: &AttemptContext,
) -> Result<TurnOutcome, Error> {
    let mut turn = Box::pin(turn);
    loop {
        tokio::select! {
            ended = &mut turn => return ended,
            () = watched.control.retry_now.notified() => session.retry_now(),
        }
    }
}

/// Tells the watchdog and whoever looks on what happens, and counts tokens while they are used.
fn forward_events(job: &Job, session: &Session, watched: &AttemptContext) -> Subscription {
    let (guard, tell) = (
        Arc::clone(&watched.watchdog),
        Arc::clone(&watched.control.notify),
    );
    let spent = Arc::clone(&job.budget);
    let (mut counted, mut signs) = (UsageMeter::default(), ActivityTracker::default());
    session.subscribe(move |event| {
        if let Some(sign) = signs.event_for(&event.body) {
            guard.record(sign);
        }
        match &event.body {
            Body::TextDelta { .. } | Body::ReasoningDelta { .. } => {}
            body => {
                spent.add(counted.delta(body), Cost::default());
                tell(AttemptEvent::Session(event.time, body.clone()));
            }
        }
    })
}

/// What the call under way has used so far.
#[derive(Default)]
struct UsageMeter(Usage);

impl UsageMeter {
    /// What is used in addition.
    fn delta(&mut self, body: &Body) -> Usage {
        match body {
            Body::AttemptStarted { .. } => {
                self.0 = Usage::default();
                Usage::default()
            }
            Body::Usage(usage) => {
                let more = usage.minus(self.0);
                self.0 = *usage;
                more
            }
            _ => Usage::default(),
        }
    }
}

fn turn_result(ended: TurnOutcome) -> WorkResult {
    let (usage, cost) = (ended.usage, ended.budget.cost());
    let output = match (ended.seal, ended.error) {
        (TurnStatus::Completed, _) if ended.stop_reason == Some(StopReason::Refusal) => {
            Err(Problem::new(Cause::ContentFilter, ended.message.text()))
        }
        (TurnStatus::Completed, _) => Ok(ended.message.text().into_bytes()),
        (TurnStatus::Error, Some((judged, why))) => {
            let verdict = &judged.verdict;
            let cause = match why {
                GiveUp::CostLimitReached => Cause::CeilingReached,
                _ => verdict.cause,
            };
            Err(Problem {
                not_before: verdict.hint.as_ref().map(|hint| hint.not_before),
                retries_spent: true,
                ..Problem::new(cause, format!("{} ({why})", judged.failure.message))
            })
        }
        (TurnStatus::Error, None) => Err(Problem::new(Cause::Unknown, "its turn failed")),
        (TurnStatus::Aborted, _) => Err(Problem::new(Cause::Interrupted, "it was stopped")),
    };
    WorkResult {
        output,
        usage,
        cost,
    }
}

/// What came of a turn that an earlier process settled, and died before it could say so.
async fn settled_turn_result(job: &Job, session: &Session) -> WorkResult {
    let settled = job
        .resources
        .sessions
        .last_of_kind(session.id(), "settled")
        .await;
    let settled = settled.ok().flatten();
    let settled = settled.and_then(|entry| serde_json::from_str(&entry.entry.body).ok());
    let Some(SessionEntry::Settled { seal, usage, error }) = settled else {
        return Problem::new(Cause::Unknown, "what came of its turn cannot be read").into();
    };
    let output = match (seal, error) {
        (TurnStatus::Completed, _) => {
            let messages = session.messages();
            let mut answers = messages.iter().rev();
            let answer = answers.find(|message| message.role == Role::Assistant);
            Ok(answer.map(Message::text).unwrap_or_default().into_bytes())
        }
        (_, Some(problem)) => Err(Problem {
            retries_spent: true,
            ..Problem::new(
                problem.cause,
                format!("{} ({})", problem.message, problem.reason),
            )
        }),
        (_, None) => Err(Problem::new(Cause::Unknown, "its turn failed")),
    };
    let price = session.setup().price;
    job.budget.add(usage, Cost::default());
    WorkResult {
        output,
        usage,
        cost: price.map(|price| price.cost(usage)).unwrap_or_default(),
    }
}

/// Asks judges, and counts what that costs.
pub(super) struct ModelJudge<'a> {
    job: &'a Job,
    attempt_context: &'a AttemptContext,
    totals: Mutex<(Usage, Cost)>,
}

impl<'a> ModelJudge<'a> {
    pub(super) fn new(job: &'a Job, attempt_context: &'a AttemptContext) -> Self {
        let totals = Mutex::default();
        Self {
            job,
            attempt_context,
            totals,
        }
    }

    pub(super) fn usage_and_cost(&self) -> (Usage, Cost) {
        *self.totals.lock()
    }

    async fn ask_model(&self, judge: &Judge, prompt: String) -> Result<String, Problem> {
        let wanted = SessionRequest {
            provider: judge.provider.as_deref(),
            model: judge.model.as_deref(),
            fallbacks: &[],
            allow: None,
            directory: Path::new(""),
        };
        let session = Session::in_memory(setup(self.job, wanted).await?);
        let _listening = forward_events(self.job, &session, self.attempt_context);
        let ask = PromptRequest {
            abort: self.stop(),
            limits: Limits {
                deadline: self.job.deadline,
                cost: self.job.budget.cost_left(),
                sleep: None,
            },
            ..PromptRequest::from(prompt.as_str())
        };
        let ended = await_turn(&session, session.prompt(ask), self.attempt_context).await;
        let ended = ended.map_err(|error| Problem::new(Cause::Internal, error.to_string()))?;
        let worked = turn_result(ended);
        {
            let mut spent = self.totals.lock();
            spent.0 = spent.0.plus(worked.usage);
            spent.1 = Cost(spent.1.0.saturating_add(worked.cost.0));
        }
        worked
            .output
            .map(|answer| String::from_utf8_lossy(&answer).into_owned())
    }

    fn stop(&self) -> CancellationToken {
        self.attempt_context.stop.child_token()
    }
}

impl AskJudge for ModelJudge<'_> {
    fn ask<'a>(
        &'a self,
        judge: &'a Judge,
        prompt: String,
    ) -> BoxFuture<'a, Result<String, Problem>> {
        Box::pin(self.ask_model(judge, prompt))
    }
}
