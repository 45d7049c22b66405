//! The library from C and from Python.

use super::*;

/// Where cargo puts the libraries that it builds.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

#[test]
fn a_c_program_uses_groups_with_the_static_library_and_the_shared_one() {
    c_program_with("libpatchgroup.a");
    c_program_with("libpatchgroup.so");
}

fn c_program_with(library: &str) {
    let Some(bench) = Bench::new() else { return };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("groups");
    let library = libraries().join(library);
    let built = Command::new("cc")
        .args(["-Wall", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(here.join("tests/groups.c"))
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", libraries().display()))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .status();
    match built {
        Ok(status) => assert!(status.success(), "cc with {}", library.display()),
        Err(error) => {
            eprintln!("skipped: cc: {error} (Debian package gcc)");
            return bench.end();
        }
    }
    let done = Command::new(&program)
        .current_dir(bench.dir.path())
        .status();
    assert!(done.unwrap().success());
    // It wrote "new", then "flag", and synced that; what it did last it did not sync.
    assert_eq!(bench.after_a_crash("new").unwrap(), b"contents");
    assert!(bench.after_a_crash("flag").is_some());
    assert_eq!(bench.after_a_crash("apart/last"), None);
    bench.end();
}

#[test]
fn a_python_program_uses_groups_and_maps_a_file() {
    let Some(bench) = Bench::new() else { return };
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let script = "
import mmap, os, patchgroup
with open('map', 'wb') as f:
    f.write(bytes(8192))
first, second = patchgroup.Group('.'), patchgroup.Group('.')
assert first.supported and patchgroup.supported('.')
with first:
    fd = os.open('map', os.O_RDWR)
    with mmap.mmap(fd, 8192) as m:
        m[0:5] = b'first'
    os.close(fd)
second.depend(first)
with second:
    open('flag', 'w').close()
try:
    first.engage()
    raise SystemExit('a sealed group was engaged')
except OSError as error:
    assert error.errno == 22
second.sync()
assert first.durable and second.durable
";
    let done = Command::new("python3")
        .args(["-c", script])
        .env("PYTHONPATH", module)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(bench.dir.path())
        .status();
    match done {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            eprintln!("skipped: python3: {error}");
            return bench.end();
        }
    }
    assert_eq!(&bench.after_a_crash("map").unwrap()[..5], b"first");
    assert!(bench.after_a_crash("flag").is_some());
    bench.end();
}
