//! Commands that have their names already and nothing behind them yet.

use backstitch_files::error::{Error, Result};
use std::ffi::OsString;

macro_rules! later {
    ($($name:ident $command:literal),* $(,)?) => {$(
        /// Takes anything, for there is nothing to parse it for yet.
        #[derive(Debug, clap::Args)]
        #[command(
            disable_help_subcommand = true,
            after_help = concat!("Examples:\n  backstitch ", $command, "     (not implemented: exits with 1)")
        )]
        pub(crate) struct $name {
            /// Ignored
            #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
            pub(crate) words: Vec<OsString>,
        }
    )*};
}

later! {
    NbdServe "nbd-serve",
}

/// Says so.
pub(crate) fn refuse(command: &str) -> Result<()> {
    Err(Error::failed(
        command,
        env!("CARGO_PKG_VERSION"),
        "this command is not implemented",
    ))
}
