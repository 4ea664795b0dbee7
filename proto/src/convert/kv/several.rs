//! Operations on several keys and their answers: packed, and in Protobuf.

use super::fields::{FieldReader, put_bytes, put_number};
use crate::convert::ConvertError;
use crate::v1;
use archon_types::transaction::TRANSACTION_KEYS_MAX;
use archon_types::{Change, Check, Expiry, ManyKeys, Millis, Revision, StoredValue, Transaction, Write};

const DELETE: u8 = 0;
const PUT: u8 = 1;
const PUT_EXPIRING: u8 = 2;

const KEEP: u8 = 0;
const AFTER: u8 = 1;
const AT: u8 = 2;

const ABSENT: u8 = 0;
const VALUE: u8 = 1;
const EXPIRING_VALUE: u8 = 2;

/// Reads the number of elements of a list, which must fit into the rest of the message: a false one reserves no memory.
fn read_count(reader: &mut FieldReader, what: &str) -> Result<usize, ConvertError> {
    let count = reader.number()?;
    let most = reader.remaining().min(TRANSACTION_KEYS_MAX);
    match usize::try_from(count) {
        Ok(count) if count <= most => Ok(count),
        _ => Err(reader.error(format!("{count} {what}; the limit is {TRANSACTION_KEYS_MAX}, and {most} fit here"))),
    }
}

pub(super) fn read_u32(reader: &mut FieldReader) -> Result<u32, ConvertError> {
    let number = reader.number()?;
    u32::try_from(number).map_err(|_| reader.error(format!("a number of {number}, which is above {}", u32::MAX)))
}

pub(super) fn put_expiry(out: &mut Vec<u8>, expiry: Expiry) {
    match expiry {
        Expiry::Keep => out.push(KEEP),
        Expiry::After(millis) => {
            out.push(AFTER);
            put_number(out, millis);
        }
        Expiry::At(time) => {
            out.push(AT);
            put_number(out, time.get());
        }
    }
}

pub(super) fn read_expiry(reader: &mut FieldReader) -> Result<Expiry, ConvertError> {
    match reader.byte()? {
        KEEP => Ok(Expiry::Keep),
        AFTER => Ok(Expiry::After(reader.number()?)),
        AT => Ok(Expiry::At(Millis::new(reader.number()?))),
        other => Err(reader.error(format!("an expiry of kind {other}, which this version does not know"))),
    }
}

pub(super) fn put_many(out: &mut Vec<u8>, many: &ManyKeys) {
    put_number(out, many.keys().len() as u64);
    many.keys().iter().for_each(|key| put_bytes(out, key));
}

/// Reads a list of keys: the outer error is one of the message, the inner one of this operation.
pub(super) fn read_many(reader: &mut FieldReader) -> Result<Result<ManyKeys, ConvertError>, ConvertError> {
    let count = read_count(reader, "keys")?;
    let keys = (0..count).map(|_| reader.take()).collect::<Result<_, _>>()?;
    Ok(ManyKeys::new(keys).map_err(|refusal| ConvertError::new("Op.get_many", refusal.message)))
}

pub(super) fn put_transaction(out: &mut Vec<u8>, transaction: &Transaction) {
    put_number(out, transaction.checks().len() as u64);
    for Check { key, expected } in transaction.checks() {
        put_bytes(out, key);
        put_number(out, expected.get());
    }
    put_number(out, transaction.writes().len() as u64);
    for Write { key, change } in transaction.writes() {
        put_bytes(out, key);
        match change {
            Change::Delete => out.push(DELETE),
            Change::Put { value, expiry } => {
                out.push(if expiry.is_some() { PUT_EXPIRING } else { PUT });
                expiry.iter().for_each(|expiry| put_expiry(out, *expiry));
                put_bytes(out, value);
            }
        }
    }
}

/// Reads a transaction: the outer error is one of the message, the inner one of this operation.
pub(super) fn read_transaction(reader: &mut FieldReader) -> Result<Result<Transaction, ConvertError>, ConvertError> {
    let count = read_count(reader, "checks")?;
    let mut checks = Vec::with_capacity(count);
    for _ in 0..count {
        checks.push(Check { key: reader.take()?, expected: Revision::new(reader.number()?) });
    }
    let count = read_count(reader, "writes")?;
    let mut writes = Vec::with_capacity(count);
    for _ in 0..count {
        let key = reader.take()?;
        let change = match reader.byte()? {
            DELETE => Change::Delete,
            PUT => Change::Put { expiry: None, value: reader.take()? },
            PUT_EXPIRING => Change::Put { expiry: Some(read_expiry(reader)?), value: reader.take()? },
            other => return Err(reader.error(format!("a write of kind {other}, which this version does not know"))),
        };
        writes.push(Write { key, change });
    }
    let new = Transaction::new(checks, writes);
    Ok(new.map_err(|refusal| ConvertError::new("Op.transaction", refusal.message)))
}

pub(super) fn put_values(out: &mut Vec<u8>, values: &[Option<StoredValue>]) {
    put_number(out, values.len() as u64);
    for stored in values {
        match stored {
            None => out.push(ABSENT),
            Some(StoredValue { value, revision, expires }) => {
                out.push(if expires.is_some() { EXPIRING_VALUE } else { VALUE });
                put_number(out, revision.get());
                expires.iter().for_each(|expires| put_number(out, expires.get()));
                put_bytes(out, value);
            }
        }
    }
}

pub(super) fn read_values(reader: &mut FieldReader) -> Result<Vec<Option<StoredValue>>, ConvertError> {
    let count = read_count(reader, "values")?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(match reader.byte()? {
            ABSENT => None,
            kind @ (VALUE | EXPIRING_VALUE) => {
                let revision = Revision::new(reader.number()?);
                let expires = if kind == EXPIRING_VALUE { Some(Millis::new(reader.number()?)) } else { None };
                Some(StoredValue { value: reader.take()?, revision, expires })
            }
            other => return Err(reader.error(format!("a value of kind {other}, which this version does not know"))),
        });
    }
    Ok(values)
}

impl From<ManyKeys> for v1::OpGetMany {
    fn from(many: ManyKeys) -> Self {
        Self { keys: many.keys().to_vec() }
    }
}

impl TryFrom<v1::OpGetMany> for ManyKeys {
    type Error = ConvertError;

    fn try_from(wire: v1::OpGetMany) -> Result<Self, ConvertError> {
        Self::new(wire.keys).map_err(|refusal| ConvertError::new("OpGetMany.keys", refusal.message))
    }
}

impl From<Transaction> for v1::OpTransaction {
    fn from(transaction: Transaction) -> Self {
        let check = |check: &Check| v1::Check { key: check.key.clone(), expected: check.expected.get() };
        let write = |write: &Write| {
            let change = match &write.change {
                Change::Delete => v1::write::Change::Delete(true),
                Change::Put { value, expiry } => {
                    let expiry = expiry.map(Into::into);
                    v1::write::Change::Put(v1::WritePut { value: value.clone(), expiry })
                }
            };
            v1::Write { key: write.key.clone(), change: Some(change) }
        };
        Self {
            checks: transaction.checks().iter().map(check).collect(),
            writes: transaction.writes().iter().map(write).collect(),
        }
    }
}

impl TryFrom<v1::OpTransaction> for Transaction {
    type Error = ConvertError;

    fn try_from(wire: v1::OpTransaction) -> Result<Self, ConvertError> {
        let checks = wire.checks.into_iter();
        let checks = checks.map(|check| Check { key: check.key, expected: Revision::new(check.expected) }).collect();
        let mut writes = Vec::with_capacity(wire.writes.len());
        for v1::Write { key, change } in wire.writes {
            let change = match crate::convert::required(change, "Write.change")? {
                v1::write::Change::Put(v1::WritePut { value, expiry }) => {
                    Change::Put { value, expiry: expiry.map(TryInto::try_into).transpose()? }
                }
                v1::write::Change::Delete(true) => Change::Delete,
                v1::write::Change::Delete(false) => {
                    return Err(ConvertError::new("Write.delete", "is false; leave the write out to keep the key"));
                }
            };
            writes.push(Write { key, change });
        }
        Self::new(checks, writes).map_err(|refusal| ConvertError::new("OpTransaction", refusal.message))
    }
}

/// Returns the bytes of keys and values in a transaction that is not checked yet.
pub(super) fn transaction_bytes(wire: &v1::OpTransaction) -> usize {
    let checks = wire.checks.iter().map(|check| check.key.len()).sum::<usize>();
    let value = |write: &v1::Write| match &write.change {
        Some(v1::write::Change::Put(put)) => put.value.len(),
        _ => 0,
    };
    checks + wire.writes.iter().map(|write| write.key.len() + value(write)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::transaction::TRANSACTION_BYTES_MAX;
    use bytes::Bytes;

    fn reader(bytes: &[u8]) -> FieldReader {
        FieldReader::new(Bytes::copy_from_slice(bytes), "test")
    }

    #[test]
    fn number_of_elements_is_bounded_before_memory_is_reserved() {
        for count in [TRANSACTION_KEYS_MAX as u64 + 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, count);
            bytes.extend_from_slice(&[1; 3 * TRANSACTION_KEYS_MAX]);
            for problem in [
                read_many(&mut reader(&bytes)).unwrap_err(),
                read_transaction(&mut reader(&bytes)).unwrap_err(),
                read_values(&mut reader(&bytes)).unwrap_err(),
            ] {
                assert!(problem.to_string().contains("the limit is 1024"), "{problem}");
            }
        }
    }

    #[test]
    fn operation_beyond_its_bounds_is_an_error_of_its_own() {
        let mut bytes = Vec::new();
        put_number(&mut bytes, 3);
        (0..3).for_each(|_| put_bytes(&mut bytes, &vec![b'k'; TRANSACTION_BYTES_MAX / 2]));
        let refused = read_many(&mut reader(&bytes)).unwrap().unwrap_err();
        assert_eq!(refused.field, "Op.get_many");
        let twice = vec![v1::Write { key: Bytes::from_static(b"k"), change: Some(v1::write::Change::Delete(true)) }; 2];
        let wire = v1::OpTransaction { checks: vec![], writes: twice };
        assert!(Transaction::try_from(wire).unwrap_err().to_string().contains("twice"));
    }
}
