//! The slash commands.

use crate::config::closest_word;

/// A command, as the list and the help show it.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) argument: &'static str,
    pub(crate) description: &'static str,
}

const fn command(name: &'static str, argument: &'static str, description: &'static str) -> Command {
    Command {
        name,
        argument,
        description,
    }
}

pub(crate) const COMMANDS: [Command; 10] = [
    command("/model", "NAME", "ask another model from here on"),
    command(
        "/retry",
        "[on|off]",
        "retry now, or what failed again; or switch retries",
    ),
    command("/compact", "[FOCUS]", "make the conversation smaller"),
    command("/sessions", "ID", "go on with another session"),
    command("/new", "", "begin a new session"),
    command(
        "/accounts",
        "",
        "which accounts are free, and until when others are not",
    ),
    command("/policy", "NAME", "how long and how often to retry"),
    command("/expand", "", "show all of what tools said, or less of it"),
    command("/help", "", "keys and commands"),
    command("/quit", "", "leave; the session is kept"),
];

/// A parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlashCommand {
    Model(String),
    Retry,
    SwitchRetry(bool),
    Compact(String),
    Session(String),
    New,
    Accounts,
    Policy(String),
    Expand,
    Help,
    Quit,
}

/// Parses a command; `None` if the text is a message. The error contains the remedy.
pub(crate) fn parse(text: &str) -> Option<Result<SlashCommand, String>> {
    let text = text.trim();
    let (name, argument) = match text.split_once(char::is_whitespace) {
        Some((name, argument)) => (name, argument.trim()),
        None => (text, ""),
    };
    let letters = name.strip_prefix('/')?;
    // Paths begin with a slash, too.
    let looks_like_one = !letters.is_empty() && letters.bytes().all(|b| b.is_ascii_lowercase());
    let is_message = looks_like_one && closest_command(name).is_none() && !argument.is_empty();
    (looks_like_one && !is_message).then(|| parse_command(name, argument))
}

/// Returns the command that a word names or nearly names.
fn closest_command(name: &str) -> Option<&'static str> {
    let others = ["/resume", "/clear", "/exit"];
    closest_word(
        name,
        COMMANDS
            .map(|command| command.name)
            .into_iter()
            .chain(others),
    )
}

fn parse_command(name: &str, argument: &str) -> Result<SlashCommand, String> {
    let argument_of = |make: fn(String) -> SlashCommand| Ok(make(argument.to_owned()));
    let alone = |order: SlashCommand| match argument {
        "" => Ok(order),
        _ => Err(format!("{name} takes nothing after it")),
    };
    match name {
        "/model" => argument_of(SlashCommand::Model),
        "/compact" => argument_of(SlashCommand::Compact),
        "/sessions" | "/resume" => argument_of(SlashCommand::Session),
        "/policy" => argument_of(SlashCommand::Policy),
        "/retry" => match argument {
            "" => Ok(SlashCommand::Retry),
            "on" => Ok(SlashCommand::SwitchRetry(true)),
            "off" => Ok(SlashCommand::SwitchRetry(false)),
            other => Err(format!(
                "/retry takes on, off or nothing after it, and not `{other}`"
            )),
        },
        "/new" | "/clear" => alone(SlashCommand::New),
        "/accounts" => alone(SlashCommand::Accounts),
        "/expand" => alone(SlashCommand::Expand),
        "/help" => alone(SlashCommand::Help),
        "/quit" | "/exit" => alone(SlashCommand::Quit),
        _ => {
            let near = closest_command(name)
                .map_or(String::new(), |near| format!("; did you mean {near}?"));
            Err(format!("there is no command {name}{near} (/help)"))
        }
    }
}

/// Returns the help text.
pub(crate) fn help() -> String {
    let mut text = String::from("Commands\n");
    for Command {
        name,
        argument,
        description: about,
    } in COMMANDS
    {
        text.push_str(&format!("  {:<20} {about}\n", format!("{name} {argument}")));
    }
    text.push_str("\nKeys\n");
    for (keys, about) in KEYS {
        text.push_str(&format!("  {keys:<20} {about}\n"));
    }
    text
}

const KEYS: [(&str, &str); 12] = [
    ("Enter", "send; while the model works, say it in between"),
    ("Alt-Enter, Ctrl-J", "another line; so does \\ before Enter"),
    ("Esc", "cancel a retry that is waited for; else interrupt"),
    ("r", "retry now, while a retry is waited for"),
    ("Up, Down", "what you said before"),
    ("Tab", "complete a command"),
    ("PageUp, PageDown", "scroll; so does the mouse wheel"),
    ("Ctrl-Home, Ctrl-End", "to the beginning and to the end"),
    ("Ctrl-O", "all of what tools said, or less of it"),
    ("Ctrl-T", "what the model thought, or nothing of it"),
    ("Ctrl-C", "clear the line; interrupt; twice, leave"),
    ("Ctrl-D", "leave; Ctrl-Z suspends, Shift selects text"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_a_message_and_misspelled_command_an_error() {
        assert_eq!(parse("/usr/bin/env is missing"), None);
        assert_eq!(parse("say /help"), None);
        assert_eq!(parse("/"), None);
        assert_eq!(parse("/tmp is full"), None);
        assert!(matches!(parse("/nope"), Some(Err(_))));
        let error = parse("/modle gpt").unwrap().unwrap_err();
        assert_eq!(
            error,
            "there is no command /modle; did you mean /model? (/help)"
        );
    }

    #[test]
    fn commands_parse_with_their_arguments() {
        let table = [
            (
                "/model anthropic:claude",
                SlashCommand::Model("anthropic:claude".to_owned()),
            ),
            ("/model", SlashCommand::Model(String::new())),
            (" /retry ", SlashCommand::Retry),
            ("/retry off", SlashCommand::SwitchRetry(false)),
            (
                "/compact the parser only",
                SlashCommand::Compact("the parser only".to_owned()),
            ),
            ("/exit", SlashCommand::Quit),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text), Some(Ok(expected)), "{text}");
        }
        assert!(parse("/quit now").unwrap().is_err());
        assert!(parse("/retry maybe").unwrap().is_err());
    }

    #[test]
    fn malformed_commands_are_messages_and_aliases_parse() {
        for text in [
            "", "  ", "/Help", "/help2", "/ help", "//", "a\n/help", "/é",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse("/new\n"), Some(Ok(SlashCommand::New)));
        assert_eq!(parse("/clear"), Some(Ok(SlashCommand::New)));
        assert_eq!(
            parse("/resume\t01"),
            Some(Ok(SlashCommand::Session("01".to_owned())))
        );
        let error = parse("/xyzzy").unwrap().unwrap_err();
        assert_eq!(error, "there is no command /xyzzy (/help)");
    }

    #[test]
    fn the_help_names_every_command_and_fits_a_terminal() {
        let help = help();
        for command in COMMANDS {
            assert!(help.contains(command.name), "{}", command.name);
        }
        let longest = help.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(80), "{longest:?}");
        insta::assert_snapshot!(help);
    }

    #[test]
    fn every_listed_command_parses() {
        for command in COMMANDS {
            assert!(
                matches!(parse(command.name), Some(Ok(_))),
                "{}",
                command.name
            );
        }
    }
}
