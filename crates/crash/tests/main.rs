//! The tests of this crate, in one executable: each file of this directory is a module of it.

mod ablate;
mod canaries;
mod cases;
mod drives;
mod effort;
mod graph;
mod groups;
mod guided;
mod journal_canaries;
mod journal_steps;
mod lffs;
mod nested;
mod seals;
mod torn;
#[path = "toy/main.rs"]
mod toy;
mod ufs;
mod ufs_entries;
mod ufs_log;
mod ufs_places;
mod ufs_tails;
mod ufs_use;
mod without_log;
