//! A provider that responds at once with prepared bytes.
//!
//! A complete response costs it two system calls; it shares a core with the load, so its cost must be small.

use crate::answers::{self, Dialect};
use crate::wire::{self, Connection};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;

/// The provider's prepared responses.
pub(crate) struct Upstream {
    chat: PreparedResponses,
    messages: PreparedResponses,
    is_frame_by_frame: AtomicBool,
}

struct PreparedResponses {
    whole: Vec<u8>,
    /// Head, frames and end.
    parts: Vec<Vec<u8>>,
    at_once: Vec<u8>,
}

impl Upstream {
    /// Starts serving; it ends with the runtime.
    pub(crate) async fn start() -> io::Result<(Arc<Self>, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let upstream = Arc::new(Self {
            chat: PreparedResponses::of(Dialect::Chat),
            messages: PreparedResponses::of(Dialect::Messages),
            is_frame_by_frame: AtomicBool::new(false),
        });
        tokio::spawn(Arc::clone(&upstream).accept(listener));
        Ok((upstream, address))
    }

    /// Sets whether each frame of a stream is sent separately, or all of them at once.
    pub(crate) fn set_frame_by_frame(&self, yes: bool) {
        self.is_frame_by_frame.store(yes, Ordering::Relaxed);
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let upstream = Arc::clone(&self);
            tokio::spawn(async move {
                // A closed connection is no error here: the load notices a lost response.
                upstream.serve(Connection::new(stream)?).await
            });
        }
    }

    async fn serve(&self, mut connection: Connection) -> io::Result<()> {
        let mut body = Vec::new();
        while let Some(head) = connection.head().await? {
            connection.body(&head, &mut body).await?;
            let answers = match Dialect::of(&head.word) {
                Dialect::Chat => &self.chat,
                Dialect::Messages => &self.messages,
            };
            if !is_streamed(&body) {
                connection.send(&answers.whole).await?;
            } else if self.is_frame_by_frame.load(Ordering::Relaxed) {
                for part in &answers.parts {
                    connection.send(part).await?;
                    // Lets the other streams send a frame before the next one of this stream.
                    tokio::task::yield_now().await;
                }
            } else {
                connection.send(&answers.at_once).await?;
            }
        }
        Ok(())
    }
}

impl PreparedResponses {
    fn of(dialect: Dialect) -> Self {
        let parts = answers::streamed(&answers::stream(dialect));
        Self {
            whole: answers::response("200 OK", &answers::json(dialect)),
            at_once: parts.concat(),
            parts,
        }
    }
}

fn is_streamed(body: &[u8]) -> bool {
    let spellings: [&[u8]; 2] = [b"\"stream\":true", b"\"stream\": true"];
    spellings
        .iter()
        .any(|spelling| wire::position(body, spelling).is_some())
}
