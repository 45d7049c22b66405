//! How the engine of a run writes back.

/// When the engine writes what the workload does not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Never: everything stays in memory, and no deferred work is done, unless the workload asks
    /// for it.
    Nothing,
    /// Everything after each operation.
    Everything,
    /// Some of it after some operations, as the seed has it.
    Partial,
}

impl Schedule {
    /// All of them.
    pub const ALL: [Schedule; 3] = [Schedule::Nothing, Schedule::Everything, Schedule::Partial];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Nothing => "nothing",
            Schedule::Everything => "everything",
            Schedule::Partial => "partial",
        }
    }
}
