//! The arguments after a verb: numbers and tube names, parsed exactly as beanstalkd does.

use dwell_model::QueueName;

use super::frame::Malformed;

/// The arguments of one command, read from left to right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments<'a>(&'a str);

impl<'a> Arguments<'a> {
    pub(super) fn new(text: &'a str) -> Arguments<'a> {
        Arguments(text)
    }

    /// A decimal number, after any number of spaces; leading zeros pass, a sign does not.
    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        let text = self.0.trim_start_matches(' ');
        let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        let number = digits.parse().map_err(|_| Malformed)?;
        self.0 = rest;
        Ok(number)
    }

    /// The same below 2^32: priorities, seconds, sizes.
    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        let mut ahead = *self;
        let number = u32::try_from(ahead.u64()?).map_err(|_| Malformed)?;
        *self = ahead;
        Ok(number)
    }

    /// Whether a minus and a number come next, which it then skips.
    pub(super) fn skip_negative(&mut self) -> bool {
        let Some(rest) = self.0.trim_start_matches(' ').strip_prefix('-') else { return false };
        let mut ahead = Arguments(rest);
        let is_number = !rest.starts_with(' ') && ahead.u64().is_ok();
        if is_number {
            *self = ahead;
        }
        is_number
    }

    /// Everything up to the next space as a tube's name; spaces before it are skipped.
    pub(super) fn tube(&mut self) -> Result<QueueName, Malformed> {
        let text = self.0.trim_start_matches(' ');
        let (name, rest) = text.split_at(text.find(' ').unwrap_or(text.len()));
        let name = QueueName::new(name).map_err(|_| Malformed)?;
        self.0 = rest;
        Ok(name)
    }

    /// Everything that remains as a tube's name.
    pub(super) fn only_tube(self) -> Result<QueueName, Malformed> {
        QueueName::new(self.0).map_err(|_| Malformed)
    }

    /// The only number, with nothing after it: a job's id.
    pub(super) fn only_u64(mut self) -> Result<u64, Malformed> {
        let number = self.u64()?;
        self.end()?;
        Ok(number)
    }

    /// Fails if anything remains.
    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_digits_alone() {
        for (text, number) in [("7", 7), ("  007", 7), ("18446744073709551615", u64::MAX)] {
            assert_eq!(Arguments::new(text).only_u64(), Ok(number), "{text}");
        }
        for bad in ["", " ", "+1", "-1", "x", "1x", "1 ", "1 2", "18446744073709551616", "٣"] {
            assert_eq!(Arguments::new(bad).only_u64(), Err(Malformed), "{bad}");
        }
        assert_eq!(Arguments::new("4294967295").u32(), Ok(u32::MAX));
        assert_eq!(Arguments::new("4294967296").u32(), Err(Malformed));
    }

    #[test]
    fn a_negative_number_is_seen_as_one() {
        assert!(Arguments::new("-1").skip_negative());
        assert!(Arguments::new(" -25").skip_negative());
        for other in ["1", "-", "- 1", "-x", ""] {
            assert!(!Arguments::new(other).skip_negative(), "{other}");
        }
    }

    #[test]
    fn a_tube_is_a_queue_name() {
        assert_eq!(Arguments::new("a/b").only_tube().unwrap().as_str(), "a/b");
        for bad in ["", " a", "a ", "-a", "a b", "ä", &"x".repeat(201)] {
            assert_eq!(Arguments::new(bad).only_tube(), Err(Malformed), "{bad}");
        }
        let mut pause = Arguments::new("  t  5");
        assert_eq!((pause.tube().unwrap().as_str(), pause.u32()), ("t", Ok(5)));
    }
}
