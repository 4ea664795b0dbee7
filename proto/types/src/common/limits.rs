//! Sizes that the client and the server both enforce, so that an oversized request fails early with a clear message.

use crate::Millis;
use crate::error::{ErrorDetail, ErrorKind};
use crate::operations::expiry::Expiry;
use crate::tables::key_range::KeyRange;
use bytes::Bytes;
use std::ops::RangeInclusive;

/// Maximum number of moves in a plan: those that fit into one entry of the coordinators' log. The next plan goes on from
/// there.
pub const PLAN_MOVES_MAX: usize = 32_768;
/// Maximum number of goals that a plan lists as unmet.
pub const PLAN_UNMET_MAX: usize = 1_024;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 4 * 1024;
/// Longest bound of a key range, in bytes: the immediate successor of the longest key is one byte longer.
pub const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;
/// Largest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Largest batch of operations in one message, in bytes of keys and values.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most operations in one message.
pub const BATCH_OPS_MAX: usize = 4_096;
/// Most entries that one scan of a partition may request; pages are bounded in bytes too.
pub const SCAN_LIMIT_MAX: u32 = 10_000;
/// Most bytes of keys and values in the page that answers one scan of a partition.
pub const SCAN_BYTES_MAX: usize = 1024 * 1024;
/// Page bytes for each requested entry; the admission cost of a scan.
const SCAN_ENTRY_BYTES: usize = 1024;
/// Minimum bytes of a page, if there is as much data.
const SCAN_BYTES_MIN: usize = 4 * 1024;
/// Admission cost of an operation in addition to its keys and values, so that large numbers of tiny operations are
/// bounded too.
pub const OPERATION_OVERHEAD_BYTES: usize = 256;
/// Largest gRPC message; a batch with its envelope.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Largest push of a coordinator to a node, with all duties of the node.
pub const PUSH_BYTES_MAX: usize = 8 * MESSAGE_BYTES_MAX;
/// Longest node, zone or table name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest address, in bytes: a DNS name, a colon and a port.
pub const ADDRESS_BYTES_MAX: usize = 260;
/// Largest page of a merge or a snapshot, in bytes of keys and values; a page holds at least one row.
pub const PAGE_BYTES_MAX: usize = 256 * 1024;
/// Largest page of a copy, in the same way.
pub const COPY_PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Most rows in a page of either kind.
pub const PAGE_ROWS_MAX: usize = 4_096;
/// Most partitions of all tables together; also the most that one node may have duties for.
pub const PARTITIONS_MAX: usize = 1_048_576;
/// Most replicas of deleted partitions that their nodes have not deleted yet.
pub const CONDEMNED_MAX: usize = 1_048_576;
/// Most replicas that one node may hold or have duties for: one per partition, and those that it has not deleted yet.
pub const NODE_REPLICAS_MAX: usize = PARTITIONS_MAX + CONDEMNED_MAX;
/// Largest piece of a table, in bytes, unless a single row is larger.
pub const PIECE_BYTES_MAX: usize = 1024 * 1024;
/// Largest table updates in the answer to a heartbeat, in bytes: they must not delay a lease. Larger updates are
/// pushed.
pub const NEWS_BYTES_MAX: usize = 64 * 1024;
/// Weights of a node; [`WEIGHT_ORDINARY`] is the default.
pub const WEIGHTS: RangeInclusive<u32> = 1..=10_000;
/// The weight of an ordinary node.
pub const WEIGHT_ORDINARY: u32 = 100;
/// Most replicas of a partition.
pub const REPLICAS_MAX: u8 = 7;
/// Most coordinators in any list of addresses.
pub const COORDINATORS_MAX: usize = 16;
/// Most tables at once: a list of all of them fits into one administrative answer.
pub const TABLES_MAX: usize = 65_536;
/// Most tables in a list that a member reads: clusters of earlier versions may have as many as partitions.
pub const TABLES_READ_MAX: usize = PARTITIONS_MAX;
/// Most split keys of all tables together, in bytes. Each one bounds two partitions, so the duties of a node with
/// [`NODE_ASSIGNED_MAX`] of them fit into one push, and the state of the coordinators into one snapshot.
pub const SPLIT_KEYS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most partitions that coordinators assign to one node. A node may have been assigned more by earlier versions.
pub const NODE_ASSIGNED_MAX: u32 = 131_072;
/// Most leases that coordinators assign to one participant: its duties fit into one answer.
pub const PARTICIPANT_ASSIGNED_MAX: u32 = 32_768;
/// Largest plausible distance of a version above a node's incarnation: both are positions in the coordinators' log, and
/// no log grows by so many entries while a node runs.
pub const VERSIONS_AHEAD_MAX: u64 = 1 << 40;
/// Largest plausible distance of an epoch above the one in a partition's row. An epoch rises by one with each granted
/// or ended leadership: even a row that is years old lags behind by less, and no node could lead beyond the last epoch.
pub const EPOCHS_AHEAD_MAX: u64 = 1 << 32;

/// Returns the bytes of keys and values after which a scan page of `limit` requested entries ends. A single larger
/// entry is still returned.
pub const fn scan_bytes_max(limit: u32) -> usize {
    let bytes = (limit as usize).saturating_mul(SCAN_ENTRY_BYTES);
    if bytes < SCAN_BYTES_MIN {
        SCAN_BYTES_MIN
    } else if bytes > SCAN_BYTES_MAX {
        SCAN_BYTES_MAX
    } else {
        bytes
    }
}

/// Checks a key: 1 to [`KEY_BYTES_MAX`] bytes of any kind.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`], naming the length found and the limit.
pub fn check_key(key: &[u8]) -> Result<(), ErrorDetail> {
    if key.is_empty() {
        return Err(invalid("the key is empty; give at least one byte"));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(invalid(format!("the key has {} bytes; the limit is {KEY_BYTES_MAX}", key.len())));
    }
    Ok(())
}

/// Checks a value: at most [`VALUE_BYTES_MAX`]. Any bytes are valid, including none.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`], naming the length found and the limit.
pub fn check_value(value: &[u8]) -> Result<(), ErrorDetail> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(invalid(format!("the value has {} bytes; the limit is {VALUE_BYTES_MAX}", value.len())));
    }
    Ok(())
}

/// Latest expiry, and longest time to live, in milliseconds: a signed integer of 64 bits, as in Redis. Sums with log times
/// do not overflow.
pub const EXPIRY_MS_MAX: u64 = i64::MAX as u64;

/// Returns the expiry of a value that is written at log time `at` with a time to live. It is at most [`EXPIRY_MS_MAX`], so
/// that the value can be written again with it, as by a copy or an import.
pub fn expiry_after(at: Millis, ttl_ms: u64) -> Millis {
    Millis::new(at.get().saturating_add(ttl_ms).min(EXPIRY_MS_MAX))
}

/// Checks an expiry: a time to live of at least one millisecond, and times of at most [`EXPIRY_MS_MAX`].
///
/// # Errors
/// [`ErrorKind::InvalidArgument`].
pub fn check_expiry(expiry: Expiry) -> Result<(), ErrorDetail> {
    match expiry {
        Expiry::After(0) => Err(invalid("the time to live is 0 ms; give at least 1 ms")),
        Expiry::After(millis) if millis > EXPIRY_MS_MAX => {
            Err(invalid(format!("the time to live is {millis} ms; the limit is {EXPIRY_MS_MAX}")))
        }
        Expiry::At(time) if time.get() > EXPIRY_MS_MAX => {
            Err(invalid(format!("the expiry is {} ms; the limit is {EXPIRY_MS_MAX}", time.get())))
        }
        Expiry::After(_) | Expiry::At(_) | Expiry::Keep => Ok(()),
    }
}

/// Checks a scan: a limit of 1 to [`SCAN_LIMIT_MAX`]; bounds at most one byte longer than a key ([`BOUND_BYTES_MAX`]),
/// which may be empty and may end within a character.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`], naming the value found and the limit.
pub fn check_scan(keys: &KeyRange, limit: u32) -> Result<(), ErrorDetail> {
    if !(1..=SCAN_LIMIT_MAX).contains(&limit) {
        return Err(invalid(format!("the limit is {limit}; it must be 1 to {SCAN_LIMIT_MAX}")));
    }
    let end = keys.end.as_ref().map_or(0, Bytes::len);
    for (what, length) in [("start", keys.begin.len()), ("end", end)] {
        if length > BOUND_BYTES_MAX {
            return Err(invalid(format!("the {what} of the scan has {length} bytes; the limit is {BOUND_BYTES_MAX}")));
        }
    }
    Ok(())
}

/// Checks the name of a node, a zone or a table: 1 to 64 bytes of letters, digits, `-`, `_` and `.`, not starting with
/// `-` or `.`. `what` names the kind of object for the error.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`], quoting the name.
pub fn check_name(what: &str, name: &str) -> Result<(), ErrorDetail> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(invalid(format!("the {what} name {name:?} must have 1 to {NAME_BYTES_MAX} bytes")));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.starts_with(['-', '.']) || !name.chars().all(allowed) {
        return Err(invalid(format!(
            "the {what} name {name:?} is invalid: use letters, digits, '-', '_' and '.', and do not begin with '-' or '.'"
        )));
    }
    Ok(())
}

/// Checks the name of a registering node or participant: like any name, but not of digits alone. Members can be
/// addressed by number as well, so such a name would hide the member with that number.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`], quoting the name.
pub fn check_member_name(what: &str, name: &str) -> Result<(), ErrorDetail> {
    check_name(what, name)?;
    if name.chars().all(|c| c.is_ascii_digit()) {
        return Err(invalid(format!("the {what} name {name:?} is a number; add a letter, as in \"{what}-{name}\"")));
    }
    Ok(())
}

/// Longest reason for an operator's command, in characters.
pub const WHY_CHARS_MAX: usize = 200;

/// Checks the reason for an operator's command: short, on one line, without control characters. It may be empty.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`], with the limit.
pub fn check_why(why: &str) -> Result<(), ErrorDetail> {
    let count = why.chars().count();
    if count > WHY_CHARS_MAX {
        return Err(invalid(format!("the reason has {count} characters; the limit is {WHY_CHARS_MAX}")));
    }
    if crate::common::text::plain(why) != why {
        return Err(invalid(format!("the reason {why:?} holds control characters")));
    }
    Ok(())
}

/// Checks the address of a process: `host:port`, with a port that can be dialled and IPv6 in brackets.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`], quoting the address.
pub fn check_address(address: &str) -> Result<(), ErrorDetail> {
    if address.len() > ADDRESS_BYTES_MAX {
        return Err(invalid(format!("the address has {} bytes; the limit is {ADDRESS_BYTES_MAX}", address.len())));
    }
    let well_formed = address.rsplit_once(':').is_some_and(|(host, port)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        !host.is_empty()
            && (bracketed || !host.contains(':'))
            && !host.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '@'))
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if !well_formed {
        return Err(invalid(format!("{address:?} is not an address; write host:port, such as 10.0.0.7:7201")));
    }
    Ok(())
}

fn invalid(message: impl Into<String>) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_any_bytes_within_limits() {
        assert!(check_key(&[b'k'; KEY_BYTES_MAX]).is_ok());
        assert!(check_key(&[b'k'; KEY_BYTES_MAX + 1]).is_err());
        assert!(check_key(b"").is_err());
        assert!(check_key(b"a\xff\x00").is_ok(), "keys are bytes, not text");
    }

    #[test]
    fn scans_are_limited_in_entries_and_bound_bytes() {
        let keys = |begin: &'static [u8], end: &'static [u8]| KeyRange {
            begin: Bytes::from_static(begin),
            end: Some(Bytes::from_static(end)),
        };
        let bytes = |count| &*vec![b'k'; count].leak();
        let (bound, long) = (bytes(BOUND_BYTES_MAX), bytes(BOUND_BYTES_MAX + 1));
        assert!(check_scan(&keys(b"", b"\xff"), 1).is_ok() && check_scan(&keys(bound, bound), SCAN_LIMIT_MAX).is_ok());
        assert!(check_scan(&KeyRange::ALL, 0).is_err() && check_scan(&KeyRange::ALL, SCAN_LIMIT_MAX + 1).is_err());
        assert!(check_scan(&keys(long, b""), 1).unwrap_err().message.contains("start"));
        assert!(check_scan(&keys(b"", long), 1).unwrap_err().message.contains("end"));
    }

    #[test]
    fn page_holds_the_requested_entries_within_bounds() {
        assert_eq!(scan_bytes_max(1), SCAN_BYTES_MIN);
        assert_eq!(scan_bytes_max(256), 256 * SCAN_ENTRY_BYTES);
        assert_eq!((scan_bytes_max(SCAN_LIMIT_MAX), scan_bytes_max(u32::MAX)), (SCAN_BYTES_MAX, SCAN_BYTES_MAX));
    }

    #[test]
    fn expiries_are_bounded() {
        let most = EXPIRY_MS_MAX;
        for good in [Expiry::Keep, Expiry::After(1), Expiry::After(most), Expiry::At(Millis::new(most))] {
            assert!(check_expiry(good).is_ok(), "{good:?}");
        }
        let latest = expiry_after(Millis::new(1), most);
        assert!(latest == Millis::new(most) && check_expiry(Expiry::At(latest)).is_ok(), "{latest}");
        assert_eq!(expiry_after(Millis::new(5), 7), Millis::new(12));
        for bad in [Expiry::After(0), Expiry::After(most + 1), Expiry::At(Millis::new(u64::MAX))] {
            assert!(check_expiry(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn addresses_are_checked() {
        for good in ["127.0.0.1:80", "[::1]:4000", "athens.example:65535"] {
            assert!(check_address(good).is_ok(), "{good}");
        }
        let bad =
            ["", ":80", "host", "host:", "host:0", "host:65536", "host:+1", "a b:1", "http://h:1", "h\n:1", "::1:80"];
        for bad in bad {
            assert!(check_address(bad).is_err(), "{bad:?}");
        }
        assert!(check_address(&format!("{}:1", "h".repeat(300))).is_err());
    }

    #[test]
    fn names_unsafe_in_scripts_are_rejected() {
        for bad in ["", "-x", ".x", "a b", "a/b", "ü", &"n".repeat(65)] {
            assert!(check_name("node", bad).is_err(), "{bad:?}");
        }
        assert!(check_name("node", "athens-1.eu_west").is_ok());
        assert!(check_member_name("node", "7").unwrap_err().message.contains("\"node-7\""));
        assert!(check_member_name("node", "7a").is_ok() && check_name("node", "7").is_ok());
    }
}
