//! `backstitch cat IMAGE:/path`.

use crate::error::{Error, Result, host};
use crate::image::{Access, Image, with_files};
use crate::paths::ImagePath;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Write files of an image to standard output, one after the other.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  backstitch cat disk.img:/etc/fstab
  backstitch cat 'disk.img:/var/log/*.log'
  backstitch cat disk.img:/backup.tar | tar tf -")]
pub struct Args {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

/// Writes the files to standard output, one after the other.
pub fn run(args: &Args) -> Result<()> {
    let paths = ImagePath::all_required("cat", &args.paths)?;
    let mut goes_on = true;
    with_files("cat", Access::Read, &paths, |image, path| {
        goes_on = goes_on && print_file(image, "cat", path)?;
        Ok(())
    })
}

/// Writes a file to standard output. False where its reader has closed it.
pub(super) fn print_file(image: &Image, what: &str, path: &[u8]) -> Result<bool> {
    let held = image.resolve(path, true)?;
    let mut out = std::io::stdout().lock();
    let mut buffer = Vec::new();
    let mut offset = 0;
    loop {
        buffer.clear();
        let read = image
            .engine
            .read(held.inode(), offset, CHUNK_BYTES, &mut buffer);
        read.map_err(|error| image.error(path, error))?;
        if buffer.is_empty() {
            return match out.flush() {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    Err(Error::failed(what, "standard output", host(&error)))
                }
                done => Ok(done.is_ok()),
            };
        }
        match out.write_all(&buffer) {
            Ok(()) => offset += buffer.len() as u64,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
            Err(error) => return Err(Error::failed(what, "standard output", host(&error))),
        }
    }
}
