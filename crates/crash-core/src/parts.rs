//! Which blocks of a batch on its way have arrived.

use fastrand::Rng as Random;

/// Up to this many blocks, besides contents, every combination of a batch is tried.
const ALL_SUBSETS: usize = 8;

/// The parts of a batch that a crash may leave, each as a list of which blocks have arrived; and
/// whether these are all. `contents` says which blocks are files' contents. Of those not every
/// combination is taken: with each combination of the others come none, all, all but each one, and
/// each one alone.
pub fn parts(contents: &[bool], samples: usize, random: &mut Random) -> (Vec<Vec<bool>>, bool) {
    let (data, rest): (Vec<usize>, Vec<usize>) =
        (0..contents.len()).partition(|block| contents[*block]);
    let mut parts = Vec::new();
    if rest.len() <= ALL_SUBSETS {
        for set in 0..1u32 << rest.len() {
            let mut arrived = vec![false; contents.len()];
            for (bit, block) in rest.iter().enumerate() {
                arrived[*block] = set & (1 << bit) != 0;
            }
            with_contents(&data, &arrived, &mut parts);
        }
        return (parts, true);
    }
    for one in 0..contents.len() {
        for arrived in [true, false] {
            parts.push(
                (0..contents.len())
                    .map(|at| (at == one) == arrived)
                    .collect(),
            );
        }
    }
    for _ in 0..samples {
        parts.push((0..contents.len()).map(|_| random.bool()).collect());
    }
    (parts, false)
}

fn with_contents(data: &[usize], arrived: &[bool], parts: &mut Vec<Vec<bool>>) {
    let with = |there: &dyn Fn(usize) -> bool| {
        let mut arrived = arrived.to_vec();
        data.iter()
            .for_each(|block| arrived[*block] = there(*block));
        arrived
    };
    parts.push(with(&|_| false));
    if !data.is_empty() {
        parts.push(with(&|_| true));
    }
    if data.len() > 1 {
        for one in data {
            parts.push(with(&|block| block == *one));
            parts.push(with(&|block| block != *one));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_part_of_a_small_batch() {
        let (found, complete) = parts(&[false; 5], 0, &mut Random::with_seed(1));
        assert!(complete);
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 32);
        let (found, complete) = parts(
            &[true, false, true, true, false],
            0,
            &mut Random::with_seed(1),
        );
        assert!(complete);
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 4 * 8);
    }

    #[test]
    fn a_large_batch_is_sampled() {
        let (found, complete) = parts(&[false; 20], 30, &mut Random::with_seed(1));
        assert!(!complete);
        assert!(found.len() > 60);
    }
}
