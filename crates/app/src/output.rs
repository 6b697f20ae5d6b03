//! Writing to stdout, for commands that print and leave.

use crate::exit::Exit;
use anyhow::Context;
use std::io::Write;

/// Prints the text. A reader that has left is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<Exit> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        _ => Ok(Exit::Success),
    }
}
