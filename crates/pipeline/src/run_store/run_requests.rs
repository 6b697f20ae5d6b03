//! Sends requests from a person to a run.

use super::super::history::RecordedEntry;
use super::super::run_view::{self, Question};
use super::super::state::{Phase, Run};
use super::{Error, MAIL, MAX_NAME_BYTES, RunStore, printable};
use crate::run_store::mailbox::{self, Mailbox, RunRequest};
use outlast_store::journal::{Availability, Summary};
use serde::Serialize;

/// The receipt of a request to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunRequestReceipt {
    /// The id of the run.
    pub id: String,
    /// Whether a process executes the run and receives the request within a second. Otherwise the request takes effect
    /// when the run is resumed.
    pub is_at_work: bool,
}

impl RunStore {
    /// Answers the gate of the given step, or the only open one, with the given choice, or the first one.
    pub async fn answer(
        &self,
        name: &str,
        step: Option<&str>,
        choice: Option<&str>,
    ) -> Result<RunRequestReceipt, Error> {
        let (summary, run, entries) = self.open(name).await?;
        let (step, question) = open_gate(&run, &entries, step)?;
        if let Some(choice) = choice.filter(|choice| !question.has_choice(choice)) {
            return Err(Error::UnknownChoice {
                step,
                choice: printable(choice, MAX_NAME_BYTES),
                choices: question.choices,
            });
        }
        let (step, choice) = (Some(step), choice.map(str::to_owned));
        self.post(&summary, RunRequest::Answer { step, choice })
            .await
    }

    /// Retries a waiting step at once, or all waiting steps.
    pub async fn retry_now(
        &self,
        name: &str,
        step: Option<&str>,
    ) -> Result<RunRequestReceipt, Error> {
        let (summary, run, _) = self.open(name).await?;
        if let Some(step) = step.filter(|step| !run.phase(step).is_active()) {
            let (run, step) = (summary.id, printable(step, MAX_NAME_BYTES));
            return Err(Error::StepNotActive { run, step });
        }
        let step = step.map(str::to_owned);
        self.post(&summary, RunRequest::RetryNow { step }).await
    }

    /// Cancels a run.
    pub async fn cancel(&self, name: &str) -> Result<RunRequestReceipt, Error> {
        let (summary, _, _) = self.open(name).await?;
        self.post(&summary, RunRequest::Cancel {}).await
    }

    /// Reads a run that is not over.
    async fn open(&self, name: &str) -> Result<(Summary, Run, Vec<RecordedEntry>), Error> {
        let summary = self.find(name).await?;
        let (run, entries) = self.read_without_waits(&summary.id).await?;
        match run.ended {
            Some(_) => Err(Error::RunEnded { run: summary.id }),
            None => Ok((summary, run, entries)),
        }
    }

    async fn post(
        &self,
        summary: &Summary,
        letter: RunRequest,
    ) -> Result<RunRequestReceipt, Error> {
        let (folder, run) = (self.folder().join(MAIL), summary.id.clone());
        let mailbox = Mailbox::new(&folder);
        let posted = tokio::task::spawn_blocking(move || mailbox.post(&run, &letter)).await;
        posted.unwrap_or_else(|error| {
            let (path, error) = (folder, error.into());
            Err(mailbox::Error::File { path, error })
        })?;
        Ok(RunRequestReceipt {
            id: summary.id.clone(),
            is_at_work: summary.availability == Availability::InUse,
        })
    }
}

/// Returns the selected open gate, and its question.
fn open_gate(
    run: &Run,
    entries: &[RecordedEntry],
    step: Option<&str>,
) -> Result<(String, Question), Error> {
    let at_gate = run
        .steps
        .iter()
        .filter(|(_, step)| matches!(step.phase, Phase::AtGate { .. }));
    let mut asking: Vec<(String, Question)> = at_gate
        .filter(|(id, _)| step.is_none_or(|step| step == *id))
        .filter_map(|(id, _)| Some((id.clone(), run_view::open_question(id, entries)?)))
        .collect();
    match asking.len() {
        1 => Ok(asking.swap_remove(0)),
        0 => Err(Error::NoOpenQuestion {
            step: step.map(|step| printable(step, MAX_NAME_BYTES)),
        }),
        _ => Err(Error::AmbiguousQuestion {
            steps: asking.into_iter().map(|(id, _)| id).collect(),
        }),
    }
}
