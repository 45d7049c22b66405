//! Without patchgroups the same calls keep the order by waiting.

use super::*;

#[test]
fn elsewhere_the_same_calls_keep_the_order_by_waiting() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!supported(dir.path()));
    let (one, other) = (
        Group::create_in(dir.path()).unwrap(),
        Group::create_in(dir.path()).unwrap(),
    );
    assert!(!one.is_supported());
    one.engage().unwrap();
    fs::write(dir.path().join("a"), "a").unwrap();
    one.disengage().unwrap();
    other.depend(&one).unwrap();
    other.sync().unwrap();
    assert!(!other.is_durable().unwrap());
    assert!(is_readable(&other.notify().unwrap(), 0));
    assert_eq!(other.linear().unwrap_err().raw_os_error(), Some(95));
}

/// What is written under the first of two groups is on the disk once the second depends on it: no
/// patchgroup keeps the order here.
const BY_WAITING: &str = "
import patchgroup
assert not patchgroup.supported('.')
first, second = patchgroup.Group('.'), patchgroup.Group('.')
assert not first.supported
with first:
    open('apart/first', 'w').write('first')
second.depend(first)
with second:
    open('apart/second', 'w').close()
";

fn python_by_waiting(bench: &Bench, command: &[&str]) {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let done = Command::new(command[0])
        .args(&command[1..])
        .args(["-c", BY_WAITING])
        .env("PYTHONPATH", module)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(bench.dir.path())
        .status();
    assert!(done.unwrap().success());
    assert_eq!(bench.after_a_crash("apart/first").unwrap(), b"first");
}

/// The same in this process, with the library.
fn library_by_waiting(bench: &Bench) {
    let (first, second) = (bench.group(), bench.group());
    first.engage().unwrap();
    fs::write(bench.path("apart/third"), b"third").unwrap();
    first.disengage().unwrap();
    second.depend(&first).unwrap();
    assert_eq!(bench.after_a_crash("apart/third").unwrap(), b"third");
}

#[test]
fn where_the_kernel_gathers_writes_order_is_kept_by_waiting() {
    let front = FrontOptions {
        writeback_cache: true,
        ..FrontOptions::default()
    };
    let Some(bench) = Bench::under(Ordering::SOFT, &front) else {
        return;
    };
    assert!(!supported(bench.dir.path()));
    library_by_waiting(&bench);
    python_by_waiting(&bench, &["python3"]);
    bench.end();
}

#[test]
fn in_another_network_s_container_order_is_kept_by_waiting() {
    let Some(bench) = Bench::new() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes network namespaces");
        return bench.end();
    }
    python_by_waiting(&bench, &["unshare", "--net", "python3"]);
    bench.end();
}
