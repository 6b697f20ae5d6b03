//! Starts runs for a server: each is a process of its own, which outlives the server.
//!
//! The file is checked here, so that errors come with line and column; the run's process reports all other errors that
//! prevent its start. Invariant: a run depends on nothing of the server: its pipes may be gone at any time.

use crate::commands::run;
use anyhow::Context;
use outlast_engine::BoxFuture;
use outlast_kernel::text;
use outlast_pipeline::{file, inputs};
use outlast_serve::runs::{NewRun, StartError, StartRun};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;

/// The time limit for the start of a run: its process may have to ask a keychain, or wait for the disk.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest output that is kept of a process that does not start its run, in bytes.
const MAX_OUTPUT_BYTES: u64 = 16 * 1024;
/// The time limit for reading the output of a process that has ended.
const EXIT_OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest input, in bytes: systems refuse a program whose arguments are longer.
const MAX_INPUT_BYTES: usize = 100_000;
/// The exit code of a process that was given wrong arguments.
const USAGE_EXIT_CODE: i32 = 2;

/// Starts runs, each as a process of this program.
pub(crate) struct RunStarter {
    program: PathBuf,
    folder: PathBuf,
}

impl RunStarter {
    /// Creates a starter; `folder` is the default folder of its runs.
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            program: std::env::current_exe().context("cannot find this program's own file")?,
            folder: folder.to_owned(),
        })
    }

    async fn begin(&self, wanted: NewRun) -> Result<String, StartError> {
        let folder = self.folder.clone();
        let checked = tokio::task::spawn_blocking(move || check(&folder, wanted)).await;
        let checked = checked.map_err(|error| failed(&error))??;
        let mut command = Command::new(&self.program);
        command
            .args(arguments(&checked))
            .current_dir(&checked.folder);
        spawn_and_read_id(command, START_TIMEOUT).await
    }
}

impl StartRun for RunStarter {
    fn start(&self, wanted: NewRun) -> BoxFuture<'_, Result<String, StartError>> {
        Box::pin(self.begin(wanted))
    }
}

/// A run that has passed the checks of this module.
#[derive(Debug)]
struct CheckedRun {
    file: PathBuf,
    folder: PathBuf,
    inputs: Vec<(String, String)>,
}

/// Checks a request for a run. Blocks for as long as the disk takes.
fn check(folder: &Path, wanted: NewRun) -> Result<CheckedRun, StartError> {
    let folder = folder.join(wanted.directory.unwrap_or_default());
    let found = folder.canonicalize().ok().filter(|found| found.is_dir());
    let folder =
        found.ok_or_else(|| refused(format!("there is no folder {}", folder.display())))?;
    let place = folder.join(wanted.file);
    // A pipe or a device might never be read to its end.
    if !place.is_file() {
        return Err(refused(format!("there is no file {}", place.display())));
    }
    let source = run::read_pipeline(&place).map_err(|error| refused(error.to_string()))?;
    let pipeline = file::read(&source, &place)?;
    for (name, value) in &wanted.inputs {
        if value.len() > MAX_INPUT_BYTES || value.contains('\0') {
            let why = format!(
                "the input `{name}` is not a text of at most {MAX_INPUT_BYTES} bytes; have a step read it from a file"
            );
            return Err(refused(why));
        }
    }
    let said = wanted.inputs.clone();
    inputs::resolve(&pipeline, said).map_err(|error| refused(error.to_string()))?;
    Ok(CheckedRun {
        file: place,
        folder,
        inputs: wanted.inputs.into_iter().collect(),
    })
}

fn arguments(checked: &CheckedRun) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["run", "--detached"].map(OsString::from).to_vec();
    let inputs = checked.inputs.iter();
    arguments.extend(inputs.map(|(name, value)| format!("--input={name}={value}").into()));
    // The path is absolute, and so never taken for an option.
    arguments.push(checked.file.clone().into());
    arguments
}

/// Starts a process and returns the run id that it prints; the process then runs on by itself.
async fn spawn_and_read_id(mut command: Command, patience: Duration) -> Result<String, StartError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(failed(&"its process says nothing"));
    };
    // Read concurrently, so that a process with much output is not blocked.
    let said = tokio::spawn(read_stderr(stderr));
    let line = tokio::time::timeout(patience, first_line(stdout)).await;
    let Ok(line) = line else {
        child.start_kill().ok();
        said.abort();
        let seconds = patience.as_secs();
        return Err(failed(&format!(
            "its process did not say so within {seconds} s"
        )));
    };
    if let Some(id) = line {
        said.abort();
        return Ok(id);
    }
    let ended = child.wait().await.map_err(|error| failed(&error))?;
    // A child of the process may still have its stderr open.
    let said = tokio::time::timeout(EXIT_OUTPUT_TIMEOUT, said).await;
    let said = said.map(Result::unwrap_or_default).unwrap_or_default();
    Err(start_error(&said, ended))
}

/// Returns the line that a process prints when its run has started; `None` if it ends without.
async fn first_line(stdout: impl AsyncRead + Unpin) -> Option<String> {
    let mut line = String::new();
    let mut stdout = BufReader::new(stdout.take(MAX_OUTPUT_BYTES));
    stdout.read_line(&mut line).await.ok()?;
    line.strip_suffix('\n').map(str::to_owned)
}

/// Returns the beginning of a process's output; the rest is read and dropped.
async fn read_stderr(mut stderr: impl AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    let mut first = (&mut stderr).take(MAX_OUTPUT_BYTES);
    first.read_to_end(&mut said).await.ok();
    tokio::io::copy(&mut stderr, &mut tokio::io::sink())
        .await
        .ok();
    String::from_utf8_lossy(&said).into_owned()
}

fn start_error(said: &str, ended: ExitStatus) -> StartError {
    let said = text::sanitized_message(said);
    let said = text::plain(said.trim());
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    match (ended.code(), said) {
        (Some(USAGE_EXIT_CODE), said) if !said.is_empty() => refused(said.to_owned()),
        (_, "") => failed(&format!("its process ended with {ended}")),
        (_, said) => failed(&said),
    }
}

const fn refused(why: String) -> StartError {
    StartError::Refused { why }
}

fn failed(why: &dyn std::fmt::Display) -> StartError {
    let why = why.to_string();
    StartError::Failed { why }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "run_start_tests.rs"]
mod tests;
