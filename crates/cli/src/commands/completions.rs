//! `backstitch completions SHELL`.

use backstitch_files::error::Result;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a completion script for a shell on standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch completions bash > /etc/bash_completion.d/backstitch
  backstitch completions zsh > ~/.zfunc/_backstitch
  backstitch completions fish > ~/.config/fish/completions/backstitch.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::args::Cli::command(),
        "backstitch",
        &mut script,
    );
    backstitch_files::show::print_bytes("completions", &script)
}
