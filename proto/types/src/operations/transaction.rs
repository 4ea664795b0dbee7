//! Several keys of one partition in one operation: a transaction, which writes them if its checks hold, and a read.

use crate::common::limits::{OPERATION_OVERHEAD_BYTES, check_expiry, check_key, check_value};
use crate::common::text::shown_key;
use crate::error::{ErrorDetail, ErrorKind};
use crate::ids::Revision;
use crate::operations::expiry::Expiry;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Most checks of a transaction, most writes, and most keys of one read.
pub const TRANSACTION_KEYS_MAX: usize = 1_024;
/// Most bytes of keys and values in a transaction, and in the answer to one read of several keys.
pub const TRANSACTION_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Condition of a transaction: a key has this revision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// The key.
    pub key: Bytes,
    /// Required revision; [`Revision::ZERO`]: the key is absent.
    pub expected: Revision,
}

/// Write of a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Write {
    /// The key.
    pub key: Bytes,
    /// Its change.
    pub change: Change,
}

/// Change of one key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Writes a value.
    Put {
        /// New value.
        value: Bytes,
        /// Its expiry, if it has one.
        expiry: Option<Expiry>,
    },
    /// Removes the key.
    Delete,
}

impl Write {
    /// Returns the bytes of key and value.
    fn bytes(&self) -> usize {
        let value = match &self.change {
            Change::Put { value, .. } => value.len(),
            Change::Delete => 0,
        };
        self.key.len() + value
    }

    fn check(&self) -> Result<(), ErrorDetail> {
        check_key(&self.key)?;
        match &self.change {
            Change::Put { value, expiry } => {
                check_value(value)?;
                expiry.map_or(Ok(()), check_expiry)
            }
            Change::Delete => Ok(()),
        }
    }
}

/// Writes of several keys of one partition, all or none of them: all, if every check holds. It has one key or more, no two
/// writes have the same key, and its size is bounded ([`TRANSACTION_KEYS_MAX`], [`TRANSACTION_BYTES_MAX`]).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Transaction {
    checks: Vec<Check>,
    writes: Vec<Write>,
}

impl Transaction {
    /// Creates a transaction within its bounds.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`], naming the value found and the limit.
    pub fn new(checks: Vec<Check>, writes: Vec<Write>) -> Result<Self, ErrorDetail> {
        if checks.is_empty() && writes.is_empty() {
            return Err(invalid("the transaction has no keys; give it at least one check or write"));
        }
        bounded("checks", checks.len())?;
        bounded("writes", writes.len())?;
        checks.iter().try_for_each(|check| check_key(&check.key))?;
        writes.iter().try_for_each(Write::check)?;
        let new = Self { checks, writes };
        within_bytes("the transaction", new.bytes())?;
        let mut keys: Vec<&Bytes> = new.writes.iter().map(|write| &write.key).collect();
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            let key = shown_key(twice[0]);
            return Err(invalid(format!("the transaction writes the key {key} twice; leave out the first write")));
        }
        Ok(new)
    }

    /// Returns its checks.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Returns its writes.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Returns all keys: those of the checks first.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.checks.iter().map(|check| &check.key).chain(self.writes.iter().map(|write| &write.key))
    }

    /// Returns the bytes of keys and values.
    pub fn bytes(&self) -> usize {
        let checks = self.checks.iter().map(|check| check.key.len()).sum::<usize>();
        checks + self.writes.iter().map(Write::bytes).sum::<usize>()
    }

    /// Returns the fixed part of its admission cost beyond that of an operation on one key.
    pub(crate) fn overhead(&self) -> usize {
        (self.checks.len() + self.writes.len()).saturating_sub(1) * OPERATION_OVERHEAD_BYTES
    }
}

/// Keys of one partition that are read together: from 1 to [`TRANSACTION_KEYS_MAX`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ManyKeys(Vec<Bytes>);

impl ManyKeys {
    /// Creates a list of keys within its bounds. A key may be there several times.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`], naming the value found and the limit.
    pub fn new(keys: Vec<Bytes>) -> Result<Self, ErrorDetail> {
        if keys.is_empty() {
            return Err(invalid("the read has no keys; give it at least one"));
        }
        bounded("keys", keys.len())?;
        keys.iter().try_for_each(|key| check_key(key))?;
        let new = Self(keys);
        within_bytes("the read", new.bytes())?;
        Ok(new)
    }

    /// Returns the keys.
    pub fn keys(&self) -> &[Bytes] {
        &self.0
    }

    /// Returns the bytes of the keys.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Returns the fixed part of the admission cost beyond that of an operation on one key.
    pub(crate) fn overhead(&self) -> usize {
        (self.0.len() - 1) * OPERATION_OVERHEAD_BYTES
    }
}

impl<'de> Deserialize<'de> for Transaction {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (checks, writes) = Deserialize::deserialize(deserializer)?;
        Self::new(checks, writes).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ManyKeys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Deserialize::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Checks the bytes of keys and values of `what`.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`], naming the number found and the limit.
pub fn within_bytes(what: &str, bytes: usize) -> Result<(), ErrorDetail> {
    match bytes > TRANSACTION_BYTES_MAX {
        true => Err(invalid(format!(
            "{what} has {bytes} bytes of keys and values or more; the limit is {TRANSACTION_BYTES_MAX}: use fewer keys"
        ))),
        false => Ok(()),
    }
}

fn bounded(what: &str, count: usize) -> Result<(), ErrorDetail> {
    match count > TRANSACTION_KEYS_MAX {
        true => Err(invalid(format!("the operation has {count} {what}; the limit is {TRANSACTION_KEYS_MAX}"))),
        false => Ok(()),
    }
}

fn invalid(message: impl Into<String>) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

    fn key(number: usize) -> Bytes {
        Bytes::from(format!("key{number}"))
    }

    fn checks(count: usize) -> Vec<Check> {
        (0..count).map(|number| Check { key: key(number), expected: Revision::ZERO }).collect()
    }

    fn put(key: Bytes, bytes: usize) -> Write {
        Write { key, change: Change::Put { value: vec![7; bytes].into(), expiry: None } }
    }

    fn refusal(checks: Vec<Check>, writes: Vec<Write>) -> String {
        Transaction::new(checks, writes).unwrap_err().message
    }

    #[test]
    fn transaction_is_bounded_in_keys_and_bytes() {
        let writes = |count: usize| (0..count).map(|number| put(key(number), 1)).collect::<Vec<_>>();
        assert!(Transaction::new(checks(TRANSACTION_KEYS_MAX), writes(TRANSACTION_KEYS_MAX)).is_ok());
        assert!(refusal(checks(TRANSACTION_KEYS_MAX + 1), vec![]).contains("1025 checks; the limit is 1024"));
        assert!(refusal(vec![], writes(TRANSACTION_KEYS_MAX + 1)).contains("1025 writes; the limit is 1024"));
        assert!(refusal(vec![], vec![]).contains("no keys"));
        let large = |last: usize| vec![put("a".into(), VALUE_BYTES_MAX), put("b".into(), last)];
        let rest = TRANSACTION_BYTES_MAX - VALUE_BYTES_MAX - 2;
        assert_eq!(Transaction::new(vec![], large(rest)).unwrap().bytes(), TRANSACTION_BYTES_MAX);
        assert!(refusal(vec![], [large(rest), vec![put("c".into(), 0)]].concat()).contains("the limit is 2097152"));
    }

    #[test]
    fn every_key_value_and_expiry_is_checked() {
        let long = Bytes::from(vec![b'k'; KEY_BYTES_MAX + 1]);
        let check = |key: &Bytes| Check { key: key.clone(), expected: Revision::ZERO };
        assert!(refusal(vec![check(&long)], vec![]).contains("4097 bytes"));
        assert!(refusal(vec![], vec![put(long, 1)]).contains("4097 bytes"));
        assert!(refusal(vec![], vec![put(Bytes::new(), 1)]).contains("empty"));
        assert!(refusal(vec![], vec![put("a".into(), VALUE_BYTES_MAX + 1)]).contains("the value has"));
        let expiry = Some(Expiry::After(0));
        let write = Write { key: "a".into(), change: Change::Put { value: Bytes::new(), expiry } };
        assert!(refusal(vec![], vec![write]).contains("time to live"));
    }

    #[test]
    fn no_key_is_written_twice() {
        let delete = Write { key: key(1), change: Change::Delete };
        assert!(refusal(vec![], vec![put(key(1), 1), put(key(2), 1), delete.clone()]).contains("\"key1\" twice"));
        let checked = [checks(2), checks(2)].concat();
        assert!(Transaction::new(checked, vec![put(key(0), 1), delete]).is_ok(), "a check may be repeated");
    }

    #[test]
    fn read_is_bounded_in_keys_and_bytes() {
        let keys = |count: usize| ManyKeys::new((0..count).map(key).collect());
        assert!(keys(TRANSACTION_KEYS_MAX).is_ok());
        assert!(keys(TRANSACTION_KEYS_MAX + 1).unwrap_err().message.contains("1025 keys; the limit is 1024"));
        assert!(keys(0).is_err());
        let long = |count: usize| ManyKeys::new(vec![vec![b'k'; KEY_BYTES_MAX].into(); count]);
        assert!(long(512).is_ok());
        assert!(long(513).unwrap_err().message.contains("the read has"));
    }
}
