//! Arguments of `outlast demo`.

use clap::Args;

const BELOW_OPTIONS: &str =
    "The demo runs this program twice on this machine: as a scripted provider that fails, and as an
agent that sends it requests, both with an accelerated clock. It needs no key, no account and no
network. It works in a temporary folder (TMPDIR), which it removes at the end. The exit code is 1 if
a failure was not handled.

Examples:
  outlast demo                      # about ninety seconds, with time to read
  outlast demo --fast               # without pauses for reading";

#[derive(Debug, Args)]
#[command(after_help = BELOW_OPTIONS)]
pub(crate) struct DemoArguments {
    /// Skip the pauses for reading, and use a faster clock
    #[arg(long)]
    pub(crate) fast: bool,
}
