//! A summary of a conversation: its length, and the remaining steps of its last prompt.
//!
//! The conversation is a text: each line begins with a bar, and each message with its role. The summary lists the steps
//! as lines of a prompt, so that an agent that continues from it runs each remaining step, and none twice.

use super::instructions::Call;
use super::requested_instructions;
use crate::conversation::is_cut_off_notice;

const SUMMARY_REQUEST: &str = "Summarise the conversation";
const SUMMARY_PREFIX: &str = "Summary of ";
const SUMMARY_SUFFIX: &str = " messages.";
/// The beginning of a prompt that an earlier summary quotes, which is not a message of its own.
const QUOTED_PROMPT_PREFIX: &str = "[The user's last prompt";

/// A message of the transcript.
#[derive(Debug, PartialEq, Eq)]
enum TranscriptEntry {
    Prompt(String),
    /// The notice that a completion was cut off.
    CutOffNotice,
    Answer,
    Output,
}

/// Returns whether the system prompt asks for a summary.
pub(super) fn is_requested(system: &str) -> bool {
    system.contains(SUMMARY_REQUEST)
}

/// Returns the summary of a transcript.
pub(super) fn summarize(transcript: &str) -> String {
    let said = parse_transcript(transcript);
    let count = |said: &[TranscriptEntry], wanted: &[TranscriptEntry]| {
        said.iter().filter(|one| wanted.contains(one)).count()
    };
    let is_prompt = |said: &TranscriptEntry| matches!(said, TranscriptEntry::Prompt(_));
    let messages = said.len() - count(&said, &[TranscriptEntry::Output]);
    let mut lines = vec![format!("{SUMMARY_PREFIX}{messages}{SUMMARY_SUFFIX}")];
    let last = said.iter().rposition(is_prompt);
    if let Some([TranscriptEntry::Prompt(prompt), since @ ..]) = last.map(|last| &said[last..]) {
        // Each notice stands between two parts of one completion.
        let parts = count(since, &[TranscriptEntry::Answer]);
        let answers = parts.saturating_sub(count(since, &[TranscriptEntry::CutOffNotice]));
        let left = requested_instructions(prompt)
            .steps
            .into_iter()
            .skip(answers);
        lines.extend(left.flat_map(step_lines));
    }
    lines.join("\n")
}

/// Formats a step as the lines of a prompt.
fn step_lines(calls: Vec<Call<'_>>) -> Vec<String> {
    let words = std::iter::once("call").chain(std::iter::repeat("and"));
    let calls = words.zip(calls);
    calls
        .map(|(word, (name, arguments))| format!("{word} {name} {arguments}"))
        .collect()
}

/// Returns the steps of a summary in this prompt: the lines right after its first line. The steps in the rest of the
/// prompt, such as a quoted earlier prompt, are done.
pub(super) fn find_steps(prompt: &str) -> Option<Vec<&str>> {
    let is_opening =
        |line: &str| line.starts_with(SUMMARY_PREFIX) && line.ends_with(SUMMARY_SUFFIX);
    let is_step = |line: &str| line.starts_with("call ") || line.starts_with("and ");
    let lines = prompt.lines().map(str::trim);
    let mut lines = lines.skip_while(|line| !is_opening(line));
    lines.next()?;
    Some(lines.take_while(|line| is_step(line)).collect())
}

/// Parses the messages of a transcript. A line without a role continues the message before it.
fn parse_transcript(transcript: &str) -> Vec<TranscriptEntry> {
    let mut everything: Vec<TranscriptEntry> = Vec::new();
    let lines = transcript.lines().filter_map(|line| line.strip_prefix('|'));
    for line in lines.map(|line| line.strip_prefix(' ').unwrap_or(line)) {
        match (parse_entry_start(line), everything.last_mut()) {
            (Some(said), _) => everything.push(said),
            (None, Some(TranscriptEntry::Prompt(prompt))) => {
                prompt.push('\n');
                prompt.push_str(line);
            }
            (None, _) => {}
        }
    }
    everything
}

/// Returns the message that begins on a line.
fn parse_entry_start(line: &str) -> Option<TranscriptEntry> {
    if let Some(prompt) = line.strip_prefix("user:") {
        let prompt = prompt.trim_start();
        return match is_cut_off_notice(prompt) {
            _ if prompt.starts_with(QUOTED_PROMPT_PREFIX) => None,
            true => Some(TranscriptEntry::CutOffNotice),
            false => Some(TranscriptEntry::Prompt(prompt.to_owned())),
        };
    }
    if line.starts_with("assistant:") {
        return Some(TranscriptEntry::Answer);
    }
    line.starts_with("tool").then_some(TranscriptEntry::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_lists_remaining_steps() {
        let plan = "| user: Do this:\n| call a {}\n| and b {\"x\": 1}\n| call c {}\n| and d {}\n";
        let step = "| assistant: Step 1.\n| tool a {}: call e {}\n| call f {}\n";
        let remark = "| assistant: St\n| user: Your last answer was cut off.\n";
        let cd = "\ncall c {}\nand d {}";
        let all = format!("\ncall a {{}}\nand b {{\"x\": 1}}{cd}");
        let table = [
            (String::new(), "Summary of 0 messages.".to_owned()),
            (plan.to_owned(), format!("Summary of 1 messages.{all}")),
            (
                format!("{plan}{step}"),
                format!("Summary of 2 messages.{cd}"),
            ),
            (
                format!("{plan}{remark}{step}"),
                format!("Summary of 4 messages.{cd}"),
            ),
            (
                format!("{plan}{step}{step}"),
                "Summary of 3 messages.".to_owned(),
            ),
            (
                format!("{plan}{step}| user: Stop\n"),
                "Summary of 3 messages.".to_owned(),
            ),
            (
                format!("{step}{plan}"),
                format!("Summary of 2 messages.{all}"),
            ),
            (
                format!("no bar\nuser: call z {{}}\n{plan}"),
                format!("Summary of 1 messages.{all}"),
            ),
        ];
        for (transcript, expected) in table {
            assert_eq!(summarize(&transcript), expected, "{transcript}");
        }
    }

    #[test]
    fn summary_of_summary_lists_remaining_steps() {
        let transcript = "| user: So far:\n| Summary of 9 messages.\n| call c {}\n| call d {}\n|\n| Asked was:\n\
            | call a {}\n| assistant: Step 1.\n";
        assert_eq!(summarize(transcript), "Summary of 2 messages.\ncall d {}");
        let quoted = "| user: Summary of 9 messages.\n| call c {}\n| call d {}\n| user: [The user's last prompt before it]\n\
            | call a {}\n| assistant: Step 1.\n";
        assert_eq!(summarize(quoted), "Summary of 2 messages.\ncall d {}");
    }

    #[test]
    fn only_lines_right_after_summary_heading_are_steps() {
        let prompt = "So far:\n  Summary of 3 messages.\ncall c {}\nand d {}\n\ncall a {}";
        assert_eq!(find_steps(prompt), Some(vec!["call c {}", "and d {}"]));
        assert_eq!(find_steps("Summary of 3 messages."), Some(vec![]));
        assert_eq!(find_steps("A Summary of 3 messages.\ncall a {}"), None);
    }
}
