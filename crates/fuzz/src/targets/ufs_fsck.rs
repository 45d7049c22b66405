//! The check and the repair of a damaged UFS: what [`fsck`] does, with images of its own.

use super::fsck;
use crate::Input;
use crate::base::{Base, ufs};

/// As in [`fsck`].
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    fsck::of_base(Base::chosen_of(ufs::all(), &mut input), &mut input);
}
