//! The options of mount(8), fstab, ext4(5) and other FUSE file systems: each is honoured, has no
//! meaning here and is accepted, or is refused by its name with what to do instead.

use super::Options;
use backstitch_fuse::Squash;
use backstitch_vfs::AccessTimes;

/// Options that ask for what happens anyway, or that the caller has seen to.
const WITHOUT_MEANING: &[&str] = &[
    // mount(8), fstab(5) and systemd.
    "defaults",
    "auto",
    "noauto",
    "nouser",
    "nousers",
    "nogroup",
    "noowner",
    "nofail",
    "_netdev",
    "silent",
    "loud",
    "iversion",
    "noiversion",
    "lazytime",
    "nolazytime",
    "nomand",
    "loop",
    // ext4(5): what is always so, or tunes what is done otherwise here.
    "acl",
    "user_xattr",
    "barrier",
    "bsddf",
    "nogrpid",
    "sysvgroups",
    "nocheck",
    "noquota",
    "orlov",
    "oldalloc",
    "bh",
    "nobh",
    "debug",
    "reservation",
    "noreservation",
    "delalloc",
    "nodelalloc",
    "auto_da_alloc",
    "noauto_da_alloc",
    "block_validity",
    "noblock_validity",
    "dioread_lock",
    "dioread_nolock",
    "i_version",
    "noi_version",
    "init_itable",
    "noinit_itable",
    "nombcache",
    "no_mbcache",
    // A journal has the checksums that its superblock says.
    "journal_checksum",
    "nojournal_checksum",
    "journal_async_commit",
    "mblk_io_submit",
    "nomblk_io_submit",
    "nodax",
    "nodebug",
    // FUSE file systems: how the kernel caches, which never shows anything stale here.
    "default_permissions",
    "kernel_cache",
    "auto_cache",
    "noauto_cache",
    "noforget",
    "remember",
    "big_writes",
    "large_read",
    "async_read",
    "splice_read",
    "splice_write",
    "splice_move",
    "use_ino",
    "readdir_ino",
    "hard_remove",
    "intr",
];

/// The same, with a value.
const WITHOUT_MEANING_VALUED: &[&str] = &[
    "comment",
    "fsname",
    "subtype",
    "uhelper",
    "helper",
    "inode_readahead_blks",
    "stripe",
    "journal_ioprio",
    "min_batch_time",
    "max_batch_time",
    "init_itable",
    "auto_da_alloc",
    "mb_optimize_scan",
    "entry_timeout",
    "attr_timeout",
    "negative_timeout",
    "ac_attr_timeout",
    "remember",
    "max_background",
    "congestion_threshold",
    "max_readahead",
    "max_write",
    "max_read",
];

/// Options that would be broken if they were accepted, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    (
        "remount",
        "unmount it, and mount it again with the other options",
    ),
    ("mand", "Linux has no mandatory locks any more"),
    (
        "noacl",
        "ACLs are always on; noxattr switches them off with all other attributes",
    ),
    (
        "nouser_xattr",
        "noxattr switches all extended attributes off, ACLs too",
    ),
    (
        "nosymfollow",
        "not implemented; mount -o remount,bind,nosymfollow DIR afterwards has the kernel do it",
    ),
    ("nouid32", "users and groups have 32 bits"),
    (
        "minixdf",
        "df leaves out what the file system itself takes, as with bsddf",
    ),
    (
        "noload",
        "the journal is always replayed, in memory only with ro; nojournal does without it where it is empty",
    ),
    (
        "norecovery",
        "the journal is always replayed, in memory only with ro; nojournal does without it where it is empty",
    ),
    ("dax", "files are not mapped onto the device"),
    ("quota", "quotas are not implemented"),
    ("usrquota", "quotas are not implemented"),
    ("grpquota", "quotas are not implemented"),
    ("prjquota", "quotas are not implemented"),
    ("abort", "it would make the file system read-only"),
    ("test_dummy_encryption", "encryption is not implemented"),
    ("direct_io", "a program asks for it, with O_DIRECT"),
    (
        "auto_unmount",
        "not implemented; backstitch umount DIR clears a mount whose daemon has died",
    ),
    (
        "allow_root",
        "not implemented; allow_other lets root use the mount, and everybody else as far as permissions go",
    ),
];

/// The same, with a value.
const REFUSED_VALUED: &[(&str, &str)] = &[
    (
        "sb",
        "backstitch fsck finds and restores a superblock from its backups",
    ),
    (
        "resuid",
        "the superblock says who may use reserved blocks besides root; tune2fs -u sets it",
    ),
    (
        "resgid",
        "the superblock says which group may use reserved blocks; tune2fs -g sets it",
    ),
    ("usrjquota", "quotas are not implemented"),
    ("grpjquota", "quotas are not implemented"),
    ("jqfmt", "quotas are not implemented"),
    ("max_dir_size_kb", "directories are not bounded"),
    (
        "journal_path",
        "journal_dev=IMAGE2 names the device that has the journal",
    ),
    ("dax", "files are not mapped onto the device"),
    ("test_dummy_encryption", "encryption is not implemented"),
    ("loop", "an image file is mounted without a loop device"),
    ("modules", "libfuse's modules are not available"),
];

/// Applies an option without a value. `None` where nobody knows it.
pub(super) fn apply(options: &mut Options, name: &str) -> Option<Result<(), String>> {
    match name {
        "relatime" | "nostrictatime" => options.access_times = Some(AccessTimes::Relative),
        // The rule stays; norelatime without strictatime is what Linux does by default.
        "norelatime" => {}
        "strictatime" => options.access_times = Some(AccessTimes::Strict),
        "diratime" => options.directory_access_times = true,
        "nodiratime" => options.directory_access_times = false,
        "sync" => options.synchronous = true,
        "async" => options.synchronous = false,
        "dirsync" => options.synchronous_names = true,
        "grpid" | "bsdgroups" => options.group_of_directory = true,
        "nobarrier" => options.unsafe_no_flush = true,
        "nonempty" => options.non_empty = true,
        "discard" => options.discard = true,
        "nodiscard" => options.discard = false,
        "check_open" => options.check_open = true,
        "nocheck_open" => options.check_open = false,
        // As mount(8) has it, unless a later word says otherwise.
        "user" | "users" => {
            options.execute = false;
            options.set_user_id = Some(false);
            options.devices = Some(false);
        }
        "owner" | "group" => {
            options.set_user_id = Some(false);
            options.devices = Some(false);
        }
        "data" | "errors" | "umask" | "fmask" | "dmask" | "uid" | "gid" | "context"
        | "fscontext" | "defcontext" | "rootcontext" => {
            return Some(Err(format!("option '{name}' needs a value: {name}=…")));
        }
        _ if is_for_others(name) || WITHOUT_MEANING.contains(&name) => {}
        _ => return refused(REFUSED, name),
    }
    Some(Ok(()))
}

/// As [`apply`], with a value.
pub(super) fn apply_value(
    options: &mut Options,
    name: &str,
    value: &str,
) -> Option<Result<(), String>> {
    let number = || {
        let parsed = value.parse::<u32>().ok().filter(|id| *id != u32::MAX);
        parsed
            .ok_or_else(|| format!("option '{name}': not the number of a user or group: '{value}'"))
    };
    let mask = || {
        let parsed = u16::from_str_radix(value, 8).ok();
        let parsed = parsed.filter(|mask| *mask <= 0o777);
        parsed.ok_or_else(|| format!("option '{name}': not an octal mask from 0 to 777: '{value}'"))
    };
    let squash = &mut options.squash;
    let done = match name {
        "uid" => number().map(|uid| squash.uid = Some(uid)),
        "gid" => number().map(|gid| squash.gid = Some(gid)),
        "umask" => mask().map(|mask| {
            *squash = Squash {
                file_mask: Some(mask),
                directory_mask: Some(mask),
                ..*squash
            }
        }),
        "fmask" => mask().map(|mask| squash.file_mask = Some(mask)),
        "dmask" => mask().map(|mask| squash.directory_mask = Some(mask)),
        "data" => data_mode(value).map(|mode| options.data = Some(mode)),
        "errors" => match value {
            "remount-ro" => Ok(()),
            "continue" | "panic" => Err(format!(
                "option 'errors={value}': after an error a mount becomes read-only: errors=remount-ro"
            )),
            _ => Err(format!("option 'errors': not remount-ro: '{value}'")),
        },
        "barrier" => match value {
            "0" => {
                options.unsafe_no_flush = true;
                Ok(())
            }
            "1" => {
                options.unsafe_no_flush = false;
                Ok(())
            }
            _ => Err(format!("option 'barrier': not 0 or 1: '{value}'")),
        },
        "check" if value == "none" => Ok(()),
        "user" => apply(options, "user").unwrap_or(Ok(())),
        "context" | "fscontext" | "defcontext" | "rootcontext" => {
            // As mount(8): a kernel without SELinux would refuse them.
            if std::path::Path::new("/sys/fs/selinux/enforce").exists() {
                options.kernel_options.push(format!("{name}={value}"));
            }
            Ok(())
        }
        _ if is_for_others(name) || WITHOUT_MEANING_VALUED.contains(&name) => Ok(()),
        _ => return refused(REFUSED_VALUED, name),
    };
    Some(done)
}

/// Comments in fstab, for systemd and other programs that read it.
fn is_for_others(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-")
}

fn refused(list: &[(&str, &str)], name: &str) -> Option<Result<(), String>> {
    let (_, instead) = list.iter().find(|(refused, _)| *refused == name)?;
    Some(Err(format!("option '{name}' is not supported: {instead}")))
}

/// The mechanism that ext4(5)'s word for a journal's mode means.
fn data_mode(value: &str) -> Result<String, String> {
    match value {
        "ordered" | "writeback" => Ok(format!("journal={value}")),
        "journal" => Ok("journal=full".to_owned()),
        _ => Err(format!(
            "option 'data': not one of ordered, writeback, journal: '{value}'"
        )),
    }
}

/// Splits a list at its commas, but for those between double quotes: `context="a:b:c,d"`.
pub(super) fn words(list: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    list.split(move |letter| {
        is_quoted ^= letter == '"';
        letter == ',' && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn no_option_has_two_answers() {
        let mut all: Vec<&str> = WITHOUT_MEANING.to_vec();
        all.extend(REFUSED.iter().map(|(name, _)| *name));
        let mut valued: Vec<&str> = WITHOUT_MEANING_VALUED.to_vec();
        valued.extend(REFUSED_VALUED.iter().map(|(name, _)| *name));
        for mut names in [all, valued] {
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn what_everybody_passes_is_honoured() {
        let options = parse(["strictatime,nodiratime,sync,dirsync,grpid,nonempty"]).unwrap();
        assert_eq!(options.access_times, Some(AccessTimes::Strict));
        assert!(!options.directory_access_times && options.group_of_directory);
        assert!(options.synchronous && options.synchronous_names && options.non_empty);
        let options = parse(["noatime,relatime,diratime,sync,async"]).unwrap();
        assert_eq!(options.access_times, Some(AccessTimes::Relative));
        assert!(options.directory_access_times && !options.synchronous);
        assert!(parse(["nobarrier"]).unwrap().unsafe_no_flush);
        assert!(!parse(["barrier=0,barrier=1"]).unwrap().unsafe_no_flush);
        let options = parse(["user,exec"]).unwrap();
        assert_eq!(
            (options.devices, options.set_user_id),
            (Some(false), Some(false))
        );
        assert!(options.execute);
        assert!(parse(["owner"]).unwrap().execute);
    }

    #[test]
    fn ext4s_modes_are_ours() {
        for (word, mode) in [
            ("data=ordered", "journal=ordered"),
            ("data=writeback", "journal=writeback"),
            ("data=journal", "journal=full"),
        ] {
            assert_eq!(parse([word]).unwrap().data.as_deref(), Some(mode));
        }
        assert!(parse(["data=none"]).is_err() && parse(["data"]).is_err());
    }

    #[test]
    fn owners_and_masks() {
        let options = parse(["uid=1000,gid=100,umask=027,fmask=137"]).unwrap();
        let expected = Squash {
            uid: Some(1000),
            gid: Some(100),
            file_mask: Some(0o137),
            directory_mask: Some(0o027),
        };
        assert_eq!(options.squash, expected);
        for bad in [
            "uid=",
            "uid=-1",
            "uid=4294967295",
            "umask=8",
            "umask=1000",
            "dmask=x",
        ] {
            let name = bad.split('=').next().unwrap();
            assert!(parse([bad]).unwrap_err().contains(name), "{bad}");
        }
    }

    #[test]
    fn what_has_no_meaning_is_accepted() {
        let list = [
            WITHOUT_MEANING.join(","),
            "x-systemd.requires=/a,X-mount.mkdir".into(),
        ];
        let with_values: Vec<String> = WITHOUT_MEANING_VALUED
            .iter()
            .map(|name| format!("{name}=1"))
            .collect();
        let all = list.iter().chain(&with_values).map(String::as_str);
        assert_eq!(parse(all).unwrap(), Options::default());
        assert_eq!(
            parse(["errors=remount-ro,check=none"]).unwrap(),
            Options::default()
        );
        // Whether it is handed on depends on the kernel.
        assert!(
            parse(["context=\"system_u:object_r:tmp_t:s0:c1,c2\",ro"])
                .unwrap()
                .read_only
        );
    }

    #[test]
    fn what_is_refused_is_named_with_a_way_out() {
        for (name, instead) in REFUSED {
            let why = parse([*name]).unwrap_err();
            assert!(why.contains(name) && why.contains(instead), "{why}");
        }
        for (name, _) in REFUSED_VALUED {
            assert!(
                parse([format!("{name}=1").as_str()])
                    .unwrap_err()
                    .contains(name)
            );
        }
        for word in ["errors=panic", "errors=continue", "errors=x", "barrier=2"] {
            assert!(parse([word]).is_err(), "{word}");
        }
    }
}
