//! Arguments of `outlast completions` and `outlast man`, and the text below the options in the help of the whole command.
//!
//! A section of such a text is a line that ends with a colon, and indented lines below it; `Examples:` comes last. An
//! example can be pasted into a shell unchanged, with its `# comment`.

use clap::Args;
use std::path::PathBuf;

/// Exit codes. A contract: scripts rely on the numbers.
const EXIT_CODES: &str = "Exit codes:
  0    success
  1    failed: a retry cannot help, the model refused or returned nothing, or something on this
       machine is wrong
  2    usage: the command line or a setting is wrong
  3    budget spent: the failure was temporary, but no retries or waiting time were left
  4    answered, but the session could not be saved, or earlier sessions are damaged
  130  cancelled (Ctrl-C); 129 and 143: hung up or terminated, `outlast resume` resumes it";

const ENVIRONMENT: &str = "Environment:
  OUTLAST_HOME        the folder for all files of Outlast
                      (default: the platform's data folder)
  OUTLAST_PROVIDER, OUTLAST_MODEL, OUTLAST_POLICY, OUTLAST_CA_FILE
                      settings; `outlast config show` lists them, and the keys, addresses
                      and proxies of providers
  OUTLAST_TIME_SCALE  run the clock N times as fast, for tests and with the scripted provider only";

const FILES: &str = "Files:
  outlast.toml               the settings of a project, in its folder
  OUTLAST_HOME/outlast.toml  the settings of the user
  OUTLAST_HOME/sessions.db   the journal of the sessions
  OUTLAST_HOME/runs.db       the journal of the pipeline runs, with steps.db and artifacts
  OUTLAST_HOME/outlast.db    the state of providers and accounts, shared by all processes of the user";

const EXAMPLES: &str = "Examples:
  outlast                                # a chat in the terminal
  outlast --continue                     # the same, with the last session of this folder
  outlast demo                           # an outage in ninety seconds, without a key
  outlast -p \"Say hello\"                 # one prompt, to the scripted provider
  outlast -p \"Say hello\" --model rate-limited:retry-after=2 --policy overnight
  outlast -p - --json < prompt.txt
  outlast -p \"Fix the failing test\" --allow write,bash --policy overnight
  outlast -p \"And now the other one\" --continue
  outlast -p \"Say hello\" --provider anthropic --model claude-sonnet-4-5 --fallback openai:gpt-5.1
  outlast -p /compact --continue
  outlast resume                         # after a crash, a reboot, a signal
  outlast gateway run -- claude          # keep the agent that you have
  outlast policy show overnight";

/// Description of the chat, which is not an option: `outlast` opens it when it gets no arguments.
const CHAT: &str = "Without arguments, `outlast` opens a chat in the terminal.";

/// Returns the whole text below the options.
pub(super) fn below_options() -> String {
    [CHAT, EXIT_CODES, ENVIRONMENT, FILES, EXAMPLES].join("\n\n")
}

const COMPLETIONS_NOTES: &str = "How to install it:
  bash        write it to ~/.local/share/bash-completion/completions/outlast
  zsh         write it to _outlast in a folder of $fpath: fpath+=~/.zfunc before compinit in ~/.zshrc
  fish        write it to ~/.config/fish/completions/outlast.fish
  elvish      write it to a file, and `eval (slurp < FILE)` in rc.elv
  powershell  append it to the file that $PROFILE names

It takes effect in new shells. Write it again after an update.

Examples:
  source <(outlast completions bash)     # for this shell only
  outlast completions bash > ~/.local/share/bash-completion/completions/outlast
  outlast completions zsh > ~/.zfunc/_outlast
  outlast completions fish > ~/.config/fish/completions/outlast.fish";

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_NOTES)]
pub(crate) struct CompletionsArguments {
    /// Shell to complete for
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

const MAN_EXAMPLES: &str = "Examples:
  outlast man | man -l -                          # read it
  outlast man gateway run | man -l -              # the page of one command
  outlast man --out ~/.local/share/man/man1       # install all: man outlast, man outlast-gateway-run";

#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArguments {
    /// Command whose page to print [default: outlast itself]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    pub(crate) command: Vec<String>,

    /// Write the pages of all commands to this folder instead; create it if it is missing
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
}
