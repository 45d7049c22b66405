//! The crash-state explorer: every state that a crash can leave, not the one that was tried.

pub mod ace;
pub mod app;
mod campaign;
mod closed;
mod describe;
mod explore;
mod foreign;
mod frontier;
pub mod generate;
mod image;
mod judge;
mod machine;
mod model;
mod mount;
mod operation;
#[cfg(feature = "planted-errors")]
pub mod planted;
mod promises;
mod replay;
pub mod report;
pub mod schedule;
mod summary;

pub use ace::Workload;
pub use campaign::{Campaign, CampaignError, Failure, ImageOptions, NoObserver, Observer, Results};
pub use explore::Schedule;
pub use foreign::Foreign;
pub use image::{Fork, ForkDevice};
pub use operation::{BadOperation, Data, Operation, Path, parse_script, script};
pub use summary::{ReplayError, Replayed};
