//! `--durability`: when a change is synced.

use std::fmt;
use std::str::FromStr;

use dwell_model::{format_duration_ms, parse_duration_ms};

/// The engine's setting, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durability(pub(crate) dwell_engine::Durability);

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Durability, String> {
        let durability = match (text, text.strip_prefix("interval:")) {
            ("always", _) => dwell_engine::Durability::Always,
            ("os", _) => dwell_engine::Durability::Os,
            (_, Some(interval)) => {
                match parse_duration_ms(interval).map_err(|invalid| invalid.to_string())? {
                    0 => {
                        return Err(
                            "an interval has at least 1 ms; 'always' syncs before it answers".to_owned()
                        );
                    }
                    ms => dwell_engine::Durability::IntervalMs(ms),
                }
            }
            _ => return Err("'always', 'os', or 'interval:' and a duration such as 100ms".to_owned()),
        };
        Ok(Durability(durability))
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            dwell_engine::Durability::Always => f.write_str("always"),
            dwell_engine::Durability::Os => f.write_str("os"),
            dwell_engine::Durability::IntervalMs(ms) => write!(f, "interval:{}", format_duration_ms(ms)),
        }
    }
}

impl Durability {
    /// What it promises.
    pub(crate) fn explained(self) -> String {
        match self.0 {
            dwell_engine::Durability::Always => "always: synced before it is answered".to_owned(),
            dwell_engine::Durability::Os => {
                "os: a power failure loses what the system had not written".to_owned()
            }
            dwell_engine::Durability::IntervalMs(ms) => {
                format!("{self}: a power failure loses up to {}", format_duration_ms(ms))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_refuses_the_rest() {
        for text in ["always", "os", "interval:100ms", "interval:1m"] {
            assert_eq!(text.parse::<Durability>().unwrap().to_string(), text);
        }
        for bad in ["", "never", "interval:", "interval:5", "interval:0s", "interval:-1s"] {
            assert!(bad.parse::<Durability>().is_err(), "{bad}");
        }
    }
}
