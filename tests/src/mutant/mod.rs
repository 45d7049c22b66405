//! Mutants: images damaged at random, repaired by us and by e2fsck, and compared.
//!
//! A [`Kind`](base::Kind) says how an image is made. [`Base`](base::Base) is such an image with the
//! list of what is in it. [`damage`](damage::damage) changes a copy according to the structure of
//! the image. [`judge`](judge::Bench::judge) repairs one copy by `backstitch fsck -y` and another
//! by `e2fsck -fy`, walks both with an independent [reader](volume), and says where we kept less,
//! refused, or called something clean that is not.

pub mod atlas;
pub mod base;
pub mod child;
pub mod contents;
pub mod damage;
pub mod judge;
pub mod place;
pub mod volume;
pub mod walk;
