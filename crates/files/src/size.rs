//! Sizes with suffixes, read and shown.

/// Reads `4096`, `64K`, `1.5G`, `2T`, `10MiB`: powers of 1024, whole bytes.
///
/// # Errors
///
/// Says what is wrong with the text.
pub fn parse(text: &str) -> Result<u64, String> {
    let bad = || format!("not a size: '{text}' (use bytes, or K, M, G, T behind the number)");
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let suffix = suffix.to_ascii_lowercase();
    let shift = match suffix.trim_end_matches("ib").trim_end_matches('b') {
        "" if suffix.len() <= 1 => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(bad()),
    };
    let too_large = || format!("too large: '{text}'");
    if !number.contains('.') {
        let number: u64 = number.parse().map_err(|_| bad())?;
        return number.checked_mul(1 << shift).ok_or_else(too_large);
    }
    let number: f64 = number.parse().map_err(|_| bad())?;
    let bytes = number * (1_u64 << shift) as f64;
    if bytes.fract() != 0.0 {
        return Err(format!("not a whole number of bytes: '{text}'"));
    }
    if bytes >= u64::MAX as f64 {
        return Err(too_large());
    }
    Ok(bytes as u64)
}

/// A size for people: `1.5 GiB`.
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 100.0 && value.fract() != 0.0);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A size as ls(1) and df(1) show it with `-h`: `1.5K`, rounded up.
pub(crate) fn show_short(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    // In tenths of the unit, so that rounding up is exact.
    let mut tenths = u128::from(bytes) * 10;
    while tenths.div_ceil(10) >= 1024 && unit + 1 < UNITS.len() {
        tenths = tenths.div_ceil(1024);
        unit += 1;
    }
    match unit > 0 && tenths < 100 {
        true => format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit]),
        false => format!("{}{}", tenths.div_ceil(10), UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64K"), Ok(64 << 10));
        assert_eq!(parse("1.5g"), Ok(3 << 29));
        assert_eq!(parse("2T"), Ok(2 << 40));
        assert_eq!(parse("10MiB"), Ok(10 << 20));
        assert_eq!(parse("10MB"), Ok(10 << 20));
        assert_eq!(parse("7b"), Ok(7));
        assert_eq!(parse("0"), Ok(0));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "K",
            "x",
            "1X",
            "-1",
            "1.2.3K",
            "1.0001K",
            "99999999999T",
            "1KK",
            "1 K",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn short_sizes_are_those_of_ls() {
        let shown = [
            0,
            1023,
            1024,
            1025,
            10240,
            10241,
            1 << 20,
            1_000_000,
            1_048_575,
        ]
        .map(show_short);
        let expected = [
            "0", "1023", "1.0K", "1.1K", "10K", "11K", "1.0M", "977K", "1.0M",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn sizes_are_shown_short() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(1023), "1023 B");
        assert_eq!(show(1536), "1.5 KiB");
        assert_eq!(show(1 << 30), "1 GiB");
        assert_eq!(show(250 << 20), "250 MiB");
    }
}
