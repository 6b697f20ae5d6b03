//! Replies that need the whole history of a session. They run beside the command queue: a long history takes time.

use super::command::{Caller, Command};
use super::connection::Connection;
use crate::pi_rpc::history::History;
use crate::pi_rpc::models::Models;
use outlast_session::Session;
use outlast_session::factory::Model;
use outlast_session::transcript::{Format, Header, Writer};
use outlast_store::journal::StoredEntry;
use serde_json::json;
use serde_json::value::RawValue;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Connection {
    /// Reads the history and replies from it.
    pub(super) async fn reply_from_history(
        self: &Arc<Self>,
        session: Arc<Session>,
        caller: Caller,
        command: Command,
    ) {
        // Each reader holds the whole history in memory, so only a few run at once.
        let turn = Arc::clone(&self.readers).acquire_owned().await;
        let connection = Arc::clone(self);
        self.tasks.spawn(async move {
            let _turn = turn;
            let reply = match session.entries().await {
                Err(error) => caller.error(&error.to_string()),
                Ok(entries) => {
                    let told = connection.told(&session, caller.clone(), command, entries);
                    // The history may be long to read and to write.
                    let told = tokio::task::spawn_blocking(told).await;
                    told.unwrap_or_else(|error| caller.error(&error.to_string()))
                }
            };
            connection.reply(reply);
        });
    }

    /// Returns the known models of this session, the one in use first.
    pub(super) fn models(&self) -> Models {
        let (first, others) = (self.model(), self.host.models());
        let is_other = |other: &Model| !first.as_ref().is_some_and(|first| first.is_same(other));
        let others = others.into_iter().filter(is_other);
        let all: Vec<_> = first.iter().cloned().chain(others).collect();
        all.into()
    }

    /// Returns the work that makes the reply from the entries.
    fn told(
        &self,
        session: &Session,
        caller: Caller,
        command: Command,
        entries: Vec<StoredEntry>,
    ) -> impl FnOnce() -> Box<RawValue> + Send + 'static {
        let (models, id) = (self.models(), session.id().to_owned());
        let file = self.session_file(session);
        let head = Header {
            id: id.clone(),
            title: session.title(),
            directory: self.host.folder().to_string_lossy().into_owned(),
            created: entries
                .first()
                .map_or_else(|| session.clock().now(), |first| first.entry.time),
        };
        let folder = self.host.folder();
        move || {
            if let Command::ExportHtml { output_path } = command {
                let path = output_path.map_or_else(
                    || PathBuf::from(format!("outlast-session-{id}.html")),
                    PathBuf::from,
                );
                let path = folder.join(path);
                return match export(&path, &head, &entries) {
                    Ok(()) => caller.data(json!({ "path": path })),
                    Err(error) => caller.error(&format!("{}: {error}", path.display())),
                };
            }
            let history = History::from_entries(&entries, &models);
            history_data(&caller, command, &history, &id, file.as_deref())
        }
    }
}

fn history_data(
    caller: &Caller,
    command: Command,
    history: &History,
    id: &str,
    file: Option<&str>,
) -> Box<RawValue> {
    match command {
        Command::GetMessages => caller.data(json!({ "messages": history.messages() })),
        Command::GetEntries { since } => match history.entries(since.as_deref()) {
            Ok(entries) => caller.data(json!({ "entries": entries, "leafId": history.leaf_id() })),
            Err(error) => caller.error(&error.to_string()),
        },
        Command::GetTree => caller.data(Tree {
            tree: history.tree(),
            leaf_id: history.leaf_id(),
        }),
        Command::GetForkMessages => caller.data(json!({ "messages": history.fork_messages() })),
        Command::GetLastAssistantText => {
            caller.data(json!({ "text": history.last_assistant_text() }))
        }
        Command::GetSessionStats => caller.data(history.stats(id, file)),
        _ => caller.error("it is not answered from the history"),
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Tree<'a> {
    tree: Box<RawValue>,
    leaf_id: Option<&'a str>,
}

/// Writes the session as a page that only its user can read. Anything at that path that is not a file, such as a pipe, is
/// refused: it could block the writer for ever.
fn export(path: &Path, head: &Header, entries: &[StoredEntry]) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let why = "it is there, and no file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut options = outlast_store::private::options();
    options.write(true).create(true).truncate(true);
    let file = BufWriter::new(options.open(path)?);
    let mut writer = Writer::new(Format::Html, head, file)?;
    entries.iter().try_for_each(|entry| writer.entry(entry))?;
    writer.finish().map(drop)
}
