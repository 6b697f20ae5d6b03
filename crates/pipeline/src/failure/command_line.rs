//! The programs that a command line starts, and those whose exit code the line may return.
//!
//! A rough parser of shell lines that recognizes programs by name: it understands quotes, variable assignments before a
//! command, operators and the keywords of compound commands, but no expansions. It never runs anything.

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

/// Returns the programs whose exit code the line may have returned: several if the line does not settle it.
pub(super) fn exit_code_candidates(line: &CommandLine) -> Vec<SimpleCommand> {
    let commands = match line {
        CommandLine::Program(program) => vec![program.clone()],
        CommandLine::Shell(line) => {
            let parts = split_commands(line);
            let strict = line.contains("set -e") || line.contains("errexit");
            last_commands(parts, strict, line.contains("pipefail"))
        }
    };
    let simple = commands.into_iter().map(|words| strip_wrappers(&words));
    simple.filter(|simple| !is_silent_builtin(simple)).collect()
}

/// Returns all programs that a shell line starts.
pub(crate) fn programs(line: &str) -> Vec<SimpleCommand> {
    let words = split_commands(line).into_iter();
    words.map(|(words, _)| strip_wrappers(&words)).collect()
}

/// The separator between two commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    /// The second command runs in any case.
    Sequence,
    /// The second command runs only after a certain result of the first: the code may be of either.
    AndOr,
    /// The second command reads the output of the first.
    Pipe,
}

/// Splits a line into its commands, each with the separator after it.
fn split_commands(line: &str) -> Vec<(Vec<String>, Separator)> {
    let mut reader = Tokenizer::default();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let doubled = characters.peek() == Some(&character);
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
            (None, '&' | '|') if doubled => {
                characters.next();
                reader.end_command(Separator::AndOr);
            }
            (None, '|') => reader.end_command(Separator::Pipe),
            (None, ';' | '&' | '\n') => reader.end_command(Separator::Sequence),
            (None, '(' | ')' | '`') => reader.end_word(),
            (None, c) if c.is_whitespace() => reader.end_word(),
            (None, c) => reader.push(c),
        }
    }
    reader.end_command(Separator::Sequence);
    reader.commands
}

#[derive(Default)]
struct Tokenizer {
    commands: Vec<(Vec<String>, Separator)>,
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

    fn end_command(&mut self, joint: Separator) {
        self.end_word();
        let words = std::mem::take(&mut self.words);
        let words: Vec<String> = words
            .into_iter()
            .skip_while(|word| is_shell_keyword(word))
            .collect();
        if !words.is_empty() {
            self.commands.push((words, joint));
        }
    }
}

/// Returns whether the word is a keyword of compound commands.
fn is_shell_keyword(word: &str) -> bool {
    const FRAMES: [&str; 14] = [
        "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "{", "}", "!",
        "time",
    ];
    FRAMES.contains(&word)
}

/// Returns the commands that may have given the last exit code. With `set -e` a line ends at the first command that
/// fails.
fn last_commands(
    parts: Vec<(Vec<String>, Separator)>,
    strict: bool,
    pipes_count: bool,
) -> Vec<Vec<String>> {
    let mut answerable = Vec::new();
    let last = parts.len().saturating_sub(1);
    for (index, (words, joint)) in parts.into_iter().enumerate().rev() {
        match joint {
            Separator::Sequence if index < last && !strict => break,
            // The exit code of a command that feeds a pipe is lost.
            Separator::Pipe if !pipes_count => continue,
            Separator::Sequence | Separator::AndOr | Separator::Pipe => answerable.push(words),
        }
    }
    answerable.reverse();
    answerable
}

/// Removes variable assignments and programs that only start the command.
fn strip_wrappers(words: &[String]) -> SimpleCommand {
    let (mut rest, mut has_timeout) = (words, false);
    while let [first, after @ ..] = rest {
        let is_variable = first.split_once('=').is_some_and(|(name, _)| is_name(name));
        let skipped = match is_variable {
            true => Some(0),
            false => wrapper_argument_count(base_name(first), after),
        };
        let Some(skipped) = skipped else { break };
        has_timeout |= is_timeout_program(first);
        rest = &after[skipped..];
    }
    let words = rest.to_vec();
    SimpleCommand { words, has_timeout }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn is_timeout_program(program: &str) -> bool {
    matches!(base_name(program), "timeout" | "gtimeout")
}

/// Returns how many arguments belong to a program that starts another one, or `None` if it starts none.
fn wrapper_argument_count(program: &str, arguments: &[String]) -> Option<usize> {
    const WRAPPERS: [&str; 15] = [
        "env", "sudo", "nice", "ionice", "nohup", "exec", "command", "time", "stdbuf", "xvfb-run",
        "npx", "bunx", "pnpx", "timeout", "gtimeout",
    ];
    const BY_SUBCOMMAND: [(&str, &str); 9] = [
        ("npm", "exec"),
        ("pnpm", "exec"),
        ("yarn", "exec"),
        ("uv", "run"),
        ("poetry", "run"),
        ("pdm", "run"),
        ("pipenv", "run"),
        ("hatch", "run"),
        ("bundle", "exec"),
    ];
    let first = arguments.first().map_or("", String::as_str);
    let named = usize::from(BY_SUBCOMMAND.contains(&(program, first)));
    if named == 0 && !WRAPPERS.contains(&program) {
        return None;
    }
    // The duration comes before the command.
    let skipped =
        named + option_count(&arguments[named..]) + usize::from(is_timeout_program(program));
    // If nothing follows, the program itself is the command.
    (skipped < arguments.len()).then_some(skipped)
}

/// Returns how many of the words are options, separate values included.
fn option_count(words: &[String]) -> usize {
    const WITH_VALUE: [&str; 10] = [
        "-u",
        "-n",
        "-c",
        "-g",
        "-p",
        "-k",
        "-s",
        "-C",
        "--package",
        "--with",
    ];
    let mut count = 0;
    while let Some(word) = words.get(count).filter(|word| word.starts_with('-')) {
        count += if WITH_VALUE.contains(&word.as_str()) {
            2
        } else {
            1
        };
    }
    count.min(words.len())
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
        let simple = exit_code_candidates(&CommandLine::Shell(line.to_owned()));
        let simple: Vec<String> = simple.iter().map(|simple| simple.words.join(" ")).collect();
        simple.join(" / ")
    }

    #[test]
    fn exit_code_candidates_come_from_last_list() {
        let table = [
            ("go test ./...", "go test ./..."),
            ("cd sub && CGO_ENABLED=0 go test ./...", "go test ./..."),
            (
                "go build ./... && go test ./...",
                "go build ./... / go test ./...",
            ),
            ("make clean; make test", "make test"),
            ("make clean\nmake test\n", "make test"),
            ("go test ./... | tee log", "tee log"),
            (
                "set -o pipefail; go test ./... | tee log",
                "go test ./... / tee log",
            ),
            ("set -e\ncurl -f x > y\ncat y", "curl -f x > y / cat y"),
            ("go test ./... || exit 1", "go test ./..."),
            (
                "go test ./... 2>&1 && echo 'a; b | c'",
                "go test ./... 2>&1",
            ),
            ("go test &> log", "go test &> log"),
            ("server & go test", "go test"),
            ("(cd sub && pytest -q)", "pytest -q"),
            ("if [ -f x ]; then npm test; fi", "npm test"),
            (
                "env A=b nice -n 5 sudo -u me /usr/bin/curl x",
                "/usr/bin/curl x",
            ),
            ("npx --yes jest --ci", "jest --ci"),
            ("poetry run pytest", "pytest"),
            ("uv run --with x pytest", "pytest"),
            ("bundle exec rspec", "rspec"),
            ("# go test\ncargo test", "cargo test"),
            ("echo 'go test ./...'", ""),
            ("go te\\\nst", "go test"),
            ("sudo", "sudo"),
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
        let simple = exit_code_candidates(&CommandLine::Program(words));
        assert_eq!((simple[0].program(), simple[0].has_timeout), ("x", true));
        assert_eq!(simple[0].arguments(), ["y"]);
        assert_eq!(exit_code_candidates(&CommandLine::Program(Vec::new())), []);
    }
}
