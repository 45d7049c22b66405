//! `backstitch find IMAGE:/path`.

mod test;

use crate::error::{Error, Result, host};
use crate::image::{Access, Held, Image, now, timestamp, with_files};
use crate::paths::{ImagePath, split_last};
use crate::pattern::matches;
use crate::show;
use crate::walk::{Order, Visited, walk};
use backstitch_vfs::{FileType, Timestamp};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use test::{Age, Amount, Permissions, Types};

/// Find files in an image, printing the paths of those that pass every test.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The tests may be written with one dash, as find(1) has them. A number N is exactly N, +N is more, -N is less.

Examples:
  backstitch find disk.img
  backstitch find disk.img:/etc -name '*.conf' -type f
  backstitch find disk.img:/var -size +10M -mtime -7
  backstitch find disk.img:/home -newer disk.img:/home/stamp
  backstitch find disk.img -maxdepth 1 -type d,l
  backstitch find --json disk.img:/home | jq '.[].size_bytes'"
)]
pub struct Args {
    /// Where to begin; IMAGE alone is its root
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Only names that match this pattern (*, ?, [a-z], \ before a character as it is)
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    name: Option<OsString>,
    /// As --name, with small and capital letters alike
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    iname: Option<OsString>,
    /// Only whole paths that match this pattern, in which * also stands for slashes
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    path: Option<OsString>,
    /// Only these types: f, d, l, p, s, c or b, with commas between them
    #[arg(long = "type", value_name = "LETTERS", value_parser = Types::parse)]
    file_type: Option<Types>,
    /// Only this size: [+-]N in units of c (bytes), w (2), b (512, the default), k, M or G, rounded
    /// up
    #[arg(long, value_name = "[+-]N", value_parser = Amount::parse_size, allow_hyphen_values = true)]
    size: Option<Amount>,
    /// Only empty files and directories
    #[arg(long)]
    empty: bool,
    /// Only files whose contents changed N days ago (whole days of 24 hours)
    #[arg(long, value_name = "[+-]N", value_parser = Age::parse_days, allow_hyphen_values = true)]
    mtime: Option<Age>,
    /// The same in minutes
    #[arg(long, value_name = "[+-]N", value_parser = Age::parse_minutes, allow_hyphen_values = true)]
    mmin: Option<Age>,
    /// Only files changed later than this one, which is the host's or IMAGE:/path
    #[arg(long, value_name = "FILE")]
    newer: Option<OsString>,
    /// Only these permissions in octal digits: MODE exactly, -MODE all of them, /MODE any of them
    #[arg(long, value_name = "[-/]MODE", value_parser = Permissions::parse, allow_hyphen_values = true)]
    perm: Option<Permissions>,
    /// Only files of this owner, a number
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,
    /// Only files of this group, a number
    #[arg(long, value_name = "GID")]
    gid: Option<u32>,
    /// Only this inode
    #[arg(long, value_name = "N")]
    inum: Option<u32>,
    /// Only files with N names
    #[arg(long, value_name = "[+-]N", value_parser = Amount::parse_count, allow_hyphen_values = true)]
    links: Option<Amount>,
    /// Go down at most N levels of directories
    #[arg(long, value_name = "N")]
    maxdepth: Option<usize>,
    /// Leave out what is fewer than N levels down
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    mindepth: usize,
    /// Show the contents of a directory before the directory
    #[arg(long)]
    depth: bool,
    /// End each path with a new line (always so)
    #[arg(long, hide = true)]
    print: bool,
    /// End each path with a zero byte instead of a new line
    #[arg(short = '0', long, conflicts_with = "json")]
    print0: bool,
    /// One JSON document, with attributes
    #[arg(long)]
    json: bool,
}

/// The tests and options that find(1) writes with one dash.
pub const ONE_DASH: [&str; 19] = [
    "name", "iname", "path", "type", "size", "empty", "mtime", "mmin", "newer", "perm", "uid",
    "gid", "inum", "links", "maxdepth", "mindepth", "depth", "print", "print0",
];

/// Prints the files that pass the tests.
pub fn run(args: &Args) -> Result<()> {
    let paths: Vec<ImagePath> = args.paths.iter().map(|w| ImagePath::or_root(w)).collect();
    let newer = args.newer.as_ref().map(reference).transpose()?;
    let now = now();
    let mut found = Vec::new();
    let order = if args.depth {
        Order::After
    } else {
        Order::Before
    };
    with_files("find", Access::Read, &paths, |image, path| {
        let start = image.resolve(path, false)?;
        let depth_max = args.maxdepth.unwrap_or(usize::MAX);
        walk(image, path, start, depth_max, order, &mut |visited| {
            if visited.depth < args.mindepth || !passes(args, image, visited, now, newer)? {
                return Ok(());
            }
            if args.json {
                found.push(as_json(image, visited.path, visited.held)?);
                return Ok(());
            }
            let mut line = if args.print0 {
                visited.path.to_vec()
            } else {
                show::name_bytes(visited.path)
            };
            line.push(if args.print0 { 0 } else { b'\n' });
            show::print_bytes("find", &line)
        })
    })?;
    match args.json {
        true => show::print_json("find", &found),
        false => Ok(()),
    }
}

/// When the reference file of `-newer` was changed.
fn reference(word: &OsString) -> Result<Timestamp> {
    let Some(path) = ImagePath::parse(word) else {
        let path = Path::new(word);
        let modified = path.metadata().and_then(|found| found.modified());
        return modified
            .map(timestamp)
            .map_err(|error| Error::at_path("find", path, host(&error)));
    };
    let mut modified = Timestamp::default();
    with_files("find", Access::Read, &[path], |image, path| {
        modified = image.resolve(path, true)?.attributes.modified;
        Ok(())
    })?;
    Ok(modified)
}

/// Whether a file passes every test.
fn passes(
    args: &Args,
    image: &Image,
    visited: &Visited<'_>,
    now: Timestamp,
    newer: Option<Timestamp>,
) -> Result<bool> {
    let a = &visited.held.attributes;
    let name = match split_last(visited.path).1 {
        [] => b"/",
        name => name,
    };
    let fits = |pattern: &Option<OsString>, text: &[u8]| {
        (pattern.as_ref()).is_none_or(|pattern| matches(pattern.as_bytes(), text))
    };
    let lower = |pattern: &OsString| pattern.to_ascii_lowercase();
    let passes = fits(&args.name, name)
        && fits(&args.iname.as_ref().map(lower), &name.to_ascii_lowercase())
        && fits(&args.path, visited.path)
        && (args.file_type.as_ref()).is_none_or(|types| types.contains(a.file_type))
        && args.size.is_none_or(|size| size.fits(a.size_bytes))
        && args.mtime.is_none_or(|age| age.fits(a.modified, now))
        && args.mmin.is_none_or(|age| age.fits(a.modified, now))
        && newer.is_none_or(|time| a.modified > time)
        && args.perm.is_none_or(|wanted| wanted.fits(a.permissions))
        && args.uid.is_none_or(|uid| a.uid == uid)
        && args.gid.is_none_or(|gid| a.gid == gid)
        && args.inum.is_none_or(|inode| a.inode.0 == inode)
        && args.links.is_none_or(|links| links.fits(a.links.into()));
    Ok(passes && (!args.empty || is_empty(image, visited)?))
}

/// Whether a file has no byte, or a directory no name.
fn is_empty(image: &Image, visited: &Visited<'_>) -> Result<bool> {
    let attributes = &visited.held.attributes;
    match attributes.file_type {
        FileType::Regular => Ok(attributes.size_bytes == 0),
        FileType::Directory => {
            let names = image.names(visited.held.inode());
            let names = names.map_err(|error| image.error(visited.path, error))?;
            Ok(names.is_empty())
        }
        _ => Ok(false),
    }
}

fn as_json(image: &Image, path: &[u8], held: &Held) -> Result<Value> {
    let target = match held.attributes.file_type {
        FileType::Symlink => {
            let target = image.engine.read_link(held.inode());
            Some(target.map_err(|error| image.error(path, error))?)
        }
        _ => None,
    };
    let mut value = show::attributes_json(&held.attributes, target.as_deref());
    value["path"] = String::from_utf8_lossy(path).into();
    Ok(value)
}
