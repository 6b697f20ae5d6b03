//! The programs that a command line starts, and the one whose exit code it probably returns.
//!
//! A rough reader of shell lines: it knows quotes and operators, and takes the last command's first word that is no
//! assignment, keyword or wrapper for the program. It never runs anything.

use crate::definition::CommandLine;

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SimpleCommand {
    words: Vec<String>,
    /// Whether the program runs under `timeout`.
    pub(super) has_timeout: bool,
}

impl SimpleCommand {
    /// Returns the program's name, without its folder.
    pub(crate) fn program(&self) -> &str {
        self.words.first().map_or("", |program| base_name(program))
    }

    /// Returns the arguments.
    pub(crate) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }
}

/// Returns the programs whose failure the line can return; the exit code is most likely that of the last one.
pub(super) fn fallible_commands(line: &CommandLine) -> Vec<SimpleCommand> {
    let mut commands = match line {
        CommandLine::Program(program) => vec![strip_wrappers(program)],
        CommandLine::Shell(line) => programs(line),
    };
    commands.retain(|command| !is_silent_builtin(command));
    commands
}

/// Returns all programs that a shell line starts.
pub(crate) fn programs(line: &str) -> Vec<SimpleCommand> {
    let commands = split_commands(line);
    commands.iter().map(|words| strip_wrappers(words)).collect()
}

/// Splits a line at its operators into commands, and those into words.
fn split_commands(line: &str) -> Vec<Vec<String>> {
    let mut reader = Tokenizer::default();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match (reader.quote, character) {
            (Some(quote), c) if c == quote => reader.quote = None,
            (Some('\''), c) => reader.push(c),
            (_, '\\') => match characters.next() {
                Some('\n') | None => {}
                Some(escaped) => reader.push(escaped),
            },
            (Some(_), c) => reader.push(c),
            (None, '\'' | '"') => {
                reader.quote = Some(character);
                reader.in_word = true;
            }
            (None, '#') if !reader.in_word => while characters.next_if(|c| *c != '\n').is_some() {},
            // An ampersand in a redirection is no separator.
            (None, '&') if reader.word.ends_with(['>', '<']) || characters.peek() == Some(&'>') => {
                reader.push(character);
            }
            (None, '|' | ';' | '&' | '\n') => reader.end_command(),
            (None, '(' | ')' | '`') => reader.end_word(),
            (None, c) if c.is_whitespace() => reader.end_word(),
            (None, c) => reader.push(c),
        }
    }
    reader.end_command();
    reader.commands
}

#[derive(Default)]
struct Tokenizer {
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    word: String,
    in_word: bool,
    quote: Option<char>,
}

impl Tokenizer {
    fn push(&mut self, character: char) {
        self.word.push(character);
        self.in_word = true;
    }

    fn end_word(&mut self) {
        if std::mem::take(&mut self.in_word) {
            self.words.push(std::mem::take(&mut self.word));
        }
    }

    fn end_command(&mut self) {
        const KEYWORDS: [&str; 14] = [
            "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "{", "}",
            "!", "time",
        ];
        self.end_word();
        let words = std::mem::take(&mut self.words).into_iter();
        let words: Vec<String> = words
            .skip_while(|word| KEYWORDS.contains(&word.as_str()))
            .collect();
        if !words.is_empty() {
            self.commands.push(words);
        }
    }
}

/// Removes variable assignments, and programs that only start the command, with their options and numbers.
fn strip_wrappers(words: &[String]) -> SimpleCommand {
    const WRAPPERS: [&str; 20] = [
        "env", "sudo", "nice", "ionice", "nohup", "exec", "command", "time", "stdbuf", "xvfb-run",
        "npx", "bunx", "pnpx", "timeout", "gtimeout", "uv", "poetry", "pdm", "pipenv", "bundle",
    ];
    let is_assignment = |word: &String| word.split_once('=').is_some_and(|(name, _)| is_name(name));
    let (mut rest, mut has_wrapper, mut has_timeout) = (words, false, false);
    while let [first, after @ ..] = rest {
        let program = base_name(first);
        let is_wrapper = WRAPPERS.contains(&program);
        let is_argument = first.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            || matches!(first.as_str(), "run" | "exec");
        let is_skipped = is_wrapper || is_assignment(first) || (has_wrapper && is_argument);
        if !is_skipped {
            break;
        }
        has_wrapper |= is_wrapper;
        has_timeout |= matches!(program, "timeout" | "gtimeout");
        rest = after;
    }
    SimpleCommand {
        words: rest.to_vec(),
        has_timeout,
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Returns whether the command is a built-in whose failure the shell reports itself.
fn is_silent_builtin(simple: &SimpleCommand) -> bool {
    const SILENT: [&str; 18] = [
        "", "cd", "pushd", "popd", "export", "set", "unset", "echo", "printf", "true", "false",
        "exit", "return", "source", ".", "umask", "ulimit", "mkdir",
    ];
    SILENT.contains(&simple.program())
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let commands = fallible_commands(&CommandLine::Shell(line.to_owned()));
        let last = commands.last();
        last.map_or_else(String::new, |command| command.words.join(" "))
    }

    #[test]
    fn exit_code_is_taken_for_the_last_command() {
        let table = [
            ("go test ./...", "go test ./..."),
            ("cd sub && CGO_ENABLED=0 go test ./...", "go test ./..."),
            ("go build ./... && go test ./...", "go test ./..."),
            ("make clean; make test", "make test"),
            ("make clean\nmake test\n", "make test"),
            ("go test ./... | tee log", "tee log"),
            ("go test ./... || exit 1", "go test ./..."),
            (
                "go test ./... 2>&1 && echo 'a; b | c'",
                "go test ./... 2>&1",
            ),
            ("go test -run 'A|B' ./...", "go test -run A|B ./..."),
            ("go test &> log", "go test &> log"),
            ("server & go test", "go test"),
            ("(cd sub && pytest -q)", "pytest -q"),
            ("if [ -f x ]; then npm test; fi", "npm test"),
            ("env A=b nice -n 5 sudo /usr/bin/curl x", "/usr/bin/curl x"),
            ("npx --yes jest --ci", "jest --ci"),
            ("poetry run pytest", "pytest"),
            ("bundle exec rspec", "rspec"),
            ("# go test\ncargo test", "cargo test"),
            ("echo 'go test ./...'", ""),
            ("go te\\\nst", "go test"),
            ("sudo", ""),
            ("", ""),
            ("'", ""),
        ];
        for (line, expected) in table {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn program_name_is_found_behind_path_and_wrapper() {
        let words = ["/usr/bin/timeout", "-k", "1", "5", "/bin/x", "y"];
        let words = words.map(str::to_owned).to_vec();
        let commands = fallible_commands(&CommandLine::Program(words));
        assert_eq!(
            (commands[0].program(), commands[0].has_timeout),
            ("x", true)
        );
        assert_eq!(commands[0].arguments(), ["y"]);
        assert_eq!(fallible_commands(&CommandLine::Program(Vec::new())), []);
    }
}
