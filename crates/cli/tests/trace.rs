//! `backstitch trace`: of workloads in memory and on simulated disks, and of mounts in use.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Bench, Done, Mount, PATIENCE, can_mount, is_root, signal, until};

/// A recording in the background.
fn spawn(bench: &Bench, words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(["trace", "record"]);
    command.args(words.split_ascii_whitespace());
    command.current_dir(bench.path(""));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until a recording has begun: its file is no longer what it was.
fn begins(file: &Path) {
    let is_trace = || std::fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"BSTRACE"));
    until("the recording begins", is_trace);
}

/// Waits for a recording, which must end soon.
fn ended(mut child: Child) -> Done {
    until("the recording ends", || child.try_wait().unwrap().is_some());
    Done::of(child.wait_with_output().unwrap())
}

#[test]
fn a_workload_is_recorded_shown_drawn_and_counted() {
    let bench = Bench::new();
    bench
        .line("bench untar --memory --files 60 --megabytes 1 --record t.trace")
        .good();
    let lines = bench.line("trace show t.trace --json").good().text();
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for event in [
        "begin", "create", "wait", "write", "batch", "flushed", "commit",
    ] {
        assert!(lines.iter().any(|line| line["event"] == event), "{event}");
    }
    let of_kind = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert!(of_kind("create") >= 60);
    let stats = bench.line("trace stats t.trace --json").good().json();
    assert_eq!(
        stats["operations"]["create"]["operations"],
        of_kind("create")
    );
    assert!(stats["versions"].as_u64() > Some(0));
    let text = bench.line("trace stats t.trace").good().text();
    assert!(text.contains("age at the write"), "{text}");
    let batch = lines.iter().find(|line| line["event"] == "batch").unwrap();
    let at = format!("--at batch:{}", batch["batch"]);
    let json = bench
        .line(&format!("trace graph t.trace {at} --format json"))
        .good()
        .json();
    let nodes = json["nodes"].as_array().unwrap();
    let edges = json["edges"].as_array().unwrap();
    assert!(nodes.iter().any(|node| node["standing"] == "in flight"));
    let dot = bench.line(&format!("trace graph t.trace {at}")).good();
    let dot = dot.text();
    assert_eq!(dot.matches(" -> ").count(), edges.len());
    let svg = format!("trace graph t.trace {at} --by operation --format svg");
    let svg = bench.line(&svg).good().text();
    assert!(svg.starts_with("<svg") && svg.contains("create /"), "{svg}");
    // Filters leave less.
    let only = bench
        .line("trace show t.trace --operation create --json")
        .good()
        .text();
    assert!(only.lines().count() > 0 && only.lines().count() < lines.len());
    let beyond = bench.line("trace graph t.trace --at #99999999").refused(1);
    assert!(
        beyond.stderr.contains("no such moment"),
        "{}",
        beyond.stderr
    );
    assert!(
        beyond.stderr.contains("and has batches "),
        "{}",
        beyond.stderr
    );
    bench.line("trace graph t.trace --at noon").refused(2);
    let nonsense = bench.line("trace show t.trace --operation nonsense");
    assert_eq!(nonsense.code, 2);
    assert!(nonsense.stderr.contains("rename"), "{}", nonsense.stderr);
    let replay = bench.line("trace replay t.trace x.img").refused(1);
    assert!(!replay.stderr.is_empty());
}

#[test]
fn equal_seeds_on_a_simulated_disk_give_equal_traces() {
    let bench = Bench::new();
    let line = "bench postmark-small --disk viking --size 64M --scale 0.01 --seed";
    for (seed, name) in [(1, "a"), (1, "b"), (2, "c")] {
        bench
            .line(&format!("{line} {seed} --record {name}.trace"))
            .good();
    }
    let read = |name: &str| std::fs::read(bench.path(&format!("{name}.trace"))).unwrap();
    assert!(read("a").len() > 10_000);
    assert!(read("a") == read("b"));
    assert!(read("a") != read("c"));
}

#[test]
fn what_is_no_trace_is_refused() {
    let bench = Bench::new();
    bench.shell("head -c 5000 /dev/zero > zeros; echo text > text");
    for what in [
        "show zeros",
        "stats text",
        "graph zeros",
        "replay text x.img",
        "serve text",
        "show nothing",
    ] {
        let done = bench.line(&format!("trace {what}")).refused(1);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    }
    // What is no mount is not recorded, and no file made.
    bench.line("trace record -o t.trace .").refused(1);
    assert!(!bench.path("t.trace").exists());
    bench.line("trace record -o t.trace text").refused(2);
}

#[test]
fn a_mount_in_use_is_recorded_and_replayed() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let _mount = Mount::new(&bench);
    bench.line("sync mnt").good();
    bench.shell("cp a.img before.img");
    let program = env!("CARGO_BIN_EXE_backstitch");
    let script = format!("mkdir mnt/a && echo hello > mnt/a/b && '{program}' sync mnt && exit 7");
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
        &script,
    ];
    // The exit code is the command's.
    let done = bench.run(&words);
    assert_eq!((done.code, &done.stderr[..]), (7, ""));
    bench.shell("cp a.img after.img");
    bench.line("trace replay t.trace before.img").good();
    bench.shell("cmp before.img after.img");
    let shown = bench.line("trace show t.trace --path /a/b").good().text();
    assert!(
        shown.contains("create /a/b") && shown.contains("is on the disk"),
        "{shown}"
    );
    let mode = std::fs::metadata(bench.path("t.trace")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
    assert_eq!(mode & 0o777, 0o600);
    // A pipe may be reached through a link.
    let piped = "trace record --seconds 0.1 -o /dev/stdout mnt";
    let begins = bench.line(piped).good().stdout;
    assert!(begins.starts_with(b"BSTRACE"));
    // A path is the same however it is written, and one that is nowhere is not on the disk.
    for path in ["/a/b", "a/b", "/a/b/"] {
        let line = format!("trace why t.trace --path {path}");
        let why = bench.line(&line).good().text();
        assert_eq!(why, "all of it is on the disk\n", "{path}");
    }
    for question in ["--path /a/c", "--inode 4711", "--patch 99999"] {
        let line = format!("trace why t.trace {question}");
        bench.line(&line).refused(1);
    }
    // It can be recorded again, and ends with its mount.
    bench
        .line("trace record --seconds 0.1 -o u.trace mnt")
        .good();
    bench.line("umount mnt").good();
    bench.line("trace stats u.trace").good();
    // An image is mounted for the command alone.
    let words = [
        "trace",
        "record",
        "-o",
        "v.trace",
        "a.img",
        "--",
        "sh",
        "-c",
        "echo x > c",
    ];
    bench.run(&words).good();
    let shown = bench.line("trace show v.trace --path /c").good().text();
    assert!(
        shown.contains("create /c") && shown.contains("is on the disk"),
        "{shown}"
    );
    bench.line("cat a.img:/c").good();
    bench.check("a.img");
}

#[test]
fn what_lies_in_the_mount_or_is_its_image_is_no_output() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let _mount = Mount::new(&bench);
    bench.shell(
        "ln -s mnt/link.trace link; echo old > mnt/old; ln -s mnt/old old; ln -s a.img image",
    );
    bench.line("mkfs -q -s 1M other.img").good();
    for (output, why) in [
        ("mnt/x.trace", "in the mount"),
        ("old", "symbolic link"),
        ("other.img", "it holds an ext2"),
        ("a.img", "the mounted image"),
        ("image", "symbolic link"),
        ("mnt", "directory"),
        (".", "directory"),
    ] {
        let line = format!("trace record --seconds 1 -o {output} mnt");
        let done = bench.line(&line).refused(1);
        assert!(done.stderr.contains(why), "{output}: {}", done.stderr);
    }
    // A link that leads to nothing is not followed.
    bench
        .line("trace record --seconds 1 -o link mnt")
        .refused(1);
    let left = bench.shell("ls mnt; cat mnt/old").text();
    assert_eq!(left, "lost+found\nold\nold\n");
    bench.line("umount mnt").good();
    bench.check("a.img");
    let done = bench.line("trace record -o a.img a.img -- true").refused(1);
    assert!(done.stderr.contains("image itself"), "{}", done.stderr);
    bench.check("a.img");
}

#[test]
fn an_image_that_somebody_uses_is_no_output() {
    let bench = Bench::new();
    bench.line("mkfs -q -s 16M b.img").good();
    let done = bench
        .line("bench untar --image b.img --files 10 --megabytes 1 --record b.img")
        .refused(1);
    assert!(done.stderr.contains("b.img"), "{}", done.stderr);
    bench.check("b.img");
    if !can_mount() {
        return;
    }
    // The mount is a part of the file, which its name is therefore not.
    bench.shell("mkdir mnt; cp b.img part; truncate -s 8M disk.img; cat part >> disk.img");
    bench.line("mount disk.img?offset=8M mnt").good();
    bench.shell("ln disk.img other");
    for output in ["disk.img", "other"] {
        for target in ["--seconds 1 mnt", "disk.img?offset=8M -- true"] {
            let line = format!("trace record -o {output} {target}");
            let done = bench.line(&line).refused(1);
            assert!(
                done.stderr.contains("image itself"),
                "{line}: {}",
                done.stderr
            );
        }
    }
    // The image of another mount.
    bench.shell("mkdir second");
    bench.line("mount b.img second").good();
    let line = "trace record -o disk.img --seconds 1 second";
    let done = bench.line(line).refused(1);
    assert!(done.stderr.contains("in use"), "{}", done.stderr);
    bench.line("umount second").good();
    bench.line("umount mnt").good();
    bench.shell("tail -c 16M disk.img > part");
    bench.check("part");
}

#[test]
fn one_recording_at_a_time_and_what_was_there_stays() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let _mount = Mount::new(&bench);
    bench.shell("echo precious > old");
    let first = spawn(&bench, "-o t.trace mnt");
    begins(&bench.path("t.trace"));
    for output in ["old", "new"] {
        let line = format!("trace record --seconds 1 -o {output} mnt");
        let done = bench.line(&line).refused(1);
        assert!(done.stderr.contains("another"), "{}", done.stderr);
    }
    assert_eq!(bench.shell("cat old").text(), "precious\n");
    assert!(!bench.path("new").exists());
    bench.shell("mkdir mnt/a");
    signal(&first, rustix::process::Signal::INT);
    ended(first).good();
    let shown = bench.line("trace show t.trace").good().text();
    assert!(shown.contains("create /a"), "{shown}");
    // One that is killed is over, and the mount goes on.
    let mut killed = spawn(&bench, "-o u.trace mnt");
    begins(&bench.path("u.trace"));
    killed.kill().unwrap();
    killed.wait().unwrap();
    until("the mount can be recorded again", || {
        bench.line("trace record --seconds 0 -o v.trace mnt").code == 0
    });
    bench.line("umount mnt").good();
}

#[test]
fn a_recording_has_the_unmount_that_ends_it() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let _mount = Mount::new(&bench);
    bench.line("sync mnt").good();
    bench.shell("cp a.img before.img");
    let recording = spawn(&bench, "--json --contents -o t.trace mnt");
    begins(&bench.path("t.trace"));
    bench.shell("cp /bin/sh mnt/sh; mkdir mnt/d");
    bench.line("umount mnt").good();
    let report = ended(recording).good().json();
    assert!(report["lost_events"].is_null(), "{report}");
    let length = std::fs::metadata(bench.path("t.trace")).unwrap().len();
    assert_eq!(report["bytes"], length);
    let state = bench
        .line("trace graph t.trace --format json")
        .good()
        .json();
    assert_eq!(state["nodes"].as_array().unwrap().len(), 0, "{state}");
    // Nothing is written to an image that not all of it has a place in.
    bench.shell("head -c 100k before.img > short.img; cp short.img same.img");
    let short = bench.line("trace replay t.trace short.img").refused(1);
    assert!(
        short.stderr.contains("behind the image's end"),
        "{}",
        short.stderr
    );
    bench.shell("cmp short.img same.img");
    bench.line("trace replay t.trace before.img").good();
    bench.shell("cmp before.img a.img");
}

#[test]
fn a_recording_that_could_not_keep_up_fails() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.shell("mkdir mnt; mkfifo pipe");
    bench.line("mkfs -q -s 64M a.img").good();
    bench.line("mount a.img mnt").good();
    // A reader that takes 4 MB a second of what is written in one go.
    let script =
        "while dd bs=64k count=1 iflag=fullblock status=none | grep -q ''; do sleep 0.016; done";
    let mut reader = Command::new("sh");
    reader.args(["-c", &format!("exec < pipe; {script}")]);
    let mut reader = reader.current_dir(bench.path("")).spawn().unwrap();
    let command = "head -c 40000000 /dev/urandom > mnt/z; $BACKSTITCH sync mnt";
    let record = "$BACKSTITCH trace record --json --contents -o pipe mnt -- sh -c";
    let script = format!("{record} '{command}' > report 2> why || echo failed >> why");
    bench.shell(&script);
    reader.wait().unwrap();
    bench.line("umount mnt").good();
    let (report, why) = (bench.shell("cat report"), bench.shell("cat why").text());
    assert!(
        report.json()["lost_events"].is_number(),
        "{}",
        report.text()
    );
    assert!(
        why.contains("not complete") && why.ends_with("failed\n"),
        "{why}"
    );
}

#[test]
fn a_recorder_whose_output_takes_nothing_can_be_ended() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let _mount = Mount::new(&bench);
    bench.shell("mkfifo pipe");
    // Nobody reads: it waits in the opening of its output.
    let recording = spawn(&bench, "-o pipe mnt");
    std::thread::sleep(Duration::from_millis(500));
    signal(&recording, rustix::process::Signal::TERM);
    ended(recording);
    // Somebody has opened it, and reads nothing.
    let script = "exec < pipe; exec sleep 60";
    let mut reader = Command::new("sh");
    let reader = reader.args(["-c", script]).current_dir(bench.path(""));
    let mut reader = reader.spawn().unwrap();
    let recording = spawn(&bench, "--contents -o pipe mnt");
    std::thread::sleep(Duration::from_millis(500));
    bench.shell("head -c 1000000 /dev/urandom > mnt/a; $BACKSTITCH sync mnt");
    for _ in 0..2 {
        signal(&recording, rustix::process::Signal::INT);
        std::thread::sleep(Duration::from_millis(500));
    }
    ended(recording);
    reader.kill().unwrap();
    reader.wait().unwrap();
    bench.line("umount mnt").good();
}

#[test]
fn a_reader_that_is_slow_does_not_hold_up_the_unmount_for_long() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let _mount = Mount::new(&bench);
    bench.shell("mkfifo pipe");
    // 64 KiB every half a second, of 8 MB.
    let script =
        "while dd bs=64k count=1 iflag=fullblock status=none | grep -q ''; do sleep 0.5; done";
    let mut reader = Command::new("sh");
    reader.args(["-c", &format!("exec < pipe; {script}")]);
    let mut reader = reader.current_dir(bench.path("")).spawn().unwrap();
    let recording = spawn(&bench, "--contents -o pipe mnt");
    std::thread::sleep(Duration::from_millis(500));
    bench.shell("head -c 8000000 /dev/urandom > mnt/a; $BACKSTITCH sync mnt");
    let began = Instant::now();
    bench.line("umount mnt").good();
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let done = ended(recording).refused(1);
    assert!(done.stderr.contains("cut off"), "{}", done.stderr);
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[test]
fn what_is_missing_of_a_trace_is_said() {
    let bench = Bench::new();
    bench
        .line("bench untar --memory --files 400 --megabytes 4 --record t.trace")
        .good();
    let length = std::fs::metadata(bench.path("t.trace")).unwrap().len();
    for (name, bytes) in [("little", 5000), ("most", length - 10)] {
        bench.shell(&format!("head -c {bytes} t.trace > {name}"));
        let questions = ["show", "stats", "graph", "why --block=1"];
        for what in questions {
            let done = bench.line(&format!("trace {what} {name}")).good();
            assert!(done.stderr.contains("cut off"), "{what}: {}", done.stderr);
        }
        let stats = bench.line(&format!("trace stats --json {name}")).good();
        assert_eq!(stats.json()["is_cut_off"], true);
    }
}

#[test]
fn only_root_or_who_mounted_it_records_a_mount() {
    if !can_mount() || !is_root("becoming another user") {
        return;
    }
    let bench = Bench::new();
    bench.shell("chmod 755 .; mkdir mnt out; chmod 777 out");
    bench.line("mkfs -q -s 16M a.img").good();
    bench.line("mount -o allow_other a.img mnt").good();
    let words = "trace record --seconds 1 -o out/t.trace mnt";
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(words.split_ascii_whitespace());
    command.current_dir(bench.path(""));
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let done = command.output().map(Done::of);
    bench.line("umount mnt").good();
    let Ok(done) = done else {
        eprintln!("skipped: another user cannot run the command from there");
        return;
    };
    let done = done.refused(1);
    assert!(done.stderr.contains("only root"), "{}", done.stderr);
    assert!(!bench.path("out/t.trace").exists());
}
