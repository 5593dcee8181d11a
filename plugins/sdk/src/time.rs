//! Moments, as whole seconds. The calendar is Gregorian and UTC, without leap seconds, as Kubernetes' is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment: seconds since 1970-01-01T00:00:00Z. Written as RFC 3339, `2026-01-31T08:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

/// A text is not a moment in RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTime;

impl fmt::Display for InvalidTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a time in RFC 3339, such as 2026-01-31T08:00:00Z")
    }
}

impl std::error::Error for InvalidTime {}

/// 0000-01-01T00:00:00Z and 9999-12-31T23:59:59Z: what RFC 3339's four digits of a year can say.
const RANGE: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

const DAY: i64 = 24 * 60 * 60;

impl Time {
    /// A moment from seconds since the epoch. None outside the years 0 to 9999.
    pub fn from_unix(seconds: i64) -> Option<Self> {
        RANGE.contains(&seconds).then_some(Self(seconds))
    }

    /// Seconds since the epoch.
    pub fn unix(self) -> i64 {
        self.0
    }

    /// A later moment (an earlier one, if negative). None when it leaves the range.
    pub fn checked_add_secs(self, seconds: i64) -> Option<Self> {
        self.0.checked_add(seconds).and_then(Self::from_unix)
    }

    /// Seconds from `earlier` to this moment; negative when it is not earlier.
    pub fn secs_since(self, earlier: Self) -> i64 {
        // Both are within RANGE, so the difference is far from overflowing.
        self.0 - earlier.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0.div_euclid(DAY));
        let second = self.0.rem_euclid(DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

impl FromStr for Time {
    type Err = InvalidTime;

    /// Fractions of a second are cut off; any offset is accepted.
    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        parse(text.as_bytes()).and_then(Self::from_unix).ok_or(InvalidTime)
    }
}

fn parse(text: &[u8]) -> Option<i64> {
    let (head, rest) = text.split_at_checked(19)?;
    let number = |from: usize, to: usize| digits(head.get(from..to)?);
    let punctuation = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if punctuation.iter().any(|(at, mark)| head.get(*at) != Some(mark))
        || !matches!(head.get(10), Some(b'T' | b't'))
    {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    // Second 60 is RFC 3339's leap second; it counts as the first of the next minute.
    if !(1..=12).contains(&month)
        || !(1..=days_in(year, month)).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let offset = parse_offset(skip_fraction(rest)?)?;
    Some(days_before(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset)
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
    })
}

fn skip_fraction(rest: &[u8]) -> Option<&[u8]> {
    let Some((b'.', fraction)) = rest.split_first() else {
        return Some(rest);
    };
    let end = fraction.iter().position(|letter| !letter.is_ascii_digit())?;
    if end == 0 { None } else { fraction.get(end..) }
}

fn parse_offset(text: &[u8]) -> Option<i64> {
    match text {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            Some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of the years before `year`, counted from 0000-01-01. Year 0 is a leap year.
fn days_before_year(year: i64) -> i64 {
    let past = year - 1;
    year * 365 + past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400) + 1
}

/// 1970-01-01 in days from 0000-01-01.
const EPOCH: i64 = 719_528;

fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let months: i64 = (1..month).map(|earlier| days_in(year, earlier)).sum();
    days_before_year(year) + months + day - 1 - EPOCH
}

fn date_of(days_since_epoch: i64) -> (i64, i64, i64) {
    let days = days_since_epoch + EPOCH;
    // 400 years have 146,097 days. The estimate is at most one year too late.
    let estimate = days * 400 / 146_097;
    let year = if days_before_year(estimate + 1) <= days {
        estimate + 1
    } else if days_before_year(estimate) > days {
        estimate - 1
    } else {
        estimate
    };
    let mut rest = days - days_before_year(year);
    let mut month = 1;
    while rest >= days_in(year, month) {
        rest -= days_in(year, month);
        month += 1;
    }
    (year, month, rest + 1)
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in RFC 3339")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Time, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(feature = "crd")]
impl schemars::JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(text: &str) -> Option<i64> {
        text.parse().ok().map(Time::unix)
    }

    #[test]
    fn knows_dates_that_are_known() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59Z", -1),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2001-09-09T01:46:40Z", 1_000_000_000),
            ("2038-01-19T03:14:08Z", 2_147_483_648),
            ("0000-01-01T00:00:00Z", *RANGE.start()),
            ("9999-12-31T23:59:59Z", *RANGE.end()),
        ] {
            assert_eq!(unix(text), Some(seconds), "{text}");
            assert_eq!(Time::from_unix(seconds).unwrap().to_string(), text);
        }
    }

    #[test]
    fn every_day_of_the_range_comes_back() {
        let mut expected = (0, 1, 1);
        for day in RANGE.start().div_euclid(DAY)..=RANGE.end().div_euclid(DAY) {
            let (year, month, date) = date_of(day);
            assert_eq!((year, month, date), expected);
            assert_eq!(days_before(year, month, date), day);
            expected = if date < days_in(year, month) {
                (year, month, date + 1)
            } else if month < 12 {
                (year, month + 1, 1)
            } else {
                (year + 1, 1, 1)
            };
        }
    }

    #[test]
    fn reads_fractions_and_offsets() {
        assert_eq!(unix("2001-09-09T01:46:40.999999Z"), Some(1_000_000_000));
        assert_eq!(unix("2001-09-09T03:46:40+02:00"), Some(1_000_000_000));
        assert_eq!(unix("2001-09-08T20:16:40.5-05:30"), Some(1_000_000_000));
        assert_eq!(unix("2016-12-31T23:59:60Z"), unix("2017-01-01T00:00:00Z"));
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in [
            "",
            "2001-09-09",
            "2001-09-09T01:46:40",
            "2001-02-29T00:00:00Z",
            "2001-13-01T00:00:00Z",
            "2001-00-01T00:00:00Z",
            "2001-01-00T00:00:00Z",
            "2001-01-01T24:00:00Z",
            "2001-01-01T00:60:00Z",
            "2001-01-01T00:00:00.Z",
            "2001-01-01T00:00:00.5",
            "2001-01-01T00:00:00+24:00",
            "2001-01-01T00:00:00ZZ",
            "+001-01-01T00:00:00Z",
            "2001-01-01 00:00:00Z",
            "äääääääääääää",
            "0000-01-01T00:00:00+01:00",
        ] {
            assert_eq!(unix(text), None, "{text}");
        }
    }

    #[test]
    fn arithmetic_stays_in_the_range() {
        let start = Time::from_unix(0).unwrap();
        let later = start.checked_add_secs(90).unwrap();
        assert_eq!((later.secs_since(start), start.secs_since(later)), (90, -90));
        assert_eq!(start.checked_add_secs(i64::MAX), None);
        assert_eq!(Time::from_unix(*RANGE.end()).unwrap().checked_add_secs(1), None);
    }

    #[test]
    fn is_a_string_in_json() {
        let time: Time = serde_json::from_str("\"2026-01-31T08:00:00Z\"").unwrap();
        assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-01-31T08:00:00Z\"");
        assert!(serde_json::from_str::<Time>("\"soon\"").is_err());
    }
}
