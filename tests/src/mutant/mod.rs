//! Mutants: images that are damaged in every way that a seed can think of, repaired by us and by
//! e2fsck, and compared.
//!
//! A [`Kind`](base::Kind) says how an image is made; [`Base`](base::Base) is such an image with the
//! list of what is in it; [`damage`](damage::damage) changes a copy by the structure of the image;
//! [`judge`](judge::Bench::judge) has one copy repaired by `backstitch fsck -y` and another by
//! `e2fsck -fy`, walks both with a [reader](volume) that belongs to neither, and says what we kept
//! less, refused, or called clean without its being so.

pub mod atlas;
pub mod base;
pub mod child;
pub mod contents;
pub mod damage;
pub mod judge;
pub mod place;
pub mod volume;
pub mod walk;
