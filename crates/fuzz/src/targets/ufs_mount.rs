//! A mount of a damaged UFS: what [`mount`] does, with images of its own.

use super::mount;
use crate::Input;
use crate::base::{Base, ufs};

/// As in [`mount`].
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    mount::of_base(Base::chosen_of(ufs::all(), &mut input), &mut input);
}
