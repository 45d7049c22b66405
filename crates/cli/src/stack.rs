//! Stacks of file systems as a TOML file describes them.
//!
//! ```toml
//! [[volume]]                  # the first is on the image
//! name = "root"
//!
//! [[volume]]
//! name = "loop"
//! file = "root:/fs.img"       # the file that holds it
//! journal = "root:/log.img"   # the file that holds its journal, where that is not inside
//! ordering = "journal=full"   # where not stated: through its journal where it has one, else soft
//! at = "root:/loop"           # the directory where it appears
//! ```
//!
//! `image = FILE` in the first names the image for `info --stack`; the path begins at the directory
//! of the TOML file. `front = NAME` before the volumes makes the root of another one the root of
//! the mount.

use backstitch_device::BlockDevice;
use backstitch_files::error::{Error, Result, host};
use backstitch_formats::Layout;
use backstitch_vfs::Ordering;
use backstitch_vfs::stack::{InnerPath, Stack, StackVolume, VolumeInfo};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    front: Option<String>,
    #[serde(default)]
    volume: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    image: Option<PathBuf>,
    file: Option<String>,
    journal: Option<String>,
    ordering: Option<String>,
    at: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// A stack, and what its file says beside.
#[derive(Clone)]
pub(crate) struct Described {
    pub(crate) stack: Stack,
    /// The image that the file names.
    pub(crate) image: Option<PathBuf>,
}

/// Reads the description of a stack.
///
/// # Errors
/// Where the file cannot be read, or says what makes no sense: with the place.
pub(crate) fn read(what: &str, path: &Path) -> Result<Described> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::at_path(what, path, host(&e)))?;
    let directory = path.parent().unwrap_or(Path::new(""));
    parse(&text, directory).map_err(|why| Error::at_path(what, path, why))
}

fn parse(text: &str, directory: &Path) -> std::result::Result<Described, String> {
    let document: Document = toml::from_str(text).map_err(|e| one_line(&e.to_string()))?;
    let mut names: Vec<String> = Vec::new();
    let mut volumes = Vec::new();
    for (index, entry) in document.volume.iter().enumerate() {
        let name = &entry.name;
        let wrong = |why: &str| format!("volume '{name}': {why}");
        if names.contains(name) {
            return Err(wrong("there are two of that name"));
        }
        if name.is_empty() || name.contains([':', '/']) {
            return Err(wrong("a name has no ':' and no '/'"));
        }
        match (index, &entry.file, &entry.image) {
            (0, Some(_), _) => return Err(wrong("the first is on the image, and in no file")),
            (1.., None, _) => return Err(wrong("file = \"VOLUME:/path\" is missing")),
            (1.., _, Some(_)) => return Err(wrong("only the first has an image")),
            _ => {}
        }
        let inner = |word: &Option<String>| match word {
            Some(word) => inner_path(word, &names).map(Some).map_err(|e| wrong(&e)),
            None => Ok(None),
        };
        let ordering = entry.ordering.as_ref().map(|text| text.parse::<Ordering>());
        let layout = entry.kind.as_ref().map(|text| text.parse::<Layout>());
        let layout = layout.transpose().map_err(|e| wrong(&e.to_string()))?;
        volumes.push(StackVolume {
            name: name.clone(),
            layout: layout.unwrap_or_default().layout(),
            file: inner(&entry.file)?,
            journal: inner(&entry.journal)?,
            ordering: ordering.transpose().map_err(|e| wrong(&e.to_string()))?,
            at: inner(&entry.at)?,
        });
        names.push(name.clone());
    }
    let front = match &document.front {
        None => 0,
        Some(name) => (names.iter().position(|n| n == name))
            .ok_or_else(|| format!("front = \"{name}\": there is no volume of that name"))?,
    };
    let first = document.volume.first().ok_or("there is no [[volume]]")?;
    Ok(Described {
        stack: Stack { volumes, front },
        image: first.image.as_ref().map(|image| directory.join(image)),
    })
}

fn inner_path(word: &str, names: &[String]) -> std::result::Result<InnerPath, String> {
    let (name, path) = (word.split_once(":/"))
        .ok_or_else(|| format!("'{word}' is not of the form VOLUME:/path"))?;
    let volume = (names.iter().position(|n| n == name))
        .ok_or_else(|| format!("'{word}': no volume before it is called '{name}'"))?;
    Ok(InnerPath {
        volume,
        path: format!("/{path}").into_bytes(),
    })
}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join(" ").trim().to_owned()
}

/// What a stack is, for people: each file system below the one that holds it.
pub(crate) fn draw(stack: &Stack, image: &Path, infos: &[VolumeInfo]) -> String {
    let mut text = String::new();
    draw_one(stack, image, infos, 0, "", &mut text);
    text
}

fn draw_one(
    stack: &Stack,
    image: &Path,
    infos: &[VolumeInfo],
    index: usize,
    indent: &str,
    into: &mut String,
) {
    let (volume, info) = (&stack.volumes[index], &infos[index]);
    let size = backstitch_files::size::show(info.blocks * u64::from(info.block_bytes));
    let place = match &volume.file {
        Some(file) => shown(stack, file),
        None => image.display().to_string(),
    };
    let _ = write!(
        into,
        "{}: {}, {}, {size}",
        volume.name, info.layout, info.ordering
    );
    if info.holes > 0 {
        let _ = write!(into, " ({} blocks in holes)", info.holes);
    }
    let _ = write!(into, ", in {place}");
    if let Some(journal) = &volume.journal {
        let _ = write!(into, ", journal in {}", shown(stack, journal));
    }
    match &volume.at {
        _ if stack.front == index => into.push_str(", the root of the mount"),
        Some(at) => {
            let _ = write!(into, ", shows at {}", shown(stack, at));
        }
        None => into.push_str(", shows nowhere"),
    }
    into.push('\n');
    let inside: Vec<usize> = (index + 1..stack.volumes.len())
        .filter(|i| {
            stack.volumes[*i]
                .file
                .as_ref()
                .is_some_and(|f| f.volume == index)
        })
        .collect();
    for (n, child) in inside.iter().enumerate() {
        let is_last = n + 1 == inside.len();
        let (branch, below) = match is_last {
            true => ("└─ ", "   "),
            false => ("├─ ", "│  "),
        };
        let _ = write!(into, "{indent}{branch}");
        draw_one(
            stack,
            image,
            infos,
            *child,
            &format!("{indent}{below}"),
            into,
        );
    }
}

fn shown(stack: &Stack, path: &InnerPath) -> String {
    let name = &stack.volumes[path.volume].name;
    format!("{name}:{}", String::from_utf8_lossy(&path.path))
}

/// The same as a document.
pub(crate) fn document(stack: &Stack, image: &Path, infos: &[VolumeInfo]) -> Value {
    let volumes = stack.volumes.iter().zip(infos).map(|(volume, info)| {
        let path = |path: &Option<InnerPath>| path.as_ref().map(|path| shown(stack, path));
        json!({
            "name": volume.name,
            "layout": info.layout,
            "ordering": info.ordering.name(),
            "file": path(&volume.file),
            "journal": path(&volume.journal),
            "at": path(&volume.at),
            "size_bytes": info.blocks * u64::from(info.block_bytes),
            "block_size_bytes": info.block_bytes,
            "holes": info.holes,
            "recovery_needed": info.recovery_needed,
        })
    });
    json!({
        "image": image.display().to_string(),
        "front": stack.volumes[stack.front].name,
        "volumes": volumes.collect::<Vec<_>>(),
    })
}

/// Looks at the file systems of a stack, and changes nothing.
///
/// # Errors
/// Where one of them cannot be opened.
pub(crate) fn inspect(
    what: &str,
    image: &Path,
    stack: &Stack,
    device: &dyn BlockDevice,
) -> Result<Vec<VolumeInfo>> {
    stack
        .inspect(device, backstitch_files::image::now())
        .map_err(|error| backstitch_files::foreign::explained(what, image, device, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURE_8: &str = "
        [[volume]]
        name = 'root'
        image = 'disk.img'

        [[volume]]
        name = 'loop'
        file = 'root:/fs.img'
        journal = 'root:/log.img'
        ordering = 'journal=full'
        at = 'root:/loop'
    ";

    #[test]
    fn figure_8_is_described() {
        let described = parse(FIGURE_8, Path::new("/x")).unwrap();
        assert_eq!(described.image.as_deref(), Some(Path::new("/x/disk.img")));
        let stack = described.stack;
        assert_eq!((stack.volumes.len(), stack.front), (2, 0));
        let inner = &stack.volumes[1];
        let path = |path: &str| {
            Some(InnerPath {
                volume: 0,
                path: path.into(),
            })
        };
        assert_eq!(inner.file, path("/fs.img"));
        assert_eq!(inner.journal, path("/log.img"));
        assert_eq!(inner.at, path("/loop"));
        let info = |ordering: &str, holes| VolumeInfo {
            layout: "ext2",
            ordering: ordering.parse().unwrap(),
            blocks: 4096,
            block_bytes: 1024,
            holes,
            recovery_needed: false,
        };
        let infos = [info("soft", 0), info("journal=full", 7)];
        assert_eq!(
            draw(&stack, Path::new("disk.img"), &infos),
            "root: ext2, soft, 4 MiB, in disk.img, the root of the mount\n\
             └─ loop: ext2, journal=full, 4 MiB (7 blocks in holes), in root:/fs.img, \
             journal in root:/log.img, shows at root:/loop\n"
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let why = |text: &str| match parse(text, Path::new("")) {
            Ok(_) => panic!("{text} was taken"),
            Err(why) => why,
        };
        assert!(why("").contains("no [[volume]]"));
        assert!(why("[[volume]]\nname = 'a'\nfil = 'x'").contains("fil"));
        assert!(why("[[volume]]\nname = 'a'\nfile = 'a:/x'").contains("first"));
        let second = "[[volume]]\nname = 'a'\n[[volume]]\nname = ";
        assert!(why(&format!("{second}'b'")).contains("'b': file"));
        assert!(why(&format!("{second}'a'\nfile = 'a:/x'")).contains("two of that name"));
        assert!(why(&format!("{second}'b'\nfile = 'c:/x'")).contains("called 'c'"));
        assert!(why(&format!("{second}'b'\nfile = 'x'")).contains("VOLUME:/path"));
        let ordering = why(&format!("{second}'b'\nfile = 'a:/x'\nordering = 'none'"));
        assert!(ordering.contains("unknown ordering 'none'"));
        assert!(why("front = 'z'\n[[volume]]\nname = 'a'").contains("\"z\""));
    }
}
