//! The switches of the paper's optimisations.

/// Which of the paper's optimisations are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimisations {
    /// Hard patches: no undo data where nothing can force a patch back (§4.1), with at most one
    /// hard patch for each block, and soft-to-hard conversion (§4.2).
    pub hard: bool,
    /// Overlap merging, and that of bits (§4.3).
    pub merge: bool,
}

impl Optimisations {
    /// Everything on.
    pub const BOTH: Optimisations = Optimisations {
        hard: true,
        merge: true,
    };
    /// Everything off: one patch a change, undo data for each.
    pub const NONE: Optimisations = Optimisations {
        hard: false,
        merge: false,
    };
}

impl std::str::FromStr for Optimisations {
    type Err = UnknownOptimisations;

    /// Reads the names of the paper's rows: `none`, `hard`, `merge`, `both`.
    fn from_str(text: &str) -> Result<Self, UnknownOptimisations> {
        let (hard, merge) = match text {
            "none" => (false, false),
            "hard" => (true, false),
            "merge" => (false, true),
            "both" => (true, true),
            _ => return Err(UnknownOptimisations),
        };
        Ok(Optimisations { hard, merge })
    }
}

impl std::fmt::Display for Optimisations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.hard, self.merge) {
            (false, false) => "none",
            (true, false) => "hard",
            (false, true) => "merge",
            (true, true) => "both",
        })
    }
}

/// A word that names no optimisations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such optimisations: none, hard, merge or both")]
pub struct UnknownOptimisations;

impl Default for Optimisations {
    fn default() -> Self {
        Optimisations::BOTH
    }
}
