//! The `backstitch` command: file systems in images, mounted or not.
//!
//! This crate parses the command line and holds the commands that work on an image as a whole
//! (`mkfs`, `fsck`, `tune`, `journal`), on mounts (`mount`, `stats`, `snapshot`, `sync`), and the
//! experiments (`crash`, `bench`), a module each in [`commands`]. The commands on the files of an
//! image, and what every command shares (errors, names, opened images, printing), are in the crate
//! `files`. It depends on everything below; nothing depends on it. What several of its commands
//! need is here: mount options ([`options`]), stacks of images in images ([`stack`]), undo files
//! ([`undo_file`]), the bound on memory ([`host_memory`], [`allocator`]).

mod allocator;
mod args;
mod commands;
mod host_memory;
mod logging;
mod options;
mod stack;
mod undo_file;

use backstitch_files::{commands::find, error};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// The names under which mount(8), umount(8) and fsck(8) find the binary, with what makes our command
/// line of theirs.
const HELPERS: [(&str, Rewrite); 5] = [
    ("mount.backstitch", mount_helper_words),
    ("umount.backstitch", umount_helper_words),
    ("umount.fuse.backstitch", umount_helper_words),
    ("fsck.backstitch", fsck_helper_words),
    ("fsck.fuse.backstitch", fsck_helper_words),
];

type Rewrite = fn(Vec<OsString>) -> Vec<OsString>;

fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    let words = normalised(given);
    let is_fsck = words.get(1).is_some_and(|word| word == "fsck");
    let parsed = args::Cli::command()
        .try_get_matches_from(&words)
        .and_then(|matches| args::Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(usage) => return refuse_usage(&usage, &words, is_fsck),
    };
    logging::start(cli.command.serves());
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            error.print();
            ExitCode::from(error.exit)
        }
    }
}

/// The command line as the parser wants it: `mount.backstitch …` is `backstitch mount …`, and
/// `find`'s tests may be written with one dash, as everybody does.
fn normalised(mut words: Vec<OsString>) -> Vec<OsString> {
    let called_as = words.first().and_then(|word| Path::new(word).file_name());
    let helper = HELPERS
        .iter()
        .find(|(name, _)| called_as.is_some_and(|called| called == *name));
    words = match helper {
        Some((_, rewrite)) => rewrite(words),
        None if is_called_by_mount_fuse(&words) => mount_helper_words(words),
        None => words,
    };
    if words.get(1).is_some_and(|word| word == "find") {
        for word in words.iter_mut().skip(2) {
            let name = word.to_str().and_then(|word| word.strip_prefix('-'));
            if name.is_some_and(|name| find::ONE_DASH.contains(&name)) {
                *word = format!("-{}", word.display()).into();
            }
        }
    }
    words
}

/// Whether the command line is that of mount.fuse(8), which serves `mount -t fuse.backstitch`:
/// `backstitch IMAGE DIR -o OPTIONS`.
fn is_called_by_mount_fuse(words: &[OsString]) -> bool {
    match words {
        [_, image, _, option, _] => {
            let is_command = |name: &str| args::Cli::command().find_subcommand(name).is_some();
            option == "-o"
                && !image.as_bytes().starts_with(b"-")
                && !image.to_str().is_some_and(is_command)
        }
        _ => false,
    }
}

/// What mount(8) says to its helpers,
/// `mount.TYPE IMAGE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`, without what means nothing
/// here. Its `-f` is not ours: it asks to do everything but mount.
fn mount_helper_words(words: Vec<OsString>) -> Vec<OsString> {
    let renamed = ("-f", "--fake");
    helper_words(words, &["mount", "--helper"], &["-s", "-n", "-v"], renamed)
}

/// What umount(8) says to its helpers, `umount.TYPE DIR [-flnrv] [-N NAMESPACE] [-t TYPE]`, without
/// what means nothing here.
fn umount_helper_words(words: Vec<OsString>) -> Vec<OsString> {
    let renamed = ("-l", "--lazy");
    helper_words(words, &["umount"], &["-f", "-n", "-r", "-v"], renamed)
}

/// The words of mount(8) or umount(8) to a helper as those of a command: without the options that
/// mean nothing here, and with one that has another name. The value of `-o` is left alone.
fn helper_words(
    words: Vec<OsString>,
    command: &[&str],
    without: &[&str],
    (old, new): (&str, &str),
) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut given = words.into_iter();
    out.extend(given.next());
    out.extend(command.iter().map(OsString::from));
    while let Some(word) = given.next() {
        match word.to_str() {
            Some(text) if without.contains(&text) => {}
            Some(text) if text == old => out.push(new.into()),
            Some("-t" | "-N") => drop(given.next()),
            Some("-o") => {
                out.push(word);
                out.extend(given.next());
            }
            _ => out.push(word),
        }
    }
    out
}

/// What fsck(8) says to its helpers, `fsck.TYPE [OPTIONS] IMAGE`, where the options are those of
/// e2fsck: without what only changes how it is shown.
fn fsck_helper_words(words: Vec<OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut given = words.into_iter();
    out.extend(given.next());
    out.push("fsck".into());
    let is_meant = |word: &OsString| {
        let is_progress = word.as_bytes().starts_with(b"-C");
        !is_progress
            && !["-v", "-V", "-T", "-M", "-r"]
                .iter()
                .any(|known| word == known)
    };
    out.extend(given.filter(is_meant));
    out
}

/// Prints help where it was asked for, otherwise what is wrong with the command line, in one line.
fn refuse_usage(usage: &clap::Error, words: &[OsString], is_fsck: bool) -> ExitCode {
    if matches!(
        usage.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        // A closed pipe is no reason to complain.
        let _ = usage.print();
        return ExitCode::SUCCESS;
    }
    let command = words
        .get(1)
        .map(|word| word.display().to_string())
        .unwrap_or_default();
    let known = args::Cli::command().find_subcommand(&command).is_some();
    let (command, help) = match known {
        true => (command.clone(), format!("backstitch {command} --help")),
        false => ("usage".to_owned(), "backstitch --help".to_owned()),
    };
    eprintln!("backstitch: {command}: {}", usage_reason(usage));
    match suggested(usage) {
        Some(word) => eprintln!("hint: did you mean '{word}'? See {help}"),
        None => eprintln!("hint: {help}"),
    }
    ExitCode::from(if is_fsck {
        error::FSCK_USAGE
    } else {
        error::USAGE
    })
}

/// What was probably meant.
fn suggested(usage: &clap::Error) -> Option<String> {
    let kinds = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    // The likeliest comes last.
    kinds.into_iter().find_map(|kind| match usage.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) => words.last().cloned(),
        _ => None,
    })
}

/// What is wrong, without the parser's decoration.
fn usage_reason(usage: &clap::Error) -> String {
    if usage.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing".to_owned();
    }
    let text = usage.render().to_string();
    let lines = text
        .lines()
        .take_while(|line| !line.is_empty() && !line.starts_with("Usage"));
    let joined = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    joined.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_ascii_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_parser_is_consistent() {
        args::Cli::command().debug_assert();
    }

    #[test]
    fn the_mount_helper_is_the_mount_command() {
        let line = normalised(words("/sbin/mount.backstitch a.img /mnt -o ro"));
        assert_eq!(
            line,
            words("/sbin/mount.backstitch mount --helper a.img /mnt -o ro")
        );
        let line = normalised(words(
            "/sbin/mount.backstitch a.img /mnt -n -v -f -t backstitch -o -t",
        ));
        assert_eq!(
            line,
            words("/sbin/mount.backstitch mount --helper a.img /mnt --fake -o -t")
        );
    }

    #[test]
    fn umount_and_fsck_find_it_too() {
        for (line, expected) in [
            (
                "umount.backstitch /mnt -n -l -v -t backstitch",
                "umount /mnt --lazy",
            ),
            ("umount.fuse.backstitch /mnt -f", "umount /mnt"),
            ("fsck.backstitch -a -C5 -T /a.img", "fsck -a /a.img"),
            ("fsck.fuse.backstitch -n -f /a.img", "fsck -n -f /a.img"),
        ] {
            let name = line.split(' ').next().unwrap();
            let line = normalised(words(&format!("/sbin/{line}")));
            assert_eq!(line, words(&format!("/sbin/{name} {expected}")));
        }
    }

    #[test]
    fn mount_fuse_may_call_it() {
        let line = normalised(words("backstitch /a.img /mnt -o rw,nofail"));
        let expected = "backstitch mount --helper /a.img /mnt -o rw,nofail";
        assert_eq!(line, words(expected));
        let line = words("backstitch mount /mnt -o rw");
        assert_eq!(normalised(line.clone()), line);
    }

    #[test]
    fn find_takes_one_dash() {
        let line = normalised(words("backstitch find a.img:/ -name x -type f -mtime -1"));
        let expected = "backstitch find a.img:/ --name x --type f --mtime -1";
        assert_eq!(line, words(expected));
        assert_eq!(
            normalised(words("backstitch ls -name")),
            words("backstitch ls -name")
        );
    }

    #[test]
    fn usage_errors_are_one_line() {
        let parsed = args::Cli::command().try_get_matches_from(words("backstitch mount"));
        let reason = usage_reason(&parsed.unwrap_err());
        assert!(
            reason.contains("<IMAGE>") && !reason.contains('\n'),
            "{reason}"
        );
    }

    #[test]
    fn every_command_has_examples() {
        for command in args::Cli::command().get_subcommands() {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let name = command.get_name();
            assert!(
                help.contains("Examples:") && help.contains("backstitch "),
                "{name}"
            );
        }
    }
}
