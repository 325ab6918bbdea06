//! Strict reading of a URL's query: every parameter has to be known, given once, and valid.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::str::FromStr;

use dwell_model::{AttemptLimit, Invalid, parse_duration_ms};
use percent_encoding::percent_decode_str;

use crate::http::{HttpRefusal, Problem};

/// A query's parameters. Handlers take out those that they know, then call [`Query::finish`].
#[derive(Debug)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    asked: Vec<&'static str>,
}

impl Query {
    /// Reads `key=value&…` as HTML forms write it: percent-encoded, `+` for a space.
    pub(crate) fn parse(query: Option<&str>) -> Result<Query, Problem> {
        let mut pairs = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Query { pairs, asked: Vec::new() })
    }

    /// Whether there are no parameters.
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The value of `name`.
    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        let mut values = self.all(name);
        if values.len() > 1 {
            return Err(invalid(name, "it is given more than once"));
        }
        Ok(values.pop())
    }

    /// All values of `name`, which may be repeated.
    pub(crate) fn all(&mut self, name: &'static str) -> Vec<String> {
        self.asked.push(name);
        self.pairs.extract_if(.., |(given, _)| given == name).map(|(_, value)| value).collect()
    }

    /// The value of `name`, parsed by its type.
    pub(crate) fn parsed<T: FromStr<Err = Invalid>>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, Problem> {
        Ok(self.text(name)?.map(|text| text.parse()).transpose()?)
    }

    /// The duration `name` in milliseconds.
    pub(crate) fn duration_ms(&mut self, name: &'static str) -> Result<Option<u64>, Problem> {
        Ok(self.text(name)?.map(|text| parse_duration_ms(&text)).transpose()?)
    }

    /// The whole number `name`.
    pub(crate) fn number<N: FromStr>(&mut self, name: &'static str) -> Result<Option<N>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        // `parse` accepts a sign, which no number here has.
        match text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(number) => Ok(Some(number)),
            None => Err(invalid(name, "a whole number within its bounds is expected")),
        }
    }

    /// The number `name`, from `min` to `max`, or `default`.
    pub(crate) fn bounded(
        &mut self,
        name: &'static str,
        default: usize,
        min: usize,
        max: usize,
    ) -> Result<usize, Problem> {
        match self.number(name)? {
            None => Ok(default.min(max)),
            Some(number) if (min..=max).contains(&number) => Ok(number),
            Some(number) => {
                Err(invalid(name, format!("{min} to {max} is expected, not {number}")).with_limit(max as u64))
            }
        }
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, Problem> {
        match self.text(name)?.as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(invalid(name, "true or false is expected")),
        }
    }

    /// A number of attempts, or `unlimited`.
    pub(crate) fn attempts(&mut self, name: &'static str) -> Result<Option<AttemptLimit>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        if text == "unlimited" {
            return Ok(Some(AttemptLimit::Unlimited));
        }
        // `parse` accepts a sign.
        match text.parse::<NonZeroU32>().ok().filter(|_| !text.starts_with('+')) {
            Some(limit) => Ok(Some(AttemptLimit::At(limit))),
            None => Err(invalid(name, "1 or more, or `unlimited`, is expected")),
        }
    }

    /// Parses one of a list of words.
    pub(crate) fn word<T: Copy>(
        &mut self,
        name: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(invalid(name, format!("one of {} is expected", words.join(", "))))
            }
        }
    }

    /// Refuses parameters that no handler has taken out.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        let Some((name, _)) = self.pairs.first() else { return Ok(()) };
        let known = if self.asked.is_empty() { "none".to_owned() } else { self.asked.join(", ") };
        Err(Problem::new(
            HttpRefusal::UnknownParameter,
            format!("there is no parameter '{}' here; known are: {known}", short(name)),
        ))
    }
}

fn decode(text: &str) -> Result<String, Problem> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().map(|text| text.into_owned()).map_err(|_| {
        Problem::new(HttpRefusal::MalformedRequest, "the query is not UTF-8 once percent-decoded")
    })
}

fn invalid(name: &str, reason: impl Display) -> Problem {
    Problem::new(HttpRefusal::InvalidParameter, format!("parameter '{name}': {reason}"))
}

/// The first 80 characters, so that an answer never repeats a megabyte.
fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(problem: Problem) -> String {
        serde_json::to_value(problem).unwrap()["code"].as_str().unwrap().to_owned()
    }

    #[test]
    fn reads_what_is_known() {
        let mut query =
            Query::parse(Some("delay=1m30s&key=a%20b+%C3%A4&max=7&all=true&tries=unlimited&queue=a&queue=b"))
                .unwrap();
        assert_eq!(query.duration_ms("delay").unwrap(), Some(90_000));
        assert_eq!(query.text("key").unwrap().unwrap(), "a b ä");
        assert_eq!(query.bounded("max", 1, 1, 10).unwrap(), 7);
        assert_eq!(query.flag("all").unwrap(), Some(true));
        assert_eq!(query.attempts("tries").unwrap(), Some(AttemptLimit::Unlimited));
        assert_eq!(query.all("queue"), ["a", "b"]);
        assert_eq!(query.text("absent").unwrap(), None);
        query.finish().unwrap();
    }

    #[test]
    fn refuses_what_is_unknown_repeated_or_not_understood() {
        let parse = |text| Query::parse(Some(text)).unwrap();
        assert_eq!(code(parse("x=1").finish().unwrap_err()), "unknown_parameter");
        assert_eq!(code(parse("a=1&a=2").text("a").unwrap_err()), "invalid_parameter");
        assert_eq!(code(parse("delay=30").duration_ms("delay").unwrap_err()), "malformed_delay");
        assert_eq!(code(parse("delay=-3s").duration_ms("delay").unwrap_err()), "negative_delay");
        assert_eq!(code(parse("max=%2B5").number::<u32>("max").unwrap_err()), "invalid_parameter");
        assert_eq!(code(parse("max=").number::<u32>("max").unwrap_err()), "invalid_parameter");
        assert_eq!(code(parse("max=99999999999").number::<u32>("max").unwrap_err()), "invalid_parameter");
        assert_eq!(code(parse("max=0").bounded("max", 1, 1, 9).unwrap_err()), "invalid_parameter");
        assert_eq!(code(parse("all=yes").flag("all").unwrap_err()), "invalid_parameter");
        for bad in ["0", "-1", "%2B1", "1.5", "", "many"] {
            let mut query = Query::parse(Some(&format!("max_attempts={bad}"))).unwrap();
            assert_eq!(code(query.attempts("max_attempts").unwrap_err()), "invalid_parameter", "{bad}");
        }
        assert_eq!(code(Query::parse(Some("key=%FF")).unwrap_err()), "malformed_request");
    }
}
