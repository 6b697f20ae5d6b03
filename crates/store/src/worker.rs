//! The one thread of this process that touches the file.

use crate::Error;
use crate::group_commit::{self, Change, DatabaseFailure};
use rusqlite::Connection;
use std::path::Path;
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

/// The version of the file's data that this connection has seen last.
type DataVersion = i64;
type Job = Box<dyn FnOnce(&mut Connection, &mut DataVersion) + Send>;

enum Work {
    Job(Job),
    /// Can be carried out together with others.
    Change(Box<dyn Change>),
}

/// Whether to carry out work whose caller has left before it was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCallerGone {
    Skip,
    Run,
}

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    jobs: mpsc::Sender<Work>,
    path: Arc<Path>,
}

impl Worker {
    /// Starts the thread for the file at that path; it ends when the last clone is gone.
    pub(crate) fn start(path: &Path, connection: Connection) -> Result<Self, Error> {
        let (jobs, received) = mpsc::channel();
        std::thread::Builder::new()
            .name("outlast-store".to_owned())
            .spawn(move || run_worker(connection, &received))
            .map_err(Error::Thread)?;
        let path = path.into();
        Ok(Self { jobs, path })
    }

    /// Runs a piece of work, in order. Work whose caller has left is not begun.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection, &mut DataVersion) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let (answer, answered) = oneshot::channel();
        let path = Arc::clone(&self.path);
        let job: Job = Box::new(move |connection, seen| {
            if !answer.is_closed() {
                let done = work(connection, seen).map_err(|error| error.with_path(&path));
                // Nobody may be waiting any more; the work is done nevertheless.
                answer.send(done).ok();
            }
        });
        self.jobs.send(Work::Job(job)).map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }

    /// Makes a change, in order, as a whole or not at all. The response is `then` of the change's result, once that is
    /// on the disk.
    pub(crate) fn change<R: Send + 'static, T: Send + 'static>(
        &self,
        on_caller_gone: OnCallerGone,
        change: impl FnOnce(&Connection) -> Result<R, Error> + Send + 'static,
        then: impl FnOnce(R) -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static {
        let (reply, answered) = oneshot::channel();
        let pending = PendingChange {
            on_caller_gone,
            change: Some(change),
            outcome: None,
            then,
            reply,
            path: Arc::clone(&self.path),
        };
        let handed_in = self.jobs.send(Work::Change(Box::new(pending)));
        let handed_in = handed_in.map_err(|_| Error::Closed);
        async {
            handed_in?;
            answered.await.map_err(|_| Error::Closed)?
        }
    }
}

fn run_worker(mut connection: Connection, received: &mpsc::Receiver<Work>) {
    let mut seen = DataVersion::default();
    // A job that arrived while changes were carried out.
    let mut waiting = None;
    while let Some(work) = waiting.take().or_else(|| received.recv().ok()) {
        match work {
            Work::Job(job) => job(&mut connection, &mut seen),
            Work::Change(first) => {
                let next = || match received.try_recv().ok()? {
                    Work::Change(change) => Some(change),
                    job @ Work::Job(_) => {
                        waiting = Some(job);
                        None
                    }
                };
                group_commit::commit_group(&mut connection, first, next);
            }
        }
    }
}

/// A change with its caller and its result.
struct PendingChange<R, T, C, Then> {
    on_caller_gone: OnCallerGone,
    change: Option<C>,
    outcome: Option<Result<R, Error>>,
    then: Then,
    reply: oneshot::Sender<Result<T, Error>>,
    path: Arc<Path>,
}

impl<R, T, C, Then> Change for PendingChange<R, T, C, Then>
where
    R: Send,
    T: Send,
    C: FnOnce(&Connection) -> Result<R, Error> + Send,
    Then: FnOnce(R) -> T + Send,
{
    fn apply(&mut self, connection: &Connection) -> Result<(), DatabaseFailure> {
        let is_wanted = self.on_caller_gone == OnCallerGone::Run || !self.reply.is_closed();
        let Some(change) = self.change.take().filter(|_| is_wanted) else {
            return Ok(());
        };
        let made = change(connection);
        let failed = made.as_ref().err().map(DatabaseFailure::from_error);
        self.outcome = Some(made);
        failed.map_or(Ok(()), Err)
    }

    fn finish(self: Box<Self>, kept: Result<(), DatabaseFailure>) {
        let result = match (self.outcome, kept) {
            (Some(Err(error)), _) => Err(error),
            (_, Err(failure)) => Err(failure.into()),
            (Some(Ok(made)), Ok(())) => Ok((self.then)(made)),
            // Its caller has left.
            (None, Ok(())) => return,
        };
        // Nobody may be waiting any more; the change is made nevertheless.
        self.reply
            .send(result.map_err(|error| error.with_path(&self.path)))
            .ok();
    }
}
