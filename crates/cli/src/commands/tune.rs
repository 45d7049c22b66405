//! `backstitch tune -L LABEL IMAGE`.

use super::info::superblock;
use super::journal;
use super::mkfs::{parse_uuid, random_uuid};
use backstitch_files::error::{Error, Result};
use backstitch_files::image::{DeviceOptions, now, open_device};
use backstitch_files::show;
use backstitch_layout::tools::{Info, Reserved, Tune, TuneError, uuid_text};
use serde_json::json;
use std::path::PathBuf;

/// Change the label, the UUID or the reserved blocks of a file system.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The image must not be mounted. What changes is written at once, in one sector: a power cut leaves the old values or the new ones.
The superblock's backups follow. Where the journal is on another device the UUID stays: the journal names the file system by it.

Examples:
  backstitch tune -L data disk.img
  backstitch tune -L '' disk.img              no label any more
  backstitch tune -U random copy.img          so that a copy is not taken for its original
  backstitch tune -m 1 disk.img               keep 1 % for root
  backstitch tune -r 0 --json disk.img#1"
)]
pub(crate) struct Args {
    /// The image: a file, a block device or a partition
    image: PathBuf,
    /// The label, up to 16 bytes, of UFS up to 31; empty for none
    #[arg(short = 'L', long, value_name = "LABEL")]
    label: Option<String>,
    /// The UUID, or `random` for a new one, or `clear` for none
    #[arg(short = 'U', long, value_name = "UUID|random|clear")]
    uuid: Option<String>,
    /// Percentage of the blocks reserved for root, 0 to 50
    #[arg(
        short = 'm',
        long,
        value_name = "PERCENT",
        conflicts_with = "reserved_blocks"
    )]
    reserved_percent: Option<f64>,
    /// The number of blocks reserved for root
    #[arg(short = 'r', long, value_name = "BLOCKS")]
    reserved_blocks: Option<u64>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let tune = Tune {
        label: args.label.clone().map(String::into_bytes),
        uuid: args.uuid.as_deref().map(uuid).transpose()?,
        reserved: match (args.reserved_percent, args.reserved_blocks) {
            (Some(percent), _) => Some(Reserved::Percent(percent)),
            (_, Some(blocks)) => Some(Reserved::Blocks(blocks)),
            _ => None,
        },
        time_seconds: u64::try_from(now().seconds).unwrap_or(0),
    };
    if tune.label.is_none() && tune.uuid.is_none() && tune.reserved.is_none() {
        let why = "nothing to change: -L, -U, -m or -r is missing";
        return Err(Error::usage("tune", why));
    }
    let device = open_device("tune", &args.image, DeviceOptions::default())?;
    journal::refuse_journal("tune", &args.image, &*device)?;
    // Says what else it holds.
    superblock("tune", &args.image, &*device)?;
    let changed = backstitch_formats::of(&*device).tune(&tune, &*device);
    let changed = changed.map_err(|error| {
        let shown = Error::at_path("tune", &args.image, &error);
        match error {
            TuneError::BadOption(_) => shown.exit(backstitch_files::error::USAGE),
            _ => shown,
        }
    })?;
    report(args, &changed)
}

fn uuid(text: &str) -> Result<[u8; 16]> {
    match text {
        "random" => random_uuid("tune"),
        "clear" => Ok([0; 16]),
        text => {
            let uuid = parse_uuid(text);
            uuid.ok_or_else(|| Error::usage("tune", format!("not a UUID: '{text}'")))
        }
    }
}

fn report(args: &Args, info: &Info) -> Result<()> {
    let image = args.image.display().to_string();
    let label = String::from_utf8_lossy(&info.label);
    if args.json {
        return show::print_json(
            "tune",
            &json!({
                "image": image,
                "label": label,
                "uuid": uuid_text(&info.uuid),
                "blocks": info.blocks,
                "reserved_blocks": info.reserved_blocks,
                "reserved_bytes": info.bytes(info.reserved_blocks),
            }),
        );
    }
    let label = match label.is_empty() {
        true => "no label".to_owned(),
        false => format!("label {label}"),
    };
    let line = format!(
        "{image}: {label}, UUID {}, {} of {} blocks reserved\n",
        uuid_text(&info.uuid),
        info.reserved_blocks,
        info.blocks
    );
    show::print_bytes("tune", line.as_bytes())
}
