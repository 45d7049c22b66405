//! `backstitch chmod MODE IMAGE:/path`.

use crate::error::Result;
use crate::image::{Access, Held, Image};
use crate::mode::ModeChange;
use crate::paths::ImagePath;
use crate::tree::umask;
use crate::walk::with_trees;
use backstitch_vfs::{FileType, SetAttributes};
use std::ffi::OsString;

/// Change the permissions of files in an image.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "MODE is octal digits or as chmod(1) has it. The mask of an access control list follows the group's permissions.

Examples:
  backstitch chmod 644 disk.img:/etc/motd
  backstitch chmod u=rwx,go=rx disk.img:/usr/bin/tool
  backstitch chmod +x 'disk.img:/etc/init.d/*'
  backstitch chmod -R go-w disk.img:/home"
)]
pub struct Args {
    /// The permissions: 755, u+x, go-rwx, a=rX, …
    #[arg(allow_hyphen_values = true, value_parser = ModeChange::parse)]
    mode: ModeChange,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Directories with everything in them; symbolic links in them are left alone
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// Sets the permissions of the files.
pub fn run(args: &Args) -> Result<()> {
    let paths = ImagePath::all_required("chmod", &args.paths)?;
    let umask = umask();
    let how = (true, args.recursive);
    with_trees("chmod", Access::Write, &paths, how, |image, path, held| {
        change(args, image, path, held, umask)
    })
}

fn change(args: &Args, image: &Image, path: &[u8], held: &Held, umask: u16) -> Result<()> {
    let attributes = &held.attributes;
    if attributes.file_type == FileType::Symlink {
        return Ok(());
    }
    let wanted = (args.mode).apply(attributes.permissions, held.is_directory(), umask);
    let set = SetAttributes {
        permissions: Some(wanted),
        ..SetAttributes::default()
    };
    let done = image.engine.set_attributes(held.inode(), &set);
    done.map(drop).map_err(|error| image.error(path, error))
}
