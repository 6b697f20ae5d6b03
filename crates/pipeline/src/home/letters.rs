//! Telling whoever is at work on a run what a person wants.

use super::super::history::Written;
use super::super::mailbox::{self, Letter, Mailbox};
use super::super::standing::{self, Question};
use super::super::state::{Phase, Run};
use super::{Error, Home, MAIL, MOST_OF_NAME, shown};
use outlast_store::journal::{State, Summary};

/// A run that was told something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The run.
    pub run: String,
    /// Whether a process is at work on it; else whoever takes it up is told.
    pub is_at_work: bool,
}

impl Home {
    /// Answers what a run asks: at that step, or at the only one that asks; with that choice, or the first one.
    pub async fn answer(
        &self,
        name: &str,
        step: Option<&str>,
        choice: Option<&str>,
    ) -> Result<Told, Error> {
        let (summary, run, entries) = self.open(name).await?;
        let (step, question) = gate(&run, &entries, step)?;
        if let Some(choice) = choice.filter(|choice| !question.has(choice)) {
            return Err(Error::UnknownChoice {
                step,
                choice: shown(choice, MOST_OF_NAME),
                choices: question.choices,
            });
        }
        let (step, choice) = (Some(step), choice.map(str::to_owned));
        self.post(&summary, Letter::Answer { step, choice }).await
    }

    /// Has a run try again at once what it waits to try again: that step, or all that wait.
    pub async fn retry_now(&self, name: &str, step: Option<&str>) -> Result<Told, Error> {
        let (summary, run, _) = self.open(name).await?;
        if let Some(step) = step.filter(|step| !run.phase(step).is_active()) {
            let (run, step) = (summary.id, shown(step, MOST_OF_NAME));
            return Err(Error::NotUnderWay { run, step });
        }
        let step = step.map(str::to_owned);
        self.post(&summary, Letter::RetryNow { step }).await
    }

    /// Ends a run.
    pub async fn cancel(&self, name: &str) -> Result<Told, Error> {
        let (summary, _, _) = self.open(name).await?;
        self.post(&summary, Letter::Cancel {}).await
    }

    /// A run that is not over.
    async fn open(&self, name: &str) -> Result<(Summary, Run, Vec<Written>), Error> {
        let summary = self.find(name).await?;
        let (run, entries) = self.read_without_waits(&summary.id).await?;
        match run.ended {
            Some(_) => Err(Error::Over { run: summary.id }),
            None => Ok((summary, run, entries)),
        }
    }

    async fn post(&self, summary: &Summary, letter: Letter) -> Result<Told, Error> {
        let (folder, run) = (self.folder().join(MAIL), summary.id.clone());
        let mailbox = Mailbox::new(&folder);
        let posted = tokio::task::spawn_blocking(move || mailbox.post(&run, &letter)).await;
        posted.unwrap_or_else(|error| {
            let (path, error) = (folder, error.into());
            Err(mailbox::Error::File { path, error })
        })?;
        Ok(Told {
            run: summary.id.clone(),
            is_at_work: summary.state == State::InUse,
        })
    }
}

/// The gate that is meant, and what is asked there.
fn gate(run: &Run, entries: &[Written], step: Option<&str>) -> Result<(String, Question), Error> {
    let at_gate = run
        .steps
        .iter()
        .filter(|(_, step)| matches!(step.phase, Phase::AtGate { .. }));
    let mut asking: Vec<(String, Question)> = at_gate
        .filter(|(id, _)| step.is_none_or(|step| step == *id))
        .filter_map(|(id, _)| Some((id.clone(), standing::asked(id, entries)?)))
        .collect();
    match asking.len() {
        1 => Ok(asking.swap_remove(0)),
        0 => Err(Error::NothingAsked {
            step: step.map(|step| shown(step, MOST_OF_NAME)),
        }),
        _ => Err(Error::SeveralAsk {
            steps: asking.into_iter().map(|(id, _)| id).collect(),
        }),
    }
}
