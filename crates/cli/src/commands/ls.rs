use crate::error::Result;
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch ls")]
pub(crate) struct Args {}
pub(crate) fn run(_args: &Args) -> Result<()> {
    Ok(Default::default())
}
