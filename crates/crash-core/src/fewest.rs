//! The smallest part of a failure's list that still fails.

/// The smallest part of a list that still fails: Zeller's ddmin, by taking out ever smaller pieces.
///
/// # Errors
/// The first that `fails` has.
pub fn fewest<E>(
    list: &[u32],
    fails: &mut dyn FnMut(&[u32]) -> Result<bool, E>,
) -> Result<Vec<u32>, E> {
    let mut list = list.to_vec();
    let mut piece = list.len();
    while piece > 0 && !list.is_empty() {
        let mut at = 0;
        while at < list.len() {
            let end = (at + piece).min(list.len());
            let rest: Vec<u32> = [&list[..at], &list[end..]].concat();
            match fails(&rest)? {
                true => list = rest,
                false => at = end,
            }
        }
        piece = match piece {
            1 => 0,
            piece => piece.min(list.len()).div_ceil(2),
        };
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_few_that_matter() {
        let list: Vec<u32> = (0..100).collect();
        let mut asked = 0;
        let found = fewest(&list, &mut |part| {
            asked += 1;
            Ok(part.contains(&17) && part.contains(&64))
        });
        let found: Result<Vec<u32>, ()> = found;
        assert_eq!(found, Ok(vec![17, 64]));
        assert!(asked < 60, "{asked}");
        let always = fewest::<()>(&list, &mut |_| Ok(true));
        assert_eq!(always, Ok(Vec::new()));
        assert_eq!(fewest::<()>(&[], &mut |_| Ok(false)), Ok(Vec::new()));
    }
}
