//! Errors that a test plants to see that the explorer finds them: those of the patch graph here,
//! those of the layout in its crate.

use std::cell::Cell;

use backstitch_patch::{Graph, Planted};

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Breaks one rule of every graph that this thread makes from now on; none with `None`.
pub fn plant(error: Option<Planted>) {
    PLANTED.set(error);
}

pub(crate) fn plant_into(graph: &mut Graph) {
    if let Some(error) = PLANTED.get() {
        graph.plant(error);
    }
}
