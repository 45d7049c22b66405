//! `backstitch du IMAGE:/path`.

use crate::error::Result;
use crate::image::{Access, Held, Image, with_files};
use crate::paths::ImagePath;
use crate::walk::{Order, Visited, walk};
use crate::{show, size};
use backstitch_vfs::InodeNumber;
use clap::ArgAction;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ffi::OsString;

/// Add up what directories of an image take.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "A file with several names counts once for each operand. Sizes are what files take on the disk, by default in KiB.

Examples:
  backstitch du disk.img
  backstitch du -sh 'disk.img:/*'
  backstitch du -h -d 1 disk.img:/usr
  backstitch du --json -s disk.img:/home | jq '.[0].allocated_bytes'"
)]
pub struct Args {
    /// IMAGE:/path, which may be a pattern; IMAGE alone is its root
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Only the sum for each operand
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Also files, not only directories
    #[arg(short, long)]
    all: bool,
    /// Show directories at most N levels below the operand
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Sizes with K, M, G behind the number
    #[arg(short, long)]
    human_readable: bool,
    /// The lengths of files in bytes, not what they take on the disk
    #[arg(short, long)]
    bytes: bool,
    /// A sum of all operands behind them
    #[arg(short = 'c', long)]
    total: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Sums over files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    allocated_bytes: u64,
    size_bytes: u64,
    files: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.allocated_bytes += other.allocated_bytes;
        self.size_bytes += other.size_bytes;
        self.files += other.files;
    }
}

/// A line of the output.
struct Shown {
    path: ImagePath,
    sum: Sum,
}

/// Prints how much room trees take.
pub fn run(args: &Args) -> Result<()> {
    let paths: Vec<ImagePath> = args.paths.iter().map(|w| ImagePath::or_root(w)).collect();
    let mut shown = Vec::new();
    let mut total = Sum::default();
    with_files("du", Access::Read, &paths, |image, path| {
        total.add(measure(args, image, path, &mut shown)?);
        Ok(())
    })?;
    if args.json {
        let documents: Vec<Value> = shown.iter().map(as_json).collect();
        return show::print_json("du", &documents);
    }
    let mut lines = Vec::new();
    for Shown { path, sum } in &shown {
        lines.extend_from_slice(format!("{}\t", text(args, *sum)).as_bytes());
        lines.extend_from_slice(&show::name_bytes(&path.path));
        lines.push(b'\n');
    }
    if args.total {
        lines.extend_from_slice(format!("{}\ttotal\n", text(args, total)).as_bytes());
    }
    show::print_bytes("du", &lines)
}

/// Adds up a tree; a directory is shown after its contents.
fn measure(args: &Args, image: &Image, path: &[u8], shown: &mut Vec<Shown>) -> Result<Sum> {
    let start = image.resolve(path, false)?;
    let mut linked = HashSet::new();
    // The sums of the directories that are being visited, by depth.
    let mut sums: Vec<Sum> = Vec::new();
    let depth_max = match args.summarize {
        true => 0,
        false => args.max_depth.unwrap_or(usize::MAX),
    };
    let visit = &mut |visited: &Visited<'_>| {
        let Some(mut sum) = own(visited.held, &mut linked) else {
            return Ok(());
        };
        if sums.len() <= visited.depth + 1 {
            sums.resize(visited.depth + 2, Sum::default());
        }
        if visited.held.is_directory() {
            sum.add(std::mem::take(&mut sums[visited.depth + 1]));
        }
        sums[visited.depth].add(sum);
        let is_shown = visited.held.is_directory() || args.all || visited.depth == 0;
        if is_shown && visited.depth <= depth_max {
            let path = image.place(visited.path);
            shown.push(Shown { path, sum });
        }
        Ok(())
    };
    walk(image, path, start, usize::MAX, Order::After, visit)?;
    Ok(sums.first().copied().unwrap_or_default())
}

/// What a file itself takes; `None` if it was counted under another name.
fn own(held: &Held, linked: &mut HashSet<InodeNumber>) -> Option<Sum> {
    let a = &held.attributes;
    let is_known = a.links > 1 && !held.is_directory() && !linked.insert(a.inode);
    (!is_known).then_some(Sum {
        allocated_bytes: a.sectors.saturating_mul(512),
        size_bytes: a.size_bytes,
        files: 1,
    })
}

fn text(args: &Args, sum: Sum) -> String {
    let bytes = match args.bytes {
        true => sum.size_bytes,
        false => sum.allocated_bytes,
    };
    match (args.human_readable, args.bytes) {
        (true, _) => size::show_short(bytes),
        (_, true) => bytes.to_string(),
        _ => bytes.div_ceil(1024).to_string(),
    }
}

fn as_json(shown: &Shown) -> Value {
    json!({
        "image": shown.path.image.display().to_string(),
        "path": String::from_utf8_lossy(&shown.path.path),
        "allocated_bytes": shown.sum.allocated_bytes,
        "size_bytes": shown.sum.size_bytes,
        "files": shown.sum.files,
    })
}
