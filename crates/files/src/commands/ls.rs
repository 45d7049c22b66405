//! `backstitch ls IMAGE:/path`.

use crate::error::Result;
use crate::image::{Access, Held, Image, with_files};
use crate::paths::{ImagePath, joined, split_last};
use crate::walk::{Order, walk};
use crate::{show, size};
use backstitch_vfs::{Attributes, FileType};
use clap::ArgAction;
use serde_json::{Value, json};
use std::cmp::{Ordering, Reverse};
use std::ffi::OsString;

/// List directories in an image.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Owners and groups are shown as numbers: the names for them are kept by the image's own system. Times are UTC.

Examples:
  backstitch ls disk.img
  backstitch ls -l disk.img:/etc
  backstitch ls -lhtr disk.img:/var/log
  backstitch ls -Ri disk.img
  backstitch ls -d 'disk.img:/etc/*.conf'
  backstitch ls --json disk.img:/etc | jq '.[].entries[].name'"
)]
pub struct Args {
    /// IMAGE:/path, which may be a pattern; IMAGE alone is its root
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// One line with type, permissions, links, owner, group, size and time (UTC) each
    #[arg(short)]
    long: bool,
    /// Also names that begin with a dot, including . and ..
    #[arg(short, long)]
    all: bool,
    /// Also names that begin with a dot, except . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// Directories themselves, not their contents
    #[arg(short, long)]
    directory: bool,
    /// Also the directories in them, and so on
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The inode before each name
    #[arg(short, long)]
    inode: bool,
    /// Sizes with K, M, G behind the number
    #[arg(short, long)]
    human_readable: bool,
    /// The newest first
    #[arg(short = 't')]
    by_time: bool,
    /// The largest first
    #[arg(short = 'S')]
    by_size: bool,
    /// As in the directory, unsorted
    #[arg(short = 'U')]
    unsorted: bool,
    /// In reverse order
    #[arg(short, long)]
    reverse: bool,
    /// As -l (owner and group are always numbers)
    #[arg(short, long)]
    numeric_uid_gid: bool,
    /// A character after each name for its type: / directory, @ symbolic link, * program, | pipe, =
    /// socket
    #[arg(short = 'F', long)]
    classify: bool,
    /// One name on each line (always so)
    #[arg(short = '1')]
    one: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Args {
    fn long(&self) -> bool {
        self.long || self.numeric_uid_gid
    }

    /// Whether a name is listed.
    fn shows(&self, name: &[u8]) -> bool {
        self.all || self.almost_all || !name.starts_with(b".")
    }
}

/// The list for one operand, or for one directory below it.
struct Listing {
    path: ImagePath,
    is_directory: bool,
    entries: Vec<Entry>,
}

struct Entry {
    name: Vec<u8>,
    /// The text shown in place of the name: the operand itself.
    shown: Option<Vec<u8>>,
    attributes: Attributes,
    target: Option<Vec<u8>>,
}

impl Entry {
    /// The text to show.
    fn displayed(&self) -> &[u8] {
        self.shown.as_ref().unwrap_or(&self.name)
    }
}

/// Lists the files and directories.
pub fn run(args: &Args) -> Result<()> {
    let paths: Vec<ImagePath> = args.paths.iter().map(|w| ImagePath::or_root(w)).collect();
    let mut listings = Vec::new();
    with_files("ls", Access::Read, &paths, |image, path| {
        list(args, image, path, &mut listings)
    })?;
    if args.json {
        let documents: Vec<Value> = listings.iter().map(as_json).collect();
        return show::print_json("ls", &documents);
    }
    // As ls(1): files first, then directories, each under its name if there are several.
    let (files, dirs): (Vec<_>, Vec<_>) = listings.into_iter().partition(|l| !l.is_directory);
    let has_titles = args.recursive || dirs.len() + files.len() > 1;
    let mut text = Vec::new();
    if let Some(files) = joined_files(args, files) {
        as_text(args, &files, &mut text);
    }
    for listing in &dirs {
        if has_titles {
            let gap = if text.is_empty() { "" } else { "\n" };
            text.extend_from_slice(format!("{gap}{}:\n", listing.path).as_bytes());
        }
        as_text(args, listing, &mut text);
    }
    show::print_bytes("ls", &text)
}

/// The files among the operands as one listing, under the names by which they were given.
fn joined_files(args: &Args, files: Vec<Listing>) -> Option<Listing> {
    let path = files.first()?.path.clone();
    let mut entries: Vec<Entry> = files.into_iter().flat_map(|file| file.entries).collect();
    sort(args, &mut entries);
    Some(Listing {
        path,
        is_directory: false,
        entries,
    })
}

fn list(args: &Args, image: &Image, path: &[u8], listings: &mut Vec<Listing>) -> Result<()> {
    let found = image.resolve(path, !args.long() && !args.directory)?;
    if !found.is_directory() || args.directory {
        let name = match split_last(path).1 {
            [] => b"/",
            name => name,
        };
        let mut only = entry(image, path, name.to_vec(), &found.attributes)?;
        only.shown = args.directory.then(|| path.to_vec());
        listings.push(Listing {
            path: image.place(path),
            is_directory: false,
            entries: vec![only],
        });
        return Ok(());
    }
    if !args.recursive {
        listings.push(list_directory(args, image, path, &found)?);
        return Ok(());
    }
    walk(
        image,
        path,
        found,
        usize::MAX,
        Order::Before,
        &mut |visited| {
            let is_hidden = visited.path[path.len().min(visited.path.len())..]
                .split(|byte| *byte == b'/')
                .any(|name| !args.shows(name));
            if visited.held.is_directory() && !is_hidden {
                listings.push(list_directory(args, image, visited.path, visited.held)?);
            }
            Ok(())
        },
    )
}

fn list_directory(args: &Args, image: &Image, path: &[u8], dir: &Held) -> Result<Listing> {
    let names = image
        .names(dir.inode())
        .map_err(|error| image.error(path, error))?;
    let mut entries = Vec::new();
    if args.all {
        entries.push(entry(image, path, b".".to_vec(), &dir.attributes)?);
        let up = image.resolve(&joined(path, b".."), true)?;
        entries.push(entry(image, path, b"..".to_vec(), &up.attributes)?);
    }
    for name in names.into_iter().filter(|name| args.shows(name)) {
        let full = joined(path, &name);
        let attributes = image.engine.lookup(dir.inode(), &name);
        let held = image.hold(attributes.map_err(|error| image.error(&full, error))?);
        entries.push(entry(image, &full, name, &held.attributes)?);
    }
    sort(args, &mut entries);
    Ok(Listing {
        path: image.place(path),
        is_directory: true,
        entries,
    })
}

fn sort(args: &Args, entries: &mut [Entry]) {
    if !args.unsorted {
        entries.sort_unstable_by(|a, b| {
            let first = match (args.by_time, args.by_size) {
                (true, _) => Reverse(a.attributes.modified).cmp(&Reverse(b.attributes.modified)),
                (_, true) => {
                    Reverse(a.attributes.size_bytes).cmp(&Reverse(b.attributes.size_bytes))
                }
                _ => Ordering::Equal,
            };
            first.then_with(|| a.displayed().cmp(b.displayed()))
        });
    }
    if args.reverse {
        entries.reverse();
    }
}

fn entry(image: &Image, path: &[u8], name: Vec<u8>, attributes: &Attributes) -> Result<Entry> {
    let target = match attributes.file_type {
        FileType::Symlink => {
            let target = image.engine.read_link(attributes.inode);
            Some(target.map_err(|error| image.error(path, error))?)
        }
        _ => None,
    };
    Ok(Entry {
        name,
        shown: None,
        attributes: *attributes,
        target,
    })
}

/// A device's numbers, or anything else's size.
fn size_text(args: &Args, attributes: &Attributes) -> String {
    match attributes.file_type {
        FileType::CharacterDevice | FileType::BlockDevice => {
            let (major, minor) = show::device_parts(attributes.device_number);
            format!("{major}, {minor}")
        }
        _ if args.human_readable => size::show_short(attributes.size_bytes),
        _ => attributes.size_bytes.to_string(),
    }
}

/// The letter of `-F`.
fn type_suffix(attributes: &Attributes) -> &'static str {
    match attributes.file_type {
        FileType::Directory => "/",
        FileType::Symlink => "@",
        FileType::Fifo => "|",
        FileType::Socket => "=",
        FileType::Regular if attributes.permissions & 0o111 != 0 => "*",
        _ => "",
    }
}

/// The columns before the time.
fn columns(args: &Args, entry: &Entry) -> [String; 5] {
    let a = &entry.attributes;
    [
        a.inode.0.to_string(),
        a.links.to_string(),
        a.uid.to_string(),
        a.gid.to_string(),
        size_text(args, a),
    ]
}

fn as_text(args: &Args, listing: &Listing, out: &mut Vec<u8>) {
    let mut widths = [0; 5];
    for entry in &listing.entries {
        for (width, text) in widths.iter_mut().zip(columns(args, entry)) {
            *width = text.len().max(*width);
        }
    }
    let [i, l, u, g, s] = widths;
    for entry in &listing.entries {
        let a = &entry.attributes;
        let [inode, links, uid, gid, size] = columns(args, entry);
        if args.inode {
            out.extend_from_slice(format!("{inode:>i$} ").as_bytes());
        }
        if args.long() {
            let mode = show::mode_text(a.file_type, a.permissions);
            let time = show::time_short(a.modified);
            let line = format!("{mode} {links:>l$} {uid:>u$} {gid:>g$} {size:>s$} {time} ");
            out.extend_from_slice(line.as_bytes());
        }
        out.extend_from_slice(&show::name_bytes(entry.displayed()));
        match entry.target.as_ref().filter(|_| args.long()) {
            Some(target) => {
                out.extend_from_slice(b" -> ");
                out.extend_from_slice(&show::name_bytes(target));
            }
            None if args.classify => out.extend_from_slice(type_suffix(a).as_bytes()),
            None => {}
        }
        out.push(b'\n');
    }
}

fn as_json(listing: &Listing) -> Value {
    let entries = listing.entries.iter().map(|entry| {
        let mut value = show::attributes_json(&entry.attributes, entry.target.as_deref());
        value["name"] = String::from_utf8_lossy(&entry.name).into();
        value
    });
    json!({
        "image": listing.path.image.display().to_string(),
        "path": String::from_utf8_lossy(&listing.path.path),
        "entries": entries.collect::<Vec<_>>(),
    })
}
