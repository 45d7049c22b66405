//! What the libraries log, on stderr.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The variable that says how much: a level, or `target=level` pairs with commas between them.
const VARIABLE: &str = "BACKSTITCH_LOG";

/// Starts logging as the environment asks. Where it does not, errors alone of what serves a mount,
/// and nothing of other commands: they say themselves what failed.
pub(crate) fn start(serves: bool) {
    let default = match serves {
        true => LevelFilter::ERROR,
        false => LevelFilter::OFF,
    };
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let filter = match asked.as_str() {
        "" => Targets::new().with_default(default),
        text => text.parse().unwrap_or_else(|error| {
            backstitch_files::error::warn_line(&format!("log: {VARIABLE}: {error}"));
            Targets::new().with_default(LevelFilter::ERROR)
        }),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
}
