//! The commands on files of an image, a module each: `Args` is the command line, `run` does it.

pub mod cat;
pub mod chmod;
pub mod chown;
pub mod cp;
pub mod df;
pub mod du;
pub mod find;
pub mod ln;
pub mod ls;
pub mod mkdir;
pub mod mv;
pub mod rm;
pub mod stat;
pub mod touch;
pub mod xattr;
