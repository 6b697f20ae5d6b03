//! Arguments of `outlast completions` and `outlast man`.

use clap::Args;
use std::path::PathBuf;

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
