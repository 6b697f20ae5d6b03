//! Agent programs: how each is started, and what its output means.
//!
//! A program that is known is asked without a terminal, for output that machines can read, and with no more rights than
//! the step gives it; what it is asked comes by its standard input. Any other program is started by its template, and what
//! it prints is its answer. Invariants: nothing of a prompt ever passes a shell; memory is bounded, whatever is printed; an
//! agent whose output has no proper end has failed, whatever its exit says.
//! Not here: running it (see `process`), and what its failure means (see `failing`).

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

/// What is wrong with an agent that ended before its answer did.
pub(crate) const NO_RESULT: &str = "the stream ended without a result";

/// The longest line that is read, in bytes.
const MAX_LINE_BYTES: usize = 16 << 20;
/// The most that is kept of a plain answer: of its beginning, and of its end.
const PLAIN_OUTPUT_LIMITS: (usize, usize) = (4 << 20, 12 << 20);

/// How an agent is started.
pub(crate) struct Invocation {
    /// The program and its arguments.
    pub(crate) program: Vec<String>,
    /// Variables that it needs.
    pub(crate) env: Vec<(String, String)>,
    /// What it reads.
    pub(crate) input: Option<Vec<u8>>,
    /// Who reads what it prints to its standard output.
    pub(crate) reader: Reader,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentResult {
    /// What it said in the end.
    pub(crate) text: String,
    /// What it used, where it says so.
    pub(crate) usage: Usage,
    /// What it cost, where it says so.
    pub(crate) cost: Cost,
    /// What it says itself that went wrong; [`NO_RESULT`] when its answer has no end.
    pub(crate) error: Option<String>,
    /// When a limit that it ran into ends, where it says so exactly.
    pub(crate) not_before: Option<Timestamp>,
}

/// How that agent is asked.
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
            program: template.iter().map(|part| filled(part, &names)).collect(),
            env: Vec::new(),
            // What is not told elsewhere what to do reads it.
            input: (!template.iter().any(asks)).then(|| prompt.as_bytes().to_vec()),
            reader: Reader::new(Format::Plain),
        };
    }
    let (format, program, env) = launch::started(agent);
    Invocation {
        program,
        env,
        input: Some(prompt.as_bytes().to_vec()),
        reader: Reader::new(format),
    }
}

/// The text with each name replaced by what it stands for; what a replacement holds is not looked at.
fn filled(part: &str, names: &[(&str, &str)]) -> String {
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

/// What the output of an agent is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Claude,
    Codex,
    Opencode,
    Pi,
    /// Text: what is printed is the answer.
    Plain,
}

/// Reads what an agent prints.
pub(crate) struct Reader {
    format: Format,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// Whether the line is too long, and its rest is left out.
    is_too_long: bool,
    story: AgentOutput,
    plain: HeadTailBuffer,
}

impl Reader {
    const fn new(format: Format) -> Self {
        Self {
            format,
            line: Vec::new(),
            is_too_long: false,
            story: AgentOutput::new(),
            plain: HeadTailBuffer::of(PLAIN_OUTPUT_LIMITS.0, PLAIN_OUTPUT_LIMITS.1),
        }
    }

    /// Takes in what was printed to the standard output: what it shows of the agent.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<WatchEvent> {
        if self.format == Format::Plain {
            self.plain.push(bytes);
        }
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.keep(&rest[..end]);
            self.end_line();
            rest = &rest[end + 1..];
        }
        self.keep(rest);
        std::mem::take(&mut self.story.signs)
    }

    /// What came of it.
    pub(crate) fn finish(mut self) -> AgentResult {
        self.end_line();
        match self.format {
            Format::Plain => AgentResult {
                text: String::from_utf8_lossy(&self.plain.into_bytes()).into_owned(),
                ..AgentResult::default()
            },
            _ => self.story.answer(),
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.line.len() + bytes.len() > MAX_LINE_BYTES;
        if !self.is_too_long {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) {
            return self.story.activity("a line that is too long to read");
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        match (line.is_empty(), self.format) {
            (true, _) => {}
            (false, Format::Plain) => self.story.progress(line),
            (false, format) => self.story.line(line, format),
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "program_tests.rs"]
mod tests;
