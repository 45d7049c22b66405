//! How much of what finds nothing is explored. The tests that plant an error, or switch a rule off,
//! search until they find it. The others look at states in which nothing is wrong: a part of them
//! in each run, and all with `BACKSTITCH_EFFORT=4`, as in `make soak` (part `canaries`).

/// Quarters of the states and workloads: 1 to 4.
fn quarters() -> usize {
    let said = std::env::var("BACKSTITCH_EFFORT");
    let quarters: usize = said.map_or(1, |text| text.parse().expect("a number of quarters"));
    quarters.clamp(1, 4)
}

/// A bound on states, of which all are asked for in a soak.
pub(crate) fn bound(all: u64) -> u64 {
    all * quarters() as u64 / 4
}

/// A part of the workloads. Each number has another quarter: those who number their mechanisms have
/// all workloads between them.
pub(crate) fn part<T>(all: Vec<T>, number: usize) -> Vec<T> {
    let (quarters, all) = (quarters(), all.into_iter().enumerate());
    let is_in = |at: usize| (at + number) % 4 < quarters;
    all.filter(|(at, _)| is_in(*at))
        .map(|(_, one)| one)
        .collect()
}
