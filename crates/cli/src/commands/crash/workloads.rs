//! The workloads of `crash fs` and `crash ablate`, by their names.

use backstitch_crash::{Campaign, Workload, ace, generate, parse_script, scripts};
use backstitch_files::error::{Error, Result, host};
use std::path::Path;

/// More random workloads than this are not made at once.
const MOST_RANDOM: u32 = 100_000;

/// The workloads of these names, with the campaign's seed. What is found by feedback is found under
/// its mechanism.
pub(super) fn named(command: &str, names: &[String], campaign: &Campaign) -> Result<Vec<Workload>> {
    let seed = campaign.seed;
    let mut all = Vec::new();
    for name in names {
        let mut some = match name.split_once(':') {
            Some(("ace", length @ ("1" | "2"))) => generate::ace(1 + usize::from(length == "2")),
            Some(("seq", length @ ("1" | "2"))) => {
                generate::sequences(1 + usize::from(length == "2"))
            }
            Some((kind @ ("random" | "flushed" | "long" | "guided"), count)) => {
                let count: u32 = count.parse().map_err(|_| unknown(command, name))?;
                let count = count.min(MOST_RANDOM) as usize;
                match kind {
                    "random" => generate::random(count, seed),
                    "long" => generate::long(count, seed),
                    "flushed" => generate::flushed(count, seed),
                    _ => campaign.guided(count).map_err(|error| {
                        Error::failed(command, "finding workloads", error.to_string())
                    })?,
                }
            }
            Some(("ace" | "seq", _)) => return Err(unknown(command, name)),
            _ if name.is_empty() => return Err(unknown(command, name)),
            _ if name == "scripts" => scripts::workloads(),
            _ if name == "cases" => generate::cases(),
            _ if generate::Family::named(name).is_some() => {
                generate::Family::named(name).map_or_else(Vec::new, generate::Family::workloads)
            }
            _ => from_file(command, Path::new(name))?,
        };
        if name.ends_with(":2") {
            generate::shuffle(&mut some, seed);
        }
        all.append(&mut some);
    }
    Ok(all)
}

/// Whether it is a script of a family.
pub(super) fn is_case(workload: &Workload) -> bool {
    let family = workload.name.split('/').next().unwrap_or_default();
    generate::Family::named(family).is_some()
}

fn unknown(command: &str, name: &str) -> Error {
    let families: Vec<&str> = generate::FAMILIES
        .iter()
        .map(|family| family.name)
        .collect();
    let known = format!(
        "ace:1, ace:2, seq:1, seq:2, random:N, guided:N, flushed:N, long:N (N up to 100000), scripts, cases, {} or a file",
        families.join(", ")
    );
    Error::usage(
        command,
        format!("there is no workload '{name}': it is {known}"),
    )
}

pub(super) fn scripted(command: &str, name: &str, text: &str) -> Result<Workload> {
    let operations =
        parse_script(text).map_err(|error| Error::usage(command, format!("{name}: {error}")))?;
    Ok(Workload {
        name: name.to_owned(),
        operations,
        setup: 0,
    })
}

fn from_file(command: &str, path: &Path) -> Result<Vec<Workload>> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::at_path(command, path, host(&error))
            .hint("a workload is ace:1, ace:2, seq:1, seq:2, random:N, guided:N, flushed:N, long:N, scripts, cases, one of the cases or a file")
    })?;
    if !text.lines().any(|line| line.starts_with("## ")) {
        return Ok(vec![scripted(command, &path.to_string_lossy(), &text)?]);
    }
    let read =
        ace::parse(&text).map_err(|error| Error::at_path(command, path, error.to_string()))?;
    for (name, why) in &read.skipped {
        tracing::info!("{name} is skipped: {why}");
    }
    Ok(read.workloads)
}
