//! `write`: replaces a whole file.

use super::atomic_write::{MAX_FILE_BYTES, lock_writes, write_atomically};
use super::{Context, Tool, input, path_resolution};
use outlast_engine::BoxFuture;
use outlast_engine::tools::{Effect, Output};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The tool.
pub(super) struct Write;

#[derive(Deserialize)]
struct Arguments {
    path: String,
    content: String,
}

impl Tool for Write {
    fn describe(&self) -> outlast_dialect::Tool {
        outlast_dialect::Tool {
            name: "write".to_owned(),
            description:
                "Write a whole file, in the place of what is there. Missing folders are made."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The file, relative to the working folder or absolute"},
                    "content": {"type": "string", "description": "All that the file shall hold"}
                },
                "required": ["path", "content"]
            }),
        }
    }

    fn effect(&self) -> Effect {
        Effect::Idempotent
    }

    fn summary(&self, arguments: &Value) -> String {
        let (path, content) = (
            input::text_field(arguments, "path"),
            input::text_field(arguments, "content"),
        );
        input::one_line(&format!("write: {path} ({} bytes)", content.len()))
    }

    fn check(&self, arguments: &Value) -> Result<(), String> {
        let arguments: Arguments = input::deserialize(arguments)?;
        if arguments.content.len() > MAX_FILE_BYTES {
            return Err(format!("`content` is longer than {MAX_FILE_BYTES} bytes"));
        }
        Ok(())
    }

    fn paths(&self, arguments: &Value) -> Vec<PathBuf> {
        vec![input::text_field(arguments, "path").into()]
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a Context) -> BoxFuture<'a, Output> {
        Box::pin(input::run_blocking(arguments, context, write))
    }
}

fn write(arguments: &Arguments, context: &Context) -> Result<String, String> {
    let Arguments { path, content } = arguments;
    let place = path_resolution::resolve_in_scope(context, path)?;
    let _changing = lock_writes();
    write_atomically(&place, content.as_bytes(), &context.cancel)
        .map_err(|error| format!("{path}: {error}"))?;
    Ok(format!("wrote {} bytes to {path}", content.len()))
}
