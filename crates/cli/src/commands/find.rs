//! `backstitch find IMAGE:/path`.

use crate::error::{Error, Result};
use crate::image::{Access, Held, Image, ImagePath, joined, split_last, with_image};
use crate::pattern::matches;
use crate::show;
use backstitch_vfs::{FileType, InodeNumber};
use serde_json::Value;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Walk the files of an image, printing their paths.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch find disk.img
  backstitch find disk.img:/etc -name '*.conf' -type f
  backstitch find --json disk.img:/home | jq '.[].size_bytes'")]
pub(crate) struct Args {
    /// Where to begin; IMAGE alone is its root
    #[arg(value_name = "IMAGE:/PATH")]
    path: OsString,
    /// Only names that match this pattern (*, ?, [a-z], \ before a character as it is)
    #[arg(long, value_name = "PATTERN")]
    name: Option<OsString>,
    /// Only this type: f, d, l, p, s, c or b
    #[arg(long = "type", value_name = "LETTER")]
    file_type: Option<char>,
    /// End each path with a zero byte instead of a new line
    #[arg(short = '0', long, conflicts_with = "json")]
    print0: bool,
    /// One JSON document, with attributes
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let letter = args
        .file_type
        .map(|letter| if letter == 'f' { '-' } else { letter });
    if letter.is_some_and(|letter| !"-dlpscb".contains(letter)) {
        return Err(Error::usage("find", "a type is one of f, d, l, p, s, c, b"));
    }
    let path = ImagePath::or_root(&args.path);
    with_image("find", &path.image, Access::Read, |image| {
        let mut found = Vec::new();
        walk(image, &path.path, &mut |path, held| {
            let fits = letter.is_none_or(|l| l == show::type_letter(held.attributes.file_type))
                && name_fits(args.name.as_deref(), path);
            if !fits {
                return Ok(());
            }
            if args.json {
                found.push(as_json(image, path, held)?);
                return Ok(());
            }
            let mut line = if args.print0 {
                path.to_vec()
            } else {
                show::name_bytes(path)
            };
            line.push(if args.print0 { 0 } else { b'\n' });
            show::print_bytes("find", &line)
        })?;
        if args.json {
            show::print_json("find", &found)
        } else {
            Ok(())
        }
    })
}

fn name_fits(pattern: Option<&OsStr>, path: &[u8]) -> bool {
    let name = match split_last(path).1 {
        [] => b"/",
        name => name,
    };
    pattern.is_none_or(|pattern| matches(pattern.as_bytes(), name))
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

/// Visits everything below a path, the path itself first, each directory before what is in it.
fn walk(
    image: &Image,
    path: &[u8],
    visit: &mut dyn FnMut(&[u8], &Held) -> Result<()>,
) -> Result<()> {
    let mut seen: HashSet<InodeNumber> = HashSet::new();
    let start = image.resolve(path, false)?;
    let mut stack: Vec<(Vec<u8>, Held, std::vec::IntoIter<Vec<u8>>)> = Vec::new();
    let mut next = Some((path.to_vec(), start));
    loop {
        if let Some((path, held)) = next.take() {
            visit(&path, &held)?;
            if held.is_directory() {
                if !seen.insert(held.inode()) {
                    let why = "this directory has two names: the file system is corrupt";
                    return Err(image.error(&path, why));
                }
                let names = image.names(held.inode());
                let mut names = names.map_err(|error| image.error(&path, error))?;
                names.sort_unstable();
                stack.push((path, held, names.into_iter()));
            }
        }
        let Some((path, held, names)) = stack.last_mut() else {
            return Ok(());
        };
        match names.next() {
            Some(name) => {
                let path = joined(path, &name);
                let found = image.engine.lookup(held.inode(), &name);
                let found = found.map_err(|error| image.error(&path, error))?;
                next = Some((path, image.hold(found)));
            }
            None => drop(stack.pop()),
        }
    }
}
