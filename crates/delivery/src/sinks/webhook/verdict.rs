//! The meaning of an answer: a pure function of its status, its `Retry-After` and its first bytes.

use hyper::StatusCode;
use jiff::fmt::rfc2822::DateTimeParser;

/// The maximum wait that an answer can ask for, in milliseconds. A longer one is cut to this.
pub const MAX_RETRY_AFTER_MS: u64 = 3_600_000;

/// Parses HTTP dates, also those with a wrong weekday.
const DATE: DateTimeParser = DateTimeParser::new().relaxed_weekday(true);

/// The meaning of an answer for the message and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Any 2xx: the message is done.
    Done,
    /// 429, 502, 503, 504: the destination has failed. Nothing should be sent for a time.
    Unavailable {
        /// The wait in milliseconds from its `Retry-After`, at most [`MAX_RETRY_AFTER_MS`]; 0 without one.
        for_ms: u64,
        /// Status and first bytes of the answer.
        error: String,
    },
    /// 410: the destination wants no webhooks any more.
    Gone {
        /// Status and first bytes of the answer.
        error: String,
    },
    /// 400, 413, 415, 422: the destination will never accept this message.
    Rejected {
        /// Status and first bytes of the answer.
        error: String,
    },
    /// Anything else, redirects included: the attempt has failed.
    Failed {
        /// Status and first bytes of the answer.
        error: String,
    },
}

/// The verdict on an answer. `body` is its beginning; `now_ms` is the wall clock in milliseconds since 1970, for a `Retry-After` that is a date.
pub fn verdict(status: StatusCode, retry_after: Option<&str>, body: &[u8], now_ms: i64) -> Verdict {
    let error = || {
        let text = String::from_utf8_lossy(body);
        match text.trim() {
            "" => format!("HTTP {}", status.as_u16()),
            text => format!("HTTP {}: {text}", status.as_u16()),
        }
    };
    match status.as_u16() {
        200..=299 => Verdict::Done,
        429 | 502..=504 => {
            let for_ms = retry_after.and_then(|value| wait_ms(value, now_ms)).unwrap_or(0);
            Verdict::Unavailable { for_ms, error: error() }
        }
        410 => Verdict::Gone { error: error() },
        400 | 413 | 415 | 422 => Verdict::Rejected { error: error() },
        _ => Verdict::Failed { error: error() },
    }
}

/// The wait that a `Retry-After` asks for: seconds, or a date. `None` if it is neither.
fn wait_ms(value: &str, now_ms: i64) -> Option<u64> {
    let value = value.trim();
    let wait_ms = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is longer than any limit.
        value.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1_000)
    } else {
        let until = DATE.parse_timestamp(value).ok()?.as_millisecond();
        u64::try_from(until.saturating_sub(now_ms)).unwrap_or(0)
    };
    Some(wait_ms.min(MAX_RETRY_AFTER_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 784_111_777_000;

    fn of(status: u16, retry_after: Option<&str>) -> Verdict {
        verdict(StatusCode::from_u16(status).unwrap(), retry_after, b" why \n", NOW_MS)
    }

    #[test]
    fn each_status_has_its_verdict() {
        for status in 100..=999 {
            let error = format!("HTTP {status}: why");
            let expected = match status {
                200..=299 => Verdict::Done,
                429 | 502 | 503 | 504 => Verdict::Unavailable { for_ms: 0, error },
                410 => Verdict::Gone { error },
                400 | 413 | 415 | 422 => Verdict::Rejected { error },
                _ => Verdict::Failed { error },
            };
            assert_eq!(of(status, None), expected);
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_an_hour_at_most() {
        let wait = |value: &str| match of(503, Some(value)) {
            Verdict::Unavailable { for_ms, .. } => for_ms,
            other => panic!("{other:?}"),
        };
        let cases = [
            ("0", 0),
            (" 120 ", 120_000),
            ("3600", 3_600_000),
            ("3601", 3_600_000),
            ("99999999999999999999999", 3_600_000),
            // 08:49:37 is now.
            ("Sun, 06 Nov 1994 08:50:07 GMT", 30_000),
            ("Sun, 06 Nov 1994 08:49:07 GMT", 0),
            ("Sat, 06 Nov 2094 08:49:37 GMT", 3_600_000),
            ("Mon, 06 Nov 1994 08:50:07 GMT", 30_000),
            ("06 Nov 1994 08:50:07", 0),
            ("", 0),
            ("-5", 0),
            ("1.5", 0),
            ("soon", 0),
        ];
        for (value, expected) in cases {
            assert_eq!(wait(value), expected, "{value}");
        }
        assert_eq!(of(429, Some("7")), Verdict::Unavailable { for_ms: 7_000, error: "HTTP 429: why".into() });
        assert_eq!(of(500, Some("7")), Verdict::Failed { error: "HTTP 500: why".into() });
    }

    #[test]
    fn an_answer_without_a_text_is_its_status() {
        let expected = Verdict::Failed { error: "HTTP 302".into() };
        assert_eq!(verdict(StatusCode::FOUND, None, b"", 0), expected);
        let expected = Verdict::Failed { error: "HTTP 500: a\u{fffd}".into() };
        assert_eq!(verdict(StatusCode::INTERNAL_SERVER_ERROR, None, b"a\xff", 0), expected);
    }
}
