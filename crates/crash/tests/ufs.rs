//! UFS: what is believed of an image that was not unmounted, and how it is recovered.

use backstitch_crash::{Campaign, Fork, ImageOptions, Observer, Workload, parse_script, standard};
use backstitch_crash_core::mount::{Engine, Mount, Nobody};
use backstitch_formats::Layout;
use backstitch_layout::tools::CheckOptions;
use backstitch_layout::{Error, FileType, NewInode, SetAttributes, flags};
use backstitch_mechanisms::Ordering;
use backstitch_ordering::Operation;
use backstitch_rules::watch::{self, Form};
use backstitch_store::Optimisations;
use backstitch_ufs::format::superblock::offset::{FLAGS, MOUNT_TIME};
use backstitch_ufs::format::superblock::{FLAG_NEEDS_CHECK, FLAG_SOFT_UPDATES};
use backstitch_ufs::rules::Rule;

/// Both versions, with fragments of both sizes, of which a block has eight.
const IMAGES: [(&str, u32); 4] = [("ufs1", 512), ("ufs1", 1024), ("ufs2", 512), ("ufs2", 1024)];

fn image((kind, fragment_bytes): (&str, u32)) -> ImageOptions {
    ImageOptions {
        layout: kind.parse::<Layout>().expect("a type that is registered"),
        block_bytes: fragment_bytes,
        ..ImageOptions::default()
    }
}

/// An image in use as the power fails: with a directory that is on the disk.
fn cut(ordering: Ordering, of: (&str, u32)) -> Fork {
    let mut mount = open(image(of).make().unwrap(), ordering);
    let new = NewInode {
        file_type: FileType::Directory,
        permissions: 0o755,
        umask: 0,
        uid: 0,
        gid: 0,
        device_number: 0,
        target: &[],
    };
    let make = Operation::Administration;
    mount
        .run(make, &mut Nobody, |fs, v, now| {
            let root = fs.root();
            fs.create(v, root, b"directory", &new, now)
        })
        .unwrap();
    mount.drain(&mut Nobody).unwrap();
    mount.fork()
}

fn open(fork: Fork, ordering: Ordering) -> Mount {
    let engine = Engine {
        ordering,
        optimisations: Optimisations::BOTH,
        unit_bytes: None,
    };
    Mount::open(fork, engine, false, &mut Nobody).expect("it can be mounted")
}

/// Where an image has its superblock.
fn superblock_of(fork: &Fork) -> backstitch_ufs::format::Superblock {
    let device = backstitch_crash::ForkDevice::new(fork.clone());
    backstitch_ufs::read_superblock(&device).expect("it has one")
}

fn with_rule<T>(rule: Rule, holds: bool, body: impl FnOnce() -> T) -> T {
    watch::switch_off((!holds).then_some((rule.into(), Form::Whole)));
    let done = body();
    watch::switch_off(None);
    done
}

#[test]
fn an_image_in_use_is_marked_and_recovered() {
    for of in IMAGES {
        let at_rest = superblock_of(&image(of).make().unwrap()).flags;
        let image = cut(Ordering::SOFT, of);
        let sb = superblock_of(&image);
        // FreeBSD has `fsck -p` run on such an image.
        let marks = FLAG_NEEDS_CHECK | FLAG_SOFT_UPDATES;
        assert_eq!((sb.raw.fs_clean, sb.flags & marks), (0, marks), "{of:?}");
        assert!(sb.is_left_in_order() && !sb.is_clean());
        let mut mount = open(image, Ordering::SOFT);
        assert_eq!(mount.fs.read_only_reason(), None);
        mount.unmount(&mut Nobody).unwrap();
        let image = mount.fork();
        let sb = superblock_of(&image);
        assert_eq!((sb.raw.fs_clean, sb.flags), (1, at_rest), "{of:?}");
        assert_eq!(sb.record, None);
        let report = image.kind().tools().check(&image, &CheckOptions::QUICK);
        assert!(report.unwrap().is_clean());
    }
}

/// A mount that keeps no order leaves an image that no mount writes to before a check.
#[test]
fn an_image_without_order_is_not_believed() {
    let image = cut(Ordering::ASYNC, IMAGES[3]);
    assert!(!superblock_of(&image).is_left_in_order());
    let mount = open(image, Ordering::SOFT);
    assert!(mount.fs.read_only_reason().is_some());
}

/// FreeBSD's soft updates have no record, and no mark for a check.
#[test]
fn what_foreign_soft_updates_left_is_believed() {
    let mut image = cut(Ordering::SOFT, IMAGES[2]);
    let sb = superblock_of(&image);
    let time = sb.order.bytes_of_u64(sb.raw.fs_mtime as u64 + 1);
    let flags = sb.order.bytes_of_u32(FLAG_SOFT_UPDATES);
    image.write(sb.place + MOUNT_TIME as u64, &time).unwrap();
    image.write(sb.place + FLAGS as u64, &flags).unwrap();
    assert_eq!(open(image, Ordering::SOFT).fs.read_only_reason(), None);
}

/// Whether an image is believed that another system has mounted since our last mount, and not
/// unmounted.
fn believes_in_another_mount() -> bool {
    let mut image = cut(Ordering::SOFT, IMAGES[3]);
    let sb = superblock_of(&image);
    let time = sb.order.bytes_of_u64(sb.raw.fs_mtime as u64 + 1);
    image.write(sb.place + MOUNT_TIME as u64, &time).unwrap();
    open(image, Ordering::SOFT).fs.read_only_reason().is_none()
}

#[test]
fn the_record_of_an_earlier_mount_is_not_believed() {
    let rule = Rule::RecordIsOfLastMount;
    assert!(!with_rule(rule, true, believes_in_another_mount));
    assert!(with_rule(rule, false, believes_in_another_mount));
}

/// Whether an image says that it is clean once it was unmounted, with what a crash left of it
/// reclaimed or not.
fn is_called_clean(is_reclaimed: bool) -> bool {
    let mut mount = open(cut(Ordering::SOFT, IMAGES[3]), Ordering::SOFT);
    if is_reclaimed {
        mount.unmount(&mut Nobody).unwrap();
    } else {
        let step = Operation::Administration;
        mount.drain(&mut Nobody).unwrap();
        mount
            .run(step, &mut Nobody, |fs, v, now| fs.settle(v, now))
            .unwrap();
        mount
            .run(step, &mut Nobody, |fs, v, now| fs.mark_clean(v, now))
            .unwrap();
        mount.drain(&mut Nobody).unwrap();
    }
    let sb = superblock_of(&mount.fork());
    sb.raw.fs_clean != 0
}

#[test]
fn an_image_with_what_a_crash_left_is_not_called_clean() {
    let rule = Rule::CleanOnlyAfterReclaim;
    assert!(with_rule(rule, true, || is_called_clean(true)));
    assert!(!with_rule(rule, true, || is_called_clean(false)));
    assert!(with_rule(rule, false, || is_called_clean(false)));
}

/// Switches a rule off, where there is one, in every thread that explores.
struct Without(Option<Rule>);

impl Observer for Without {
    fn thread_starts(&self) {
        watch::switch_off(self.0.map(|rule| (rule.into(), Form::Whole)));
    }
}

/// Whether a state is found that no crash may leave.
fn is_damaged(of: (&str, u32), ordering: Ordering, text: &str, off: Option<Rule>) -> bool {
    let workload = Workload {
        name: "script".to_owned(),
        operations: parse_script(text).expect("it can be read"),
        setup: 0,
    };
    let campaign = Campaign {
        workloads: vec![workload],
        image: image(of),
        most_states_each: 20_000,
        most_failures: 1,
        ..standard::campaign(ordering, 1, 2)
    };
    let results = campaign.run(&Without(off)).expect("the engine runs");
    !results.failures.is_empty()
}

/// A hole behind the old end is filled, and no time goes by since the file became longer: the size
/// and the pointer are all that the two changes differ in.
#[test]
fn a_pointer_comes_with_the_size_that_it_is_within() {
    let text = "mkdir A; creat A/foo; write A/foo 0 3000; sync; truncate A/foo 40000; \
                write A/foo 20000 3000";
    let rule = Some(Rule::PointersGoWithSize);
    for of in IMAGES {
        assert!(!is_damaged(of, Ordering::SOFT, text, None), "{of:?}");
        assert!(is_damaged(of, Ordering::SOFT, text, rule), "{of:?}");
    }
}

/// Flags that an inode of UFS has no place for.
#[test]
fn flags_that_would_be_lost_are_refused() {
    let mut mount = open(image(IMAGES[3]).make().unwrap(), Ordering::SOFT);
    let mut set = |flags: u32| {
        let set = SetAttributes {
            flags: Some(flags),
            ..SetAttributes::default()
        };
        mount.run(Operation::Administration, &mut Nobody, |fs, v, now| {
            let root = fs.root();
            fs.set_attributes(v, root, &set, now)?;
            Ok(fs.attributes(v, root)?.flags & flags::SETTABLE)
        })
    };
    assert_eq!(set(flags::NODUMP).unwrap(), flags::NODUMP);
    for lost in [flags::NOATIME, flags::SYNC, flags::NODUMP | flags::DIRSYNC] {
        assert!(matches!(set(lost), Err(Error::NotSupported)), "{lost:#x}");
    }
    assert_eq!(set(0).unwrap(), 0);
}
