//! `backstitch trace serve`: of traces, of mounts in use, and of the states that a crash can leave.

use std::io::{BufRead, Read, Write};
use std::process::{Child, Command, Stdio};

use crate::support::{Bench, Mount, can_mount, signal, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_backstitch");

/// A page in the background, whose server ends with this.
struct Served {
    server: Child,
    host: String,
    /// What is before each request: the token.
    path: String,
}

impl Served {
    fn new(bench: &Bench, target: &str) -> Served {
        Served::with(bench, &[target])
    }

    fn with(bench: &Bench, words: &[&str]) -> Served {
        let mut command = Command::new(PROGRAM);
        command.args(["trace", "serve"]).args(words);
        command.current_dir(bench.path("")).stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut address = String::new();
        let out = server.stdout.take().unwrap();
        std::io::BufReader::new(out)
            .read_line(&mut address)
            .unwrap();
        let rest = address.trim().strip_prefix("http://").unwrap();
        let (host, path) = rest.split_once('/').unwrap();
        let (host, path) = (host.to_owned(), path.to_owned());
        Served { server, host, path }
    }

    fn reply(&self, path: &str) -> String {
        let host = &self.host;
        let mut stream = std::net::TcpStream::connect(host).unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    fn get(&self, request: &str) -> String {
        self.reply(&format!("{}{request}", self.path))
    }

    #[track_caller]
    fn ask(&self, request: &str) -> serde_json::Value {
        let reply = self.get(request);
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{request}: {reply}");
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A shell has what it runs in the background ignore the interrupt, and so does what that runs.
        signal(&self.server, rustix::process::Signal::TERM);
        self.server.wait().unwrap();
    }
}

#[test]
fn a_trace_is_served_to_who_has_the_address() {
    let bench = Bench::new();
    bench
        .line("bench untar --memory --files 60 --megabytes 1 --record t.trace")
        .good();
    let served = Served::new(&bench, "t.trace");
    let (page, about) = (served.get(""), served.get("about"));
    let without = served.reply("about");
    drop(served);
    assert!(page.contains("<title>backstitch trace</title>"), "{page}");
    assert!(about.contains("\"ordering\":\"soft\""), "{about}");
    assert!(without.starts_with("HTTP/1.1 404 "), "{without}");
}

#[test]
fn a_mount_in_use_is_followed_halted_and_followed_again() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.shell("mkdir none");
    bench.line("trace serve none").refused(1);
    let _mount = Mount::new(&bench);
    bench.shell("mkdir mnt/before; echo x > mnt/before/f");
    let served = Served::new(&bench, "mnt");
    assert_eq!(served.ask("about")["is_live"], true);
    let other = bench.line("trace record --seconds 0 -o t.trace mnt");
    assert!(other.refused(1).stderr.contains("another"), "one at a time");
    let has = |told: &serde_json::Value, label: &str| {
        let operations = told["operations"].as_array();
        let mut labels = operations.into_iter().flatten().map(|of| &of[1]);
        labels.any(|of| of.as_str() == Some(label))
    };
    // Few records come at once, and are not waited for until there are more.
    bench.shell("mkdir mnt/a");
    until("the directory is seen", || {
        has(&served.ask("live"), "create /a")
    });
    let told = served.ask("live");
    assert!(told["moment"]["patches"].as_u64() > Some(0), "{told}");
    let known = format!("live?since={}&recording=1", told["records"]);
    assert!(served.ask(&known)["moment"].is_null());
    let halted = served.ask("halt");
    let at = format!("at/{}", halted["halted"]);
    let ask = |request: &str| served.ask(&format!("{at}/{request}"));
    bench.shell("echo later > mnt/b");
    until("the file is seen", || has(&served.ask("live"), "create /b"));
    // What was halted stays, and answers as a trace of its own.
    let last = ask("about")["records"].as_u64().unwrap() - 1;
    let moment = ask(&format!("moment?record={last}"));
    assert_eq!(moment["patches"], told["moment"]["patches"]);
    let why = ask(&format!("why/dirty?record={last}&path=/a"));
    let why = why["text"].as_str().unwrap();
    assert!(why.contains("for create /a: waits for"), "{why}");
    assert_eq!(ask("search?text=/b")["found"], serde_json::json!([]));
    // What is halted more often is forgotten, the first of them first.
    served.ask("halt");
    let halted = served.ask("halt");
    let gone = served.get(&format!("{at}/about"));
    assert!(gone.contains("Follow again"), "{gone}");
    let found = served.ask(&format!("at/{}/search?text=/b", halted["halted"]));
    assert!(found["found"].as_array().is_some_and(|of| !of.is_empty()));
    // The mount goes on when the server has ended, and is not recorded any more.
    drop(served);
    bench.shell("echo more > mnt/c");
    until("the mount can be recorded again", || {
        bench.line("trace record --seconds 0 -o v.trace mnt").code == 0
    });
    // The end of the mount is told of, and its last minute stays.
    let served = Served::new(&bench, "mnt");
    bench.shell("mkdir mnt/d");
    until("it is seen", || has(&served.ask("live"), "create /d"));
    bench.line("umount mnt").good();
    until("the end is seen", || {
        served.ask("live")["ended"] == "the mount has ended"
    });
    let halted = served.ask("halt");
    let of = format!("at/{}/about", halted["halted"]);
    assert!(served.ask(&of)["batches"].as_u64() > Some(0));
    bench.check("a.img");
}

/// What is found of every state that is offered at every batch of a trace.
fn states_of(served: &Served) -> Vec<String> {
    let (mut texts, mut at) = (Vec::new(), 0);
    loop {
        let next = served.ask(&format!("next?kind=batch&record={at}"));
        let Some(record) = next["record"].as_u64() else {
            return texts;
        };
        at = record;
        let states = served.ask(&format!("states?record={record}"));
        for of in states["offered"].as_array().unwrap() {
            let blocks = of["blocks"].as_array().unwrap();
            let blocks: Vec<String> = blocks.iter().map(|block| block.to_string()).collect();
            let blocks = blocks.join(",");
            let found = served.ask(&format!("state?record={record}&blocks={blocks}"));
            texts.push(found["text"].as_str().unwrap().to_owned());
        }
    }
}

#[test]
fn of_each_state_that_a_crash_can_leave_the_check_and_the_tree_are_told() {
    let bench = Bench::new();
    let script = "mkdir d; sync; creat d/a; write d/a 0 5000; sync";
    for (ordering, layout, is_damaged) in [
        ("soft", "ext2", false),
        ("async", "ext2", true),
        ("journal=ordered", "ext2", false),
        // Its log is on a device of its own.
        ("lffs-wafs=2sync", "ext2", false),
        ("soft", "ufs2", false),
    ] {
        let words = [
            "trace",
            "record",
            "--contents",
            "-o",
            "t.trace",
            "--script",
            script,
        ];
        let words = [&words[..], &["--ordering", ordering, "-t", layout]].concat();
        bench.run(&words).good();
        let served = Served::new(&bench, "t.trace");
        let texts = states_of(&served);
        let has = |what: &str| texts.iter().any(|text| text.contains(what));
        assert!(texts.len() > 10, "{ordering}: {} states", texts.len());
        assert_eq!(has("damaged"), is_damaged, "{ordering}: {texts:?}");
        assert!(
            has("- /d/a (5000 bytes)") && has("fsck: clean"),
            "{texts:?}"
        );
        assert!(!texts.iter().all(|text| text.contains("/d/a")), "{texts:?}");
    }
    // The same script without contents has nothing to make images of.
    let words = ["trace", "record", "-o", "u.trace", "--script", script];
    bench.run(&words).good();
    let served = Served::new(&bench, "u.trace");
    let why = served.get("states?record=5");
    assert!(why.contains("record it with --contents"), "{why}");
    drop(served);
    // A trace that has its image is replayed onto zeros.
    bench.shell("truncate -s 8M x.img");
    bench.line("trace replay t.trace x.img").good();
    let listed = bench.line("find x.img").good().text();
    assert!(listed.lines().any(|line| line == "/d/a"), "{listed}");
    bench
        .line("trace serve --image none.img u.trace")
        .refused(1);
}

#[test]
fn of_a_mounts_trace_the_image_is_named() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mount = Mount::new(&bench);
    bench.shell("mkdir mnt/old");
    bench.line("sync mnt").good();
    bench.shell("cp a.img before.img");
    let script = format!("mkdir mnt/new && {PROGRAM} sync mnt");
    let words = [
        "trace",
        "record",
        "--contents",
        "-o",
        "t.trace",
        "mnt",
        "--",
        "sh",
        "-c",
    ];
    bench.run(&[&words[..], &[&script]].concat()).good();
    drop(mount);
    let served = Served::new(&bench, "t.trace");
    let why = served.get("states?record=5");
    assert!(why.contains("trace serve --image FILE"), "{why}");
    drop(served);
    let served = Served::with(&bench, &["--image", "before.img", "t.trace"]);
    let texts = states_of(&served);
    assert!(
        texts.iter().all(|text| text.contains("d /old")),
        "{texts:?}"
    );
    assert!(
        texts.iter().any(|text| text.contains("d /new")),
        "{texts:?}"
    );
    assert!(
        !texts.iter().any(|text| text.contains("damaged")),
        "{texts:?}"
    );
    bench.shell("cmp before.img before.img");
}

#[test]
fn of_a_mount_whose_log_is_on_another_device_both_are_named() {
    if !can_mount() {
        return;
    }
    let journal = [
        "mkfs -q -O journal_dev -s 8M log.img",
        "mkfs -q -t ext3 -J device=log.img -s 16M a.img",
        "mount --ordering journal=ordered -o journal_dev=log.img,commit=300 a.img mnt",
    ];
    let operations = [
        "wafs mkfs log.img",
        "mkfs -q -s 16M a.img",
        "mount --ordering lffs-wafs=2sync -o log_device=log.img a.img mnt",
    ];
    for lines in [journal, operations] {
        let bench = Bench::new();
        bench.shell("mkdir mnt; truncate -s 8M log.img");
        lines.iter().for_each(|line| {
            bench.line(line).good();
        });
        let mount = Mount::of(&bench);
        bench.shell("mkdir mnt/old");
        bench.line("sync mnt").good();
        bench.shell("cp a.img before.img; cp log.img before.log");
        let words = "trace record --contents -o t.trace mnt -- sh -c";
        let words: Vec<&str> = words.split(' ').collect();
        let script = format!("mkdir mnt/new && {PROGRAM} sync mnt");
        bench.run(&[&words[..], &[&script]].concat()).good();
        drop(mount);
        let served = Served::with(&bench, &["--image", "before.img", "t.trace"]);
        let why = served.get("states?record=999999");
        assert!(why.contains("--log-device FILE"), "{why}");
        drop(served);
        let words = "--image before.img --log-device before.log t.trace";
        let words: Vec<&str> = words.split(' ').collect();
        let served = Served::with(&bench, &words);
        let texts = states_of(&served);
        let all_have = |text: &String| text.contains("fsck: clean") && text.contains("d /old");
        assert!(texts.iter().all(all_have), "{lines:?}: {texts:?}");
        let has_new = |text: &String| text.contains("d /new");
        assert!(
            texts.iter().any(has_new) && !texts.iter().all(has_new),
            "what the log has decides: {lines:?}: {texts:?}"
        );
    }
}
