//! Converts civil times to instants: the meaning of a cron expression at changes of the clock.
//!
//! croner finds the next civil time; a zone's offset turns it into an instant, if no transition lies between. At a
//! transition:
//!
//! | | clocks go forward (a gap) | clocks go back (a fold) |
//! |---|---|---|
//! | the hour field names hours | what lies in the gap runs once, at its end | what comes twice runs the first time |
//! | any other | what lies in the gap does not run | what comes twice runs twice |

use dwell_model::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp as Instant};

use super::Cron;

/// How far back a transition may be whose fold is not over. The longest known fold is 24 hours.
const LONGEST_FOLD: SignedDuration = SignedDuration::from_hours(48);
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The first instant after `after` at which the expression runs; `None` if there is none.
pub(super) fn next_instant(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    // Runs are at whole seconds, so the next one is after the second of `after`.
    let second = Instant::from_second(after.as_ms().div_euclid(1_000)).ok()?;
    let found = search(cron, zone, second)?;
    Timestamp::from_ms(found.as_millisecond()).ok()
}

fn search(cron: &Cron, zone: &TimeZone, second: Instant) -> Option<Instant> {
    let mut offset = zone.to_offset(second);
    let mut from = offset.to_datetime(second).checked_add(SECOND).ok()?;
    if cron.names_hours() {
        from = from.max(end_of_folds(zone, second));
    }
    let mut civil = cron.next_civil(from)?;
    for transition in zone.following(second) {
        let at = transition.timestamp();
        let instant = offset.to_timestamp(civil).ok()?;
        if instant < at {
            return Some(instant);
        }
        let next = transition.offset();
        let (ends, begins) = (offset.to_datetime(at), next.to_datetime(at));
        offset = next;
        if begins > ends && civil < begins {
            // It is in the gap.
            if cron.names_hours() {
                return Some(at);
            }
            civil = cron.next_civil(begins)?;
        } else if begins < ends && !cron.names_hours() {
            // Civil times before `ends` come once more.
            civil = cron.next_civil(begins)?;
        }
    }
    offset.to_timestamp(civil).ok()
}

/// The civil time up to which all have occurred by `second`, if a fold is in progress; otherwise an earlier time.
fn end_of_folds(zone: &TimeZone, second: Instant) -> DateTime {
    // A transition at this very second has occurred.
    let until = second.checked_add(SignedDuration::from_nanos(1)).unwrap_or(second);
    let recent = zone
        .preceding(until)
        .take_while(|transition| second.duration_since(transition.timestamp()) <= LONGEST_FOLD);
    let ends =
        recent.map(|transition| before(zone, transition.timestamp()).to_datetime(transition.timestamp()));
    ends.max().unwrap_or(DateTime::MIN)
}

/// The offset just before this instant.
fn before(zone: &TimeZone, at: Instant) -> Offset {
    zone.to_offset(at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(at))
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;
    use jiff::civil::Date;
    use jiff::tz::TimeZoneDatabase;

    use super::*;

    fn zone(name: &str) -> TimeZone {
        TimeZoneDatabase::bundled().get(name).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse::<Instant>().unwrap().try_into().unwrap()
    }

    fn runs(expression: &str, zone_name: &str, after: &str, count: usize) -> Vec<String> {
        let (cron, zone) = (Cron::parse(expression, None).unwrap(), zone(zone_name));
        let mut after = at(after);
        (0..count)
            .map(|_| {
                after = next_instant(&cron, &zone, after).unwrap();
                Instant::try_from(after).unwrap().to_zoned(zone.clone()).strftime("%F %H:%M %:z").to_string()
            })
            .collect()
    }

    #[test]
    fn a_named_hour_in_a_gap_runs_once_at_its_end() {
        // Berlin, 2026-03-29: 02:00 becomes 03:00.
        let found = runs("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3);
        assert_eq!(found, ["2026-03-28 02:30 +01:00", "2026-03-29 03:00 +02:00", "2026-03-30 02:30 +02:00"]);
        // Several in the gap and one at its end are one run.
        let found = runs("0,20,40 2,3 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", 2);
        assert_eq!(found, ["2026-03-29 03:00 +02:00", "2026-03-29 03:20 +02:00"]);
    }

    #[test]
    fn a_named_hour_in_a_fold_runs_the_first_time() {
        // Berlin, 2026-10-25: 03:00 becomes 02:00.
        let found = runs("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
        assert_eq!(found, ["2026-10-25 02:30 +02:00", "2026-10-26 02:30 +01:00"]);
        // Searched from the second of the two hours, the first of which has passed.
        let found = runs("0,30 2,3 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1);
        assert_eq!(found, ["2026-10-25 03:00 +01:00"]);
    }

    #[test]
    fn every_other_expression_follows_elapsed_time() {
        let found = runs("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 2);
        assert_eq!(found, ["2026-03-29 01:30 +01:00", "2026-03-29 03:30 +02:00"]);
        let found = runs("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 3);
        assert_eq!(found, ["2026-10-25 02:30 +02:00", "2026-10-25 02:30 +01:00", "2026-10-25 03:30 +01:00"]);
    }

    #[test]
    fn a_day_that_a_zone_left_out_runs_at_the_beginning_of_the_next() {
        // Samoa went from the 29th to the 31st of December 2011.
        let found = runs("0 9 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 3);
        assert_eq!(found, ["2011-12-29 09:00 -10:00", "2011-12-31 00:00 +14:00", "2011-12-31 09:00 +14:00"]);
    }

    #[test]
    fn nothing_fires_where_no_day_matches() {
        let cron = Cron::parse("0 0 30 2 *", None).unwrap();
        assert_eq!(next_instant(&cron, &zone("Europe/Berlin"), at("2026-01-01T00:00:00Z")), None);
    }

    #[test]
    fn an_instant_is_never_its_own_successor() {
        let (cron, zone) = (Cron::parse("* * * * * *", None).unwrap(), zone("UTC"));
        let start = at("2026-01-01T00:00:00.999Z");
        assert_eq!(next_instant(&cron, &zone, start), Some(at("2026-01-01T00:00:01Z")));
        assert_eq!(next_instant(&cron, &zone, at("2026-01-01T00:00:01Z")), Some(at("2026-01-01T00:00:02Z")));
    }

    /// Steps through time minute by minute, knowing only the zone's offset at each minute.
    struct Walker<'a> {
        cron: &'a Cron,
        zone: &'a TimeZone,
        minute: Instant,
        /// The latest civil time so far.
        latest: DateTime,
        /// Whether the expression matches at each minute of a day that it matches.
        minutes: Vec<bool>,
        /// A day, and whether the expression matches it.
        day: (Date, bool),
    }

    impl Walker<'_> {
        const MINUTE: SignedDuration = SignedDuration::from_mins(1);

        fn begin<'a>(cron: &'a Cron, zone: &'a TimeZone, start: Instant) -> Walker<'a> {
            let latest = zone.to_offset(start).to_datetime(start);
            let minutes = |day: Date| -> Vec<bool> {
                let of = |hour| (0..60).map(move |minute| cron.matches(day.at(hour, minute, 0, 0)));
                (0..24).flat_map(of).collect()
            };
            let mut days = latest.date().series(1.day()).map(minutes);
            let minutes = days.find(|minutes| minutes.contains(&true)).unwrap();
            Walker { cron, zone, minute: start, latest, minutes, day: (Date::MIN, false) }
        }

        /// Whether the expression matches: looks a day up once, since an expression takes days and minutes apart.
        fn matches(&mut self, civil: DateTime) -> bool {
            let [hour, minute] = [civil.hour(), civil.minute()].map(|part| usize::from(part.unsigned_abs()));
            if !self.minutes[hour * 60 + minute] {
                return false;
            }
            if self.day.0 != civil.date() {
                self.day = (civil.date(), self.cron.matches(civil));
            }
            self.day.1
        }

        fn civil(&self) -> DateTime {
            self.zone.to_offset(self.minute).to_datetime(self.minute)
        }

        /// Whether the expression runs at the next minute.
        fn step(&mut self) -> bool {
            self.minute = self.minute.checked_add(Self::MINUTE).unwrap();
            let civil = self.civil();
            if !self.cron.names_hours() {
                self.latest = self.latest.max(civil);
                return self.matches(civil);
            }
            // All civil minutes since the last one: one, none in a fold, many in a gap.
            let mut runs = false;
            while self.latest < civil {
                self.latest = self.latest.checked_add(Self::MINUTE).unwrap();
                runs |= self.matches(self.latest);
            }
            runs
        }
    }

    fn agrees_with_the_walker(zone_name: &str, from: &str, expressions: &[&str]) {
        const YEARS: i64 = 10;
        let zone = zone(zone_name);
        for expression in expressions {
            let cron = Cron::parse(expression, None).unwrap();
            let start: Instant = from.parse().unwrap();
            let mut walker = Walker::begin(&cron, &zone, start);
            let mut next = next_instant(&cron, &zone, start.try_into().unwrap());
            let mut runs = 0;
            for _ in 0..YEARS * 366 * 24 * 60 {
                let walked: bool = walker.step();
                let minute: Timestamp = walker.minute.try_into().unwrap();
                assert_eq!(
                    walked,
                    next == Some(minute),
                    "{expression} in {zone_name} at {minute}: next is {next:?}"
                );
                if walked {
                    runs += 1;
                    next = next_instant(&cron, &zone, minute);
                    // From any time within the minute before, the result is the same.
                    let earlier = Timestamp::from_ms(minute.as_ms() - 1).unwrap();
                    assert_eq!(
                        next_instant(&cron, &zone, earlier),
                        Some(minute),
                        "{expression} in {zone_name}"
                    );
                }
            }
            assert!(runs >= YEARS, "{expression} in {zone_name} ran {runs} times");
        }
    }

    /// Named hours in and about the gaps and folds of all these zones, and expressions that follow elapsed time.
    const EXPRESSIONS: &[&str] = &[
        "30 2 * * *",
        "0,15,45 0-3 * * *",
        "10 */3 * * *",
        "59 23 L * *",
        "45 1 * * SUN",
        "0 */12 29 2,3,12 *",
    ];

    #[test]
    fn berlin_agrees_with_the_walker() {
        agrees_with_the_walker("Europe/Berlin", "2020-01-01T00:00:00Z", EXPRESSIONS);
    }

    #[test]
    fn new_york_agrees_with_the_walker() {
        agrees_with_the_walker("America/New_York", "2024-01-01T00:00:00Z", EXPRESSIONS);
    }

    /// The clock changes by half an hour.
    #[test]
    fn lord_howe_agrees_with_the_walker() {
        agrees_with_the_walker("Australia/Lord_Howe", "2024-01-01T00:00:00Z", EXPRESSIONS);
    }

    /// A day is left out at the end of 2011.
    #[test]
    fn apia_agrees_with_the_walker() {
        agrees_with_the_walker("Pacific/Apia", "2006-06-01T00:00:00Z", EXPRESSIONS);
    }

    /// Clocks are put back at midnight, from one day to the day before.
    #[test]
    fn havana_agrees_with_the_walker() {
        agrees_with_the_walker("America/Havana", "2024-01-01T00:00:00Z", EXPRESSIONS);
    }

    /// Clocks are put back for Ramadan, at dates that follow no rule.
    #[test]
    fn casablanca_agrees_with_the_walker() {
        agrees_with_the_walker("Africa/Casablanca", "2024-01-01T00:00:00Z", EXPRESSIONS);
    }
}
