//! `backstitch wafs`: a log that is made, written, read, followed, checked, and killed.

use crate::support::Bench;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn start(bench: &Bench, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(words).current_dir(bench.path(""));
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    piped.spawn().unwrap()
}

#[test]
fn records_go_in_and_come_out() {
    let bench = Bench::new();
    bench.line("wafs mkfs -s 1M log").good();
    let lsns = bench.line("wafs append log one two three").good().text();
    assert_eq!(lsns, "0\n48\n96\n");
    assert_eq!(
        bench.line("wafs read log").good().text(),
        "one\ntwo\nthree\n"
    );
    assert_eq!(
        bench.line("wafs read -0 --from 48 -n 1 log").good().text(),
        "two\0"
    );
    assert_eq!(
        bench.line("wafs tail -n 2 --raw log").good().text(),
        "twothree"
    );
    bench.shell("printf 'a\\nb' | $BACKSTITCH wafs append -q log; printf 'x\\0y\\0' | $BACKSTITCH wafs append -q0 log");
    bench.shell("printf '\\377\\n' | $BACKSTITCH wafs append -q --whole log");
    let lines = bench.line("wafs read --json log").good().text();
    let records: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let payloads: Vec<&str> = records
        .iter()
        .filter_map(|r| r["payload"].as_str())
        .collect();
    assert_eq!(payloads, ["one", "two", "three", "a", "b", "x", "y"]);
    assert_eq!(
        (&records[7]["payload_base64"], &records[7]["mount"]),
        (&"/wo=".into(), &4.into())
    );
    assert_eq!(records[1]["previous"], records[0]["lsn"]);
    bench.line("wafs checkpoint log 96").good();
    let info = bench.line("wafs info --json log").good().json();
    assert_eq!(
        (&info["start"], &info["was_unmounted"]),
        (&96.into(), &true.into())
    );
    let gone = bench.line("wafs read --from 0 log").refused(1);
    assert!(
        gone.stderr.contains("before the log's start, 96"),
        "{}",
        gone.stderr
    );
    bench.line("wafs checkpoint log end").good();
    assert_eq!(bench.line("wafs read log").good().text(), "");
    assert_eq!(bench.line("wafs tail log").good().text(), "");
    bench.line("wafs check log").good();
}

#[test]
fn a_log_is_not_made_over_something_and_nothing_over_a_log() {
    let bench = Bench::new();
    let missing = bench.line("wafs mkfs log").refused(1);
    assert!(missing.stderr.contains("-s SIZE"), "{}", missing.stderr);
    let small = bench.line("wafs mkfs -s 16k log").refused(1);
    assert!(
        small.stderr.contains("at least 24576") && !bench.path("log").exists(),
        "{}",
        small.stderr
    );
    bench.image("disk.img", "-s 1M");
    let refused = bench.line("wafs mkfs disk.img").refused(1);
    assert!(
        refused.stderr.contains("ext2") && refused.stderr.contains("--force"),
        "{}",
        refused.stderr
    );
    bench.line("info disk.img").good();
    bench.line("wafs mkfs --force disk.img").good();
    bench.line("wafs append disk.img one").good();
    let refused = bench.line("mkfs disk.img").refused(1);
    assert!(
        refused.stderr.contains("a write-ahead log"),
        "{}",
        refused.stderr
    );
    let refused = bench.line("ls disk.img:/").refused(1);
    assert!(
        refused.stderr.contains("wafs info disk.img"),
        "{}",
        refused.stderr
    );
    std::fs::write(bench.path("other"), vec![0; 100_000]).unwrap();
    let refused = bench.line("wafs read other").refused(1);
    assert!(refused.stderr.contains("wafs mkfs"), "{}", refused.stderr);
}

#[test]
fn a_full_log_says_what_helps() {
    let bench = Bench::new();
    bench.line("wafs mkfs -s 24k log").good();
    let lines: String = (0..1000).map(|i| format!("line {i}\n")).collect();
    std::fs::write(bench.path("lines"), lines).unwrap();
    let full = bench.shell("$BACKSTITCH wafs append log < lines > lsns || echo $?");
    assert!(
        full.text() == "1\n" && full.stderr.contains("--overwrite"),
        "{}",
        full.stderr
    );
    // What was said to be there is there.
    let lsns = std::fs::read_to_string(bench.path("lsns")).unwrap();
    assert_eq!(
        bench.line("wafs read log").good().text().lines().count(),
        lsns.lines().count()
    );
    bench.shell("$BACKSTITCH wafs append -q --overwrite log < lines");
    let kept = bench.line("wafs read log").good().text();
    assert!(kept.ends_with("line 998\nline 999\n") && kept.lines().count() > 200);
    bench.line("wafs check log").good();
}

#[test]
fn a_log_is_followed_while_it_is_written() {
    let bench = Bench::new();
    bench.line("wafs mkfs -s 1M log").good();
    bench.line("wafs append log before").good();
    let mut tail = start(&bench, &["wafs", "tail", "-n", "1", "-f", "log"]);
    let mut out = BufReader::new(tail.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "before\n");
    let mut append = start(&bench, &["wafs", "append", "--sync", "each", "log"]);
    let mut input = append.stdin.take().unwrap();
    for text in ["first\n", "second\n"] {
        input.write_all(text.as_bytes()).unwrap();
        line.clear();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, text);
    }
    // A second writer is kept out meanwhile, and told by whom.
    let busy = bench.line("wafs append log two").refused(1);
    assert!(busy.stderr.contains("in use by"), "{}", busy.stderr);
    drop(input);
    assert!(append.wait().unwrap().success());
    tail.kill().unwrap();
    tail.wait().unwrap();
}

#[test]
fn damage_is_told() {
    let bench = Bench::new();
    bench.line("wafs mkfs -s 1M log").good();
    bench.line("wafs append log one two three").good();
    let mut bytes = std::fs::read(bench.path("log")).unwrap();
    bytes[8192 + 48 + 41] ^= 1;
    std::fs::write(bench.path("log"), &bytes).unwrap();
    let report = bench.line("wafs check --json log");
    assert_eq!(report.code, 1);
    let damage = report.json()["damage"][0].as_str().unwrap().to_owned();
    assert!(
        damage.contains("LSN 48") && damage.contains("payload"),
        "{damage}"
    );
    let read = bench.line("wafs read log").refused(1);
    assert!(read.stderr.contains("LSN 48"), "{}", read.stderr);
}

/// A million records of a hundred bytes, with the writer killed at fifty moments: what it said is
/// there, nothing is torn, and nothing is there that was not appended.
#[test]
fn what_was_said_to_be_there_is_there_after_kills() {
    const RECORDS: u64 = 1_000_000;
    const KILLS: u64 = 50;
    let bench = Bench::new();
    bench.line("wafs mkfs -s 200M log").good();
    let text = |number: u64| format!("{number:099}\n");
    let (mut next, mut said) = (0_u64, Vec::<u64>::new());
    let mut rng = fastrand::Rng::with_seed(27);
    for kill in 0..=KILLS {
        let mut append = start(&bench, &["wafs", "append", "--sync", "500", "log"]);
        let mut input = append.stdin.take().unwrap();
        let mut out = append.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            text
        });
        // The last one brings the rest, and is not killed.
        let goal = if kill == KILLS {
            RECORDS
        } else {
            next + rng.u64(1..2 * RECORDS / KILLS)
        };
        let lines: String = (next..goal.min(RECORDS)).map(text).collect();
        let killer = (kill < KILLS).then(|| {
            let pid = append.id();
            let delay = Duration::from_micros(rng.u64(..30_000));
            std::thread::spawn(move || {
                std::thread::sleep(delay);
                let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            })
        });
        // A writer that was killed does not read on.
        let _ = input.write_all(lines.as_bytes());
        drop(input);
        if let Some(killer) = killer {
            killer.join().unwrap();
        }
        let status = append.wait().unwrap();
        assert!(kill < KILLS || status.success());
        // A line that the kill cut off was not said.
        let printed = reader.join().unwrap();
        let whole = printed
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        said.extend(whole.map(|line| line.parse::<u64>().unwrap()));
        // The numbers go on where the log ends.
        let tail = bench.line("wafs tail --raw -n 1 log").good().text();
        next = tail.trim().parse::<u64>().map_or(0, |last| last + 1);
        let info = bench.line("wafs info --json log").good().json();
        let end = info["end"].as_u64().unwrap();
        assert!(
            said.last().is_none_or(|lsn| *lsn < end),
            "kill {kill}: {:?}, {end}",
            said.last()
        );
    }
    assert_eq!(next, RECORDS);
    let report = bench.line("wafs check --json log").good().json();
    assert_eq!(report["records"], RECORDS);
    // Payloads are the lines without their ends: 99 bytes, 144 with header and padding.
    let read = bench.line("wafs read log").good().text();
    assert!(read.split_inclusive('\n').eq((0..RECORDS).map(text)));
    assert!(said.iter().all(|lsn| lsn % 144 == 0) && said.is_sorted());
    println!("{} of {RECORDS} records were said to be there", said.len());
}
