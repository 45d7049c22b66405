//! Traces of patches: what waits for what, live and afterwards (Frost et al., SOSP 2007, §4.5).
//!
//! A [`Recorder`] is a watcher of a store. It writes down every event of the patch graph, with the
//! operation that it belongs to, and every batch and flush, in the format of `docs/FORMAT.md`. A
//! [`Trace`] reads that; a [`State`] is the graph at a moment of it, which follows from the records
//! up to there. The rest asks questions of the two:
//!
//! | module | what |
//! |---|---|
//! | [`graph`] | the graph at a moment as nodes and edges; dot and SVG |
//! | [`picture`] | boxes and arrows as SVG, which other pictures of the graph are made of too |
//! | [`show`] | the records as lines, those that are asked for |
//! | [`stats`] | tables over a trace |
//! | [`index`] | any moment without reading from the beginning, and what happened when |
//! | [`why`] | answers in words: what something waits for, what a crash can leave |
//! | [`replay`] | the writes again, onto another device |
//!
//! The crate is beside the mounts, not below them: it depends on `store` and what is below that.
//! Nothing that is read is trusted: a trace that was damaged, or made to harm, is an [`Error`].

mod areas;
mod codec;
mod error;
mod file;
pub mod graph;
pub mod index;
mod markup;
mod moment;
mod names;
pub mod picture;
pub mod record;
mod recorder;
pub mod replay;
pub mod show;
mod state;
pub mod stats;
mod svg;
pub mod why;

pub use areas::Area;
pub use error::{Damage, Error, RecordingError, Written};
pub use file::{
    CHUNK_HEAD_BYTES, CHUNK_MAGIC, HEAD_BYTES, MAGIC, Records, Trace, VERSION, WITH_CONTENTS,
};
pub use moment::{Moment, state_at, walk_to};
pub use names::normal_path;
pub use record::Record;
pub use recorder::{Recorder, Recording};
pub use state::{Keep, Part, Patch, Scope, Standing, State};
