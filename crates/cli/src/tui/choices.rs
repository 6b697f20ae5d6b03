//! The completions for the beginning of a command.

use super::commands::COMMANDS;
use outlast_kernel::policy::Policy;

/// One choice of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The text of the editor once the user takes the choice.
    pub(crate) text: String,
    pub(crate) name: String,
    pub(crate) description: String,
    /// Whether the command needs an argument.
    pub(crate) takes_argument: bool,
}

/// The known arguments of commands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    pub(crate) models: Vec<String>,
    pub(crate) sessions: Vec<PastSession>,
}

/// A session that can be continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PastSession {
    pub(crate) id: String,
    pub(crate) title: String,
    /// Its state and age.
    pub(crate) description: String,
}

/// An open list of choices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices {
    pub(crate) items: Vec<Choice>,
    pub(crate) selected: usize,
    /// Whether the user moved the selection.
    was_navigated: bool,
}

impl Choices {
    /// Returns the choices for the text; none if it does not begin a command.
    pub(crate) fn matching(text: &str, known: &Candidates) -> Self {
        let items = match text.split_once(' ') {
            _ if !text.starts_with('/') || text.contains('\n') => Vec::new(),
            None => commands(text),
            Some((command, typed)) => arguments(command, typed, known),
        };
        Self {
            items,
            ..Self::default()
        }
    }

    /// Whether the typed text is used instead of the selection: some names of models and policies begin with another
    /// name.
    pub(crate) fn is_complete_command(&self, text: &str) -> bool {
        let argument = ["/model ", "/policy "]
            .iter()
            .find_map(|command| text.strip_prefix(command));
        !self.was_navigated && argument.is_some_and(|argument| !argument.trim().is_empty())
    }

    pub(crate) fn selected(&self) -> Option<&Choice> {
        self.items.get(self.selected)
    }

    /// Moves the selection, wrapping around at the ends.
    pub(crate) fn move_selection(&mut self, by: isize) {
        let Ok(length) = isize::try_from(self.items.len()) else {
            return;
        };
        if length > 0 {
            self.was_navigated = true;
            let at = isize::try_from(self.selected).unwrap_or_default() + by;
            self.selected = at.rem_euclid(length).unsigned_abs();
        }
    }
}

fn commands(typed: &str) -> Vec<Choice> {
    let meant = COMMANDS
        .iter()
        .filter(|command| command.name.starts_with(typed));
    meant
        .map(|command| {
            let takes_argument = command.argument.starts_with(char::is_alphabetic);
            Choice {
                text: match takes_argument {
                    true => format!("{} ", command.name),
                    false => command.name.to_owned(),
                },
                name: format!("{} {}", command.name, command.argument),
                description: command.description.to_owned(),
                takes_argument,
            }
        })
        .collect()
}

fn arguments(command: &str, typed: &str, known: &Candidates) -> Vec<Choice> {
    let typed = typed.trim().to_lowercase();
    let is_meant = |name: &str, about: &str| {
        let text = format!("{name} {about}").to_lowercase();
        typed.split_whitespace().all(|word| text.contains(word))
    };
    let choice = |word: &str, (name, about): (&str, &str)| Choice {
        text: format!("{command} {word}"),
        name: name.to_owned(),
        description: about.to_owned(),
        takes_argument: false,
    };
    let plain = |word: &str| choice(word, (word, ""));
    let mut all: Vec<Choice> = match command {
        "/model" => known.models.iter().map(|name| plain(name)).collect(),
        "/policy" => Policy::NAMES.into_iter().map(plain).collect(),
        "/retry" => vec![
            choice("on", ("on", "failures are retried")),
            choice("off", ("off", "failures are told at once")),
        ],
        "/sessions" => {
            let sessions = known.sessions.iter();
            sessions
                .map(|it| choice(&it.id, (&it.title, &it.description)))
                .collect()
        }
        _ => Vec::new(),
    };
    all.retain(|choice| {
        is_meant(
            &format!("{} {}", choice.text, choice.name),
            &choice.description,
        )
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let known = Candidates {
            models: vec!["mock:ok".to_owned(), "anthropic:claude-opus".to_owned()],
            sessions: vec![PastSession {
                id: "0198".to_owned(),
                title: "Fix the parser".to_owned(),
                description: "finished".to_owned(),
            }],
        };
        let choices = Choices::matching(text, &known);
        choices.items.into_iter().map(|item| item.text).collect()
    }

    #[test]
    fn command_prefix_lists_matching_choices() {
        assert_eq!(names("/co"), ["/compact"]);
        assert_eq!(names("/mod"), ["/model "]);
        assert_eq!(names("/model opus"), ["/model anthropic:claude-opus"]);
        assert_eq!(names("/sessions parser"), ["/sessions 0198"]);
        assert_eq!(names("/policy over"), ["/policy overnight"]);
        assert!(names("hello").is_empty());
        assert!(names("/compact\nthis").is_empty());
    }

    #[test]
    fn every_listed_choice_parses_as_command() {
        assert_eq!(names("/").len(), COMMANDS.len());
        assert_eq!(names("/retry "), ["/retry on", "/retry off"]);
        assert_eq!(names("/model "), names("/model   "));
        assert_eq!(
            names("/model CLAUDE anthropic"),
            ["/model anthropic:claude-opus"]
        );
        assert_eq!(names("/sessions fix PARSER"), ["/sessions 0198"]);
        for text in [
            "/model nothing like it",
            "/compact the parser",
            "/unknown x",
            " /",
            "",
        ] {
            assert!(names(text).is_empty(), "{text:?}");
        }
        // The parser accepts every choice.
        for text in ["/", "/model ", "/retry ", "/policy ", "/sessions "] {
            for name in names(text) {
                let read = crate::tui::commands::parse(&name);
                assert!(matches!(read, Some(Ok(_))), "{name}");
            }
        }
    }

    #[test]
    fn selection_wraps_around_list() {
        let mut choices = Choices::matching("/", &Candidates::default());
        choices.move_selection(-1);
        assert_eq!(choices.selected().map(|it| it.text.as_str()), Some("/quit"));
        choices.move_selection(1);
        assert_eq!(
            choices.selected().map(|it| it.text.as_str()),
            Some("/model ")
        );
        Choices::default().move_selection(1);
    }
}
