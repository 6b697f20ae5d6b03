//! Runs a command for a client, not for a model: without approval, and with its output streamed.
//!
//! Invariants: the streamed and the returned output are bounded and free of terminal escapes; dropping or cancelling the
//! future kills all processes of the command.
//! Not here: commands of a model, see `bash`.

use outlast_engine::CancellationToken;
use std::io;
use std::path::PathBuf;

/// A command to run.
#[derive(Clone, Debug, Default)]
pub struct ShellCommand {
    /// The command line, as one would type it.
    pub command: String,
    /// The working directory.
    pub directory: PathBuf,
    /// Variables of our environment that are hidden from the command.
    pub hidden_variables: Vec<String>,
}

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellOutput {
    /// The output; of long output the beginning and the end.
    pub output: String,
    /// The exit code; none when the command was killed.
    pub exit_code: Option<i32>,
    /// Whether it was cancelled.
    pub cancelled: bool,
    /// Whether a part of the output is left out.
    pub truncated: bool,
}

/// Runs a command to its end, or until it is cancelled; its processes are gone within 230 milliseconds then. Fails if it
/// cannot be started.
#[cfg(unix)]
pub async fn run(
    shell: ShellCommand,
    cancel: CancellationToken,
    on_piece: &mut (dyn FnMut(&str) + Send),
) -> io::Result<ShellOutput> {
    use crate::process::command::{Capture, Command, CommandKind, RunningCommand};
    use crate::process::output::{HeadTailBuffer, sanitize};
    use crate::process::text_decoder::TextDecoder;

    let mut running = RunningCommand::start(&Command {
        kind: CommandKind::Shell(&shell.command),
        directory: &shell.directory,
        hidden_variables: &shell.hidden_variables,
        variables: &[],
        input: None,
        capture: Capture::Merged,
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
        truncated: kept.is_truncated(),
        output: sanitize(&kept.into_text()),
        exit_code: ended.and_then(|status| status.code()),
        cancelled: ended.is_none(),
    })
}

/// Refuses to start a command, since its processes could not be controlled on this system.
#[cfg(not(unix))]
pub async fn run(
    _: ShellCommand,
    _: CancellationToken,
    _: &mut (dyn FnMut(&str) + Send),
) -> io::Result<ShellOutput> {
    std::future::ready(Err(io::ErrorKind::Unsupported.into())).await
}
