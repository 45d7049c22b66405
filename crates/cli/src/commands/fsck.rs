use crate::error::Result;
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch fsck")]
pub(crate) struct Args {}
pub(crate) fn run(_args: &Args) -> Result<std::process::ExitCode> {
    Ok(Default::default())
}
