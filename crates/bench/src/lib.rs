//! Workloads, and what they cost.
//!
//! A [`Workload`] is a list of file operations drawn from a seed. It runs through [`files::Files`],
//! which has three implementations: the engine in this process, over a device in memory or an image;
//! the same over a simulated disk in virtual time (`machine`); and system calls on any directory.
//! [`measure()`] makes a new file system and a new engine for a run, counts what the run did and
//! what it took, and returns a [`Run`].
//!
//! The crate depends on `vfs`, `formats` (to make images and to check them), `session` and `drives`
//! (for virtual time) and what is below them. `papers` and `cli` depend on it.
//!
//! # Invariants
//!
//! * Everything that a workload does is drawn from its seed before the measurement starts. What is
//!   written comes from one buffer made beforehand, so that making data is not part of what is
//!   measured.
//! * A run measures from the first operation to the return of the final sync, nothing before and
//!   nothing after: making and mounting the image, preparing (the tree that `delete` removes),
//!   unmounting and checking are outside.
//! * Counters are differences over that interval. Peaks are those of the engine, which is new for
//!   every run.
//! * Runs of several mechanisms are interleaved, so that a host that gets slower or faster does not
//!   favour one of them.

mod client;
mod cold;
mod contents;
mod costs;
mod disk;
mod error;
mod figures;
pub mod files;
mod image;
mod machine;
mod measure;
pub mod paper;
mod plot;
mod random;
mod record;
mod recovery;
mod report;
mod series;
mod table;
mod trace_plot;
mod tree;
mod workload;

pub use backstitch_drives::{DriveSpec, Policy, write_json_lines};
pub use client::{Call, Clients};
pub use costs::{Costs, measure_costs};
pub use disk::{Disk, DiskOptions, QueueOrder, REFERENCE_HOST};
pub use error::{Error, Result};
pub use figures::{CpuTime, EngineFigures, Phase, Run};
pub use image::{IMAGE_UUID, JOURNAL_UUID, can_make};
pub use measure::{Spec, Target, measure};
pub use plot::{plot_optimisations, plot_runs};
pub use recovery::{RecoveryFigures, RecoverySpec, measure_recovery};
pub use report::document;
pub use series::{Series, client_specs, imap_specs, micro_specs, optimisation_specs, run_series};
pub use table::{
    imap_table, micro_table, optimisation_tables, recovery_table, run_line, run_table, thousands,
};
pub use trace_plot::plot_traces;
pub use workload::{ImapVariant, Scale, Workload};
