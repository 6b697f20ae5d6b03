//! Messages about commands that the user ran: writes them for the model, and reads them back.
//!
//! Such a message is an ordinary user message; only its wording identifies it.

use super::message::BashExecution;
use outlast_session::tools::shell::ShellOutput;

const COMMAND: &str = "I ran a command:\n\n```bash\n";
const PRINTED: &str = "\n```\n\nIt printed:\n\n```\n";
const END: &str = "\n```\n\n";
const CANCELLED: &str = "It was cancelled.";
const KILLED: &str = "It was killed.";
const STATUS: &str = "It ended with status ";
const CUT: &str = " Parts of what it printed are left out.";

/// Returns the message that tells the model about a command.
pub fn format_message(command: &str, end: &ShellOutput) -> String {
    let how = match (end.cancelled, end.exit_code) {
        (true, _) => CANCELLED.to_owned(),
        (false, Some(code)) => format!("{STATUS}{code}."),
        (false, None) => KILLED.to_owned(),
    };
    let cut = if end.truncated { CUT } else { "" };
    let output = &end.output;
    format!("{COMMAND}{command}{PRINTED}{output}{END}{how}{cut}")
}

/// Parses the message of a command, or returns `None` for any other text.
pub fn parse_message(text: &str, timestamp: u64) -> Option<BashExecution> {
    let (command, rest) = text.strip_prefix(COMMAND)?.split_once(PRINTED)?;
    let (output, how) = rest.rsplit_once(END)?;
    let (how, truncated) = match how.strip_suffix(CUT) {
        Some(how) => (how, true),
        None => (how, false),
    };
    let status = how
        .strip_prefix(STATUS)
        .and_then(|how| how.strip_suffix('.'));
    let exit_code = status.and_then(|code| code.parse().ok());
    if exit_code.is_none() && ![CANCELLED, KILLED].contains(&how) {
        return None;
    }
    Some(BashExecution {
        command: command.to_owned(),
        output: output.to_owned(),
        exit_code,
        cancelled: how == CANCELLED,
        truncated,
        full_output_path: None,
        exclude_from_context: false,
        timestamp,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_bash_message_round_trips() {
        let ends = [
            (Some(0), false, false),
            (Some(-1), false, true),
            (None, true, false),
            (None, false, true),
        ];
        for (exit_code, cancelled, truncated) in ends {
            for output in ["", "a\n", "```\n\nIt was killed."] {
                let end = ShellOutput {
                    output: output.to_owned(),
                    exit_code,
                    cancelled,
                    truncated,
                };
                let read = parse_message(&format_message("echo 'a\n```'", &end), 7).unwrap();
                assert_eq!(read.command, "echo 'a\n```'");
                assert_eq!(read.output, output);
                let how = (read.exit_code, read.cancelled, read.truncated);
                assert_eq!(how, (exit_code, cancelled, truncated));
            }
        }
    }

    #[test]
    fn other_text_is_not_a_bash_message() {
        for text in [
            "",
            "I ran a command:",
            "I ran a command:\n\n```bash\nls\n```",
        ] {
            assert!(parse_message(text, 0).is_none(), "{text:?}");
        }
    }
}
