//! `backstitch getfattr IMAGE:/path` and `backstitch setfattr -n NAME IMAGE:/path`.

use super::stat::xattr_value;
use crate::error::{Error, Result};
use crate::image::{Access, Held, Image, with_files};
use crate::paths::ImagePath;
use crate::walk::with_trees;
use crate::{base64, show};
use backstitch_vfs::SetXattrMode;
use clap::{ArgAction, ValueEnum};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Show extended attributes of files in an image.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Access control lists are the attributes system.posix_acl_access and system.posix_acl_default, as the kernel hands them over.

Examples:
  backstitch getfattr disk.img:/etc/passwd
  backstitch getfattr -d -R disk.img:/home
  backstitch getfattr --only-values -n user.comment disk.img:/notes
  backstitch getfattr -e hex -n security.capability disk.img:/usr/bin/ping"
)]
pub struct GetArgs {
    /// Which files; IMAGE alone is its root
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Only this attribute, with its value
    #[arg(short, long, value_name = "NAME")]
    name: Option<OsString>,
    /// Also values, not only names
    #[arg(short, long)]
    dump: bool,
    /// How values are shown; by default as text if they are text, otherwise in base64
    #[arg(short, long, value_name = "KIND")]
    encoding: Option<Encoding>,
    /// Only the values, unchanged
    #[arg(long, requires = "name")]
    only_values: bool,
    /// Directories with everything in them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// A symbolic link itself, not what it leads to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Encoding {
    Text,
    Hex,
    Base64,
}

/// Set or remove an extended attribute of files in an image.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "VALUE is text, or hexadecimal digits behind 0x, or base64 behind 0s, as setfattr(1) has it. Text may be in double quotes.

Examples:
  backstitch setfattr -n user.comment -v 'from the old disk' disk.img:/notes
  backstitch setfattr -n user.blob -v 0xdeadbeef 'disk.img:/data/*'
  backstitch setfattr -x user.comment disk.img:/notes"
)]
pub struct SetArgs {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// The attribute to set: user.…, trusted.…, security.… or system.posix_acl_…
    #[arg(short, long, value_name = "NAME", required_unless_present = "remove")]
    name: Option<OsString>,
    /// Its value; empty by default
    #[arg(
        short,
        long,
        value_name = "VALUE",
        requires = "name",
        allow_hyphen_values = true
    )]
    value: Option<OsString>,
    /// The attribute to remove
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
    /// A symbolic link itself, not what it leads to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Prints extended attributes of the files.
pub fn get(args: &GetArgs) -> Result<()> {
    let paths: Vec<ImagePath> = args.paths.iter().map(|w| ImagePath::or_root(w)).collect();
    let mut documents = Vec::new();
    let how = (!args.no_dereference, args.recursive);
    with_trees(
        "getfattr",
        Access::Read,
        &paths,
        how,
        |image, path, held| show(args, image, path, held, &mut documents),
    )?;
    match args.json {
        true => show::print_json("getfattr", &documents),
        false => Ok(()),
    }
}

/// Shows the requested attributes of a file.
fn show(
    args: &GetArgs,
    image: &Image,
    path: &[u8],
    held: &Held,
    documents: &mut Vec<Value>,
) -> Result<()> {
    let failed = |error| image.error(path, error);
    let names = match &args.name {
        // With `-R` only the files that have the attribute are shown.
        Some(name) if args.recursive => {
            let all = image.engine.list_xattrs(held.inode()).map_err(failed)?;
            let mut names = all.split(|byte| *byte == 0);
            match names.any(|known| known == name.as_bytes()) {
                true => vec![name.as_bytes().to_vec()],
                false => Vec::new(),
            }
        }
        Some(name) => vec![name.as_bytes().to_vec()],
        None => {
            let all = image.engine.list_xattrs(held.inode()).map_err(failed)?;
            let names = all.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
            names.sort_unstable();
            names
        }
    };
    if names.is_empty() && !args.json {
        return Ok(());
    }
    let mut text = format!("# file: {}\n", image.place(path)).into_bytes();
    let mut values = Map::new();
    for name in names {
        let value = image
            .engine
            .get_xattr(held.inode(), &name)
            .map_err(failed)?;
        if args.only_values {
            show::print_bytes("getfattr", &value)?;
            continue;
        }
        text.extend_from_slice(&show::name_bytes(&name));
        if args.dump || args.name.is_some() {
            text.extend_from_slice(b"=");
            text.extend_from_slice(encoded(&value, args.encoding).as_bytes());
        }
        text.push(b'\n');
        values.insert(
            String::from_utf8_lossy(&name).into_owned(),
            xattr_value(&value),
        );
    }
    if args.json {
        let place = image.place(path);
        documents.push(json!({
            "image": place.image.display().to_string(),
            "path": String::from_utf8_lossy(path),
            "xattrs": values,
        }));
        return Ok(());
    }
    match args.only_values {
        true => Ok(()),
        false => {
            text.push(b'\n');
            show::print_bytes("getfattr", &text)
        }
    }
}

/// A value in the form that getfattr(1) writes and setfattr reads.
fn encoded(value: &[u8], encoding: Option<Encoding>) -> String {
    let as_text = std::str::from_utf8(value)
        .ok()
        .filter(|text| !text.chars().any(char::is_control));
    match (encoding, as_text) {
        (None | Some(Encoding::Text), Some(text)) => quoted(text),
        (Some(Encoding::Text), None) => {
            let escaped = value.iter().map(|byte| match byte {
                b'"' | b'\\' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                byte => format!("\\{byte:03o}"),
            });
            format!("\"{}\"", escaped.collect::<String>())
        }
        (Some(Encoding::Hex), _) => {
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{digits}")
        }
        (None | Some(Encoding::Base64), _) => format!("0s{}", base64::encode(value)),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Sets or removes an extended attribute of the files.
pub fn set(args: &SetArgs) -> Result<()> {
    let paths = ImagePath::all_required("setfattr", &args.paths)?;
    let value = args.value.as_deref().unwrap_or_default();
    let value = decoded(value.as_bytes()).map_err(|why| Error::usage("setfattr", why))?;
    with_files("setfattr", Access::Write, &paths, |image, path| {
        let held = image.resolve(path, !args.no_dereference)?;
        let done = match (&args.name, &args.remove) {
            (Some(name), _) => {
                let name = name.as_bytes();
                image
                    .engine
                    .set_xattr(held.inode(), name, &value, SetXattrMode::Any)
            }
            (None, Some(name)) => image.engine.remove_xattr(held.inode(), name.as_bytes()),
            (None, None) => Ok(()),
        };
        done.map_err(|error| image.error(path, error))
    })
}

/// Decodes a value as setfattr(1) does.
fn decoded(text: &[u8]) -> std::result::Result<Vec<u8>, String> {
    if let [b'0', b'x' | b'X', digits @ ..] = text {
        return from_hex(digits).ok_or_else(|| "not hexadecimal digits behind 0x".to_owned());
    }
    if let [b'0', b's' | b'S', digits @ ..] = text {
        return base64::decode(digits).ok_or_else(|| "not base64 behind 0s".to_owned());
    }
    match text {
        [b'"', inner @ .., b'"'] => unescaped(inner).ok_or_else(|| "a wrong escape".to_owned()),
        text => Ok(text.to_vec()),
    }
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
            _ => None,
        })
        .collect()
}

/// Decodes text between quotes: `\"`, `\\`, and bytes as three octal digits.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = text;
    while let [byte, behind @ ..] = rest {
        rest = match (byte, behind) {
            (
                b'\\',
                [
                    a @ b'0'..=b'3',
                    b @ b'0'..=b'7',
                    c @ b'0'..=b'7',
                    after @ ..,
                ],
            ) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                after
            }
            (b'\\', [escaped @ (b'\\' | b'"'), after @ ..]) => {
                out.push(*escaped);
                after
            }
            (b'\\', _) => return None,
            (byte, after) => {
                out.push(*byte);
                after
            }
        };
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        for value in [
            &b"blue"[..],
            b"",
            b"a \"quoted\" \\ word",
            &[0, 1, 2, 255],
            "ü".as_bytes(),
        ] {
            for encoding in [
                None,
                Some(Encoding::Text),
                Some(Encoding::Hex),
                Some(Encoding::Base64),
            ] {
                let text = encoded(value, encoding);
                assert_eq!(decoded(text.as_bytes()).as_deref(), Ok(value), "{text}");
            }
        }
        assert_eq!(encoded(b"a\"b", None), "\"a\\\"b\"");
        assert_eq!(encoded(&[0xde, 0xad], Some(Encoding::Hex)), "0xdead");
        assert_eq!(decoded(b"plain").as_deref(), Ok(&b"plain"[..]));
        assert!(
            decoded(b"0xabc").is_err() && decoded(b"0xzz").is_err() && decoded(b"0s!").is_err()
        );
    }
}
