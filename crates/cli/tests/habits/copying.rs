//! cp(1) and its flags, between the host and images.

use super::{each_kind, fed, stat};
use crate::support::Bench;

#[test]
fn cp_has_the_usual_flags() {
    each_kind(|bench| {
        bench.shell("mkdir s; echo one > s/a; echo two > s/b; ln s/a s/c; ln -s a s/l; chmod 640 s/a; touch -d '2001-01-01' s/a s/b");
        let said = bench.line("cp -av s a.img:/").good().text();
        for line in [
            "'s' -> 'a.img:/s'\n",
            "'s/a' -> 'a.img:/s/a'\n",
            "'s/l' -> 'a.img:/s/l'\n",
        ] {
            assert!(said.contains(line), "{said}");
        }
        assert_eq!(stat(bench, "/s/a")["links"], 2);
        assert_eq!(stat(bench, "/s/a")["mode"], "0640");
        assert_eq!(
            stat(bench, "/s/a")["modified"],
            "2001-01-01T00:00:00.000000000Z"
        );
        // -n keeps what is there, -u what is not older.
        bench.shell("echo new > s/a; echo older > s/b; touch -d '2000-01-01' s/b");
        bench.line("cp -n s/a a.img:/s/a").good();
        assert_eq!(bench.line("cat a.img:/s/a").text(), "one\n");
        let said = bench.line("cp -uv s/a s/b a.img:/s").good().text();
        assert_eq!(said, "'s/a' -> 'a.img:/s/a'\n");
        assert_eq!(bench.line("cat a.img:/s/a a.img:/s/b").text(), "new\ntwo\n");
        bench.line("cp -n -u s/a a.img:/s").refused(2);
        // The contents of a directory, not the directory.
        bench.line("mkdir a.img:/dot").good();
        bench.line("cp -a s/. a.img:/dot").good();
        assert_eq!(bench.line("ls a.img:/dot").text(), "a\nb\nc\nl\n");
        bench.line("cp -a a.img:/s/. dot").good();
        assert_eq!(bench.shell("ls dot").text(), "a\nb\nc\nl\n");
        // -f is always so, -d keeps a link a link.
        bench.line("cp -f s/a a.img:/s/b").good();
        bench.line("cp -d s/l a.img:/l2").good();
        assert_eq!(stat(bench, "/l2")["target"], "a");
        // Out of the image too.
        bench.shell("echo mine > out");
        bench.line("cp -n a.img:/s/a out").good();
        bench.line("cp -u a.img:/s/a out").good();
        assert_eq!(bench.shell("cat out").text(), "mine\n");
        bench.line("cp -p a.img:/s/b out").good();
        assert_eq!(bench.shell("cat out").text(), "new\n");
        let refused = bench.line("cp a.img:/s/a a.img:/s/a").refused(1);
        assert!(refused.stderr.contains("onto itself"), "{}", refused.stderr);
        assert_eq!(bench.line("cat a.img:/s/a").text(), "new\n");
    });
}

#[test]
fn cp_reads_and_writes_the_standard_streams() {
    each_kind(|bench| {
        let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 / 5) as u8).collect();
        fed(bench, "cp - a.img:/stream", &large).good();
        assert!(bench.line("cp a.img:/stream -").good().stdout == large);
        fed(bench, "cp - a.img:/stream", b"short\n").good();
        assert_eq!(bench.line("cp a.img:/stream -").good().text(), "short\n");
        assert_eq!(stat(bench, "/stream")["size_bytes"], 6);
        fed(bench, "cp - a.img:/empty", b"").good();
        assert_eq!(stat(bench, "/empty")["size_bytes"], 0);
        fed(bench, "cp -n - a.img:/stream", b"other").good();
        assert_eq!(bench.line("cat a.img:/stream").text(), "short\n");
        fed(bench, "cp - a.img:/", b"x").refused(1);
        bench.line("cp - host").refused(2);
    });
}

#[test]
fn a_copy_that_does_not_fit_leaves_no_part_of_a_file() {
    let bench = Bench::new();
    bench.image("a.img", "-s 4M -b 1024");
    bench.shell("echo small > small; head -c 9000000 /dev/urandom > large");
    let refused = bench.line("cp small large a.img:/").refused(1);
    assert!(
        refused.stderr.contains("no space left"),
        "{}",
        refused.stderr
    );
    assert_eq!(bench.line("ls a.img").text(), "lost+found\nsmall\n");
    bench.check("a.img");
}
