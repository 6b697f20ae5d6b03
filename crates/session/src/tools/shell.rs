//! A command that a client of ours runs, and no model: nobody is asked, and what it prints is told as it comes.
//!
//! Invariants: what is told and what is handed back is bounded and free of terminal escapes; when the future is dropped
//! or cancelled, all processes of the command are killed.
//! Not here: what a model runs, see `bash`.

use outlast_engine::CancellationToken;
use std::io;
use std::path::PathBuf;

/// What is run, and where.
#[derive(Clone, Debug, Default)]
pub struct ShellCommand {
    /// The command, as one would type it.
    pub command: String,
    /// Where it is run.
    pub directory: PathBuf,
    /// Variables of our environment that it must not see.
    pub hidden_variables: Vec<String>,
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellOutput {
    /// What it printed, of much of it the beginning and the end.
    pub output: String,
    /// The code that it ended with; none when it was killed.
    pub exit_code: Option<i32>,
    /// Whether it was cancelled.
    pub cancelled: bool,
    /// Whether something of its output is left out.
    pub truncated: bool,
}

/// Runs a command to its end, or until it is cancelled; its processes are gone within 230 milliseconds then. It is an
/// error when it could not be started.
#[cfg(unix)]
pub async fn run(
    shell: ShellCommand,
    cancel: CancellationToken,
    on_piece: &mut (dyn FnMut(&str) + Send),
) -> io::Result<ShellOutput> {
    use crate::process::command::{Capture, Command, CommandKind, RunningCommand};
    use crate::process::output::{HeadTailBuffer, printed};
    use crate::process::text_decoder::TextDecoder;

    let mut running = RunningCommand::start(&Command {
        line: CommandKind::Shell(&shell.command),
        directory: &shell.directory,
        hidden_variables: &shell.hidden_variables,
        variables: &[],
        input: None,
        streams: Capture::Both,
    })?;
    let (mut kept, mut pieces) = (HeadTailBuffer::default(), TextDecoder::default());
    let mut say = |piece: &str| {
        if !piece.is_empty() {
            on_piece(piece);
        }
    };
    let mut take = |_, bytes: &[u8]| {
        kept.push(bytes);
        say(&pieces.push(bytes));
    };
    let ended = tokio::select! {
        ended = running.finish(&mut take) => Some(ended?),
        () = cancel.cancelled() => None,
    };
    if ended.is_none() {
        running.kill(&mut take).await;
    }
    say(&pieces.finish());
    Ok(ShellOutput {
        truncated: kept.is_cut(),
        output: printed(&kept.into_text()),
        exit_code: ended.and_then(|status| status.code()),
        cancelled: ended.is_none(),
    })
}

/// Without the means to keep hold of a command's processes none is started.
#[cfg(not(unix))]
pub async fn run(
    _: ShellCommand,
    _: CancellationToken,
    _: &mut (dyn FnMut(&str) + Send),
) -> io::Result<ShellOutput> {
    std::future::ready(Err(io::ErrorKind::Unsupported.into())).await
}
