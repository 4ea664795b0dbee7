//! Parsers of values on a command line or in a file, each with an error that shows a valid value.

use archon_kvstore_node::{COPY_BYTES_PER_SECOND_MIN, EngineKind, MEMORY_BYTES_MIN};
use archon_types::{RangeLimits, limits};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Parses a time with its unit: `500ms`, `5s`, `1.5s`, `2m`, `1h`; above zero, at most a day.
///
/// # Errors
/// Description of the fault, and a valid example.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    duration_within(text, &(TIME_MIN..=DAY))
}

/// Parses the duration of a state: as any time, a second to thirty days.
///
/// # Errors
/// Description of the fault, and a valid example.
pub(crate) fn standing(text: &str) -> Result<Duration, String> {
    duration_within(text, &(Duration::from_secs(1)..=30 * DAY))
}

/// Parses the age of a state before it is reported: as any time, up to thirty days.
///
/// # Errors
/// Description of the fault, and a valid example.
pub(crate) fn threshold(text: &str) -> Result<Duration, String> {
    duration_within(text, &(TIME_MIN..=30 * DAY))
}

/// Parses a time to live: as any time, up to a hundred years.
///
/// # Errors
/// Description of the fault, and a valid example.
pub(super) fn ttl(text: &str) -> Result<Duration, String> {
    duration_within(text, &(TIME_MIN..=36_500 * DAY))
}

/// Parses a polling interval: 200 ms to ten minutes.
///
/// # Errors
/// Description of the fault, and a valid example.
pub(super) fn refresh(text: &str) -> Result<Duration, String> {
    duration_within(text, &(Duration::from_millis(200)..=Duration::from_secs(600)))
}

const TIME_MIN: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);
/// Units of time, the largest first, in milliseconds.
const TIME_UNITS: [(&str, u32); 6] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

/// Writes a time as a user does, in the largest unit without a fraction: `1s`, `90s`, `1h`.
pub(super) fn time(time: Duration) -> String {
    let whole = |(_, ms): &&(&str, u32)| time.as_millis() > 0 && time.as_millis().is_multiple_of((*ms).into());
    let (unit, ms) = TIME_UNITS.iter().find(whole).unwrap_or(&("ms", 1));
    format!("{}{unit}", time.as_millis() / u128::from(*ms))
}

/// Parses a time within bounds.
///
/// # Errors
/// Description of the fault, and a valid example or the bounds.
pub(super) fn duration_within(text: &str, range: &RangeInclusive<Duration>) -> Result<Duration, String> {
    let text = text.trim();
    let out_of_bounds = || Err(format!("a time must be between {} and {}", time(*range.start()), time(*range.end())));
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let milliseconds_each = match unit.trim() {
        "" if text.is_empty() => return Err("a time is missing; write 500ms or 5s".to_owned()),
        "" if text.parse() == Ok(0.0) => return out_of_bounds(),
        "" => return Err(format!("a time needs a unit: write {text}s or {text}ms")),
        unit => match TIME_UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, milliseconds)) => f64::from(*milliseconds),
            None => {
                return Err(format!("{unit:?} is not a unit of time; use ms, s, m, h or d, as in 500ms or 5s"));
            }
        },
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number; write 500ms or 5s"))?;
    let milliseconds = number * milliseconds_each;
    let in_milliseconds = |time: &Duration| time.as_millis() as f64;
    if milliseconds < in_milliseconds(range.start()) || milliseconds > in_milliseconds(range.end()) {
        return out_of_bounds();
    }
    Ok(Duration::from_millis(milliseconds.round() as u64))
}

/// Parses a size with its unit: `64MiB`, `1GiB`, `1.5GiB`.
///
/// # Errors
/// Description of the fault, and a valid example.
fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let bytes_each: f64 = match unit.trim() {
        "B" => 1.0,
        "KiB" => f64::from(1_u32 << 10),
        "MiB" => f64::from(1_u32 << 20),
        "GiB" => f64::from(1_u32 << 30),
        "TiB" => 1024.0 * f64::from(1_u32 << 30),
        "" if text.is_empty() => return Err("a size is missing; write 512MiB or 1GiB".to_owned()),
        // Zero needs no unit; the caller decides whether it is possible.
        "" if text.parse() == Ok(0.0) => 1.0,
        _ if text == "none" => return Err("to have none, leave the option out".to_owned()),
        "" => return Err(format!("a size needs a unit: write {text}MiB or {text}GiB")),
        other => {
            return Err(format!("{other:?} is not a unit of size; use B, KiB, MiB, GiB or TiB, as in 512MiB or 1GiB"));
        }
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number; write 512MiB or 1GiB"))?;
    let bytes = number * bytes_each;
    if bytes >= u64::MAX as f64 {
        return Err(format!("{text} is too large: a size is less than 16777216TiB"));
    }
    Ok(bytes as u64)
}

/// Parses the memory of a node.
///
/// # Errors
/// Description of the fault, and the minimum.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        little if little < MEMORY_BYTES_MIN => {
            Err(format!("{text:?} is too little for a node; the minimum is {} MiB", MEMORY_BYTES_MIN >> 20))
        }
        bytes => Ok(bytes),
    }
}

/// Parses a rate of copying: none, or one at which a copy can finish.
///
/// # Errors
/// Description of the fault, and the minimum.
pub(super) fn copy_rate(text: &str) -> Result<u64, String> {
    let rate = text.parse().map_err(|_| format!("{text:?} is not a number of bytes per second"))?;
    if (1..COPY_BYTES_PER_SECOND_MIN).contains(&rate) {
        return Err(format!(
            "{rate} bytes per second is less than the minimum of {COPY_BYTES_PER_SECOND_MIN}; use 0 for no limit"
        ));
    }
    Ok(rate)
}

/// Minimum pace of a backup, in bytes per second: a node ends its snapshot at a slower one.
const PACE_MIN: u64 = 1 << 20;

/// Parses bytes per second, as a size.
///
/// # Errors
/// Description of the fault, and the minimum.
pub(crate) fn pace(text: &str) -> Result<u64, String> {
    match size(text)? {
        slow if slow < PACE_MIN => {
            Err(format!("{text:?} per second is too slow to finish a partition; the minimum is 1MiB"))
        }
        pace => Ok(pace),
    }
}

/// Parses the size above which partitions are split.
///
/// # Errors
/// Description of the fault, and the minimum.
pub(crate) fn split_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    RangeLimits { split_above_bytes: Some(bytes), ..RangeLimits::NONE }.check().map_err(|error| error.message)?;
    Ok(bytes)
}

/// Parses the size up to which partitions are merged.
///
/// # Errors
/// Description of the fault, and the maximum.
pub(crate) fn merge_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    RangeLimits { merge_below_bytes: Some(bytes), ..RangeLimits::NONE }.check().map_err(|error| error.message)?;
    Ok(bytes)
}

/// Parses a key at which a new table is split; `--hex` decides its form.
///
/// # Errors
/// Description of the fault.
pub(crate) fn split_point(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("a key is empty; write keys separated by single commas".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses operations per second.
///
/// # Errors
/// Description of the fault, and a valid example.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let rate =
        text.trim().parse().map_err(|_| format!("{text:?} is not a number of operations per second; write 5000"))?;
    RangeLimits { split_above_rate: Some(rate), ..RangeLimits::NONE }.check().map_err(|error| error.message)?;
    Ok(rate)
}

/// Parses a storage engine.
///
/// # Errors
/// The list of engines.
pub(crate) fn engine(text: &str) -> Result<EngineKind, String> {
    text.trim().parse().map_err(|error: archon_kvstore_node::engine::UnknownEngine| error.to_string())
}

/// Parses an address to call, `host:port`; a leading `http://` is dropped.
///
/// # Errors
/// Description of the fault, and a valid example.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let trimmed = text.trim();
    let bare = trimmed.strip_prefix("http://").unwrap_or(trimmed).trim_end_matches('/');
    if bare.starts_with("https://") {
        return Err("https:// is not supported; write host:port, and use --tls-dir for TLS".to_owned());
    }
    if bare.is_empty() {
        return Err("an address is missing; write host:port, as in 127.0.0.1:7101".to_owned());
    }
    // Colons within an IPv6 address precede no port.
    let Some((host, port)) = bare.rsplit_once(':').filter(|_| !bare.ends_with(']')) else {
        return Err(format!("{bare:?} has no port; write host:port, as in 127.0.0.1:7101 or [::1]:7101"));
    };
    port_of(port)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let good = match bracketed {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(plain),
    };
    if !good {
        return Err(format!(
            "{host:?} is not a host; write host:port, as in 127.0.0.1:7101, db.example.org:7101 or [::1]:7101"
        ));
    }
    Ok(bare.to_owned())
}

/// Parses an address to listen on, `ip:port`; `localhost` is 127.0.0.1 and port 0 lets the system choose.
///
/// # Errors
/// Description of the fault, and a valid example.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    let literal = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    literal.parse().map_err(|_| {
        format!(
            "{text:?} is not an address to listen on; write ip:port, as in 127.0.0.1:7101 or \
                              [::1]:7101"
        )
    })
}

/// Parses a voter of the quorum, `id=host:port`.
///
/// # Errors
/// Description of the fault, and a valid example.
pub(crate) fn peer(text: &str) -> Result<(u64, String), String> {
    let Some((id, at)) = text.trim().split_once('=') else {
        return Err(format!("{text:?} is not a voter; write ID=H:P, as in 1=127.0.0.1:7101"));
    };
    let id: u64 = id.trim().parse().map_err(|_| format!("{id:?} is not a coordinator id; use 1, 2, 3, …"))?;
    if id == 0 {
        return Err("coordinator ids begin at 1".to_owned());
    }
    Ok((id, address(at)?))
}

/// Parses a partition: its number, optionally preceded by its table.
///
/// # Errors
/// Description of the fault, and a valid example.
pub(crate) fn partition(text: &str) -> Result<(Option<String>, u32), String> {
    let (table, number) = match text.rsplit_once('/') {
        Some((table, number)) => (Some(name(table)?), number),
        None => (None, text),
    };
    if number.parse::<i64>().is_ok_and(|number| number < 0) {
        return Err("a partition number is 0 or more".to_owned());
    }
    let number = number.parse().map_err(|_| {
        format!("{text:?} is not a partition; write a number, or a table and a number, as in 7 or orders/7")
    })?;
    Ok((table, number))
}

/// Parses the name of a node, a table or a zone.
///
/// # Errors
/// Description of the fault.
pub(crate) fn name(text: &str) -> Result<String, String> {
    limits::check_name("given", text).map_err(|error| error.message)?;
    Ok(text.to_owned())
}

fn port_of(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("{text:?} is not a port; use 1 to 65535, as in 127.0.0.1:7101")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_a_unit_and_respect_limits() {
        assert_eq!((size("1GiB"), size("1.5 MiB"), size("2097152B")), (Ok(1 << 30), Ok(3 << 19), Ok(1 << 21)));
        for (bad, why) in [
            ("", "is missing"),
            ("64", "64MiB or 64GiB"),
            ("64MB", "not a unit of size"),
            ("1.2.3GiB", "not a number"),
            ("1023KiB", "the minimum is 1048576"),
            ("0B", "the minimum"),
            ("0", "the minimum"),
            ("none", "leave the option out"),
            ("99999999TiB", "less than 16777216TiB"),
        ] {
            let error = split_size(bad).unwrap_err();
            assert!(error.contains(why), "{bad:?}: {error}");
        }
        assert_eq!((merge_size("1B"), merge_size("16MiB")), (Ok(1), Ok(1 << 24)));
        for bad in ["0B", "17MiB"] {
            assert!(merge_size(bad).unwrap_err().contains("(16MiB)"), "{bad}");
        }
        assert_eq!(rate("5000"), Ok(5_000));
        assert!(rate("99").unwrap_err().contains("the minimum is 100"));
        assert!(rate("many").unwrap_err().contains("write 5000"));
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(ttl("30d"), Ok(Duration::from_secs(30 * 24 * 3600)));
        assert!(ttl("0s").is_err() && ttl("36501d").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("5").unwrap_err().contains("5s or 5ms"));
        assert!(!duration("0").unwrap_err().contains("0s"), "which is refused as well");
        assert!(duration("").unwrap_err().contains("is missing"));
        for bad in ["", "s", "0s", "-1s", "5 weeks", "1e9s", "25h", "1.2.3s", "0.1ms", "NaNs"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn duration_of_a_state_may_be_days() {
        assert_eq!(standing("30d"), Ok(Duration::from_secs(30 * 24 * 3_600)));
        assert_eq!(standing("36h"), Ok(Duration::from_secs(36 * 3_600)));
        assert_eq!(duration("1d"), duration("24h"));
        for bad in ["31d", "999ms", "0", "2w"] {
            assert!(standing(bad).is_err(), "{bad:?}");
        }
        assert_eq!(standing("721h").unwrap_err(), "a time must be between 1s and 30d");
        assert_eq!(refresh("11m").unwrap_err(), "a time must be between 200ms and 10m");
        assert_eq!([0, 1, 90_000, 86_400_000].map(Duration::from_millis).map(time), ["0ms", "1ms", "90s", "1d"]);
        assert_eq!((threshold("7d"), threshold("1ms")), (standing("168h"), duration("1ms")));
    }

    #[test]
    fn invalid_addresses_show_a_valid_one() {
        assert_eq!(address("http://127.0.0.1:7101/"), Ok("127.0.0.1:7101".to_owned()));
        assert_eq!(address("[::1]:7101"), Ok("[::1]:7101".to_owned()));
        assert!(address("[::1]").unwrap_err().contains("\"[::1]\" has no port"));
        assert!(address(" ").unwrap_err().contains("an address is missing"));
        assert_eq!(address("coordinator-1.archon:7101"), Ok("coordinator-1.archon:7101".to_owned()));
        for bad in ["", "nowhere", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:99999", ":1", "a b:1", "::1:7101", "[x]:1"] {
            assert!(address(bad).unwrap_err().contains("127.0.0.1:7101"), "{bad:?}");
        }
    }

    #[test]
    fn listen_address_accepts_port_zero_and_localhost() {
        assert_eq!(listen("localhost:0"), Ok(SocketAddr::from(([127, 0, 0, 1], 0))));
        assert!(listen("example.org:1").is_err());
    }

    #[test]
    fn voter_ids_start_at_one() {
        assert_eq!(peer("2=127.0.0.1:7102"), Ok((2, "127.0.0.1:7102".to_owned())));
        for bad in ["127.0.0.1:1", "0=127.0.0.1:1", "x=127.0.0.1:1", "1=nowhere"] {
            assert!(peer(bad).is_err(), "{bad:?}");
        }
    }
}
