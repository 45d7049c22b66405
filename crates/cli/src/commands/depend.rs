//! `backstitch depend "CMD" … "SPEC"`.

use backstitch_files::error::{Error, Result, host, warn_line};
use patchgroup::Group;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};

/// Run commands whose effects reach the disk in a given order: after a crash, what a command did is
/// on the disk only if everything is that the commands it depends on did. The programs need not be
/// changed for it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A SPEC is 2:1 (the second command depends on the first), 3:1,2 or several of these with blanks between. The commands run one
after the other until one fails. Nothing waits for the disk.

What a command's children do counts as long as the command itself runs. In a file system without patchgroups the order is
kept by writing everything out between the commands.

Examples:
  backstitch depend \"sort < in > out\" \"rm in\" \"2:1\"
  backstitch depend --in /mnt \"cp -r /src /mnt/new\" \"mv /mnt/old /mnt/older\" \"mv /mnt/new /mnt/old\" \"2:1 3:2\""
)]
pub(crate) struct Args {
    /// A path in the mount
    #[arg(long = "in", value_name = "PATH", default_value = ".")]
    inside: PathBuf,
    /// The commands, as for a shell, and after them which depends on which
    #[arg(required = true, num_args = 2.., value_name = "CMD … SPEC")]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (commands, pairs) = split(&args.words)?;
    let failed = |error: &std::io::Error| Error::at_path("depend", &args.inside, host(error));
    let groups = commands.iter().map(|_| {
        let group = Group::create_in(&args.inside)?;
        group.set_close_on_exec(true)?;
        Ok(group)
    });
    let groups: Vec<Group> = groups
        .collect::<std::io::Result<_>>()
        .map_err(|error| failed(&error))?;
    if groups.iter().any(|group| !group.is_supported()) {
        warn_line(&format!(
            "depend: {}: no patchgroups here: everything is written out between the commands",
            args.inside.display()
        ));
    }
    for (at, (command, group)) in commands.iter().zip(&groups).enumerate() {
        let before = pairs.iter().filter(|(after, _)| *after == at);
        for (_, before) in before {
            let done = group.depend(&groups[*before]);
            done.map_err(|error| failed(&error))?;
        }
        let status = under(group, command).map_err(|error| failed(&error))?;
        if !status.success() {
            let why = format!("{status}: the commands after it are not run");
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Err(Error::failed("depend", command, why).exit(code.unwrap_or(1)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command, which alone has the group.
fn under(group: &Group, command: &str) -> std::io::Result<ExitStatus> {
    group.engage()?;
    group.set_close_on_exec(false)?;
    let status = Command::new("sh").args(["-c", command]).status();
    group.set_close_on_exec(true)?;
    group.disengage()?;
    status
}

/// Commands, and pairs of their places: the first of a pair depends on the second.
type Split<'a> = (Vec<&'a str>, Vec<(usize, usize)>);

fn split(words: &[String]) -> Result<Split<'_>> {
    let usage = |why: String| Error::usage("depend", why);
    let commands: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .take_while(|word| pairs_of(word).is_none())
        .collect();
    let specs = &words[commands.len()..];
    if commands.is_empty() || specs.is_empty() {
        return Err(usage(
            "commands expected, and after them a SPEC like 2:1".to_owned(),
        ));
    }
    let mut pairs = Vec::new();
    for spec in specs {
        let found =
            pairs_of(spec).ok_or_else(|| usage(format!("'{spec}' is not a SPEC like 2:1")))?;
        for (after, before) in found {
            if before < 1 || after > commands.len() {
                let count = commands.len();
                return Err(usage(format!("'{spec}': there are commands 1 to {count}")));
            }
            if after <= before {
                return Err(usage(format!(
                    "'{spec}': a command can depend only on those before it"
                )));
            }
            pairs.push((after - 1, before - 1));
        }
    }
    Ok((commands, pairs))
}

/// `2:1 3:1,2` as pairs.
fn pairs_of(spec: &str) -> Option<Vec<(usize, usize)>> {
    let mut pairs = Vec::new();
    for part in spec.split_ascii_whitespace() {
        let (after, before) = part.split_once(':')?;
        let after = after.parse().ok()?;
        for before in before.split(',') {
            pairs.push((after, before.parse().ok()?));
        }
    }
    (!pairs.is_empty()).then_some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(words: &[&str]) -> Option<Vec<(usize, usize)>> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        split(&words).ok().map(|(_, pairs)| pairs)
    }

    #[test]
    fn specs_stand_behind_the_commands() {
        assert_eq!(pairs(&["a", "b", "2:1"]), Some(vec![(1, 0)]));
        let three = pairs(&["a", "b", "c d", "2:1 3:1,2"]);
        assert_eq!(three, Some(vec![(1, 0), (2, 0), (2, 1)]));
        assert_eq!(pairs(&["a", "b", "2:1", "c"]), None);
        for wrong in ["1:2", "2:2", "3:1", "2:0"] {
            assert_eq!(pairs(&["a", "b", wrong]), None, "{wrong}");
        }
        assert_eq!(pairs(&["a", "b"]), None);
        assert_eq!(pairs(&["2:1"]), None);
    }
}
