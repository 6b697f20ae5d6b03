//! The events of a running run and its reactions: reports of steps, run requests, cancellation, and the end of its time
//! budget.

use super::super::definition::Step;
use super::super::entry::Entry;
use super::super::graph::Graph;
use super::super::state::Phase;
use super::tasks::{TaskId, Tasks};
use super::{Error, EventListener, RunEvent, Runner, TaskReport};
use crate::graph::react::{self, AttemptResult, DecisionContext};
use crate::run_store::mailbox::RunRequest;
use outlast_engine::CancellationToken;
use outlast_kernel::Timestamp;
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Cause;

/// Maximum number of reports to handle before the next write.
const MAX_REPORTS_PER_BATCH: usize = 256;

/// An event of the run.
pub(super) enum Event {
    Report(TaskId, TaskReport),
    Request(RunRequest),
    /// The caller cancels the run.
    Stop,
    DeadlineReached,
}

impl Runner {
    /// Waits for events.
    pub(super) async fn next_events(
        &mut self,
        stop: &CancellationToken,
        tasks: &mut Tasks,
    ) -> Result<Vec<Event>, Error> {
        let is_canceled = self.graph.is_canceled();
        let deadline = self.deadline().filter(|_| !is_canceled);
        let clock = &self.resources.clock;
        let over = clock.sleep_until(deadline.unwrap_or(Timestamp::LATEST));
        let mut reports = Vec::new();
        tokio::select! {
            biased;
            Some(why) = tasks.halts.recv() => return Err(Error::NotRecorded { why }),
            () = stop.cancelled(), if !is_canceled => return Ok(vec![Event::Stop]),
            () = over, if deadline.is_some() => return Ok(vec![Event::DeadlineReached]),
            _ = tasks.reports.recv_many(&mut reports, MAX_REPORTS_PER_BATCH) => {}
            letter = self.requests.1.recv() => {
                return Ok(letter.map(Event::Request).into_iter().collect());
            }
            _ = self.request_poll.tick() => {
                // Unreadable requests are ignored.
                let letters = self.resources.mailbox.take(&self.id).unwrap_or_default();
                return Ok(letters.into_iter().flatten().map(Event::Request).collect());
            }
        }
        let reports = reports.into_iter();
        Ok(reports
            .map(|(of, report)| Event::Report(of, report))
            .collect())
    }

    /// Returns the entries that follow an event in the current state.
    pub(super) fn handle(
        &mut self,
        heard: Event,
        tell: EventListener<'_>,
        tasks: &Tasks,
    ) -> Vec<Entry> {
        match heard {
            Event::Report(of, report) if tasks.is_current(&of) => {
                self.handle_report(&of.step, report, tell)
            }
            // The task of the report has ended meanwhile.
            Event::Report(..) => Vec::new(),
            Event::Request(letter) => self.handle_request(letter, tasks),
            Event::Stop => self.cancel("it was interrupted", tasks),
            Event::DeadlineReached => {
                let time = self.pipeline.runtime.budget.time.unwrap_or_default();
                self.cancel(&format!("the run's time of {} is over", Span(time)), tasks)
            }
        }
    }

    fn handle_report(
        &mut self,
        name: &str,
        report: TaskReport,
        tell: EventListener<'_>,
    ) -> Vec<Entry> {
        let step = || name.to_owned();
        match (report, self.run.phase(name)) {
            (TaskReport::SessionEvent(time, body), _) => {
                let step = name;
                let body = &*body;
                tell(RunEvent::SessionEvent { step, time, body });
                Vec::new()
            }
            (TaskReport::Process(pid, born), Phase::Working) => vec![Entry::ProcessStarted {
                step: step(),
                pid,
                born,
            }],
            (TaskReport::Done(done), Phase::Working) => self.handle_attempt_result(name, *done),
            (TaskReport::WaitOver, Phase::Waiting { .. }) => {
                vec![Entry::WaitEnded { step: step() }]
            }
            (TaskReport::GateOver, Phase::AtGate { .. }) => match self.graph.step(name) {
                Some(step) => react::handle_gate_answer(&self.graph, &self.run, step, None),
                None => Vec::new(),
            },
            // The wait or the gate was answered, cut short or cancelled meanwhile.
            _ => Vec::new(),
        }
    }

    fn handle_attempt_result(&mut self, step: &str, mut done: AttemptResult) -> Vec<Entry> {
        let time = self.resources.clock.now();
        if let Err(problem) = &mut done.output
            && problem.cause == Cause::Interrupted
            && self.is_past_deadline(time)
        {
            problem.cause = Cause::DeadlinePassed;
        }
        let now = DecisionContext {
            time,
            deadline: self.deadline(),
            entropy: uuid::Uuid::now_v7().as_u64_pair().1,
        };
        react::handle_attempt_result(&mut self.graph, &self.run, step, done, now)
    }

    fn handle_request(&mut self, letter: RunRequest, tasks: &Tasks) -> Vec<Entry> {
        match letter {
            RunRequest::Cancel {} => self.cancel("another process wanted it", tasks),
            RunRequest::RetryNow { step } => {
                tasks.retry_now(step.as_deref());
                let is_meant = |name: &&String| step.as_ref().is_none_or(|step| step == *name);
                let waits = |name: &&String| matches!(self.run.phase(name), Phase::Waiting { .. });
                let steps = self.run.steps.keys().filter(is_meant).filter(waits);
                steps
                    .map(|step| Entry::WaitEnded { step: step.clone() })
                    .collect()
            }
            RunRequest::Answer { step, choice } => {
                self.answer_gate(step.as_deref(), choice.as_deref())
            }
        }
    }

    fn answer_gate(&self, step: Option<&str>, choice: Option<&str>) -> Vec<Entry> {
        let at_gate = |step: &&Step| matches!(self.run.phase(&step.id), Phase::AtGate { .. });
        let named = |wanted: &Step| step.is_none_or(|step| step == wanted.id);
        let mut steps = self.pipeline.steps.iter().filter(at_gate);
        let Some(step) = steps.find(|step| named(step)) else {
            return Vec::new();
        };
        match choice.or_else(|| react::first_choice(step)) {
            Some(key) if react::is_choice(step, key) => {
                react::handle_gate_answer(&self.graph, &self.run, step, Some(key))
            }
            _ => Vec::new(),
        }
    }

    /// Cancels the run: stops running attempts, and ends all other active steps at once.
    fn cancel(&mut self, why: &str, tasks: &Tasks) -> Vec<Entry> {
        if self.graph.is_canceled() {
            return Vec::new();
        }
        self.graph.cancel(why);
        tasks.cancel();
        let waits = |step: &&Step| {
            let phase = self.run.phase(&step.id);
            phase.is_active() && phase != Phase::Working
        };
        let waiting = self.pipeline.steps.iter().filter(waits);
        waiting
            .map(|step| Graph::cancel_step(step, &self.run))
            .collect()
    }
}
