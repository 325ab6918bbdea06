//! The encoding of settings: the setting's number, then 0 if it follows the default, or 1 and its value.
//!
//! | number | setting | value, in varints |
//! |---|---|---|
//! | 1 | lease | milliseconds |
//! | 2 | max_attempts | the limit, 0 for none |
//! | 3 | backoff | base in ms, factor in percent, cap in ms, jitter in percent |
//! | 4 | max_pending | messages |
//! | 5 | pause | 0 running, 1 indefinite, 2 and its end (an instant) |
//! | 6 | levels | their number, then each in ms |
//! | 7 | partitions | how many |
//! | 8 | idempotency_ttl | milliseconds |
//! | 9 | dead_ttl | milliseconds |
//! | 10 | dead_max | messages |
//! | 11 | on_expiry | 0 dead, 1 drop |
//! | 12 | max_leased | messages |
//! | 13 | lapse_backoff | 0 never, 1 from the first lapse on, 2 from the second |

use dwell_model::{Backoff, LapseBackoff, OnExpiry, Pause, Setting, SettingChange, SettingName, Timestamp};

use super::encoding::{ByteCursor, Read, Unreadable, put_varint};
use super::record::{attempts_from_int, attempts_to_int, malformed, put_instant};

pub(super) fn put_change(out: &mut Vec<u8>, change: &SettingChange, now: Timestamp) {
    match change {
        SettingChange::Reset(name) => {
            put_varint(out, u64::from(*name as u8));
            out.push(0);
        }
        SettingChange::Set(setting) => {
            put_varint(out, u64::from(setting.name() as u8));
            out.push(1);
            put_value(out, setting, now);
        }
    }
}

fn put_value(out: &mut Vec<u8>, setting: &Setting, now: Timestamp) {
    match setting {
        Setting::LeaseMs(ms) | Setting::IdempotencyMs(ms) | Setting::DeadTtlMs(ms) => put_varint(out, *ms),
        Setting::MaxAttempts(limit) => put_varint(out, attempts_to_int(*limit)),
        Setting::Backoff(Backoff { base_ms, factor_percent, cap_ms, jitter_percent }) => {
            for value in [*base_ms, u64::from(*factor_percent), *cap_ms, u64::from(*jitter_percent)] {
                put_varint(out, value);
            }
        }
        Setting::MaxPending(messages) | Setting::DeadMax(messages) | Setting::MaxLeased(messages) => {
            put_varint(out, *messages);
        }
        Setting::OnExpiry(OnExpiry::Dead) => out.push(0),
        Setting::OnExpiry(OnExpiry::Drop) => out.push(1),
        Setting::LapseBackoff(LapseBackoff::Never) => out.push(0),
        Setting::LapseBackoff(LapseBackoff::First) => out.push(1),
        Setting::LapseBackoff(LapseBackoff::Second) => out.push(2),
        Setting::Pause(Pause::Running) => out.push(0),
        Setting::Pause(Pause::Indefinite) => out.push(1),
        Setting::Pause(Pause::Until(end)) => {
            out.push(2);
            put_instant(out, *end, now);
        }
        Setting::Levels(levels) => {
            put_varint(out, levels.len() as u64);
            for level in levels {
                put_varint(out, *level);
            }
        }
        Setting::Partitions(partitions) => put_varint(out, u64::from(*partitions)),
    }
}

pub(super) fn read_change(cursor: &mut ByteCursor<'_>, now: Timestamp) -> Read<SettingChange> {
    let number = cursor.varint()?;
    let name = SettingName::ALL.into_iter().find(|name| u64::from(*name as u8) == number);
    let name = name.ok_or(Unreadable::Newer("a setting that this version does not know"))?;
    match cursor.byte()? {
        0 => Ok(SettingChange::Reset(name)),
        1 => Ok(SettingChange::Set(read_value(cursor, name, now)?)),
        _ => Err(malformed("a change of a setting")),
    }
}

fn read_value(cursor: &mut ByteCursor<'_>, name: SettingName, now: Timestamp) -> Read<Setting> {
    let out_of_range = |_| malformed("a setting is out of range");
    let percent = |value: u64| u32::try_from(value).map_err(out_of_range);
    Ok(match name {
        SettingName::Lease => Setting::LeaseMs(cursor.varint()?),
        SettingName::MaxAttempts => Setting::MaxAttempts(attempts_from_int(cursor.varint()?)?),
        SettingName::Backoff => Setting::Backoff(Backoff {
            base_ms: cursor.varint()?,
            factor_percent: percent(cursor.varint()?)?,
            cap_ms: cursor.varint()?,
            jitter_percent: percent(cursor.varint()?)?,
        }),
        SettingName::MaxPending => Setting::MaxPending(cursor.varint()?),
        SettingName::Pause => Setting::Pause(match cursor.byte()? {
            0 => Pause::Running,
            1 => Pause::Indefinite,
            2 => {
                let end = now.as_ms().checked_add(cursor.zigzag()?);
                let end = end.and_then(|ms| Timestamp::from_ms(ms).ok());
                Pause::Until(end.ok_or(malformed("a pause ends at no instant"))?)
            }
            _ => return Err(malformed("a pause")),
        }),
        SettingName::Levels => {
            let count = cursor.varint()?;
            if count > Setting::MAX_LEVELS as u64 {
                return Err(malformed("a table has too many levels"));
            }
            Setting::Levels((0..count).map(|_| cursor.varint()).collect::<Read<_>>()?)
        }
        SettingName::Partitions => {
            Setting::Partitions(u16::try_from(cursor.varint()?).map_err(out_of_range)?)
        }
        SettingName::IdempotencyTtl => Setting::IdempotencyMs(cursor.varint()?),
        SettingName::DeadTtl => Setting::DeadTtlMs(cursor.varint()?),
        SettingName::DeadMax => Setting::DeadMax(cursor.varint()?),
        SettingName::OnExpiry => Setting::OnExpiry(match cursor.byte()? {
            0 => OnExpiry::Dead,
            1 => OnExpiry::Drop,
            _ => return Err(malformed("what becomes of what expires")),
        }),
        SettingName::MaxLeased => Setting::MaxLeased(cursor.varint()?),
        SettingName::LapseBackoff => Setting::LapseBackoff(match cursor.byte()? {
            0 => LapseBackoff::Never,
            1 => LapseBackoff::First,
            2 => LapseBackoff::Second,
            _ => return Err(malformed("a backoff after lapses")),
        }),
    })
}
