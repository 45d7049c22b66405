//! The crash-state explorer: every state that a crash can leave, not the one that was tried.

pub mod report;
pub mod schedule;
