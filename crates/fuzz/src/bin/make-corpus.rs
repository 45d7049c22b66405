//! `make-corpus DIRECTORY [IMAGE...]`: writes the initial inputs of a fuzzer, in a folder for each
//! target. The structures of the images, which must be sound ones of ext2 or ext3, are added to
//! them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use backstitch_fuzz::TARGETS;
use backstitch_fuzz::corpus::{self, Seed};

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let Some(directory) = arguments.next() else {
        eprintln!("make-corpus: state a directory, and images where there are any");
        return ExitCode::from(2);
    };
    match make(&directory, arguments) {
        Ok(count) => {
            println!("{count} inputs in {}", directory.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("make-corpus: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}

fn make(directory: &Path, images: impl Iterator<Item = PathBuf>) -> io::Result<usize> {
    for target in TARGETS {
        fs::create_dir_all(directory.join(target.name))?;
    }
    let mut seeds: Vec<Seed> = corpus::seeds();
    for image in images {
        let name = image.file_stem().unwrap_or_default().to_string_lossy();
        seeds.extend(corpus::of_image(&name, &fs::read(&image)?));
    }
    for (target, name, bytes) in &seeds {
        fs::write(directory.join(target).join(name), bytes)?;
    }
    Ok(seeds.len())
}
