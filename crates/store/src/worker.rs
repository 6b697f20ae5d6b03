//! The one thread of this process that touches the file.

use crate::Error;
use rusqlite::Connection;
use std::path::Path;
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

/// A change of the file that this connection has seen.
type Seen = i64;
type Job = Box<dyn FnOnce(&mut Connection, &mut Seen) + Send>;

/// What becomes of work whose caller has left before it was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfLeft {
    Drop,
    Do,
}

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    jobs: mpsc::Sender<Job>,
    path: Arc<Path>,
}

impl Worker {
    /// Starts the thread for the file at that path; it ends when the last clone is gone.
    pub(crate) fn start(path: &Path, mut connection: Connection) -> Result<Self, Error> {
        let (jobs, received) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("outlast-store".to_owned())
            .spawn(move || {
                let mut seen = Seen::default();
                while let Ok(job) = received.recv() {
                    job(&mut connection, &mut seen);
                }
            })
            .map_err(Error::Thread)?;
        let path = path.into();
        Ok(Self { jobs, path })
    }

    /// Has a piece of work done, in its turn. Work whose caller has left is not begun.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection, &mut Seen) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let answered = self.hand_in(IfLeft::Drop, work)?;
        answered.await.map_err(|_| Error::Gone)?
    }

    /// Has a piece of work done, in its turn, even if nobody waits for it any more.
    pub(crate) fn run_anyway<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<R, Error> + Send + 'static,
    ) -> impl Future<Output = Result<R, Error>> + Send + 'static {
        let handed_in = self.hand_in(IfLeft::Do, |connection, _| work(connection));
        async { handed_in?.await.map_err(|_| Error::Gone)? }
    }

    fn hand_in<R: Send + 'static>(
        &self,
        if_left: IfLeft,
        work: impl FnOnce(&mut Connection, &mut Seen) -> Result<R, Error> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<R, Error>>, Error> {
        let (answer, answered) = oneshot::channel();
        let path = Arc::clone(&self.path);
        let job: Job = Box::new(move |connection, seen| {
            if if_left == IfLeft::Do || !answer.is_closed() {
                let done = work(connection, seen).map_err(|error| error.of(&path));
                // Nobody may be waiting any more; what was done is done.
                answer.send(done).ok();
            }
        });
        self.jobs.send(job).map_err(|_| Error::Gone)?;
        Ok(answered)
    }
}
