//! What a patch costs in memory.

use backstitch_patch::Graph;

/// A patch with two dependencies on a block of its own, the growth of the tables left out.
#[test]
fn a_patch_with_two_dependencies_takes_at_most_160_bytes() {
    let [patch, edge, block] = Graph::unit_bytes();
    println!("patch {patch}, edge {edge}, block {block} bytes");
    assert!(patch + 2 * edge + block <= 160);
}
