//! `bash`: runs a command in a shell.
//!
//! Not here: control over its processes, see `process::command`.

use super::toolbox::append_note;
use super::{Context, DEFAULT_TIME_LIMIT, Tool, input};
use crate::process::command::{Capture, Command, CommandKind, RunningCommand};
use crate::process::output::{HeadTailBuffer, sanitize};
use outlast_engine::BoxFuture;
use outlast_engine::tools::{Effect, Output};
use serde::Deserialize;
use serde_json::{Value, json};
use std::num::NonZeroU64;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Maximum timeout that a call may request, in seconds.
const MAX_TIMEOUT_SECONDS: u64 = 24 * 3600;

/// The tool.
pub(super) struct Bash;

#[derive(Deserialize)]
struct Arguments {
    command: String,
    timeout: Option<NonZeroU64>,
}

impl Tool for Bash {
    fn describe(&self) -> outlast_dialect::Tool {
        outlast_dialect::Tool {
            name: "bash".to_owned(),
            description: "Run a command with bash in the working folder. Nobody can type anything into it. Gives what \
                          it printed; of a long output the beginning and the end. What it leaves running in the \
                          background must not print to its output."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "The command"},
                    "timeout": {
                        "type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_SECONDS,
                        "description": "After how many seconds it is killed, 600 by default"
                    }
                },
                "required": ["command"]
            }),
        }
    }

    fn effect(&self) -> Effect {
        Effect::AtMostOnce
    }

    fn summary(&self, arguments: &Value) -> String {
        input::one_line(&format!(
            "bash: {}",
            input::text_field(arguments, "command")
        ))
    }

    fn check(&self, arguments: &Value) -> Result<(), String> {
        let arguments: Arguments = input::deserialize(arguments)?;
        if arguments.command.contains('\0') {
            return Err("`command` holds a NUL character".to_owned());
        }
        match arguments.timeout {
            Some(seconds) if seconds.get() > MAX_TIMEOUT_SECONDS => Err(format!(
                "`timeout` is more than {MAX_TIMEOUT_SECONDS} seconds"
            )),
            _ => Ok(()),
        }
    }

    fn time_limit(&self, arguments: &Value) -> Duration {
        let seconds = arguments["timeout"].as_u64();
        seconds.map_or(DEFAULT_TIME_LIMIT, Duration::from_secs)
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a Context) -> BoxFuture<'a, Output> {
        Box::pin(async move {
            match input::deserialize::<Arguments>(&arguments) {
                Ok(arguments) => run(&arguments.command, context).await,
                Err(why) => Output::error(why),
            }
        })
    }
}

async fn run(line: &str, context: &Context) -> Output {
    let started = RunningCommand::start(&Command {
        kind: CommandKind::Shell(line),
        directory: &context.directory,
        hidden_variables: &context.hidden_variables,
        variables: &[],
        input: None,
        capture: Capture::Merged,
    });
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            let directory = context.directory.display();
            return Output::error(format!("no shell could be started in {directory}: {error}"));
        }
    };
    let mut kept = HeadTailBuffer::default();
    let mut keep = |_, bytes: &[u8]| kept.push(bytes);
    let ended = tokio::select! {
        ended = running.finish(&mut keep) => Some(ended),
        () = context.cancel.cancelled() => None,
    };
    let Some(ended) = ended else {
        running.kill(&mut keep).await;
        return Output::error(sanitize(&kept.into_text()));
    };
    let text = sanitize(&kept.into_text());
    match ended {
        Ok(status) if status.success() => Output::ok(if text.is_empty() {
            "[no output]".to_owned()
        } else {
            text
        }),
        Ok(status) => Output::error(append_note(&text, &describe_exit(status))),
        Err(error) => Output::error(append_note(
            &text,
            &format!("its end was not seen: {error}"),
        )),
    }
}

/// Describes how a command ended that was not successful.
pub(crate) fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
