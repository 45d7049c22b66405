use super::*;
use backstitch_layout::Timestamp;

/// A new object without contents.
fn new(inode: u32, file_type: FileType) -> New {
    let now = Timestamp {
        seconds: 1,
        nanoseconds: 0,
    };
    New {
        attributes: Attributes {
            inode: InodeNumber(inode),
            generation: 7,
            file_type,
            permissions: 0o755,
            links: 1,
            uid: 0,
            gid: 0,
            device_number: 0,
            size_bytes: 0,
            sectors: 0,
            block_size_bytes: 1024,
            accessed: now,
            modified: now,
            changed: now,
            created: None,
            flags: 0,
        },
        xattrs: Vec::new(),
        target: Vec::new(),
        contents: Contents::default(),
    }
}

/// What a crash left: a root with a directory that has the names `old` and `new`, and a file with
/// two names, all of it on stable storage.
fn with_second_names() -> (Model, ObjectId, ObjectId) {
    let mut model = Model::default();
    assert_eq!(model.add(new(2, FileType::Directory), None), ROOT);
    let directory = model.add(new(12, FileType::Directory), None);
    let file = model.add(new(13, FileType::Regular), None);
    for name in [b"old", b"new"] {
        model.enter(ROOT, name, directory);
    }
    for name in [b"f", b"g"] {
        model.enter(ROOT, name, file);
    }
    model.promise_all();
    (model, directory, file)
}

/// What a crash may leave at a name of the root.
fn allowed<'m>(model: &'m Model, name: &[u8]) -> &'m [Option<ObjectId>] {
    model.objects[ROOT].entries[name].allowed()
}

#[test]
fn one_of_a_directorys_names_stays_and_all_of_a_files() {
    let (mut model, directory, file) = with_second_names();
    let missing = ["f", "new", "old"].map(|name| name.as_bytes().to_vec());
    model.settle_names(ROOT, &missing);
    assert_eq!(allowed(&model, b"f"), [Some(file)]);
    assert_eq!(allowed(&model, b"new"), [Some(directory), None]);
    assert_eq!(allowed(&model, b"old"), [Some(directory)]);
}

#[test]
fn a_removed_directory_is_gone_from_a_name_that_was_taken_away() {
    let (mut model, directory, _) = with_second_names();
    model.settle_names(ROOT, &[b"old".to_vec()]);
    // Nobody has waited for the removal.
    model.promise_metadata();
    assert_eq!(allowed(&model, b"old"), [Some(directory), None]);
    model.remove(ROOT, b"new");
    assert_eq!(allowed(&model, b"new"), [Some(directory), None]);
    // Somebody has waited for the removal.
    model.promise_metadata();
    for name in [b"old", b"new"] {
        assert_eq!(allowed(&model, name), [None]);
    }
}

#[test]
fn a_version_is_given_blocks_until_the_file_is_flushed() {
    let mut model = Model::default();
    model.add(new(2, FileType::Directory), None);
    let file = model.add(new(12, FileType::Regular), None);
    model.enter(ROOT, b"f", file);
    let mut contents = Contents::default();
    contents.write(0, &[1; 1500]);
    model.set_contents(file, contents.clone());
    let version = model.newest_version(file);
    // The file grows in steps: the blocks are there from the first one on.
    contents.write(0, &[1; 1024]);
    model.note_step(file, contents);
    model.note_places(file, version, BTreeMap::from([(0, 70), (1, 71)]));
    let given = |model: &Model| {
        let object = model.object(file);
        (0..3).map(|version| object.was_given(1, version)).collect()
    };
    let all: Vec<bool> = given(&model);
    assert_eq!(all, [false, true, true]);
    model.promise(file, true);
    let all: Vec<bool> = given(&model);
    assert_eq!(all, [false; 3]);
}

/// A file was truncated within its block, then made longer. It had the block all along, so it shows
/// nothing of what was cut off.
#[test]
fn no_version_was_given_a_block_that_the_file_had() {
    let mut model = Model::default();
    model.add(new(2, FileType::Directory), None);
    let file = model.add(new(12, FileType::Regular), None);
    model.enter(ROOT, b"f", file);
    let places = BTreeMap::from([(0, 70), (1, 71)]);
    let mut contents = Contents::default();
    contents.write(0, &[1; 2048]);
    model.set_contents(file, contents.clone());
    model.note_places(file, model.newest_version(file), places.clone());
    model.promise_all();
    for len in [1500, 4096] {
        contents.resize(len);
        model.set_contents(file, contents.clone());
        model.note_places(file, model.newest_version(file), places.clone());
    }
    let object = model.object(file);
    assert!((0..3).all(|version| !object.was_given(1, version)));
}

/// A file's name was taken by another file while it was in memory only. Once the first file is on
/// stable storage, the name is not its own, and may not exist at all.
#[test]
fn a_name_that_was_never_there_need_not_be_there_for_another_one() {
    let mut model = Model::default();
    model.add(new(2, FileType::Directory), None);
    let [file, other] = [12, 13].map(|inode| model.add(new(inode, FileType::Regular), None));
    model.enter(ROOT, b"f", file);
    model.promise_all();
    model.enter(ROOT, b"g", file);
    model.enter(ROOT, b"g", other);
    assert_eq!(allowed(&model, b"g"), [None, Some(file), Some(other)]);
    model.promise(file, false);
    assert_eq!(allowed(&model, b"g"), [None, None, Some(other)]);
}
