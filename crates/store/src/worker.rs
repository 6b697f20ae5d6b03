//! The one thread of this process that touches the file.

use crate::Error;
use rusqlite::Connection;
use std::sync::mpsc;
use tokio::sync::oneshot;

/// A change of the file that this connection has seen.
type Seen = i64;
type Job = Box<dyn FnOnce(&mut Connection, &mut Seen) + Send>;

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    jobs: mpsc::Sender<Job>,
}

impl Worker {
    /// Starts the thread; it ends when the last clone is gone.
    pub(crate) fn start(mut connection: Connection) -> Result<Self, Error> {
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
        Ok(Self { jobs })
    }

    /// Has a piece of work done, in its turn. Work whose caller has left is not begun.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection, &mut Seen) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection, seen| {
            if !answer.is_closed() {
                // Nobody may be waiting any more; what was done is done.
                answer.send(work(connection, seen)).ok();
            }
        });
        self.jobs.send(job).map_err(|_| Error::Gone)?;
        answered.await.map_err(|_| Error::Gone)?
    }
}
