//! `backstitch df IMAGE`.

use crate::error::Result;
use crate::image::{Access, with_image};
use crate::paths::ImagePath;
use crate::{show, size};
use backstitch_vfs::FileSystemStatistics;
use clap::ArgAction;
use serde_json::{Value, json};
use std::ffi::OsString;

/// Show the free space of images.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\"Available\" leaves out what is reserved for root. `backstitch info` shows the whole superblock.

Examples:
  backstitch df disk.img
  backstitch df -h disk.img#1 disk.img#2
  backstitch df -i disk.img
  backstitch df --json disk.img | jq '.[0].available_bytes'"
)]
pub struct Args {
    /// The images
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<OsString>,
    /// Sizes with K, M, G behind the number; by default they are in KiB
    #[arg(short, long)]
    human_readable: bool,
    /// Inodes instead of bytes
    #[arg(short, long)]
    inodes: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Prints how much room the images have.
pub fn run(args: &Args) -> Result<()> {
    let mut rows = Vec::new();
    for word in &args.images {
        let path = ImagePath::or_root(word);
        let statistics = with_image("df", &path.image, Access::Read, |image| {
            let found = image.engine.statistics();
            found.map_err(|error| image.error(&path.path, error))
        })?;
        rows.push((path.image.display().to_string(), statistics));
    }
    if args.json {
        let documents: Vec<Value> = rows.iter().map(|(image, s)| as_json(image, s)).collect();
        return show::print_json("df", &documents);
    }
    let titles = match (args.inodes, args.human_readable) {
        (true, _) => ["Image", "Inodes", "Used", "Free", "Use%"],
        (_, true) => ["Image", "Size", "Used", "Available", "Use%"],
        _ => ["Image", "1K-blocks", "Used", "Available", "Use%"],
    };
    let mut lines = vec![titles.map(str::to_owned)];
    lines.extend(rows.into_iter().map(|(image, s)| columns(args, image, &s)));
    show::print_columns("df", &lines)
}

fn columns(args: &Args, image: String, s: &FileSystemStatistics) -> [String; 5] {
    let (all, used, free) = match args.inodes {
        true => (
            s.inodes,
            s.inodes - s.free_inodes.min(s.inodes),
            s.free_inodes,
        ),
        false => (
            s.blocks,
            s.blocks - s.free_blocks.min(s.blocks),
            s.available_blocks,
        ),
    };
    let shown = |number: u64| match (args.inodes, args.human_readable) {
        (true, _) => number.to_string(),
        (_, true) => size::show_short(number * u64::from(s.block_size_bytes)),
        _ => (number * u64::from(s.block_size_bytes))
            .div_ceil(1024)
            .to_string(),
    };
    let part = match used + free {
        0 => "-".to_owned(),
        of => format!("{}%", (used * 100).div_ceil(of)),
    };
    [image, shown(all), shown(used), shown(free), part]
}

fn as_json(image: &str, s: &FileSystemStatistics) -> Value {
    let bytes = |blocks: u64| blocks * u64::from(s.block_size_bytes);
    json!({
        "image": image,
        "block_size_bytes": s.block_size_bytes,
        "size_bytes": bytes(s.blocks),
        "used_bytes": bytes(s.blocks - s.free_blocks.min(s.blocks)),
        "free_bytes": bytes(s.free_blocks),
        "available_bytes": bytes(s.available_blocks),
        "inodes": s.inodes,
        "used_inodes": s.inodes - s.free_inodes.min(s.inodes),
        "free_inodes": s.free_inodes,
    })
}
