//! chmod(1), chown(1), touch(1), getfattr(1) and setfattr(1), on images.

use super::{each_kind, stat};
use crate::support::{Done, tool};
use std::process::Command;

#[test]
fn permissions_and_owners_change() {
    each_kind(|bench| {
        bench.shell("mkdir -p s/d; echo > s/a; echo > s/d/b; ln -s a s/l; chmod 600 s/a s/d/b; chmod 700 s/d");
        bench.line("cp -a s a.img:/").good();
        let mode = |path: &str| stat(bench, path)["mode"].as_str().unwrap().to_owned();
        bench.line("chmod 4755 a.img:/s/a").good();
        assert_eq!(mode("/s/a"), "4755");
        bench.line("chmod u-s,go-x a.img:/s/l").good();
        assert_eq!(mode("/s/a"), "0744");
        bench.line("chmod -R a+rX a.img:/s/d").good();
        assert_eq!(
            (mode("/s/d"), mode("/s/d/b")),
            ("0755".into(), "0644".into())
        );
        bench.line("chmod -w a.img:/s/d/b").good();
        assert_eq!(mode("/s/d/b"), "0444");
        bench.line("chmod u+q a.img:/s/a").refused(2);
        bench.line("chmod 644 a.img:/none").refused(1);
        let owner = |path: &str| {
            let found = stat(bench, path);
            (
                found["uid"].as_u64().unwrap(),
                found["gid"].as_u64().unwrap(),
            )
        };
        bench.line("chmod 4755 a.img:/s/a").good();
        bench.line("chown 70000:80000 a.img:/s/a").good();
        assert_eq!(
            (owner("/s/a"), mode("/s/a")),
            ((70000, 80000), "0755".into())
        );
        bench.line("chown -R 5:6 a.img:/s").good();
        assert_eq!([owner("/s"), owner("/s/d/b"), owner("/s/l")], [(5, 6); 3]);
        bench.line("chown -h :7 a.img:/s/l").good();
        assert_eq!((owner("/s/l"), owner("/s/a")), ((5, 7), (5, 6)));
        bench.line("chown root: a.img:/s/l").good();
        assert_eq!(owner("/s/a"), (0, 0));
        bench.line("chown nobody-of-this-name a.img:/s").refused(2);
    });
}

#[test]
fn touch_makes_files_and_sets_times() {
    each_kind(|bench| {
        bench.line("touch a.img:/new").good();
        assert_eq!(stat(bench, "/new")["size_bytes"], 0);
        bench.line("touch -c a.img:/other").good();
        assert_eq!(bench.line("ls a.img").text(), "lost+found\nnew\n");
        bench
            .run(&["touch", "-d", "2001-02-03 04:05:06.25", "a.img:/new"])
            .good();
        let times = |path: &str| {
            let found = stat(bench, path);
            ["accessed", "modified"].map(|name| found[name].as_str().unwrap()[..22].to_owned())
        };
        assert_eq!(times("/new"), ["2001-02-03T04:05:06.25"; 2]);
        bench.line("touch -a -t 200301020304.05 a.img:/new").good();
        assert_eq!(
            times("/new"),
            ["2003-01-02T03:04:05.00", "2001-02-03T04:05:06.25"]
        );
        bench.shell("echo > ref; touch -a -d '1999-01-01' ref; touch -m -d '1998-01-01' ref");
        bench.line("touch -r ref a.img:/new").good();
        assert_eq!(
            times("/new"),
            ["1999-01-01T00:00:00.00", "1998-01-01T00:00:00.00"]
        );
        bench.line("touch -r a.img:/new a.img:/copy").good();
        assert_eq!(times("/copy"), times("/new"));
        bench.line("touch a.img:/new").good();
        assert!(stat(bench, "/new")["modified"].as_str().unwrap() > "2024");
        bench.line("touch -d yesterday a.img:/new").refused(2);
        bench.line("touch a.img:/none/x").refused(1);
    });
}

#[test]
fn extended_attributes_are_set_and_shown() {
    each_kind(|bench| {
        bench.line("touch a.img:/f a.img:/g").good();
        bench
            .run(&["setfattr", "-n", "user.word", "-v", "a \"b\"", "a.img:/f"])
            .good();
        bench.line("setfattr -n user.hex -v 0x00ff a.img:/f").good();
        bench
            .line("setfattr -n user.base -v 0sAAEC a.img:/[fg]")
            .good();
        assert_eq!(
            bench.line("getfattr a.img:/f").good().text(),
            "# file: a.img:/f\nuser.base\nuser.hex\nuser.word\n\n"
        );
        assert_eq!(
            bench.line("getfattr -d a.img:/f").good().text(),
            "# file: a.img:/f\nuser.base=0sAAEC\nuser.hex=0sAP8=\nuser.word=\"a \\\"b\\\"\"\n\n"
        );
        let hex = bench.line("getfattr -e hex -n user.hex a.img:/f").good();
        assert!(hex.text().contains("user.hex=0x00ff\n"), "{}", hex.text());
        let only = bench
            .line("getfattr --only-values -n user.base a.img:/g")
            .good();
        assert_eq!(only.stdout, [0, 1, 2]);
        let json = bench.line("getfattr -R --json a.img").good().json();
        let g = json
            .as_array()
            .unwrap()
            .iter()
            .find(|file| file["path"] == "/g");
        assert_eq!(g.unwrap()["xattrs"]["user.base"]["hex"], "000102");
        bench.line("setfattr -x user.hex a.img:/f").good();
        bench.line("setfattr -x user.hex a.img:/f").refused(1);
        bench.line("getfattr -n user.hex a.img:/f").refused(1);
        bench
            .line("setfattr -n other.name -v x a.img:/f")
            .refused(1);
        bench
            .line("setfattr -n user.x -v 0xabc a.img:/f")
            .refused(2);
        // What others read of it.
        if let Some(debugfs) = tool("debugfs", "e2fsprogs") {
            let mut command = Command::new(debugfs);
            command.args(["-R", "ea_list /f"]).arg(bench.path("a.img"));
            let listed = Done::of(command.output().unwrap()).good().text();
            assert!(
                listed.contains("user.word") && !listed.contains("user.hex"),
                "{listed}"
            );
        }
    });
}
