//! `backstitch chown OWNER:GROUP IMAGE:/path`.

use crate::error::{Error, Result};
use crate::image::{Access, Held, Image};
use crate::paths::ImagePath;
use crate::walk::with_trees;
use backstitch_vfs::{FileType, SetAttributes};
use std::ffi::OsString;
use std::path::Path;

const SET_USER_ID: u16 = 0o4000;
const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// Change the owner or the group of files in an image.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Names are this machine's (/etc/passwd and /etc/group), not the image's; numbers mean the same everywhere. As with chown(1) a file
loses set-user-ID, and set-group-ID if its group may execute it.

Examples:
  backstitch chown 1000:1000 disk.img:/home/me
  backstitch chown -R root: disk.img:/etc
  backstitch chown :100 'disk.img:/srv/*'
  backstitch chown -h 0 disk.img:/link"
)]
pub struct Args {
    /// OWNER, OWNER:GROUP, OWNER: (the group with which the owner logs in) or :GROUP
    #[arg(value_name = "OWNER:GROUP")]
    owner: String,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Directories with everything in them; symbolic links in them themselves, not what they lead
    /// to
    #[arg(short = 'R', long)]
    recursive: bool,
    /// A symbolic link itself, not what it leads to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The new owner of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

/// Sets owner and group of the files.
pub fn run(args: &Args) -> Result<()> {
    let owner = parse_owner(
        &args.owner,
        Path::new("/etc/passwd"),
        Path::new("/etc/group"),
    )
    .map_err(|why| Error::usage("chown", why))?;
    let paths = ImagePath::all_required("chown", &args.paths)?;
    let how = (!args.no_dereference, args.recursive);
    with_trees("chown", Access::Write, &paths, how, |image, path, held| {
        change(owner, image, path, held)
    })
}

fn change(owner: Owner, image: &Image, path: &[u8], held: &Held) -> Result<()> {
    let set = SetAttributes {
        uid: owner.uid,
        gid: owner.gid,
        permissions: without_privileges(held.attributes.file_type, held.attributes.permissions),
        ..SetAttributes::default()
    };
    let done = image.engine.set_attributes(held.inode(), &set);
    done.map(drop).map_err(|error| image.error(path, error))
}

/// The permissions after a change of owner, as the kernel sets them; `None` where they stay.
fn without_privileges(file_type: FileType, permissions: u16) -> Option<u16> {
    let mut left = permissions & !SET_USER_ID;
    if permissions & GROUP_EXECUTE != 0 {
        left &= !SET_GROUP_ID;
    }
    (file_type == FileType::Regular && left != permissions).then_some(left)
}

fn parse_owner(text: &str, passwd: &Path, group: &Path) -> std::result::Result<Owner, String> {
    let (user, group_name) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let uid = match user {
        "" => None,
        user => Some(number(user, passwd, 2).ok_or_else(|| format!("unknown user '{user}'"))?),
    };
    let gid = match group_name {
        None => None,
        Some("") if user.is_empty() => None,
        Some("") => Some(login_group(user, passwd).ok_or_else(|| {
            format!("unknown login group of '{user}': name the group behind the colon")
        })?),
        Some(name) => {
            Some(number(name, group, 2).ok_or_else(|| format!("unknown group '{name}'"))?)
        }
    };
    match (uid, gid) {
        (None, None) => Err(format!("not OWNER:GROUP: '{text}'")),
        (uid, gid) => Ok(Owner { uid, gid }),
    }
}

/// A number, or the number of a name in a table of the host.
fn number(word: &str, table: &Path, column: usize) -> Option<u32> {
    // The largest number means "unchanged" to chown(2).
    let plain: Option<u32> = word.parse().ok().filter(|number| *number != u32::MAX);
    plain.or_else(|| entry(table, |fields| fields.first() == Some(&word), column))
}

fn login_group(user: &str, passwd: &Path) -> Option<u32> {
    entry(
        passwd,
        |fields| fields.first() == Some(&user) || fields.get(2) == Some(&user),
        3,
    )
}

/// A number from the first matching line of a table.
fn entry(table: &Path, fits: impl Fn(&[&str]) -> bool, column: usize) -> Option<u32> {
    let text = std::fs::read_to_string(table).ok()?;
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines
        .find(|fields| fits(fields))
        .and_then(|fields| fields.get(column)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers_or_names() {
        let dir = tempfile::tempdir().unwrap();
        let (passwd, group) = (dir.path().join("passwd"), dir.path().join("group"));
        std::fs::write(
            &passwd,
            "root:x:0:0:root:/root:/bin/sh\nme:x:1000:100::/home/me:\n",
        )
        .unwrap();
        std::fs::write(&group, "root:x:0:\nusers:x:100:me\n").unwrap();
        let owner = |text: &str| {
            let owner = parse_owner(text, &passwd, &group);
            owner.map(|owner| (owner.uid, owner.gid))
        };
        assert_eq!(owner("5"), Ok((Some(5), None)));
        assert_eq!(owner("5:6"), Ok((Some(5), Some(6))));
        assert_eq!(owner(":users"), Ok((None, Some(100))));
        assert_eq!(owner("me:"), Ok((Some(1000), Some(100))));
        assert_eq!(owner("1000:"), Ok((Some(1000), Some(100))));
        for bad in ["", ":", "nobody-here", "0:none", "77:", "4294967295", "-1"] {
            assert!(owner(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_new_owner_takes_privileges_away() {
        assert_eq!(without_privileges(FileType::Regular, 0o6755), Some(0o755));
        assert_eq!(without_privileges(FileType::Regular, 0o2644), None);
        assert_eq!(without_privileges(FileType::Directory, 0o2755), None);
    }
}
