//! Suggests the name that was probably meant by one that does not exist.

/// The candidate nearest to `given`, if one is near.
pub(super) fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A longer text is not a mistyped name, and the comparison is quadratic in the length.
    if given.len() > 100 {
        return None;
    }
    let given = given.to_ascii_lowercase().replace('-', "_");
    let near = |candidate: &str| strsim::osa_distance(&given, &candidate.to_ascii_lowercase());
    let best = candidates.into_iter().min_by_key(|candidate| near(candidate))?;
    (near(best) <= (best.len() / 3).clamp(1, 3)).then_some(best)
}

/// `; did you mean 'listen'?`, or nothing.
pub(super) fn did_you_mean<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(given, candidates).map(|name| format!("; did you mean '{name}'?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_nonsense_is_not() {
        let names = ["listen", "hosts", "max_connections"];
        for (given, meant) in [
            ("lisen", Some("listen")),
            ("Listen", Some("listen")),
            ("host", Some("hosts")),
            ("max-connections", Some("max_connections")),
            ("max_conections", Some("max_connections")),
            ("certificate", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, names), meant, "{given}");
        }
        assert_eq!(nearest(&"l".repeat(1_000_000), names), None);
    }
}
