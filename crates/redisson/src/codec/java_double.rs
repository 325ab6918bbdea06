//! A double as Java prints it (`Double.toString` of Java 19 and later, JDK-4511638).

/// The shortest decimal of at least two digits that parses to the same double, or the closest of several, in Java's
/// form: plain from 10⁻³ up to below 10⁷, otherwise with an exponent.
pub(super) fn text(double: f64) -> String {
    if double.is_nan() {
        return "NaN".to_owned();
    }
    if double.is_infinite() {
        return if double > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let sign = if double.is_sign_negative() { "-" } else { "" };
    if double == 0.0 {
        return format!("{sign}0.0");
    }
    let (digits, exponent) = decimal(double.abs());
    let (first, rest) = digits.split_at(1);
    let rest = if rest.is_empty() { "0" } else { rest };
    match exponent {
        -3..0 => format!("{sign}0.{}{}", "0".repeat((-exponent - 1) as usize), digits.trim_end_matches('0')),
        0..7 => {
            let whole = exponent as usize + 1;
            let padded = format!("{digits:0<whole$}");
            let (before, after) = padded.split_at(whole);
            format!("{sign}{before}.{}", if after.is_empty() { "0" } else { after })
        }
        _ => format!("{sign}{first}.{rest}E{exponent}"),
    }
}

/// The digits of a positive double without trailing zeros, and the power of ten of the first digit.
fn decimal(double: f64) -> (String, i32) {
    let shortest = format!("{double:e}");
    // Where one digit is enough, Java considers two-digit decimals and takes the closest: 4.9E-324, not 5.0E-324.
    let two = format!("{double:.1e}");
    let one_digit = !shortest.contains('.');
    let chosen = if one_digit && two.parse() == Ok(double) { two } else { shortest };
    let (mantissa, exponent) = chosen.split_once('e').expect("`e` formats with an exponent");
    let digits = mantissa.replace('.', "");
    let trimmed = digits.trim_end_matches('0');
    (trimmed.to_owned(), exponent.parse().expect("an exponent is an integer"))
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn doubles_read_as_java_prints_them() {
        for (double, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.5, "-1.5"),
            (100.0, "100.0"),
            (1234567.0, "1234567.0"),
            (9999999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (12345678.9, "1.23456789E7"),
            (1e10, "1.0E10"),
            (0.001, "0.001"),
            (0.002, "0.002"),
            (0.0123, "0.0123"),
            (0.00099, "9.9E-4"),
            (1e-5, "1.0E-5"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (5e-324, "4.9E-324"),
            (2e23, "2.0E23"),
            (9007199254740993.0, "9.007199254740992E15"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(double), expected);
        }
        assert_eq!(text(f64::NAN), "NaN");
    }

    #[test]
    fn every_text_is_the_same_double_again() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let double = f64::from_bits(bits);
            if double.is_finite() {
                assert_eq!(text(double).parse::<f64>().unwrap().to_bits(), bits, "{double:e}");
            }
        }
    }
}
