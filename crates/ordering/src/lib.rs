//! placeholder: consistency mechanisms.

/// placeholder
pub struct Volume;
