//! The index of directories on the disk, as it is kept under journals: e2fsck and debugfs say
//! whether it is right.

mod damage;
mod image;

use std::collections::{BTreeMap, BTreeSet};

use crate::support::new_inode;
use backstitch_vfs::{Engine, FileType, InodeNumber, RenameMode};
use image::{Image, Random, directory, fill, list, run};

/// A name of any length, with bytes from all over.
fn any_name(random: &mut Random) -> Vec<u8> {
    let longest = [8, 40, 255][random.below(3)];
    let length = 1 + random.below(longest);
    let mut name = vec![b'n'];
    name.extend((1..length).map(|_| match random.below(4) {
        0 => 0x80 + random.below(0x80) as u8,
        _ => b"abcdefghijklmnop0123456789._-"[random.below(29)],
    }));
    name
}

/// Names come, go and move at random; the map is what must be there.
fn churn(
    engine: &Engine,
    random: &mut Random,
    known: &mut BTreeMap<Vec<u8>, u32>,
    operations: usize,
) {
    let (root, d) = (engine.root(), directory(engine));
    let pick = |random: &mut Random, known: &BTreeMap<Vec<u8>, u32>| {
        let from = any_name(random);
        let found = known.range(from..).next().or(known.iter().next());
        found.map(|(name, inode)| (name.clone(), *inode))
    };
    let new = new_inode(FileType::Regular);
    for _ in 0..operations {
        let name = any_name(random);
        match (random.below(10), pick(random, known)) {
            (0..=5, _) | (_, None) => match engine.create(d, &name, &new) {
                Ok(made) => {
                    assert!(known.insert(name, made.inode.0).is_none());
                }
                Err(error) => {
                    assert!(known.contains_key(&name), "{error}");
                }
            },
            (6, Some((old, inode))) => {
                if engine.link(InodeNumber(inode), d, &name).is_ok() {
                    assert!(known.insert(name, inode).is_none());
                } else {
                    assert!(known.contains_key(&name), "{old:?}");
                }
            }
            (7, Some((old, _))) => {
                engine.unlink(d, &old).unwrap();
                known.remove(&old);
            }
            (8, Some((old, inode))) => {
                engine
                    .rename(d, &old, d, &name, RenameMode::Replace)
                    .unwrap();
                if known.get(&name) != Some(&inode) {
                    known.remove(&old);
                    known.insert(name, inode);
                }
            }
            (_, Some((old, inode))) => {
                // Out of the directory, and back.
                engine
                    .rename(d, &old, root, b"x", RenameMode::Replace)
                    .unwrap();
                engine
                    .rename(root, b"x", d, &name, RenameMode::Replace)
                    .unwrap();
                known.remove(&old);
                known.insert(name, inode);
            }
        }
    }
}

fn assert_all_there(engine: &Engine, known: &BTreeMap<Vec<u8>, u32>, what: &str) {
    let d = directory(engine);
    for (name, inode) in known {
        let found = engine.lookup(d, name);
        let found = found.map(|f| f.inode.0).map_err(|e| e.to_string());
        assert_eq!(found, Ok(*inode), "{what}: {}", name.escape_ascii());
        engine.forget(InodeNumber(*inode), 1);
    }
    let listed = list(engine, d);
    let names: BTreeSet<&Vec<u8>> = listed.iter().collect();
    assert_eq!(names.len(), listed.len(), "{what}: a name twice");
    assert!(names.into_iter().eq(known.keys()), "{what}");
}

#[test]
fn the_index_is_right_after_any_work_under_every_hash() {
    let mut seed = 1;
    for (block, hash, flags) in [
        ("1024", "legacy", "1"),
        ("1024", "half_md4", "1"),
        ("1024", "tea", "1"),
        ("1024", "legacy", "2"),
        ("1024", "half_md4", "2"),
        ("1024", "tea", "2"),
        ("4096", "half_md4", "1"),
        ("2048", "tea", "2"),
    ] {
        seed += 1;
        let what = format!("blocks of {block}, {hash}, flags {flags}");
        let image = Image::new("work", &["-b", block, "-N", "9000"], "48m");
        let (code, said) = run(
            "tune2fs",
            &["-E", &format!("hash_alg={hash}"), &image.word()],
        );
        assert_eq!(code, Some(0), "{said}");
        image.debugfs(&format!("ssv flags {flags}"));
        if seed % 2 == 0 {
            image.debugfs("ssv hash_seed 00000000-0000-0000-0000-000000000000");
        }
        let (mut random, mut known) = (Random(seed), BTreeMap::new());
        for (round, ordering) in ["journal=ordered", "journal=full", "journal=writeback"]
            .iter()
            .enumerate()
        {
            image.with(ordering, |engine| {
                churn(engine, &mut random, &mut known, 900);
                assert_all_there(engine, &known, &what);
            });
            image.assert_sound(&format!("{what}, round {round}"));
        }
        assert!(image.levels().is_some(), "{what}: there is no index");
        // Another mechanism finds the names, too, and debugfs finds them by the hashes in the
        // index.
        image.with("soft", |engine| assert_all_there(engine, &known, &what));
        for (name, inode) in known.iter().filter(|(name, _)| name.is_ascii()).take(20) {
            let path = format!("stat /d/{}", String::from_utf8_lossy(name));
            let said = image.debugfs(&path);
            assert!(said.contains(&format!("Inode: {inode} ")), "{said}");
        }
    }
}
#[test]
fn a_full_index_is_no_space_and_nothing_is_lost() {
    let image = Image::new("full", &["-b", "1024", "-N", "100"], "64m");
    let made = image.with("journal=ordered", |engine| {
        let made = fill(engine, 250, 0, 60_000);
        assert!(made < 50_000, "the index was never full");
        let d = directory(engine);
        // Other names still fit where leaves have room, and existing names can be removed and made
        // again.
        engine.unlink(d, format!("{:0250}", 7).as_bytes()).unwrap();
        engine.lookup(d, format!("{:0250}", 8).as_bytes()).unwrap();
        made
    });
    image.assert_sound("full");
    assert_eq!(image.levels(), Some(1));
    image.with("journal=ordered", |engine| {
        let d = directory(engine);
        assert_eq!(list(engine, d).len(), made - 1);
        assert_eq!(fill(engine, 250, 7, 1), 1);
    });
    image.assert_sound("full, and one name more");
}

#[test]
fn with_large_dir_the_index_grows_to_three_levels() {
    let options = ["-b", "1024", "-N", "100", "-O", "large_dir"];
    let image = Image::new("large", &options, "96m");
    let made = image.with("journal=ordered", |engine| fill(engine, 250, 0, 45_000));
    assert_eq!(made, 45_000);
    image.assert_sound("three levels");
    assert_eq!(image.levels(), Some(2));
    image.with("journal=ordered", |engine| {
        let d = directory(engine);
        for index in (0..made).step_by(97) {
            engine
                .lookup(d, format!("{index:0250}").as_bytes())
                .unwrap();
        }
        for index in 0..20_000 {
            engine
                .unlink(d, format!("{index:0250}").as_bytes())
                .unwrap();
        }
        assert_eq!(list(engine, d).len(), made - 20_000);
        assert_eq!(fill(engine, 20, 0, 5_000), 5_000);
    });
    image.assert_sound("three levels, names removed");
}

#[test]
fn two_levels_of_short_names() {
    let image = Image::new("short", &["-b", "1024", "-N", "100"], "32m");
    assert_eq!(
        image.with("journal=ordered", |e| fill(e, 20, 0, 40_000)),
        40_000
    );
    image.assert_sound("two levels");
    assert_eq!(image.levels(), Some(1));
}

#[test]
fn a_reader_sees_every_name_once_while_others_come() {
    let image = Image::new("reader", &["-b", "1024", "-N", "9000"], "32m");
    image.with("journal=ordered", |engine| {
        let (mut random, d) = (Random(77), directory(engine));
        // Begins with a directory of one block: it gets its index while it is read.
        for names in [5, 30, 900] {
            fill(engine, 12, 0, 0);
            let first: BTreeSet<Vec<u8>> = (0..names)
                .map(|i| format!("{names}-{i}-{}", "s".repeat(random.below(90))).into_bytes())
                .collect();
            for name in &first {
                engine
                    .create(d, name, &new_inode(FileType::Regular))
                    .unwrap();
            }
            let (mut seen, mut cookie, mut more) = (Vec::new(), 0, 0);
            loop {
                let (before, mut taken) = (cookie, 0);
                let collect = &mut |entry: &backstitch_vfs::DirectoryEntry<'_>| {
                    seen.push(entry.name.to_vec());
                    cookie = entry.next_cookie;
                    taken += 1;
                    taken < 4
                };
                engine.read_directory(d, before, collect).unwrap();
                if cookie == before {
                    break;
                }
                // New names come, and some of the names already seen are removed.
                let name = format!("{names}-more-{more}-{}", "m".repeat(random.below(150)));
                engine
                    .create(d, name.as_bytes(), &new_inode(FileType::Regular))
                    .unwrap();
                more += 1;
            }
            let times = |name: &Vec<u8>| seen.iter().filter(|s| *s == name).count();
            let lost: Vec<_> = first.iter().filter(|name| times(name) == 0).collect();
            assert!(
                lost.is_empty(),
                "{names}: {} names were not seen",
                lost.len()
            );
            if names > 5 {
                let twice = first.iter().filter(|name| times(name) > 1).count();
                assert_eq!(twice, 0, "{names}: names were seen twice");
            }
        }
    });
    image.assert_sound("read while names came");
}

#[test]
fn names_are_exchanged_between_directories() {
    let image = Image::new("exchange", &["-b", "1024", "-N", "2000"], "24m");
    let exchange = |engine: &Engine, from: (InodeNumber, &str), to: (InodeNumber, &str)| {
        let mode = RenameMode::Exchange;
        engine.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), mode)
    };
    let lookup = |engine: &Engine, d: InodeNumber, name: &str| {
        engine.lookup(d, name.as_bytes()).unwrap().inode
    };
    let make = |engine: &Engine, d: InodeNumber, name: &str, kind| {
        engine
            .create(d, name.as_bytes(), &new_inode(kind))
            .unwrap()
            .inode
    };
    image.with("journal=ordered", |engine| {
        let root = engine.root();
        let d = directory(engine);
        fill(engine, 60, 0, 300);
        let other = make(engine, root, "other", FileType::Directory);
        let sub = make(engine, d, "sub", FileType::Directory);
        let deep = make(engine, sub, "deep", FileType::Directory);
        let file = make(engine, other, "file", FileType::Regular);
        let links = |inode| engine.attributes(inode).unwrap().links;
        assert_eq!((links(d), links(other), links(sub)), (3, 2, 3));
        // Exchanges a directory with a file in another directory.
        exchange(engine, (d, "sub"), (other, "file")).unwrap();
        assert_eq!(lookup(engine, d, "sub"), file);
        assert_eq!(lookup(engine, other, "file"), sub);
        assert_eq!(lookup(engine, sub, ".."), other);
        assert_eq!((links(d), links(other), links(sub)), (2, 3, 3));
        // Two files of one large directory, in different blocks.
        let (a, b) = (format!("{:060}", 1), format!("{:060}", 250));
        exchange(engine, (d, &a), (other, "file")).unwrap();
        exchange(engine, (d, &a), (d, &b)).unwrap();
        assert_eq!(lookup(engine, d, &b), sub);
        assert_eq!(lookup(engine, sub, ".."), d);
        // Nothing goes into itself.
        let inside = exchange(engine, (d, &b), (deep, "x"));
        assert_eq!(inside.unwrap_err().errno(), 2);
        make(engine, deep, "x", FileType::Regular);
        for (from, to) in [((d, &*b), (deep, "x")), ((deep, "x"), (d, &*b))] {
            assert_eq!(exchange(engine, from, to).unwrap_err().errno(), 22);
        }
        // Two directories.
        let third = make(engine, other, "third", FileType::Directory);
        exchange(engine, (other, "third"), (d, &b)).unwrap();
        assert_eq!(
            (lookup(engine, third, ".."), lookup(engine, sub, "..")),
            (d, other)
        );
    });
    image.assert_sound("exchanged");
    // Mechanisms without a log cannot exchange at once.
    image.with("soft", |engine| {
        let (d, other) = (directory(engine), lookup(engine, engine.root(), "other"));
        make(engine, other, "new", FileType::Regular);
        let refused = exchange(engine, (d, "sub"), (other, "new"));
        assert_eq!(refused.unwrap_err().errno(), 22);
    });
    image.assert_sound("refused");
}

/// Makes as many names as `BACKSTITCH_NAMES` says (30,000), and measures each tenth: with the index
/// the cost of a name does not grow.
#[test]
fn adding_and_finding_names_does_not_slow_down() {
    let names: usize = std::env::var("BACKSTITCH_NAMES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(30_000);
    let size = format!("{}m", 64 + names / 8_000);
    let image = Image::new("many", &["-b", "4096", "-N", "4096"], &size);
    let part = names / 10;
    let (adding, finding, rss) = image.with("journal=ordered", |engine| {
        let adding: Vec<f64> = (0..10)
            .map(|tenth| {
                let started = std::time::Instant::now();
                assert_eq!(fill(engine, 24, tenth * part, part), part);
                started.elapsed().as_secs_f64() / part as f64
            })
            .collect();
        let (d, mut random) = (directory(engine), Random(3));
        let started = std::time::Instant::now();
        for _ in 0..part {
            let name = format!("{:024}", random.below(part * 10));
            let inode = engine.lookup(d, name.as_bytes()).unwrap().inode;
            engine.forget(inode, 1);
        }
        let finding = started.elapsed().as_secs_f64() / part as f64;
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status
            .lines()
            .find(|l| l.starts_with("VmHWM"))
            .unwrap_or("");
        (adding, finding, peak.to_owned())
    });
    let micros: Vec<String> = adding.iter().map(|s| format!("{:.1}", s * 1e6)).collect();
    eprintln!(
        "{names} names: microseconds per name, by tenths: {}",
        micros.join(" ")
    );
    eprintln!("microseconds per look-up: {:.1}; {rss}", finding * 1e6);
    image.assert_sound("many names");
    // The machine may be busy for a while, so medians are compared: of the second half and of the
    // first.
    let median = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[part.len() / 2]
    };
    let (first, second) = (median(&adding[..5]), median(&adding[5..]));
    assert!(second < 4.0 * first, "{micros:?}");
}

/// Before a file is created its name is looked for. The engine remembers that it was not there;
/// that must not outlast the creation.
#[test]
fn a_name_looked_for_in_vain_is_found_once_it_is_there() {
    let image = Image::new("absent", &["-b", "1024", "-N", "4096"], "8m");
    image.with("journal=ordered", |engine| {
        assert_eq!(fill(engine, 24, 0, 500), 500);
        let (root, d) = (engine.root(), directory(engine));
        let is_there = |name: &[u8]| match engine.lookup(d, name) {
            Ok(found) => {
                engine.forget(found.inode, 1);
                true
            }
            Err(error) => {
                assert_eq!(error.errno(), 2, "{error}");
                false
            }
        };
        let old = engine
            .create(root, b"old", &new_inode(FileType::Regular))
            .unwrap();
        type Way<'a> = (&'a [u8], &'a dyn Fn(&[u8]));
        let ways: [Way<'_>; 5] = [
            (b"created", &|name| {
                let new = new_inode(FileType::Regular);
                engine.create(d, name, &new).unwrap();
            }),
            (b"made", &|name| {
                let new = new_inode(FileType::Directory);
                engine.create(d, name, &new).unwrap();
            }),
            (b"linked", &|name| {
                engine.link(old.inode, d, name).unwrap();
            }),
            (b"moved here", &|name| {
                let mode = RenameMode::Replace;
                engine.rename(root, b"old", d, name, mode).unwrap();
            }),
            (b"moved within", &|name| {
                let mode = RenameMode::Replace;
                engine.rename(d, b"created", d, name, mode).unwrap();
            }),
        ];
        for (name, add) in ways {
            assert!(!is_there(name) && !is_there(name));
            add(name);
            assert!(is_there(name), "{}", name.escape_ascii());
            engine
                .create(d, name, &new_inode(FileType::Regular))
                .unwrap_err();
        }
        engine.unlink(d, b"linked").unwrap();
        assert!(!is_there(b"linked") && is_there(b"moved within"));
        assert_eq!(list(engine, d).len(), 500 + 3);
    });
    image.assert_sound("absent");
}
