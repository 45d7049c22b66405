//! What a program did, as a file with one operation in a line, which `crash fs --workload` reads
//! too.
//!
//! Lines that begin with `#` and a space are comments to other readers. This one understands:
//!
//! ```text
//! # backstitch trace 1
//! # image size=67108864 block=4096 uid=0 gid=0
//! # setup ends
//! ```

use backstitch_mechanisms::Ordering;
use std::fmt::Write;
use std::path::Path;

use backstitch_crash_core::device::ForkDevice;
use backstitch_crash_core::image::Fork;
use backstitch_crash_core::operation::{Operation, parse_script};
use backstitch_device::BlockDevice;
use backstitch_formats::usual;
use backstitch_layout::tools::Mkfs;

use crate::error::{AppError, AppResult};

const FIRST_LINE: &str = "# backstitch trace 1";
const SETUP_ENDS: &str = "# setup ends";
const NOTE: &str = "# note: ";

/// The image that a program starts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its size.
    pub size_bytes: u64,
    /// The size of a block.
    pub block_bytes: u32,
    /// The owner of the root directory.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// What is on it at first.
    pub start: Start,
}

/// The contents of an image on which a program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// An empty file system.
    Empty,
    /// What an image of the user's own holds.
    Given,
    /// Zeros: the program sees a volume as one file (`backstitch_raw`), and writes its blocks.
    Raw,
}

/// What a program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The image on which it did it.
    pub geometry: Geometry,
    /// Operations that were done before the program began.
    pub setup: usize,
    /// All operations.
    pub operations: Vec<Operation>,
    /// What was not recorded.
    pub notes: Vec<String>,
}

impl Geometry {
    /// The image: an empty file system, with the smallest journal if the ordering needs one, or the
    /// user's own.
    ///
    /// # Errors
    /// If no file system can be made with these numbers, or the user's image is missing or has
    /// another size.
    pub fn image(&self, given: Option<&Path>, ordering: Ordering) -> AppResult<Fork> {
        match (self.start, given) {
            (Start::Given, Some(path)) => {
                let image = read_image(path)?;
                if (image.0, image.1) != (self.size_bytes, self.block_bytes) {
                    return Err(bad(path, "not the image that the trace was recorded on"));
                }
                Ok(image.2)
            }
            (Start::Given, None) => Err(AppError::NoState {
                place: "the trace".into(),
                why: "it was recorded on an image of its own: --image FILE is needed".into(),
            }),
            (Start::Empty, _) => self.make(ordering),
            (Start::Raw, _) => {
                let zeros = vec![0; self.size_bytes as usize];
                Ok(Fork::new(zeros, self.block_bytes).raw((self.uid, self.gid)))
            }
        }
    }

    fn make(&self, ordering: Ordering) -> AppResult<Fork> {
        let mkfs = Mkfs {
            features: ordering.image_features(),
            journal_bytes: ordering
                .has_log()
                .then_some(1024 * u64::from(self.block_bytes)),
            block_size: Some(self.block_bytes),
            bytes_per_inode: Some(16384),
            root_uid: self.uid,
            root_gid: self.gid,
            device_is_zero: true,
            // Always the same identifiers, so that a state's name stays valid.
            ..Mkfs::new([7; 16], [9; 16], 1_600_000_000)
        };
        Ok(Fork::formatted(
            usual(),
            &mkfs,
            self.size_bytes,
            self.block_bytes,
        )?)
    }

    /// The geometry of an image of the user's.
    ///
    /// # Errors
    /// Where it cannot be read, or holds no file system.
    pub fn of_image(path: &Path) -> AppResult<Geometry> {
        let (size_bytes, block_bytes, _) = read_image(path)?;
        Ok(Geometry {
            size_bytes,
            block_bytes,
            uid: 0,
            gid: 0,
            start: Start::Given,
        })
    }
}

fn bad(path: &Path, why: impl ToString) -> AppError {
    AppError::Trace {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

/// The largest image that is read into memory.
const MOST_BYTES: u64 = 4 << 30;

fn read_image(path: &Path) -> AppResult<(u64, u32, Fork)> {
    let size = std::fs::metadata(path).map_err(|error| bad(path, error))?;
    if size.len() > MOST_BYTES {
        return Err(bad(path, "larger than 4 GiB, which all would be in memory"));
    }
    let mut bytes = std::fs::read(path).map_err(|error| bad(path, error))?;
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    let size = bytes.len() as u64;
    let device = ForkDevice::new(Fork::new(bytes, 1024));
    let layout = backstitch_formats::of(&device);
    let block = (layout.layout())
        .block_bytes(&device)
        .map_err(|error| bad(path, error))?;
    let mut bytes = vec![0; size.next_multiple_of(block.into()) as usize];
    device.read(0, &mut bytes[..size as usize])?;
    Ok((
        bytes.len() as u64,
        block,
        Fork::new(bytes, block).of_layout(layout),
    ))
}

impl Trace {
    /// The same trace without patchgroups.
    #[must_use]
    pub fn without_groups(self) -> Trace {
        let is_kept = |operation: &Operation| {
            !matches!(
                operation,
                Operation::Engage(_)
                    | Operation::Disengage(_)
                    | Operation::Depend(..)
                    | Operation::SyncGroup(_)
            )
        };
        let (setup, rest) = self.operations.split_at(self.setup);
        let kept = |all: &[Operation]| all.iter().filter(|o| is_kept(o)).cloned().collect();
        let setup: Vec<Operation> = kept(setup);
        Trace {
            setup: setup.len(),
            operations: [setup, kept(rest)].concat(),
            ..self
        }
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let Geometry {
            size_bytes,
            block_bytes,
            uid,
            gid,
            start,
        } = self.geometry;
        let start = match start {
            Start::Empty => "",
            Start::Given => " given",
            Start::Raw => " raw",
        };
        let mut text = format!(
            "{FIRST_LINE}\n# image size={size_bytes} block={block_bytes} uid={uid} gid={gid}{start}\n"
        );
        for note in &self.notes {
            text += &format!("{NOTE}{}\n", one_line(note));
        }
        for (at, operation) in self.operations.iter().enumerate() {
            if at == self.setup {
                text += &format!("{SETUP_ENDS}\n");
            }
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{operation}");
        }
        if self.setup > 0 && self.setup == self.operations.len() {
            text += &format!("{SETUP_ENDS}\n");
        }
        text
    }

    /// Writes it to a file.
    ///
    /// # Errors
    /// The host's errors.
    pub fn save(&self, path: &Path) -> AppResult<()> {
        std::fs::write(path, self.to_text()).map_err(|error| bad(path, error))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Where there is none, or it is no trace.
    pub fn load(path: &Path) -> AppResult<Trace> {
        let text = std::fs::read_to_string(path).map_err(|error| bad(path, error))?;
        Trace::parse(&text).map_err(|why| bad(path, why))
    }

    /// Reads what [`to_text`](Self::to_text) wrote.
    ///
    /// # Errors
    /// Why it is no trace.
    pub fn parse(text: &str) -> Result<Trace, String> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(format!("no trace: '{FIRST_LINE}' is not its first line"));
        }
        let image = lines.next().unwrap_or_default();
        let geometry = image
            .strip_prefix("# image ")
            .and_then(parse_geometry)
            .ok_or("its second line does not say what image it was recorded on")?;
        let setup = match text.split_once(&format!("\n{SETUP_ENDS}\n")) {
            Some((before, _)) => count(before)?,
            None => 0,
        };
        Ok(Trace {
            geometry,
            setup,
            operations: parse_script(text).map_err(|error| error.to_string())?,
            notes: text
                .lines()
                .filter_map(|line| line.strip_prefix(NOTE))
                .map(one_line)
                .collect(),
        })
    }
}

/// A note without line breaks.
fn one_line(note: &str) -> String {
    note.replace(['\n', '\r'], " ").trim().to_owned()
}

fn count(text: &str) -> Result<usize, String> {
    Ok(parse_script(text).map_err(|error| error.to_string())?.len())
}

fn parse_geometry(text: &str) -> Option<Geometry> {
    let value = |name: &str| -> Option<u64> {
        let word = text.split(' ').find_map(|word| word.strip_prefix(name))?;
        word.strip_prefix('=')?.parse().ok()
    };
    let geometry = Geometry {
        size_bytes: value("size").filter(|size| *size <= MOST_BYTES)?,
        block_bytes: value("block").and_then(|b| u32::try_from(b).ok())?,
        uid: value("uid").and_then(|id| u32::try_from(id).ok())?,
        gid: value("gid").and_then(|id| u32::try_from(id).ok())?,
        start: match text.rsplit_once(' ') {
            Some((_, "given")) => Start::Given,
            Some((_, "raw")) => Start::Raw,
            _ => Start::Empty,
        },
    };
    let block = geometry.block_bytes;
    let sound = matches!(block, 1024 | 2048 | 4096)
        && geometry.size_bytes.is_multiple_of(block.into())
        && geometry.size_bytes > 0;
    sound.then_some(geometry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        Trace {
            geometry: Geometry {
                size_bytes: 8 << 20,
                block_bytes: 4096,
                uid: 3,
                gid: 4,
                start: Start::Empty,
            },
            setup: 2,
            operations: parse_script("mkdir /d #12; sync; creat #12/x #13; said a%0ab").unwrap(),
            notes: vec!["a note".into()],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Trace::parse(&trace().to_text()).unwrap(), trace());
        let idle = Trace {
            setup: trace().operations.len(),
            ..trace()
        };
        let read = Trace::parse(&idle.to_text()).unwrap();
        assert_eq!(read, idle, "a program that did nothing");
        let noted = Trace {
            notes: vec!["two\nlines\r\n".into()],
            ..trace()
        };
        assert_eq!(Trace::parse(&noted.to_text()).unwrap().notes, ["two lines"]);
        let script = parse_script(&trace().to_text()).unwrap();
        assert_eq!(script, trace().operations, "`crash fs` reads it too");
    }

    #[test]
    fn nonsense_is_refused() {
        let good = trace().to_text();
        for (from, to, why) in [
            ("trace 1", "trace 9", "first line"),
            ("size=8388608", "size=99999999999999999", "second line"),
            ("block=4096", "block=0", "second line"),
            ("sync", "sink", "there is no operation 'sink'"),
        ] {
            let error = Trace::parse(&good.replace(from, to)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(Trace::parse("").is_err());
    }
}
