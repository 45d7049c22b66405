//! `crash record` and `crash device`: the kernel's own ext4 is recorded at work, and every state
//! that a power cut could have left is judged by e2fsck and by what had been promised. The same log
//! without its flushes must fail.

use backstitch_device::write_log::{EntryFlags, LogReader, LogWriter};
use backstitch_tests::command::{Outcome, backstitch, run, run_within, tool};
use backstitch_tests::recorder::Recorder;
use backstitch_tests::require;
use backstitch_tests::scratch::{Scratch, umount};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Replays the journal, then requires a clean file system, and what was promised: each file whose
/// `fsync` had returned.
const CHECK: &str = "e2fsck -fy $1 > /dev/null 2>&1; e2fsck -fn $1 > /dev/null 2>&1 || { echo damaged; exit 1; }
while read name; do
    debugfs -R \"cat $name\" $1 2>/dev/null | grep -q precious || { echo \"$name is lost\"; exit 1; }
done < $BACKSTITCH_MARKS";

/// Makes an ext4 image and records the kernel while it works on it.
fn record(scratch: &Scratch) -> Recorder {
    let image = scratch.path("disk.img");
    let mut mke2fs = tool("mke2fs");
    mke2fs
        .args(["-q", "-F", "-t", "ext4", "-b", "4096"])
        .arg(&image);
    run(mke2fs.arg("64M")).expect_success();
    let recorder = Recorder::start(scratch, &image);
    let dir = scratch.dir("mnt");
    recorder.mount("ext4", &dir);
    for number in 0..5 {
        std::fs::write(dir.join(format!("f{number}")), "something").unwrap();
    }
    for name in ["one", "two"] {
        let mut file = File::create(dir.join(name)).unwrap();
        file.write_all(b"precious").unwrap();
        file.sync_all().unwrap();
        recorder.mark(&format!("/{name}"));
        std::fs::rename(dir.join("f1"), dir.join(format!("{name}-moved"))).ok();
        std::fs::remove_file(dir.join("f2")).ok();
    }
    umount(&dir);
    recorder.end();
    recorder
}

fn device(scratch: &Scratch, base: &Path, log: &Path, check: &str, more: &[&str]) -> Outcome {
    let mut command = backstitch();
    command.args(["crash", "device", "--json", "--check", check, "--base"]);
    command.arg(base).arg("--log").arg(log).args(more);
    let tmp = scratch.dir("tmp");
    command.env("TMPDIR", tmp).current_dir(scratch.path(""));
    run_within(&mut command, Duration::from_secs(300))
}

fn count(report: &Value, name: &str) -> u64 {
    report["coverage"][name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} is missing in {report}"))
}

/// The same log without anything that states an order.
fn without_flushes(log: &Path, to: &Path) {
    let mut reader = LogReader::open(log).unwrap();
    let mut writer = LogWriter::create(to).unwrap();
    while let Some(entry) = reader.next() {
        let entry = entry.unwrap();
        if let Some(mark) = &entry.mark {
            writer.mark(mark).unwrap();
        } else if entry.has_data() {
            let mut data = vec![0; entry.len_bytes as usize];
            reader.read_data(&entry, 0, &mut data).unwrap();
            writer
                .write(entry.offset_bytes, &data, EntryFlags::default())
                .unwrap();
        }
    }
}

#[test]
fn the_kernels_ext4_keeps_its_promises_and_needs_its_flushes_for_it() {
    require!(
        "root",
        "fuse",
        "loop",
        "backstitch",
        "mke2fs",
        "e2fsck",
        "debugfs"
    );
    let scratch = Scratch::new("crash_device");
    let recorder = record(&scratch);
    let (base, log) = (&recorder.base, &recorder.log);

    let outcome = device(&scratch, base, log, CHECK, &["--states", "200"]).expect_success();
    let report = outcome.json();
    assert_eq!(report["failures"], Value::Array(Vec::new()));
    assert_eq!(report["kind"], "device");
    assert_eq!(count(&report, "marks"), 2);
    assert!(
        count(&report, "flushes") > 4 && count(&report, "writes") > 10,
        "{report}"
    );
    assert!(report["distinct"].as_u64() > Some(20), "{report}");
    assert!(
        report["notes"][0]
            .as_str()
            .unwrap()
            .contains("flushes and FUA writes only")
    );

    let stripped = scratch.path("stripped.log");
    without_flushes(log, &stripped);
    let page = scratch.path("report.html");
    let options = [
        "--states",
        "60",
        "--seed",
        "7",
        "--html",
        page.to_str().unwrap(),
    ];
    let failing = |more: &[&str]| -> (Value, String) {
        let more = [&options[..], more].concat();
        let outcome = device(&scratch, base, &stripped, CHECK, &more);
        assert_eq!(outcome.code, Some(1), "{}", outcome.describe());
        (outcome.json(), std::fs::read_to_string(&page).unwrap())
    };
    let (report, first) = failing(&["--jobs", "1"]);
    assert_eq!(
        first,
        failing(&["--jobs", "2"]).1,
        "the same seed, and another page"
    );
    assert_eq!(
        first,
        failing(&["--copy"]).1,
        "the same states, and another page"
    );
    let failure = &report["failures"][0];
    assert_eq!(failure["minimised"], true, "{failure}");
    replays(&scratch, base, &stripped, failure);
}

/// The line for the replay, run by a shell as a person would do it, shows the same.
fn replays(scratch: &Scratch, base: &Path, log: &Path, failure: &Value) {
    let line = failure["replay"].as_str().unwrap();
    let state = line.rsplit(' ').next().unwrap();
    let outcome = device(scratch, base, log, CHECK, &["--replay", state]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.describe());
    let again = &outcome.json()["failures"][0];
    for key in ["verdict", "cut", "blocks"] {
        assert_eq!(again[key], failure[key]);
    }
    let command = backstitch();
    let program = command.get_program().to_str().unwrap();
    let line = line.replacen("backstitch", program, 1);
    let outcome = run(tool("sh").arg("-c").arg(line).current_dir(scratch.path("")));
    assert_eq!(outcome.code, Some(1), "{}", outcome.describe());
    assert!(
        outcome.text().contains("failure 1: exit code 1"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn qemus_logs_are_read() {
    require!("backstitch", "qemu-io");
    let scratch = Scratch::new("crash_device_qemu");
    let image = |name: &str| -> PathBuf {
        let path = scratch.path(name);
        File::create(&path).unwrap().set_len(16 << 20).unwrap();
        path
    };
    let (base, disk, log) = (image("base.img"), image("disk.img"), scratch.path("q.log"));
    File::create(&log).unwrap();
    let options = format!(
        "driver=blklogwrites,file.driver=file,file.filename={},log.driver=file,log.filename={}",
        disk.display(),
        log.display()
    );
    let mut qemu_io = tool("qemu-io");
    for command in [
        "write -P 65 0 4k",
        "write -P 66 8k 4k",
        "flush",
        "write -z 1M 64k",
        "discard 2M 1M",
        "write -P 67 0 512",
    ] {
        qemu_io.args(["-c", command]);
    }
    run(qemu_io.args(["--image-opts", &options])).expect_success();
    let check = "grep -q C $1 && ! grep -q B $1 && exit 1; exit 0";
    let report = device(&scratch, &base, &log, check, &[])
        .expect_success()
        .json();
    assert_eq!(report["exhaustive"], true, "{report}");
    assert_eq!(
        (count(&report, "writes"), count(&report, "discards")),
        (4, 1)
    );
    // Zeros over zeros change nothing. So there is any part of the first two changes, and then the
    // last one or not.
    assert_eq!(report["distinct"], 5, "{report}");
}
