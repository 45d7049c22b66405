//! A state: a moment, and what of its epoch is on the disk; and its name, by which it is replayed.

use crate::error::{ScheduleError, ScheduleResult};
use crate::recording::{Moment, Recording};
use std::fmt::{self, Write};

/// Which of a moment's optional changes are on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Variant {
    /// The changes that are there: positions in [`Recording::optional`], in the order in which they
    /// reached the disk.
    pub kept: Vec<u32>,
    /// The torn ones among them, ascending by position, each with the sectors that are there.
    pub torn: Vec<(u32, Vec<bool>)>,
}

/// A change as it reached the disk.
pub(crate) struct Step<'a> {
    /// An index into [`Recording::changes`].
    pub(crate) change: usize,
    /// The sectors that are there; `None` if all are.
    pub(crate) mask: Option<&'a [bool]>,
}

impl Variant {
    /// The state with these changes, in the log's order, none of them torn.
    pub fn of(kept: Vec<u32>) -> Self {
        let torn = Vec::new();
        Self { kept, torn }
    }

    /// Whether changes reached the disk in another order than the log's.
    pub fn is_reordered(&self) -> bool {
        !self.kept.is_sorted()
    }

    /// The sectors of a kept change that are there; `None` if all are.
    pub fn mask(&self, position: u32) -> Option<&[bool]> {
        let found = self.torn.binary_search_by_key(&position, |(torn, _)| *torn);
        found.ok().map(|at| self.torn[at].1.as_slice())
    }

    /// The changes in the order in which they reached the disk, including the FUA writes, at their
    /// places.
    pub(crate) fn steps(&self, recording: &Recording, moment: &Moment) -> Vec<Step<'_>> {
        let optional = recording.optional(moment);
        let segments = recording.segments(moment, &optional);
        let is_optional = |index: usize| optional.binary_search(&index).is_ok();
        let mut fua = (moment.stable..moment.end).filter(|&index| !is_optional(index));
        let mut steps = Vec::with_capacity(self.kept.len());
        let mut passed = 0;
        for &position in &self.kept {
            let segment = segments[position as usize];
            while passed < segment
                && let Some(change) = fua.next()
            {
                steps.push(Step { change, mask: None });
                passed += 1;
            }
            steps.push(Step {
                change: optional[position as usize],
                mask: self.mask(position),
            });
        }
        steps.extend(fua.map(|change| Step { change, mask: None }));
        steps
    }
}

/// A state with its name, `CUT:HEX`. Bit n of HEX, counted from the lowest bit of its first digit,
/// says whether the n-th of the changes that may be missing is there. `CUTi` means that the FUA
/// write before the cut is in flight. `,o=3.1` gives an order other than the log's. `,t=3/HEX` says
/// which sectors of a torn change are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateId {
    /// The moment of the cut.
    pub moment: Moment,
    /// What is on the disk.
    pub variant: Variant,
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moment { cut, in_flight, .. } = self.moment;
        write!(f, "{cut}{}:", if in_flight { "i" } else { "" })?;
        let largest = self.variant.kept.iter().max();
        let mut bits = vec![false; largest.map_or(0, |&n| n as usize + 1)];
        for &position in &self.variant.kept {
            bits[position as usize] = true;
        }
        f.write_str(&hex(&bits))?;
        if self.variant.is_reordered() {
            let order: Vec<String> = self.variant.kept.iter().map(u32::to_string).collect();
            write!(f, ",o={}", order.join("."))?;
        }
        for (position, mask) in &self.variant.torn {
            write!(f, ",t={position}/{}", hex(mask))?;
        }
        Ok(())
    }
}

impl StateId {
    /// Reads a state's name.
    ///
    /// # Errors
    ///
    /// [`ScheduleError::NoState`] with what is wrong.
    pub fn parse(text: &str, recording: &Recording) -> ScheduleResult<Self> {
        parse(text, recording).map_err(|reason| ScheduleError::NoState {
            state: text.to_owned(),
            reason,
        })
    }
}

fn parse(text: &str, recording: &Recording) -> Result<StateId, String> {
    let (cut, rest) = text
        .split_once(':')
        .ok_or("it has no colon between the cut and the changes")?;
    let in_flight = cut.ends_with('i');
    let number = cut.trim_end_matches('i');
    let number: u64 = number
        .parse()
        .map_err(|_| format!("'{cut}' is no entry's number"))?;
    let moment = recording.moment_at(number, in_flight).ok_or_else(|| {
        let entries = recording.entries();
        match in_flight && number <= entries {
            true => format!("entry {} is no FUA write", number.saturating_sub(1)),
            false => format!("the log has {entries} entries"),
        }
    })?;
    let optional = recording.optional(&moment);
    let mut words = rest.split(',');
    let bits = unhex(words.next().unwrap_or_default(), optional.len())?;
    let kept = (0..optional.len() as u32).filter(|&n| bits[n as usize]);
    let mut variant = Variant::of(kept.collect());
    for word in words {
        if let Some(order) = word.strip_prefix("o=") {
            variant.kept = parse_order(order, &variant.kept)?;
        } else if let Some(torn) = word.strip_prefix("t=") {
            let (position, mask) = torn.split_once('/').ok_or("t= wants POSITION/HEX")?;
            let position = position
                .parse()
                .ok()
                .filter(|position| variant.kept.contains(position))
                .ok_or_else(|| format!("{position} is no change that is there"))?;
            let change = &recording.changes()[optional[position as usize]];
            if change.is_discard() {
                return Err(format!("{position} is a discard, which is never torn"));
            }
            let mask = unhex(mask, change.sectors() as usize)?;
            variant.torn.push((position, mask));
        } else {
            return Err(format!("'{word}' is neither o= nor t="));
        }
    }
    variant.torn.sort_unstable();
    let segments = recording.segments(&moment, &optional);
    if !variant.kept.is_sorted_by_key(|&n| segments[n as usize]) {
        return Err("its order moves a change past a FUA write".to_owned());
    }
    Ok(StateId { moment, variant })
}

fn parse_order(order: &str, kept: &[u32]) -> Result<Vec<u32>, String> {
    let positions: Option<Vec<u32>> = order.split('.').map(|n| n.parse().ok()).collect();
    let positions = positions.ok_or("o= wants numbers with dots between them")?;
    let mut sorted = positions.clone();
    sorted.sort_unstable();
    if sorted != kept {
        return Err("o= has to name every change that is there, once".to_owned());
    }
    Ok(positions)
}

/// Bits as hexadecimal digits, the first four bits in the first digit, without zeros at the end.
fn hex(bits: &[bool]) -> String {
    let mut text = String::new();
    for four in bits.chunks(4) {
        let digit = four.iter().rev().fold(0, |n, &bit| n << 1 | u8::from(bit));
        // Writing to a string cannot fail.
        let _ = write!(text, "{digit:x}");
    }
    let text = text.trim_end_matches('0');
    match text {
        "" => "0".to_owned(),
        text => text.to_owned(),
    }
}

fn unhex(text: &str, count: usize) -> Result<Vec<bool>, String> {
    let mut bits = vec![false; count];
    for (at, digit) in text.chars().enumerate() {
        let digit = digit
            .to_digit(16)
            .ok_or_else(|| format!("'{digit}' is no hexadecimal digit"))?;
        for bit in (0..4).filter(|bit| digit >> bit & 1 == 1) {
            let place = bits
                .get_mut(at * 4 + bit)
                .ok_or_else(|| format!("bit {} is set, but there are {count}", at * 4 + bit))?;
            *place = true;
        }
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_and_back() {
        let bits = [true, false, false, false, false, true, true];
        assert_eq!(hex(&bits), "16");
        assert_eq!(unhex("16", 7).unwrap(), bits);
        assert_eq!(hex(&[false; 9]), "0");
        assert_eq!(unhex("0", 0).unwrap(), Vec::<bool>::new());
        assert!(unhex("8", 3).unwrap_err().contains("bit 3 is set"));
        assert!(unhex("g", 3).is_err());
    }
}
