//! ls(1), find(1), df(1), du(1), and patterns, on images.

use super::{each_kind, stat};
use crate::support::Bench;
use serde_json::Value;

#[test]
fn ls_sorts_and_goes_down() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell(
        "mkdir -p s/d/e; head -c 3000 /dev/zero > s/b; head -c 20 /dev/zero > s/a; echo > s/d/.h; ln -s b s/l; chmod 755 s/a
        touch -d '2001-01-01' s/b; touch -d '2002-01-01' s/a; touch -h -d '2000-01-01' s/l; touch -d '2003-01-01' s/d",
    );
    bench.line("cp -a s a.img:/").good();
    let ls = |words: &str| bench.line(&format!("ls {words}")).good().text();
    assert_eq!(ls("a.img:/s"), "a\nb\nd\nl\n");
    assert_eq!(ls("-r a.img:/s"), "l\nd\nb\na\n");
    assert_eq!(ls("-t a.img:/s"), "d\na\nb\nl\n");
    assert_eq!(ls("-tr -1 a.img:/s"), "l\nb\na\nd\n");
    assert!(
        ls("-S a.img:/s").starts_with("b\nd\n"),
        "{}",
        ls("-S a.img:/s")
    );
    assert_eq!(ls("-A a.img:/s/d"), ".h\ne\n");
    assert_eq!(ls("-a a.img:/s/d"), ".\n..\n.h\ne\n");
    assert_eq!(ls("-F a.img:/s"), "a*\nb\nd/\nl@\n");
    assert_eq!(ls("-d a.img:/s/d"), "/s/d\n");
    let json = bench.line("ls -d --json a.img:/s/d").good().json();
    assert_eq!(json[0]["entries"][0]["name"], "d");
    assert_eq!(
        ls("-R a.img:/s"),
        "a.img:/s:\na\nb\nd\nl\n\na.img:/s/d:\ne\n\na.img:/s/d/e:\n"
    );
    let inode = stat(&bench, "/s/b")["inode"].to_string();
    assert!(ls("-i a.img:/s").contains(&format!("{inode} b\n")));
    let recursive = ls("-R -i a.img");
    assert!(recursive.contains(&format!("{inode} b\n")), "{recursive}");
    assert!(recursive.contains("a.img:/s/d/e:\n"), "{recursive}");
    assert!(ls("-lh a.img:/s").contains(" 3.0K 2001-01-01 00:00 b\n"));
    assert!(ls("-n a.img:/s/b").starts_with("-rw-"));
    let json = bench.line("ls -R --json a.img:/s").good().json();
    let paths: Vec<&str> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|listing| listing["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/s", "/s/d", "/s/d/e"]);
    assert!(bench.line("ls --help").good().text().contains("Examples:"));
}

#[test]
fn patterns_stand_for_names_in_the_image() {
    each_kind(|bench| {
        bench.shell("mkdir -p s/c/d; for f in a.conf b.conf c/x.conf .hidden.conf 'q[1].txt' c/d/z; do echo \"$f\" > \"s/$f\"; done");
        bench.line("cp -a s a.img:/etc").good();
        let run = |words: &[&str]| bench.run(words).good().text();
        assert_eq!(run(&["cat", "a.img:/etc/*.conf"]), "a.conf\nb.conf\n");
        assert_eq!(run(&["cat", "a.img:/e*/?/*.conf"]), "c/x.conf\n");
        assert_eq!(run(&["cat", "a.img:/etc/.h*"]), ".hidden.conf\n");
        // What is there under this very name is meant.
        assert_eq!(run(&["cat", "a.img:/etc/q[1].txt"]), "q[1].txt\n");
        assert_eq!(run(&["cat", "a.img:/etc/q\\[*"]), "q[1].txt\n");
        assert_eq!(run(&["ls", "-d", "a.img:/etc/*/"]), "/etc/c/\n");
        let found = bench
            .run(&["stat", "--json", "a.img:/etc/[ab].conf"])
            .good();
        assert_eq!(found.json().as_array().unwrap().len(), 2);
        // Nothing that matches is an error, and says the pattern.
        let none = bench.run(&["cat", "a.img:/etc/*.none"]).refused(1);
        assert!(none.stderr.contains("a.img:/etc/*.none"), "{}", none.stderr);
        bench.run(&["cat", "a.img:/etc/a.conf/*"]).refused(1);
        bench.shell("mkdir out");
        run(&["cp", "a.img:/etc/*.conf", "out"]);
        assert_eq!(bench.shell("ls out").text(), "a.conf\nb.conf\n");
        bench.run(&["cp", "a.img:/etc/*.conf", "new"]).refused(1);
        run(&["mkdir", "a.img:/to"]);
        run(&["cp", "a.img:/etc/*.conf", "a.img:/to"]);
        run(&["mv", "a.img:/to/*.conf", "a.img:/etc/c"]);
        run(&["rm", "a.img:/etc/[ab].*"]);
        assert_eq!(
            run(&["find", "a.img:/*", "-name", "*.conf"]),
            "/etc/.hidden.conf\n/etc/c/a.conf\n/etc/c/b.conf\n/etc/c/x.conf\n"
        );
        run(&["rm", "-r", "a.img:/etc/*"]);
        assert_eq!(run(&["ls", "-A", "a.img:/etc"]), ".hidden.conf\n");
    });
}

#[test]
fn find_has_the_usual_tests() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell(
        "mkdir -p s/d/e s/empty; head -c 3000 /dev/zero > s/b; head -c 20 /dev/zero > s/d/a; : > s/d/e/none; ln -s b s/l; ln s/b s/d/B
        chmod 4755 s/d/a; touch -d '2001-01-01' s/b; touch -d '2002-01-01' s/d/a; touch -d '2 days ago' s/d/e/none",
    );
    bench.line("cp -a s a.img:/").good();
    let find = |words: &str| {
        let shown = bench.line(&format!("find a.img:/s {words}")).good().text();
        shown
            .lines()
            .map(|path| path.trim_start_matches("/s").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        find("-size +2k"),
        ["", "/b", "/d", "/d/B", "/d/e", "/empty"]
            .map(|p| p.to_owned())
            .into_iter()
            .filter(|p| p.ends_with(['b', 'B'])
                || stat(&bench, &format!("/s{p}"))["size_bytes"].as_u64() > Some(2048))
            .collect::<Vec<_>>()
    );
    assert_eq!(find("-type f -size 20c"), ["/d/a"]);
    assert_eq!(find("-type f -size -1"), ["/d/e/none"]);
    assert_eq!(find("-type f,l -maxdepth 1"), ["/b", "/l"]);
    assert_eq!(find("-mindepth 1 -maxdepth 1 -type d"), ["/d", "/empty"]);
    assert_eq!(find("-newer a.img:/s/b -type f"), ["/d/a", "/d/e/none"]);
    assert_eq!(find("-newer s/d/a -type f"), ["/d/e/none"]);
    assert_eq!(find("-mtime +1000 -type f"), ["/b", "/d/B", "/d/a"]);
    assert_eq!(find("-mtime -7 -type f"), ["/d/e/none"]);
    assert_eq!(find("-mtime 2 -type f"), ["/d/e/none"]);
    assert_eq!(find("-mmin +2000 -mtime -7 -type f"), ["/d/e/none"]);
    assert_eq!(find("-empty"), ["/d/e/none", "/empty"]);
    assert_eq!(find("-perm -4000"), ["/d/a"]);
    assert_eq!(find("-iname b"), ["/b", "/d/B"]);
    assert_eq!(find("-links 2 -type f"), ["/b", "/d/B"]);
    assert_eq!(find("-depth -name e*"), ["/d/e", "/empty"]);
    let inode = stat(&bench, "/s/b")["inode"].to_string();
    assert_eq!(find(&format!("-inum {inode} -print")), ["/b", "/d/B"]);
    bench.line("find a.img -size x").refused(2);
    bench.line("find a.img -newer a.img:/none").refused(1);
}

#[test]
fn df_and_du_count() {
    each_kind(|bench| {
        bench.shell("mkdir -p s/d; head -c 100000 /dev/zero | tr '\\0' x > s/a; ln s/a s/d/a; head -c 30000 /dev/urandom > s/d/b");
        let before = bench.line("df --json a.img").good().json()[0].clone();
        bench.line("cp -a s a.img:/").good();
        let after = bench.line("df --json a.img").good().json()[0].clone();
        let number = |of: &Value, name: &str| of[name].as_u64().unwrap();
        let grown = number(&after, "used_bytes") - number(&before, "used_bytes");
        let du = bench.line("du --json a.img:/s").good().json();
        let [d, s] = &du.as_array().unwrap()[..] else {
            panic!("{du}");
        };
        assert_eq!((&d["path"], &s["path"]), (&"/s/d".into(), &"/s".into()));
        assert_eq!(number(s, "allocated_bytes"), grown);
        assert_eq!(
            number(&before, "free_inodes") - number(&after, "free_inodes"),
            4
        );
        assert_eq!(number(s, "files"), 4);
        let info = bench.line("info --json a.img").good().json();
        assert_eq!(number(&after, "free_bytes"), number(&info, "free_bytes"));
        let reserved = number(&info, "reserved_bytes");
        assert_eq!(
            number(&after, "available_bytes"),
            number(&info, "free_bytes") - reserved
        );
        let text = bench.line("df -h a.img").good().text();
        assert!(
            text.starts_with("Image") && text.contains("a.img") && text.contains('%'),
            "{text}"
        );
        assert!(bench.line("df -i a.img").good().text().contains("Inodes"));
        let text = bench.line("du -s a.img:/s").good().text();
        assert_eq!(text, format!("{}\t/s\n", grown.div_ceil(1024)));
        let text = bench.run(&["du", "-sbc", "a.img:/s/d/*"]).good().text();
        assert_eq!(text, "100000\t/s/d/a\n30000\t/s/d/b\n130000\ttotal\n");
        assert_eq!(
            bench.line("du -a a.img:/s").good().text().lines().count(),
            4
        );
        assert_eq!(
            bench.line("du -d 0 a.img:/s").good().text().lines().count(),
            1
        );
    });
}
