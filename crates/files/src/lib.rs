//! Files of images, without a mount: the commands that read and change them, and what every
//! command needs to open an image and to print.
//!
//! Code that names, opens or shows an image or a file in one belongs here: errors as one line
//! ([`error`]), sizes ([`size`]), the meaning of an image's name ([`named`], [`mounted`]), images
//! opened in process ([`image`]), foreign formats ([`foreign`]), walks through images (`walk`, with
//! `pattern`s), the paths of an image ([`listing`]), trees on either side of a copy ([`tree`]), tables
//! and times ([`show`]), permissions and times in text (`mode`, `time`), and the [`commands`] on files, a module each (`ls`, `cat`,
//! `cp`, `find`, …). A command that works on an image as a whole (`mkfs`, `fsck`), on a mount, or
//! runs experiments (`crash`, `bench`) belongs in the `cli` crate, which depends on this one and
//! adds the command line.
//!
//! It depends on `vfs` for the open file system and on `formats` and `mechanisms` for their
//! registries; it knows neither FUSE nor a layout by name.

pub mod base64;
pub mod commands;
pub mod error;
pub mod foreign;
pub mod image;
pub mod interrupt;
pub mod listing;
mod mode;
pub mod mounted;
pub mod named;
pub mod paths;
mod pattern;
pub mod show;
pub mod size;
mod time;
pub mod tree;
mod walk;
