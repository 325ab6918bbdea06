//! Durations as text: whole numbers with units, such as `1h30m`.

use crate::Invalid;
use crate::text::excerpt;

/// Parses a duration into milliseconds: one or more whole numbers, each with a unit of `ms`, `s`, `m`, `h` or `d`, such
/// as `30m`, `1h30m` or `250ms`.
///
/// A bare number is refused, since it could mean seconds or milliseconds.
///
/// # Errors
/// [`Invalid::NegativeDelay`] for a leading `-`, [`Invalid::MalformedDelay`] for anything else that has another form or
/// does not fit 64 bits.
///
/// ```
/// assert_eq!(dwell_model::parse_duration_ms("1h30m").unwrap(), 5_400_000);
/// assert!(dwell_model::parse_duration_ms("90").is_err());
/// ```
pub fn parse_duration_ms(text: &str) -> Result<u64, Invalid> {
    if text.starts_with('-') {
        return Err(Invalid::NegativeDelay { text: excerpt(text) });
    }
    parse(text).ok_or_else(|| Invalid::MalformedDelay { text: excerpt(text) })
}

fn parse(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let unit_ms = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        rest = &rest[letters..];
        total = total.checked_add(number.checked_mul(unit_ms)?)?;
    }
    (!text.is_empty()).then_some(total)
}

/// Formats milliseconds the way [`parse_duration_ms`] parses them, largest unit first: `1h30m`, `0s`.
pub fn format_duration_ms(ms: u64) -> String {
    let mut rest = ms;
    let mut text = String::new();
    for (unit, unit_ms) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if rest >= unit_ms {
            text.push_str(&format!("{}{unit}", rest / unit_ms));
            rest %= unit_ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units_and_refuses_the_rest() {
        for (text, ms) in [("0s", 0), ("250ms", 250), ("30m", 1_800_000), ("1d2h3m4s5ms", 93_784_005)] {
            assert_eq!(parse_duration_ms(text).unwrap(), ms, "{text}");
            assert_eq!(format_duration_ms(ms), text);
        }
        for bad in
            ["", "5", "5x", "s", "1.5s", " 1s", "1 s", "1s ", "99999999999999999999s", "213503982335d", "1µs"]
        {
            assert_eq!(parse_duration_ms(bad).unwrap_err().code(), "malformed_delay", "{bad}");
        }
        assert_eq!(parse_duration_ms("-5s").unwrap_err().code(), "negative_delay");
    }
}
