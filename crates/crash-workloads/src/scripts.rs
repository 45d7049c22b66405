//! Named workloads that were written by hand: sequences of operations that show what a rule of the
//! engine prevents, where single operations and random workloads seldom do. Each has a comment on
//! its subject. They are explored by default.

use crate::ace::Workload;
use crate::provoking::{self, a_second, long};
use backstitch_crash_core::operation::{Operation, parse_script};

/// Beyond the end that a file has on the disk are blocks of an indirect block that stays, and of
/// one that is freed. The larger size waits for zeros there, and these wait for what adds the
/// blocks.
const BEHIND_THE_END: &str = "creat f; write f 0 14336; sync; truncate f 14000; truncate f 400000; write f 20000 2000; write f 300000 2000";

/// For each script its name, and operations on an empty file system of 1024-byte blocks. What comes
/// before the first `sync` only prepares.
const SCRIPTS: &[(&str, &str)] = &[
    // Growth beyond a double indirect block that is on the disk, through an existing leaf and
    // through a new one.
    (
        "deep-leaf-grows",
        "creat foo; write foo 300000 1000; sync; write foo 310000 3000; fsync foo; write foo 320000 900",
    ),
    (
        "deep-leaf-is-new",
        "creat foo; write foo 300000 1000; sync; write foo 600000 2000; fsync foo; write foo 610000 900",
    ),
    (
        "deep-leaf-over-old-bytes",
        "creat old; write old 0 60000; sync; unlink old; creat foo; write foo 300000 1000; sync; write foo 310000 3000; \
         write foo 600000 2000",
    ),
    // Flushed appends beyond an indirect block, which moves to a new place each time, until the
    // next one is needed.
    (
        "flushed-log-crosses-a-leaf",
        "creat log; append log 13000; sync; append log 300; fsync log; append log 200; fsync log; append log 260000; fsync log; \
         append log 700; fsync log; append log 4000; fsync log",
    ),
    (
        "flushed-log-is-removed",
        "creat log; append log 13000; sync; append log 900; fsync log; append log 1200; fsync log; append log 1200; fsync log; \
         unlink log; work; creat other; write other 0 9000; fsync other",
    ),
    // A file that is not on the disk yet grows beyond its indirect block.
    (
        "unborn-file-grows",
        "creat old; write old 0 40000; sync; unlink old; sync; creat f; write f 0 14000; append f 1500; append f 700; fsync f; \
         creat g; write g 0 15000; work; append g 1500; append g 1024; truncate g 13000; append g 3000",
    ),
    // Attributes in a block of their own: changed in place, shared, and separated.
    (
        "attributes-in-place",
        "creat foo; setxattr foo user.a x; sync; setxattr foo user.a y; fsync foo; setxattr foo user.a z; fsync foo",
    ),
    (
        "attributes-shared",
        "creat a; creat b; creat c; setxattr a user.a one; sync; setxattr b user.a one; setxattr c user.a one; fsync c; \
         setxattr b user.a two; fsync b; removexattr a user.a; work; setxattr a user.a one; fsync a",
    ),
    (
        "attributes-changed-then-shared",
        "creat a; creat b; setxattr a user.a one; sync; setxattr a user.a two; setxattr b user.a one; fsync b; fsync a; \
         removexattr a user.a; work; setxattr a user.a two; fsync a",
    ),
    // Holes at the end of a file, filled, punched and filled again.
    (
        "end-filled-twice",
        "creat f; sync; truncate f 500; write f 100 50; punch f 0 500; write f 200 50; append f 100; fsync f",
    ),
    (
        "hole-is-synced",
        "creat f; write f 0 20000; sync; punch f 100 700; fsync f; punch f 13000 4000; fsync f; punch f 0 20000; fsync f",
    ),
    // Fields that change twice within a second, in different bytes.
    (
        "fields-change-by-bytes",
        "creat f; sync; truncate f 512; truncate f 513; chown f 256 256; chown f 257 257; chmod f 400; chmod f 77; chmod f 377",
    ),
    // What a sync of a directory covers.
    (
        "directories-synced",
        "mkdir A; mkdir B; creat A/f; creat A/g; creat B/h; sync; creat A/n; fsync A; unlink A/n; fsync A; rename A/f B/f; \
         fsync A; rename A/g B/h; fsync B; rename B/f B/i; fsync B",
    ),
    (
        "target-of-a-move-synced",
        "mkdir A; mkdir B; creat A/f; creat A/g; creat B/h; sync; rename A/f B/f; fsync B; rename A/g B/h; fsync B",
    ),
    (
        "moved-directory-synced",
        "mkdir A; mkdir B; mkdir A/d; sync; rename A/d B/d; fsync B/d; mkdir A/e; rename A/e B/e; fsync B/e",
    ),
    (
        "names-swapped",
        "mkdir A; mkdir B; creat A/f; creat A/g; creat B/h; mkdir B/d; sync; exchange A/f A/g; fsync A; unlink A/f; work; \
         exchange A/g B/h; fsync B",
    ),
    // A second name, in a block that its directory does not have on the disk yet.
    (
        "second-name-in-a-new-block",
        concat!(
            "mkdir B; creat B/",
            long!(),
            "1; creat B/",
            long!(),
            "2; creat B/",
            long!(),
            "3; mkdir A; creat A/g; sync; creat B/",
            long!(),
            "4; link A/g B/g; unlink A/g; fsync B/g",
        ),
    ),
    // Names that were moved, removed and made again.
    (
        "moved-and-removed",
        "mkdir A; mkdir B; creat A/f; sync; rename A/f B/g; unlink B/g; creat A/f; work; rename A/f B/g; creat A/f",
    ),
    (
        "three-links",
        "mkdir A; mkdir B; creat A/f; sync; link A/f B/g; link A/f h; unlink A/f; unlink B/g; link h A/f; unlink h; work; \
         unlink A/f; work",
    ),
    (
        "directory-emptied",
        "mkdir A; mkdir D; creat D/f; creat D/t; sync; rename D/f A/f; link D/t A/t; unlink D/t; rmdir D; work; mkdir D",
    ),
    // Of a directory's two names recovery removes one. It is gone once the directory in which it
    // was has been synced.
    (
        "second-name-is-taken-away",
        "mkdir A; mkdir A/d; mkdir B; sync; rename A/d B/d; crash 1; fsync A; creat A/x; crash 2; fsync B/d; fsync A",
    ),
    (
        "new-file-replaces",
        "creat a; write a 0 3000; sync; creat b; append b 100; fsync b; creat c; append c 700; rename c a; creat d; append d 900; \
         rename d b; fsync b",
    ),
    // What is remembered of an inode after a second, though it is not wholly on the disk: a sync of
    // another inode has written a part of the same block.
    (
        "a-second-after-a-link",
        concat!(
            "mkdir A; mkdir B; creat A/f; creat h; sync; link A/f B/g; append h 10; fsync h; ",
            a_second!(),
            "unlink A/f",
        ),
    ),
    (
        "a-second-after-a-directory",
        concat!(
            "creat h; sync; mkdir A; append h 10; fsync h; ",
            a_second!(),
            "creat A/f; fsync A/f",
        ),
    ),
    (
        "a-second-after-a-cut",
        concat!(
            "creat f; write f 0 3000; creat h; sync; truncate f 100; append h 10; fsync h; ",
            a_second!(),
            "truncate f 5000",
        ),
    ),
    (
        "a-second-after-a-filled-end",
        concat!(
            "creat f; creat h; sync; truncate f 500; fsync f; write f 100 50; ",
            a_second!(),
            "append f 100",
        ),
    ),
    (
        "a-second-after-a-hole",
        concat!(
            "creat f; write f 0 6000; sync; punch f 1024 5000; ",
            a_second!(),
            "truncate f 1024",
        ),
    ),
    (
        "a-second-after-a-removal",
        concat!(
            "mkdir A; mkdir B; creat A/f; link A/f B/g; creat A/x; creat h; sync; unlink A/f; unlink A/x; append h 10; fsync h; ",
            a_second!(),
            "creat A/x; unlink B/g; work",
        ),
    ),
    (
        "a-second-after-a-departure",
        concat!(
            "mkdir A; mkdir D; creat D/f; creat h; sync; rename D/f A/f; append h 10; fsync h; ",
            a_second!(),
            "rmdir D",
        ),
    ),
    (
        "a-second-after-a-write",
        concat!(
            "creat f; write f 0 3000; sync; write f 0 1000; ",
            a_second!(),
            "fsync f"
        ),
    ),
    // What `fsync` waits for: a time one second later than that on the disk, the oldest of many
    // changes, a removal alone.
    (
        "fsync-waits-for-times",
        concat!(
            "creat f; write f 0 3000; sync; ",
            a_second!(),
            "write f 0 1000; fsync f"
        ),
    ),
    (
        "changes-kept-while-live",
        "creat f; write f 0 20000; sync; write f 0 100; write f 2048 100; write f 4096 100; write f 6144 100; write f 8192 100; \
         write f 10240 100; write f 12288 100; write f 14336 100; write f 16384 100; write f 18432 100; write f 1024 100; \
         write f 3072 100; write f 5120 100; write f 7168 100; write f 9216 100; write f 11264 100; write f 13312 100; \
         write f 15360 100; write f 17408 100; fsync f",
    ),
    (
        "fsync-of-directory-waits-for-removal",
        "mkdir A; creat A/f; creat A/g; sync; unlink A/f; fsync A",
    ),
    // A directory takes an empty one's name in another directory. A recovery that finds both names
    // keeps the new one, and by itself makes `..` lead there.
    (
        "taken-name-after-parent-link",
        "mkdir A; mkdir B; mkdir A/d; mkdir B/e; sync; rename A/d B/e",
    ),
    // A mount writes its record and its mark into two sectors.
    (
        "mark-after-record",
        "mkdir A; creat A/f; sync; remount; creat A/g",
    ),
    // A crash leaves a directory with two names, and the reclaim removes the old one. Before that
    // removal is on the disk the name is made again, elsewhere in its block, or the directory moves
    // on.
    (
        "reclaimed-name-is-removal",
        "mkdir A; mkdir B; creat A/x; creat A/y; mkdir A/d; unlink A/x; sync; rename A/d B/d; round; round; round; cut; \
         reclaim 100; creat A/d",
    ),
    (
        "reclaimed-name-is-clearing",
        "mkdir A; mkdir B; mkdir C; mkdir A/d; sync; rename A/d B/d; round; round; round; cut; reclaim 100; rename B/d C/d; \
         mkdir C/d/e",
    ),
    // A crash leaves a directory without a name, and the one that its `..` leads to is removed.
    (
        "nameless-directory-below",
        "mkdir A; sync; mkdir A/b; round; round; cut; rmdir A",
    ),
    // The directory moves on before the reclaim has looked for its names.
    (
        "directories-wait-for-names",
        "mkdir A; mkdir B; mkdir C; mkdir A/d; sync; rename A/d B/d; round; round; round; cut; rename B/d C/d; mkdir C/d/e",
    ),
    // Two directories above a directory's new place were moved out of that directory, the lower one
    // within the upper one. On the disk either may still be in it.
    (
        "new-name-after-names-above-3",
        "mkdir M; mkdir M/p; mkdir M/q; mkdir M/p/A; mkdir M/p/A/s; mkdir M/q/B; mkdir O; sync; rename M/p/A M/q/B/A; \
         rename M/q/B O/B; rename M O/B/A/s/M",
    ),
    // A directory took an empty one's name and has two names after a crash, the older one in a
    // directory that is then moved below it. Its `..` is rewritten before the older name goes; the
    // move would be quicker.
    (
        "new-name-after-names-above-2",
        "mkdir A; mkdir B; mkdir A/d; mkdir B/d; sync; rename A/d B/d; round; round; cut; rename A B/d/a",
    ),
    // Likewise, but it is moved over its own first name.
    (
        "reclaim-orphans-after-parents-2",
        "mkdir A; mkdir B; mkdir B/D; sync; rename A B/D; mkdir A; fsync A; rename B/D A",
    ),
    // Several names of a file are removed, one of them by a move within its block, which is one
    // patch with the new name. The count waits for the oldest of three removals.
    (
        "count-after-clearings-2",
        "mkdir A; mkdir B; mkdir C; mkdir D; creat A/f; link A/f B/g; link A/f C/k; link A/f D/m; sync; rename A/f A/h; unlink B/g; \
         unlink D/m; unlink A/h",
    ),
    // Two files leave a directory before it is removed, one of them for a new directory.
    (
        "clearing-after-departures-2",
        "mkdir B; mkdir P; mkdir P/D; creat P/D/f; creat P/D/g; sync; mkdir A; rename P/D/f A/f; rename P/D/g B/g; rmdir P/D",
    ),
    // What a crash left beyond the end of a file is freed once everything that leads there is
    // cleared: entries of an indirect block, and the inode's pointer, which attributes outside the
    // inode delay.
    (
        "reclaim-frees-after-unmapping-2",
        "creat f; write f 0 14336; fsync f; truncate f 14000; truncate f 400000; write f 20000 2000; write f 300000 2000; \
         round; round; round; cut; sync; setxattr f user.a vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv\
         vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv\
         vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv\
         vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv\
         ; reclaim 9; round; work; round",
    ),
    ("deferred-work-waits-2", BEHIND_THE_END),
    // An open file has lost its name. When it is closed, its freeing becomes a part of another
    // patch.
    (
        "deferred-work-waits-3",
        "creat z; creat a; creat y; creat f #1; write f 0 5000; sync; open #1; link a b; unlink y; unlink f; round; round; \
         chmod b 600; close #1; work",
    ),
    // The copy of an indirect block is freed before the next step of the same operation, while the
    // pointer to it is still there. Under `sync` no later operation begins before that pointer is
    // gone.
    (
        "deferred-work-waits-4",
        "creat f; write f 274432 1000; sync; falloc f 275456 300000; fsync f",
    ),
    // Something is changed while the reclaim has examined a part of it: after each of the reclaim's
    // first steps, since one of these is the right one. A file with a map in several parts;
    // attributes that are shared; attributes that are freed and their block reused.
    (
        "reclaim-told-of-map",
        "creat f; write f 0 1000; write f 20000000 1000; sync; creat g; cut; reclaim 1; write f 2048 1000; reclaim 1; \
         write f 4096 1000; reclaim 1; write f 6144 1000; reclaim 1; write f 8192 1000; reclaim 1; write f 10240 1000; reclaim 1; \
         remount; creat h",
    ),
    (
        "reclaim-told-of-reference",
        "creat a; creat b; creat c; creat d; creat e; creat f; setxattr a user.a one; setxattr b user.a one; \
         setxattr c user.a one; setxattr d user.a one; setxattr e user.a one; setxattr f user.a one; sync; creat g; cut; reclaim 1; \
         unlink a; sync; reclaim 1; unlink b; sync; reclaim 1; unlink c; sync; reclaim 1; unlink d; sync; reclaim 1; unlink e; sync; \
         reclaim 2",
    ),
    (
        "reclaim-told-of-freed-attributes",
        "mkdir A; creat A/a; creat A/b; creat A/c; creat A/d; creat A/e; setxattr A/a user.a one; setxattr A/b user.a two; \
         setxattr A/c user.a three; setxattr A/d user.a four; setxattr A/e user.a five; sync; creat g; cut; reclaim 2; unlink A/a; \
         sync; mkdir A/m; sync; reclaim 1; unlink A/b; sync; mkdir A/n; sync; reclaim 1; unlink A/c; sync; mkdir A/o; sync; \
         reclaim 1; unlink A/d; sync; mkdir A/p; sync; reclaim 1; unlink A/e; sync; mkdir A/q; sync; reclaim 2",
    ),
    // A file is truncated in steps, and loses its last name between two of them. The disk lists it
    // as an orphan before and after.
    (
        "listed-keep-their-link",
        "creat f #1; open f; write f 0 5000; sync; truncate-step f 0; log-close; unlink f; log-close; creat h; log-close; creat k",
    ),
    // A file that is made and removed in one transaction stays open until the log has no copy of
    // its indirect block any more. While the disk lists the file, that block must not hold anything
    // else.
    (
        "listed-were-alive",
        "creat f #1; open #1; write f 16384 1000; unlink f; sync; log-tail; log-tail; close #1; work; creat g; write g 0 3000; fsync g",
    ),
    // Two new files swap names: neither may get the other's name without its own contents.
    (
        "rename-after-contents-2",
        "creat a; append a 100; fsync a; creat b; append b 100; fsync b; sync; creat c; append c 700; creat d; append d 900; exchange c d",
    ),
    // A file is truncated twice within a block and grows: the zeros beyond the second end are other
    // bytes than those beyond the first.
    (
        "size-after-zeroed-tail-2",
        "creat f; write f 0 3000; sync; truncate f 700; truncate f 100; truncate f 5000",
    ),
    // Logs: blocks of directories become blocks of files and the other way round, growth and
    // removal.
    (
        "log-of-reuse",
        "mkdir A; mkdir A/b; mkdir A/c; creat A/f; write A/f 0 9000; sync; rmdir A/b; rmdir A/c; unlink A/f; \
     sync; creat A/g; write A/g 0 60000; fsync A/g; creat h; write h 0 3000; fsync h; mkdir C; truncate A/g 100; rename h C/h; \
     fsync A/g; creat k; write k 0 14000; unlink k",
    ),
    (
        "log-of-reuse-at-once",
        "creat k; write k 0 3000; unlink k; work; creat m; write m 0 3000; fsync m",
    ),
    // For a file system in a file of another one, whose holes get blocks on demand.
    (
        "stack-grows",
        "mkdir d; creat d/f; append d/f 3000; sync; append d/f 15000; rename d/f g; truncate g 500; unlink g",
    ),
    (
        "stack-names",
        "mkdir a; mkdir b; creat a/x; write a/x 0 1500; rename a/x b/y; link b/y a/z; mkdir a/s; rename a/s b/s; unlink b/y; \
         rmdir b/s",
    ),
    (
        "stack-forgets",
        "mkdir a; sync; creat a/g; write a/g 0 2000; truncate a/g 0; work",
    ),
    // Patchgroups: a compressor, a mail server, Subversion, the unpacking of packages, and corner
    // cases.
    (
        "compressor",
        "creat in; write in 0 5000; creat gone; sync; engage 1; creat out; append out 1500; append out 1500; disengage 1; \
     depend 2 1; engage 2; unlink in; disengage 2",
    ),
    (
        "mailbox",
        "creat src; write src 0 3000; creat dst; append dst 100; sync; engage 1; append dst 1500; disengage 1; depend 2 1; \
     engage 2; append dst 1500; disengage 2; depend 3 2; engage 3; write src 40 20; disengage 3; depend 4 3; \
     engage 4; truncate src 0; disengage 4",
    ),
    (
        "subversion",
        "mkdir wc; creat wc/log; append wc/log 700; mkdir wc/tmp; sync; engage 1; creat wc/tmp/log; append wc/tmp/log 1800; \
     disengage 1; depend 2 1; engage 2; rename wc/tmp/log wc/log; disengage 2; depend 3 2; engage 3; mkdir wc/new; creat wc/new/f; \
     disengage 3; depend 4 3; engage 4; rename wc/new wc/done; disengage 4; depend 5 4; engage 5; unlink wc/log; disengage 5",
    ),
    (
        "unpacking",
        "mkdir var; creat var/status; append var/status 300; creat lib; append lib 900; sync; engage 1; creat lib.new; \
     append lib.new 1500; disengage 1; depend 2 1; engage 2; rename lib.new lib; disengage 2; depend 3 2; engage 3; creat bin.new; \
     append bin.new 800; disengage 3; depend 4 3; engage 4; rename bin.new bin; disengage 4; depend 5 4; engage 5; \
     write var/status 100 150; disengage 5; depend 6 5; engage 6; creat doc; append doc 400; disengage 6",
    ),
    (
        "groups-corners",
        "creat a; write a 0 6000; creat b; write b 0 2500; sync; mkdir d; truncate a 1000; engage 1; creat d/f; \
     write d/f 4096 600; append a 900; disengage 1; depend 2 1; engage 2; write b 100 900; disengage 2; depend 3 1; \
     engage 3; write d/f 0 500; link b c; disengage 3; depend 4 2; depend 4 3; engage 4; unlink b; creat e; setxattr e user.x y; \
     disengage 4",
    ),
    // Overwriting at offsets where the file on the disk has no block yet, or ends before.
    (
        "groups-in-new-contents",
        "creat f; creat g; write g 0 500; sync; append f 3000; engage 1; write f 0 100; disengage 1; depend 2 1; engage 2; creat x; \
     disengage 2; truncate g 900; engage 3; write g 600 100; disengage 3; depend 4 3; engage 4; creat y; disengage 4",
    ),
    // Likewise, in a file to which both happened: a block was added after it had become longer, or
    // it became longer after a hole was filled.
    (
        "group-after-shown-contents",
        "creat g; write g 0 500; sync; truncate g 900; append g 3000; engage 1; write g 1500 100; disengage 1; depend 2 1; \
         engage 2; creat y; disengage 2",
    ),
    (
        "group-after-shown-contents-2",
        "creat g; write g 4096 500; sync; write g 0 1000; truncate g 5000; engage 1; write g 4700 100; disengage 1; depend 2 1; \
         engage 2; creat y; disengage 2",
    ),
    (
        "group-synced-after-a-second",
        concat!(
            "creat a; write a 0 3000; sync; ",
            a_second!(),
            "engage 1; write a 100 100; disengage 1; sync-group 1",
        ),
    ),
    // A write that changes neither size nor time, so that nothing else makes it wait.
    (
        "groups-overwritten-and-synced",
        "creat b; write b 0 3000; sync; engage 1; write b 0 900; disengage 1; sync-group 1",
    ),
    (
        "groups-new-files",
        "creat a; write a 0 3000; mkdir d; creat gone; link gone kept; sync; engage 1; creat f; append f 500; disengage 1; \
     depend 2 1; engage 2; write a 0 900; disengage 2; depend 3 2; engage 3; append f 700; write f 0 100; disengage 3; depend 4 3; \
     engage 4; rename f d/g; unlink gone; disengage 4; depend 5 4; engage 5; write d/g 0 300; creat h; append h 400; disengage 5; \
     depend 6 5; engage 6; rename h a; disengage 6; depend 7 6; engage 7; unlink d/g; creat i; disengage 7",
    ),
];

/// All of them, and those that were written for one rule of the layout each.
pub fn workloads() -> Vec<Workload> {
    let rules = provoking::ALL.iter().map(|p| (p.name(), p.script));
    // These need a foreign checker, or an earlier mount.
    let rules =
        rules.filter(|(_, script)| !script.contains("index ") && !script.contains("blocks;"));
    let named = SCRIPTS
        .iter()
        .map(|(name, script)| ((*name).to_owned(), *script));
    named
        .chain(rules)
        .filter_map(|(name, script)| workload(&name, script))
        .collect()
}

/// A workload that makes an image with names that cross the sectors of their blocks, and the
/// workloads for one rule each that begin on it.
pub fn on_crossing_names() -> Option<(Workload, Vec<Workload>)> {
    let parted = provoking::ALL.iter().filter_map(|p| {
        let (before, after) = p.script.split_once("blocks; ")?;
        Some((before, workload(&p.name(), after)?))
    });
    let (mut before, mut workloads) = (None, Vec::new());
    for (made, workload) in parted {
        before = Some(made);
        workloads.push(workload);
    }
    Some((workload("crossing-names", before?)?, workloads))
}

fn workload(name: &str, script: &str) -> Option<Workload> {
    let operations = parse_script(script).ok()?;
    let synced = operations.iter().position(|o| *o == Operation::Sync);
    Some(Workload {
        name: format!("scripts/{name}"),
        setup: synced.map_or(0, |at| at + 1),
        operations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_that_cross_sectors_are_in_one_image() {
        let (_, workloads) = on_crossing_names().unwrap();
        assert!(workloads.len() >= 3, "{}", workloads.len());
        let parted = provoking::ALL
            .iter()
            .map(|p| p.script.split_once("blocks; "));
        let mut made: Vec<&str> = parted.flatten().map(|(made, _)| made).collect();
        made.dedup();
        assert_eq!(made.len(), 1);
    }

    #[test]
    fn scripts_can_be_parsed() {
        let count = workloads().len();
        assert!(count > SCRIPTS.len() + 80, "{count}");
        for (name, script) in SCRIPTS {
            assert!(workload(name, script).is_some(), "{name}");
        }
    }
}
