//! Figure 3 of "Generalized File System Dependencies" (Frost et al., SOSP 2007): the patches that
//! four writes of 4 kB at the end of an existing empty file take, without and with the
//! optimisations. The paper: 23 patches and about 33,000 bytes of undo data without, 8 patches and
//! none with. `--nocapture` prints the graphs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::crash::Machine;
use backstitch_mechanisms::Ordering;
use backstitch_store::{Change, Event, Hook, Optimisations, PatchId, PatchKind};

const BLOCK: u32 = 4096;
const WRITES: u64 = 4;

/// Notes which bytes went into which patch.
#[derive(Default)]
struct Bytes(Arc<Mutex<HashMap<PatchId, Vec<String>>>>);

fn describe(change: &Change<'_>) -> String {
    match change {
        Change::Bytes {
            offset_bytes,
            bytes,
        } => format!("{offset_bytes}+{}", bytes.len()),
        Change::Flip { offset_bytes, mask } => format!("{offset_bytes}^{mask:#x}"),
    }
}

impl Hook for Bytes {
    fn event(&mut self, event: &Event<'_>) {
        let mut bytes = self.0.lock().unwrap();
        match event {
            Event::Create { id, change, .. } => {
                let text = change.iter().map(describe).collect();
                bytes.insert(*id, text);
            }
            Event::Merge { into, change, .. } => {
                bytes.entry(*into).or_default().push(describe(change));
            }
            Event::Forward { from, to } => {
                let moved = bytes.remove(from).unwrap_or_default();
                bytes.entry(*to).or_default().extend(moved);
            }
            _ => {}
        }
    }
}

struct Figure {
    /// Per patch: what its block is.
    blocks: Vec<String>,
    undo_bytes: u64,
}

/// What a block of a new image with one group is.
fn name_of(image: &[u8], block: u64) -> String {
    let field = |offset: usize| {
        let bytes = image[BLOCK as usize + offset..][..4].try_into().unwrap();
        u64::from(u32::from_le_bytes(bytes))
    };
    let (block_bitmap, inode_bitmap, inode_table) = (field(0), field(4), field(8));
    match block {
        0 => "superblock".into(),
        1 => "group descriptors".into(),
        b if b == block_bitmap => "block bitmap".into(),
        b if b == inode_bitmap => "inode bitmap".into(),
        b if b >= inode_table && b < inode_table + 16 => "inodes".into(),
        b => format!("data {b}"),
    }
}

fn figure(optimisations: Optimisations) -> Figure {
    let mut machine = Machine::new(Ordering::SOFT, BLOCK, optimisations);
    let root = machine.fs.root();
    let file = machine.make(root, "file");
    machine.drain();
    let bytes = Bytes::default();
    let seen = bytes.0.clone();
    machine.store.graph_mut().set_hook(Some(Box::new(bytes)));
    for i in 0..WRITES {
        let data = [b'd'; BLOCK as usize];
        let written = machine
            .run(|fs, v, now| fs.write(v, file, i * u64::from(BLOCK), &data, now))
            .unwrap();
        assert_eq!(written as u64, u64::from(BLOCK));
    }
    print(&machine, optimisations, &seen.lock().unwrap())
}

fn print(
    machine: &Machine,
    optimisations: Optimisations,
    bytes: &HashMap<PatchId, Vec<String>>,
) -> Figure {
    let image = machine.memory.snapshot();
    let graph = machine.store.graph();
    let mut patches = Vec::new();
    machine.store.uncommitted(&mut patches);
    patches.retain(|p| graph.info(*p).unwrap().kind != PatchKind::Empty);
    patches.sort();
    patches.dedup();
    let number = |p: &PatchId| patches.iter().position(|q| q == p);
    let mut blocks = Vec::new();
    println!("opt={optimisations}");
    for (i, patch) in patches.iter().enumerate() {
        let info = graph.info(*patch).unwrap();
        let name = match info.block {
            Some(block) => name_of(&image, machine.store.place_of(block).1),
            None => "contents".into(),
        };
        let on: Vec<String> = graph
            .dependencies(*patch)
            .iter()
            .map(|(d, _)| number(d).map_or("empty".into(), |n| n.to_string()))
            .collect();
        let (kind, what) = (format!("{:?}", info.kind), bytes[patch].join(" "));
        println!("{i:3} {kind:5} {name:18} {what:40} after {on:?}");
        blocks.push(name);
    }
    let undo_bytes = graph.counters().undo_bytes_live;
    println!("{} patches, {undo_bytes} bytes of undo data", blocks.len());
    Figure { blocks, undo_bytes }
}

/// Three patches, all hard:
/// * one on the inode's block: the four pointers, sizes, block counts and times, which the paper
///   has as i and i' patches. They are one field range of the inode (bytes 4 to 40 and on, up to
///   the pointer), waiting for the bits and the data;
/// * one on the block bitmap: the four bits (b);
/// * one for the contents of the four data blocks, where the paper has one on each (d): they wait
///   for nothing, and the inode's patch waits for all of them. A block that is written whole is not
///   first initialised with zeros (d').
///
/// The paper's other two, on the group descriptor and the superblock (g and s), are not there:
/// nothing waits for those counters, and the layout puts them onto the disk when it is asked to
/// sync all, or unmounted.
#[test]
fn four_appended_blocks_take_eight_patches() {
    let figure = figure(Optimisations::BOTH);
    assert!(figure.blocks.len() <= 8);
    assert_eq!(figure.undo_bytes, 0);
    for block in ["inodes", "block bitmap", "contents"] {
        assert_eq!(figure.blocks.iter().filter(|b| *b == block).count(), 1);
    }
}

/// Twelve patches instead of the paper's 23: per write one bit (b), the data (d) and one range of
/// the inode (i and i' at once); the paper's naive file system also initialises each data block
/// (d'), has two or three patches a write on the inode, and writes the counters g and s. The undo
/// data is that of the four data blocks, and of the inode; the paper's 33,000 bytes are those of d
/// and d'.
#[test]
fn without_optimisations_they_take_many_more() {
    let figure = figure(Optimisations::NONE);
    assert!(figure.blocks.len() >= 12);
    assert!(figure.undo_bytes >= 4 * u64::from(BLOCK));
}
