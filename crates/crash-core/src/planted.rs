//! Errors that a test plants, to see that the explorer finds them. This module plants those of the
//! patch graph; the layout's are planted in its own crate.

use std::cell::Cell;

use backstitch_patch::{Graph, Planted};

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Breaks one rule of every graph that this thread makes from now on. `None` ends that.
pub fn plant(error: Option<Planted>) {
    PLANTED.set(error);
}

pub(crate) fn plant_into(graph: &mut Graph) {
    if let Some(error) = PLANTED.get() {
        graph.plant(error);
    }
}
