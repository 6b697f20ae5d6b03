//! Arguments of `outlast demo`.

use clap::Args;
use std::path::PathBuf;

const BELOW_OPTIONS: &str = "What runs is this program: as a provider on this machine that fails by a script, and as an agent
that asks it, both with a clock that is sped up. There is no key, no account and no network, all of
it is in a temporary folder (TMPDIR), and nothing is left when it ends. The exit code is 1 when
something was not outlasted.

Examples:
  outlast demo                      # about ninety seconds, with time to read
  outlast demo --fast               # without pauses for reading
  outlast demo --svg outage.svg     # the picture as a file, too";

#[derive(Debug, Args)]
#[command(after_help = BELOW_OPTIONS)]
pub(crate) struct DemoArguments {
    /// Without pauses for reading, and with a faster clock
    #[arg(long)]
    pub(crate) fast: bool,

    /// Draw what happened into an SVG file as well
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
