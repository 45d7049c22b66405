//! `depend` and `order`: programs that know nothing of patchgroups, under them.

use crate::support::{Bench, Done, can_mount};
use std::process::Command;
use std::time::{Duration, Instant};

fn mounted() -> Option<Bench> {
    if !can_mount() {
        return None;
    }
    let bench = Bench::new();
    bench.shell("mkdir mnt");
    bench.image("a.img", "-b 1024");
    let mounted = bench.line("mount -o expire=100000 a.img mnt").good();
    let said = mounted.text();
    assert!(
        said.contains("soft, order between units of 1024 bytes"),
        "{said}"
    );
    bench.shell("mkdir mnt/apart; printf '3\\n1\\n2\\n' > mnt/in");
    bench.line("sync mnt").good();
    Some(bench)
}

/// Runs the command in the mount.
fn inside(bench: &Bench, words: &[&str]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(words).current_dir(bench.path("mnt"));
    Done::of(command.output().unwrap())
}

/// A file's contents after a crash now; `None` where it has no name.
fn after_a_crash(bench: &Bench, name: &str) -> Option<String> {
    bench.shell("cp --sparse=always a.img crashed.img");
    let done = bench.line(&format!("cat crashed.img:/{name}"));
    (done.code == 0).then(|| done.text())
}

fn figure(bench: &Bench, pointer: &str) -> u64 {
    let stats = bench.line("stats --json mnt").good().json();
    stats.pointer(pointer).and_then(|v| v.as_u64()).unwrap()
}

fn end(bench: &Bench) {
    // The mount hears of the last close a moment later.
    let left = || {
        (
            figure(bench, "/patchgroups/open"),
            figure(bench, "/patchgroups/engaged"),
        )
    };
    let since = Instant::now();
    while left() != (0, 0) && since.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(left(), (0, 0));
    bench.line("umount mnt").good();
    bench.check("a.img");
}

#[test]
fn what_is_removed_is_removed_after_what_was_made_of_it() {
    let Some(bench) = mounted() else { return };
    let flushes = figure(&bench, "/flushes");
    inside(&bench, &["depend", "sort < in > out", "rm in", "2:1"]).good();
    assert_eq!(figure(&bench, "/flushes"), flushes, "somebody waited");
    bench.shell("echo x > mnt/apart/x");
    assert_eq!(after_a_crash(&bench, "in").unwrap(), "3\n1\n2\n");
    // The removal alone is asked for, by the directory that it changed.
    bench.shell("python3 -c 'import os; os.fsync(os.open(\"mnt\", os.O_RDONLY))'");
    assert_eq!(after_a_crash(&bench, "in"), None);
    assert_eq!(after_a_crash(&bench, "out").unwrap(), "1\n2\n3\n");
    let failed = inside(&bench, &["depend", "exit 3", "touch never", "2:1"]).refused(3);
    assert!(failed.stderr.contains("not run"), "{}", failed.stderr);
    inside(&bench, &["depend", "true", "true", "1:2"]).refused(2);
    end(&bench);
}

#[test]
fn a_program_under_order_waits_for_no_fsync() {
    let Some(bench) = mounted() else { return };
    let flushes = figure(&bench, "/flushes");
    let script = "for i in 1 2 3; do dd if=/dev/zero of=f$i bs=2000 count=1 conv=fsync 2>/dev/null; done; \
                  echo new > tmp; mv tmp in; echo end > last; exit 7";
    assert_eq!(inside(&bench, &["order", "--", "sh", "-c", script]).code, 7);
    assert_eq!(figure(&bench, "/flushes"), flushes, "somebody waited");
    bench.shell("python3 -c 'import os; os.fsync(os.open(\"mnt/last\", os.O_RDONLY))'");
    for file in ["f1", "f3"] {
        assert_eq!(after_a_crash(&bench, file).unwrap().len(), 2000, "{file}");
    }
    assert_eq!(after_a_crash(&bench, "in").unwrap(), "new\n");
    // Now and then what was ordered is put onto the disk.
    let script = "dd if=/dev/zero of=often bs=2000 count=1 conv=fsync 2>/dev/null; sleep 1";
    let words = ["order", "--durable-every", "0.1", "--", "sh", "-c", script];
    inside(&bench, &words).good();
    assert_eq!(after_a_crash(&bench, "often").unwrap().len(), 2000);
    end(&bench);
    let refused = bench.line("order -- true").refused(1);
    assert!(refused.stderr.contains("patchgroups"), "{}", refused.stderr);
}
