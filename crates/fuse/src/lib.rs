//! placeholder: the FUSE front.
