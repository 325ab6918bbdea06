//! Cron expressions, in the dialects of Unix, Spring and Quartz. croner parses them and finds civil times; differences
//! between the dialects are checked here.

use std::fmt;

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;

use crate::error::excerpt;
use crate::{Error, Result};

/// The dialect of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// Five fields: minute, hour, day of month, month, day of week. 0 and 7 are Sunday, 1 is Monday. Where both days are restricted,
    /// either is enough. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are known.
    Unix,
    /// Six fields: second, minute, and so on. 0 and 7 are Sunday, 1 is Monday. Where both days are restricted, both must match.
    Spring,
    /// Six fields and an optional year. 1 is Sunday, 7 is Saturday. One of the two days is `?`.
    Quartz,
}

impl Dialect {
    /// The word that configuration and errors use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Dialect::Unix => "unix",
            Dialect::Spring => "spring",
            Dialect::Quartz => "quartz",
        }
    }
}

/// A parsed cron expression.
///
/// ```
/// use dwell_delivery::schedule::{Cron, Dialect};
///
/// let weekdays = Cron::parse("0 30 9 ? * MON-FRI", None)?;
/// assert!(weekdays.names_hours());
/// // 2 is Tuesday to Spring, and Monday to Quartz.
/// assert_eq!(Cron::parse("0 0 9 ? * 2", None).unwrap_err().code(), "ambiguous_dialect");
/// assert!(Cron::parse("0 0 9 ? * 2", Some(Dialect::Quartz)).is_ok());
/// # Ok::<(), dwell_delivery::Error>(())
/// ```
#[derive(Clone)]
pub struct Cron {
    text: Box<str>,
    dialect: Option<Dialect>,
    names_hours: bool,
    pattern: croner::Cron,
}

/// The fields of an expression by name.
struct Fields<'a> {
    hour: &'a str,
    day_of_month: &'a str,
    day_of_week: &'a str,
    count: usize,
}

impl<'a> Fields<'a> {
    fn of(fields: &[&'a str]) -> Option<Fields<'a>> {
        let count = fields.len();
        match *fields {
            [_, hour, day_of_month, _, day_of_week]
            | [_, _, hour, day_of_month, _, day_of_week]
            | [_, _, hour, day_of_month, _, day_of_week, _] => {
                Some(Fields { hour, day_of_month, day_of_week, count })
            }
            _ => None,
        }
    }
}

impl Cron {
    /// The maximum length of an expression in bytes.
    pub const MAX_LEN: usize = 256;

    /// Parses an expression. Five fields are Unix's; six or seven are Spring's or Quartz's, as `dialect` says. Without
    /// a dialect they are accepted where both agree on the meaning.
    ///
    /// # Errors
    /// [`Error::MalformedCron`]; [`Error::AmbiguousDialect`] for the digit of a weekday, or a step of weekdays, in six or seven fields
    /// without a dialect.
    pub fn parse(text: &str, dialect: Option<Dialect>) -> Result<Cron> {
        let refuse =
            |reason: String| Err(Error::MalformedCron { expression: excerpt(text), reason: reason.into() });
        if text.len() > Cron::MAX_LEN {
            return refuse(format!("it has at most {} bytes, not {}", Cron::MAX_LEN, text.len()));
        }
        let upper = text.trim().to_ascii_uppercase();
        if let Some(expression) = nickname(&upper) {
            return match dialect {
                None | Some(Dialect::Unix) => Cron::parse(expression, dialect).map(|cron| cron.written(text)),
                Some(other) => refuse(format!("{} has no names for expressions", other.as_str())),
            };
        }
        let of_spring;
        let mut fields: Vec<&str> = upper.split_whitespace().collect();
        let Some(named) = Fields::of(&fields) else {
            return refuse(format!("it has five, six or seven fields, not {}", fields.len()));
        };
        if let Some(reason) = misfit(&named, dialect) {
            return refuse(reason);
        }
        let is_unix = named.count == 5;
        let needs_dialect = !is_unix && dialect.is_none();
        if needs_dialect && (has_weekday_digit(named.day_of_week) || named.day_of_week.contains('/')) {
            return Err(Error::AmbiguousDialect { weekday: excerpt(named.day_of_week) });
        }
        let names_hours = !named.hour.contains(['*', '/']);
        // Quartz's name for Saturday, the last day of its week.
        if dialect == Some(Dialect::Quartz) && named.day_of_week == "L" {
            fields[5] = "SAT";
        }
        // Spring's week has the days 1 to 7, so that a step begins with Monday. To croner it has 0 to 7.
        if dialect == Some(Dialect::Spring) && named.day_of_week.contains("*/") {
            of_spring = named.day_of_week.replace("*/", "1-7/");
            fields[5] = &of_spring;
        }
        let parser = CronParser::builder()
            .seconds(if is_unix { Seconds::Disallowed } else { Seconds::Required })
            .year(if dialect == Some(Dialect::Spring) || is_unix { Year::Disallowed } else { Year::Optional })
            .dom_and_dow(!is_unix)
            .alternative_weekdays(dialect == Some(Dialect::Quartz))
            // `0/5`, which is how both write "every five".
            .sloppy_ranges(!is_unix)
            .build();
        let joined = fields.join(" ");
        match parser.parse(&joined) {
            Ok(pattern) => Ok(Cron { text: text.trim().into(), dialect, names_hours, pattern }),
            Err(error) => refuse(error.to_string()),
        }
    }

    fn written(self, text: &str) -> Cron {
        Cron { text: text.trim().into(), ..self }
    }

    /// The expression as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The dialect that it was parsed in, if one was given.
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// Whether the hour field names hours: it has neither `*` nor `/`. Then each civil time that matches is one run,
    /// also at changes of the clock. Any other expression follows elapsed time.
    pub fn names_hours(&self) -> bool {
        self.names_hours
    }

    /// The first civil time from `from` on, inclusive, that matches; `None` if there is none before the year 5000.
    pub(crate) fn next_civil(&self, from: DateTime) -> Option<DateTime> {
        self.pattern.find_next_occurrence(&from, true).ok()
    }

    /// Whether this civil time matches, to the second.
    #[cfg(test)]
    pub(crate) fn matches(&self, civil: DateTime) -> bool {
        self.pattern.is_time_matching(&civil).unwrap()
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cron")
            .field("text", &self.text)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Cron) -> bool {
        (&self.text, self.dialect) == (&other.text, other.dialect)
    }
}

impl Eq for Cron {}

/// The expression that a nickname stands for, in upper case.
fn nickname(text: &str) -> Option<&'static str> {
    Some(match text {
        "@YEARLY" | "@ANNUALLY" => "0 0 1 1 *",
        "@MONTHLY" => "0 0 1 * *",
        "@WEEKLY" => "0 0 * * 0",
        "@DAILY" | "@MIDNIGHT" => "0 0 * * *",
        "@HOURLY" => "0 * * * *",
        _ => return None,
    })
}

/// Why these fields are invalid in this dialect, although croner would accept them.
fn misfit(fields: &Fields<'_>, dialect: Option<Dialect>) -> Option<String> {
    let Fields { day_of_month, day_of_week, count, .. } = *fields;
    let is_question = |field: &str| field == "?";
    let questions = usize::from(is_question(day_of_month)) + usize::from(is_question(day_of_week));
    Some(match (dialect, count) {
        (Some(Dialect::Unix), 6..) => {
            "Unix has five fields: minute, hour, day of month, month, day of week".into()
        }
        (Some(dialect @ (Dialect::Spring | Dialect::Quartz)), 5) => {
            format!("{} begins with a field for seconds: write \"0\" before it", dialect.as_str())
        }
        (Some(Dialect::Spring), 7) => "Spring has six fields, and none for the year".into(),
        (_, 5) if day_of_month.contains('?') || day_of_week.contains('?') => {
            "Unix has no \"?\": write \"*\"".into()
        }
        (Some(Dialect::Quartz), _) if questions != 1 => {
            "Quartz wants \"?\" in one of day of month and day of week, and the other one said".into()
        }
        (Some(Dialect::Quartz), _) if has_quartz_zero(day_of_week) => {
            "Quartz counts weekdays from 1, which is Sunday".into()
        }
        (None | Some(Dialect::Spring), 6..) if day_of_week == "L" => {
            "\"L\" alone names no weekday: write the day, as in FRIL".into()
        }
        _ if day_of_week.contains('+') => "\"+\" is no part of a weekday".into(),
        _ => return None,
    })
}

/// Whether a field of weekdays names one by a digit. The number after `#` counts weeks, and that after `/` days.
fn has_weekday_digit(field: &str) -> bool {
    days(field).any(|days| days.contains(|c: char| c.is_ascii_digit()))
}

fn has_quartz_zero(field: &str) -> bool {
    days(field).any(|days| days.split('-').any(|day| day.trim_end_matches('L') == "0"))
}

fn days(field: &str) -> impl Iterator<Item = &str> {
    field.split(',').map(|part| part.split(['#', '/']).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn next(text: &str, dialect: Option<Dialect>, from: DateTime) -> Vec<DateTime> {
        let cron = Cron::parse(text, dialect).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut found = Vec::new();
        let mut from = from;
        while found.len() < 3 {
            let Some(civil) = cron.next_civil(from) else { break };
            found.push(civil);
            from = civil.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
        }
        found
    }

    const QUARTZ: Option<Dialect> = Some(Dialect::Quartz);
    const SPRING: Option<Dialect> = Some(Dialect::Spring);

    #[test]
    fn weekday_1_is_monday_to_spring_and_sunday_to_quartz() {
        // The 22nd of November 2026 is a Sunday.
        let from = date(2026, 11, 20).at(0, 0, 0, 0);
        assert_eq!(next("0 0 9 ? * 1", SPRING, from)[0], date(2026, 11, 23).at(9, 0, 0, 0));
        assert_eq!(next("0 0 9 ? * 1", QUARTZ, from)[0], date(2026, 11, 22).at(9, 0, 0, 0));
        assert_eq!(next("0 9 * * 1", None, from)[0], date(2026, 11, 23).at(9, 0, 0, 0));
        for (dialect, text) in [(None, "0 0 9 ? * SUN"), (SPRING, "0 0 9 * * 0"), (SPRING, "0 0 9 * * 7")] {
            assert_eq!(next(text, dialect, from)[0], date(2026, 11, 22).at(9, 0, 0, 0), "{text}");
        }
    }

    #[test]
    fn digits_of_weekdays_need_a_dialect() {
        for text in [
            "0 0 9 ? * 2",
            "0 0 9 ? * MON,3",
            "0 0 9 ? * 1-5",
            "0 0 9 ? * 6#3",
            "0 0 9 ? * 6L",
            "0 0 9 ? * 2 2027",
            "0 0 9 ? * */2",
            "0 0 9 ? * MON/2",
        ] {
            assert_eq!(Cron::parse(text, None).unwrap_err().code(), "ambiguous_dialect", "{text}");
            assert!(Cron::parse(text, QUARTZ).is_ok(), "{text}");
        }
        for text in ["0 0 9 ? * MON#2", "0 0 9 ? * MON-FRI", "0 0/5 * * * ?", "0 0 9 1 * ?", "0 0 9 ? * FRIL"]
        {
            assert!(Cron::parse(text, None).is_ok(), "{text}");
        }
    }

    /// Every other day begins with Monday to Spring, and with Sunday to Quartz and Unix.
    #[test]
    fn a_step_of_weekdays_begins_with_the_dialects_first() {
        let from = date(2026, 11, 22).at(0, 0, 0, 0);
        let nine = |day| date(2026, 11, day).at(9, 0, 0, 0);
        assert_eq!(next("0 0 9 ? * */2", SPRING, from), [nine(22), nine(23), nine(25)]);
        assert_eq!(next("0 0 9 ? * */3", SPRING, from), [nine(22), nine(23), nine(26)]);
        assert_eq!(next("0 0 9 ? * */2", QUARTZ, from), [nine(22), nine(24), nine(26)]);
        assert_eq!(next("0 9 * * */2", None, from), [nine(22), nine(24), nine(26)]);
        // One that must match as well as the day of the month.
        assert_eq!(next("0 0 9 23,24 * */2", SPRING, from)[0], nine(23));
        assert_eq!(next("0 0 9 24 11 */2", SPRING, from)[0], date(2027, 11, 24).at(9, 0, 0, 0));
    }

    #[test]
    fn both_write_every_five_as_0_5_and_unix_does_not() {
        let from = date(2026, 11, 20).at(10, 2, 0, 0);
        let at = |minute| date(2026, 11, 20).at(10, minute, 0, 0);
        for dialect in [None, SPRING, QUARTZ] {
            assert_eq!(next("0 0/5 * * * ?", dialect, from), [at(5), at(10), at(15)]);
        }
        assert_eq!(next("*/5 * * * *", None, from), [at(5), at(10), at(15)]);
        assert_eq!(Cron::parse("0/5 * * * *", None).unwrap_err().code(), "malformed_cron");
    }

    #[test]
    fn both_days_must_match_for_spring_and_either_for_unix() {
        let from = date(2026, 11, 1).at(0, 0, 0, 0);
        // The next Friday the 13th, and the next Friday or 13th.
        assert_eq!(next("0 0 0 13 * FRI", SPRING, from)[0], date(2026, 11, 13).at(0, 0, 0, 0));
        assert_eq!(next("0 0 0 13 * FRI", SPRING, from)[1], date(2027, 8, 13).at(0, 0, 0, 0));
        assert_eq!(next("0 0 13 * 5", None, from)[0], date(2026, 11, 6).at(0, 0, 0, 0));
    }

    #[test]
    fn last_days_nearest_weekdays_and_nth_weekdays_are_known() {
        let from = date(2026, 11, 1).at(0, 0, 0, 0);
        for (text, day) in [
            ("0 0 0 L * ?", 30),
            ("0 0 0 LW * ?", 30),
            ("0 0 0 15W * ?", 16),
            ("0 0 0 ? * 6#3", 20),
            ("0 0 0 ? * 6L", 27),
            ("0 0 0 ? * L", 7),
        ] {
            assert_eq!(next(text, QUARTZ, from)[0], date(2026, 11, day).at(0, 0, 0, 0), "{text}");
        }
        let years = next("0 0 12 1 1 ? 2028,2030", QUARTZ, from);
        assert_eq!(years, [date(2028, 1, 1).at(12, 0, 0, 0), date(2030, 1, 1).at(12, 0, 0, 0)]);
    }

    #[test]
    fn names_stand_for_expressions() {
        let from = date(2026, 11, 1).at(0, 0, 1, 0);
        assert_eq!(next("@daily", None, from)[0], date(2026, 11, 2).at(0, 0, 0, 0));
        assert_eq!(Cron::parse(" @Hourly ", None).unwrap().as_str(), "@Hourly");
        assert_eq!(Cron::parse("@reboot", None).unwrap_err().code(), "malformed_cron");
        assert_eq!(Cron::parse("@daily", QUARTZ).unwrap_err().code(), "malformed_cron");
    }

    #[test]
    fn what_is_no_expression_of_its_dialect_is_refused() {
        let unix = Some(Dialect::Unix);
        for (text, dialect) in [
            ("", None),
            ("* * * *", None),
            ("* * * * * * * *", None),
            ("60 * * * *", None),
            ("* 24 * * *", None),
            ("* * ? * *", None),
            ("* * * * +1", None),
            ("0 0 * * * *", unix),
            ("0 0 * * *", SPRING),
            ("0 0 0 * * ? 2027", SPRING),
            ("0 0 0 * * *", QUARTZ),
            ("0 0 0 ? * ?", QUARTZ),
            ("0 0 0 1 * MON", QUARTZ),
            ("0 0 0 ? * 0", QUARTZ),
            ("0 0 0 ? * 0-3", QUARTZ),
            ("0 0 0 ? * 8", QUARTZ),
            ("0 0 0 ? * L", None),
            ("0 0 0 1 * * 1969-", QUARTZ),
            ("0 */0 * * * ?", None),
            ("0 0 22-2 * * ?", None),
            ("0 0 0 ? * FRI-MON", None),
            ("0 0 0 L-3 * ?", QUARTZ),
        ] {
            let error = Cron::parse(text, dialect).expect_err(text);
            assert_eq!(error.code(), "malformed_cron", "{text}");
        }
        let long = "1,".repeat(200);
        assert_eq!(Cron::parse(&long, None).unwrap_err().code(), "malformed_cron");
    }

    #[test]
    fn an_hour_field_names_hours_unless_it_has_a_star_or_a_step() {
        for (text, names) in
            [("0 2 * * *", true), ("0 9-17 * * *", true), ("0 * * * *", false), ("0 */2 * * *", false)]
        {
            assert_eq!(Cron::parse(text, None).unwrap().names_hours(), names, "{text}");
        }
        assert!(!Cron::parse("0 0 0/2 * * ?", None).unwrap().names_hours());
    }
}
