//! placeholder: the engine that fronts share.
