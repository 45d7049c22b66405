//! A page that shows a trace of patches in a browser: when what happened, the graph at each moment,
//! what patches change in a block, and answers to questions in words.
//!
//! | module | what |
//! |---|---|
//! | [`Answers`] | what the page asks for, as JSON |
//! | [`Judge`] | what they ask of somebody who knows file systems |
//! | [`Live`] | the same of a mount that is being recorded |
//! | [`Server`] | hands it out, on the loopback address, to those who have the token |
//!
//! Nothing that is asked, and nothing that a trace has, makes it fail; and no answer is without a
//! bound, neither in its length nor, for a trace of a given length, in its time.

mod answers;
mod connections;
mod live;
mod query;
mod server;
mod states;
mod steps;

pub use answers::{Answering, Answers, Reply};
pub use live::Live;
pub use server::Server;
pub use states::{Devices, Judge, Judgement};
