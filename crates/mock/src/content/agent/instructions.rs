//! The instructions of an agent for one prompt, parsed from lines of text: its steps and its final text.

use serde_json::{Map, Value};

/// The line of the system prompt after which a script begins.
const SCRIPT_MARKER: &str = "script:";
/// The line of a script that separates the instructions for two prompts.
const PROMPT_SEPARATOR: &str = "then";

/// A tool's name and its arguments, as written.
pub(super) type Call<'a> = (&'a str, &'a str);

/// The instructions for one prompt.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Instructions<'a> {
    /// The steps, each with its calls.
    pub(super) steps: Vec<Vec<Call<'a>>>,
    /// The text after the last step.
    pub(super) final_text: Option<String>,
}

impl<'a> Instructions<'a> {
    pub(super) fn parse(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut part = Self::default();
        let mut in_step = false;
        for line in lines.map(str::trim) {
            let first = parse_call(line, "call ");
            let further = parse_call(line, "and ").filter(|_| in_step);
            in_step = first.is_some() || further.is_some();
            match (first, further, part.steps.last_mut()) {
                (Some(call), ..) => part.steps.push(vec![call]),
                (None, Some(call), Some(step)) => step.push(call),
                _ => part.add_text(line),
            }
        }
        part
    }

    fn add_text(&mut self, line: &str) {
        let Some(text) = line.strip_prefix("say ") else {
            return;
        };
        match &mut self.final_text {
            Some(said) => {
                said.push('\n');
                said.push_str(text);
            }
            None => self.final_text = Some(text.to_owned()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the part of the system prompt's script for the prompt of that number; the last part is for all further
/// prompts.
pub(super) fn from_system_text(system: &str, prompt: usize) -> Option<Instructions<'_>> {
    let mut lines = system.lines().map(str::trim);
    lines.find(|line| *line == SCRIPT_MARKER)?;
    let lines: Vec<&str> = lines.collect();
    let mut parts = lines.split(|line| *line == PROMPT_SEPARATOR);
    let last = parts.clone().next_back();
    let part = parts.nth(prompt.saturating_sub(1)).or(last)?;
    Some(Instructions::parse(part.iter().copied()))
}

/// Parses the call on a line that begins with `word`; if the arguments are not an object, the line is not a call.
fn parse_call<'a>(line: &'a str, word: &str) -> Option<Call<'a>> {
    let call = line.strip_prefix(word)?.trim_start();
    let (name, arguments) = match call.split_once(char::is_whitespace) {
        Some((name, arguments)) => (name, arguments.trim_start()),
        None => (call, "{}"),
    };
    let is_object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
    (!name.is_empty() && is_object).then_some((name, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_and_and_lines_are_parsed_as_steps() {
        let look = ("look", "{}");
        let table: [(&str, Vec<Vec<Call<'_>>>); 9] = [
            ("Please call me back", vec![]),
            ("call look {}", vec![vec![look]]),
            ("  call look", vec![vec![look]]),
            ("call look {}\ncall look {}", vec![vec![look], vec![look]]),
            ("call look {}\nand look {}", vec![vec![look, look]]),
            ("and look {}\ncall look {}", vec![vec![look]]),
            ("call look {}\nthen\nand look {}", vec![vec![look]]),
            ("call look {\"broken\":", vec![]),
            (
                "Do this:\r\ncall run {\"command\": \"echo a b\"}\r\n",
                vec![vec![("run", "{\"command\": \"echo a b\"}")]],
            ),
        ];
        for (prompt, expected) in table {
            assert_eq!(
                Instructions::parse(prompt.lines()).steps,
                expected,
                "{prompt}"
            );
        }
    }

    #[test]
    fn say_lines_are_parsed_as_final_text() {
        let table = [
            ("They say so", None),
            ("say", None),
            ("say so", Some("so")),
            ("call look\n  say one\nand\nsay two", Some("one\ntwo")),
        ];
        for (prompt, expected) in table {
            let part = Instructions::parse(prompt.lines());
            assert_eq!(part.final_text.as_deref(), expected, "{prompt}");
        }
    }

    #[test]
    fn script_part_is_chosen_by_prompt_number() {
        let system = "Be brief.\nsay nothing\nscript:\ncall look\nsay one\nthen\nsay two\n";
        let said = |prompt| from_system_text(system, prompt).unwrap().final_text;
        let looks = |prompt| from_system_text(system, prompt).unwrap().steps.len();
        for (prompt, expected) in [(0, "one"), (1, "one"), (2, "two"), (3, "two")] {
            assert_eq!(said(prompt).as_deref(), Some(expected), "{prompt}");
        }
        assert_eq!([looks(1), looks(2)], [1, 0]);
        assert_eq!(from_system_text("say one\nthen\nsay two", 1), None);
    }
}
