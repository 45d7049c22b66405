//! `backstitch ls IMAGE:/path`.

use crate::error::Result;
use crate::image::{Access, Image, ImagePath, joined, split_last, with_image};
use crate::show;
use backstitch_vfs::{Attributes, FileType};
use serde_json::{Value, json};
use std::ffi::OsString;

/// List directories in an image.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch ls disk.img
  backstitch ls -l disk.img:/etc
  backstitch ls --json disk.img:/etc | jq '.[].entries[].name'")]
pub(crate) struct Args {
    /// IMAGE:/path; IMAGE alone is its root
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// One line with type, permissions, links, owner, group, size and time (UTC) each
    #[arg(short)]
    long: bool,
    /// Names that begin with a dot too
    #[arg(short, long)]
    all: bool,
    /// Directories themselves, not what is in them
    #[arg(short, long)]
    directory: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// What is listed under one operand.
struct Listing {
    path: ImagePath,
    is_directory: bool,
    entries: Vec<Entry>,
}

struct Entry {
    name: Vec<u8>,
    attributes: Attributes,
    target: Option<Vec<u8>>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut listings = Vec::new();
    for word in &args.paths {
        let path = ImagePath::or_root(word);
        listings.push(with_image(
            "ls",
            &path.image.clone(),
            Access::Read,
            |image| list(args, image, path),
        )?);
    }
    if args.json {
        let documents: Vec<Value> = listings.iter().map(as_json).collect();
        return show::print_json("ls", &documents);
    }
    let several = listings.len() > 1;
    let mut text = Vec::new();
    for (index, listing) in listings.iter().enumerate() {
        if several && listing.is_directory {
            let gap = if index > 0 { "\n" } else { "" };
            text.extend_from_slice(format!("{gap}{}:\n", listing.path).as_bytes());
        }
        as_text(args, listing, &mut text);
    }
    show::print_bytes("ls", &text)
}

fn list(args: &Args, image: &Image, path: ImagePath) -> Result<Listing> {
    let found = image.resolve(&path.path, !args.long)?;
    let is_directory = found.is_directory() && !args.directory;
    let mut entries = Vec::new();
    if is_directory {
        let names = image
            .names(found.inode())
            .map_err(|error| image.error(&path.path, error))?;
        let shown = names
            .into_iter()
            .filter(|name| args.all || !name.starts_with(b"."));
        for name in shown {
            let full = joined(&path.path, &name);
            let attributes = image.engine.lookup(found.inode(), &name);
            let held = image.hold(attributes.map_err(|error| image.error(&full, error))?);
            entries.push(entry(image, &full, name, &held.attributes)?);
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    } else {
        let (_, name) = split_last(&path.path);
        let name = if name.is_empty() { b"/" } else { name };
        entries.push(entry(image, &path.path, name.to_vec(), &found.attributes)?);
    }
    Ok(Listing {
        path,
        is_directory,
        entries,
    })
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
        attributes: *attributes,
        target,
    })
}

/// A device's numbers, or anything else's size.
fn size_text(attributes: &Attributes) -> String {
    match attributes.file_type {
        FileType::CharacterDevice | FileType::BlockDevice => {
            let (major, minor) = show::device_parts(attributes.device_number);
            format!("{major}, {minor}")
        }
        _ => attributes.size_bytes.to_string(),
    }
}

fn as_text(args: &Args, listing: &Listing, out: &mut Vec<u8>) {
    let columns = |entry: &Entry| {
        let a = &entry.attributes;
        [
            a.links.to_string(),
            a.uid.to_string(),
            a.gid.to_string(),
            size_text(a),
        ]
    };
    let mut widths = [0; 4];
    if args.long {
        for entry in &listing.entries {
            for (width, text) in widths.iter_mut().zip(columns(entry)) {
                *width = text.len().max(*width);
            }
        }
    }
    for entry in &listing.entries {
        if args.long {
            let a = &entry.attributes;
            let mode = show::mode_text(a.file_type, a.permissions);
            let [links, uid, gid, size] = columns(entry);
            let [l, u, g, s] = widths;
            let time = show::time_short(a.modified);
            let line = format!("{mode} {links:>l$} {uid:>u$} {gid:>g$} {size:>s$} {time} ");
            out.extend_from_slice(line.as_bytes());
        }
        out.extend_from_slice(&show::name_bytes(&entry.name));
        if let Some(target) = entry.target.as_ref().filter(|_| args.long) {
            out.extend_from_slice(b" -> ");
            out.extend_from_slice(&show::name_bytes(target));
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
