//! Agent programs: starts each with the right arguments, and parses its output.
//!
//! Known agents run without a terminal, with machine-readable output, with no more rights than the step grants and with
//! the prompt on stdin. Other programs start from their template, and their stdout is the result. Invariants: no prompt
//! passes a shell; memory is bounded; an agent whose output has no proper end has failed, whatever its exit code. Not
//! here: running (`process`), the cause of a failure (`failure`).

mod agent_output;
mod claude;
mod codex;
mod launch;
mod opencode;
mod pi;
mod tool_use;

use super::definition::Agent;
use crate::step::watchdog::WatchEvent;
use agent_output::AgentOutput;
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_session::process::output::HeadTailBuffer;
use std::path::Path;

/// The error of an agent whose output ended before its result.
pub(crate) const NO_RESULT: &str = "the stream ended without a result";

/// Maximum length of a line in bytes.
const MAX_LINE_BYTES: usize = 16 << 20;
/// Maximum bytes kept of the beginning and of the end of plain output.
const PLAIN_OUTPUT_LIMITS: (usize, usize) = (4 << 20, 12 << 20);

/// The program to start for an agent, and the reader of its output.
pub(crate) struct Invocation {
    /// The program and its arguments.
    pub(crate) program: Vec<String>,
    /// Environment variables that the program needs.
    pub(crate) env: Vec<(String, String)>,
    /// The data for its standard input.
    pub(crate) input: Option<Vec<u8>>,
    /// The reader of its standard output.
    pub(crate) reader: Reader,
}

/// The result of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentResult {
    /// The final text.
    pub(crate) text: String,
    /// The tokens that the agent reports as used.
    pub(crate) usage: Usage,
    /// The cost that the agent reports.
    pub(crate) cost: Cost,
    /// The error that the agent reports; [`NO_RESULT`] if its output has no proper end.
    pub(crate) error: Option<String>,
    /// The end of a limit that the agent reached, if the agent reports the exact time.
    pub(crate) not_before: Option<Timestamp>,
}

/// Returns the invocation of the given agent.
pub(crate) fn invocation(agent: &Agent, prompt: &str, prompt_file: &Path) -> Invocation {
    if let Some(template) = &agent.program {
        let model = agent.model.as_deref().unwrap_or_default();
        let file = prompt_file.display().to_string();
        let names = [
            ("{prompt}", prompt),
            ("{prompt_file}", &file),
            ("{model}", model),
        ];
        let asks = |part: &String| part.contains(names[0].0) || part.contains(names[1].0);
        return Invocation {
            program: template
                .iter()
                .map(|part| fill_template(part, &names))
                .collect(),
            env: Vec::new(),
            // A program without a prompt placeholder reads the prompt from its standard input.
            input: (!template.iter().any(asks)).then(|| prompt.as_bytes().to_vec()),
            reader: Reader::new(Format::Plain),
        };
    }
    let (format, program, env) = launch::launch_command(agent);
    Invocation {
        program,
        env,
        input: Some(prompt.as_bytes().to_vec()),
        reader: Reader::new(format),
    }
}

/// Replaces each placeholder in the text; replacements are not scanned again.
fn fill_template(part: &str, names: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = part;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let named = names.iter().find(|(name, _)| rest.starts_with(name));
        let (text, length) = named.map_or(("{", 1), |(name, text)| (*text, name.len()));
        out.push_str(text);
        rest = &rest[length..];
    }
    out + rest
}

/// The format of an agent's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Claude,
    Codex,
    Opencode,
    Pi,
    /// Plain text: the whole output is the result.
    Plain,
}

/// Parses the standard output of an agent.
pub(crate) struct Reader {
    format: Format,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    /// Whether the line is too long; its rest is skipped.
    is_too_long: bool,
    output: AgentOutput,
    plain: HeadTailBuffer,
}

impl Reader {
    const fn new(format: Format) -> Self {
        Self {
            format,
            line: Vec::new(),
            is_too_long: false,
            output: AgentOutput::new(),
            plain: HeadTailBuffer::with_limits(PLAIN_OUTPUT_LIMITS.0, PLAIN_OUTPUT_LIMITS.1),
        }
    }

    /// Reads a chunk of the standard output, and returns the events that it shows.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<WatchEvent> {
        if self.format == Format::Plain {
            self.plain.push(bytes);
        }
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.push_line_bytes(&rest[..end]);
            self.end_line();
            rest = &rest[end + 1..];
        }
        self.push_line_bytes(rest);
        std::mem::take(&mut self.output.watch_events)
    }

    /// Returns the result after the end of the output.
    pub(crate) fn finish(mut self) -> AgentResult {
        self.end_line();
        match self.format {
            Format::Plain => AgentResult {
                text: String::from_utf8_lossy(&self.plain.into_bytes()).into_owned(),
                ..AgentResult::default()
            },
            _ => self.output.into_result(),
        }
    }

    fn push_line_bytes(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.line.len() + bytes.len() > MAX_LINE_BYTES;
        if !self.is_too_long {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) {
            return self.output.activity("a line that is too long to read");
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        match (line.is_empty(), self.format) {
            (true, _) => {}
            (false, Format::Plain) => self.output.progress(line),
            (false, format) => self.output.push_line(line, format),
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "agents_tests.rs"]
mod tests;
