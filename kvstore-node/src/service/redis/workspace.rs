//! Keys of a transaction while its commands are executed: they read and write these, and one operation writes the result
//! if nothing that they read has changed.

use super::refusal::{Refusal, refusal};
use archon_types::limits::expiry_after;
use archon_types::transaction::TRANSACTION_BYTES_MAX;
use archon_types::{Answer, Change, Check, Expiry, Millis, Op, Revision, StoredValue, Transaction, Write};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Revisions of values that are not committed begin here: no log gets so long.
const FIRST_REVISION: u64 = 1 << 63;

/// A key.
struct Row {
    /// Its revision at the begin.
    found: Revision,
    /// Its value now.
    stored: Option<StoredValue>,
    /// The change to be committed, if it was written.
    change: Option<Change>,
    /// A reply depends on what was found at the begin.
    is_read: bool,
}

impl Row {
    fn bytes(&self) -> usize {
        match &self.change {
            Some(Change::Put { value, .. }) => value.len(),
            Some(Change::Delete) | None => 0,
        }
    }
}

/// Keys and values as of one moment, and what is to become of them.
pub(super) struct Workspace {
    rows: BTreeMap<Bytes, Row>,
    now: Millis,
    /// Bytes of values to be written.
    bytes: usize,
    /// They were too many at some time: a command was refused when it had done a part of its work.
    is_overfull: bool,
    revision: u64,
}

impl Workspace {
    /// Begins with these values, at this time.
    pub(super) fn new(found: impl IntoIterator<Item = (Bytes, Option<StoredValue>)>, now: Millis) -> Self {
        let row = |stored: Option<StoredValue>| {
            let found = stored.as_ref().map_or(Revision::ZERO, |stored| stored.revision);
            Row { found, stored, change: None, is_read: false }
        };
        let rows = found.into_iter().map(|(key, stored)| (key, row(stored))).collect();
        Self { rows, now, bytes: 0, is_overfull: false, revision: FIRST_REVISION }
    }

    /// Makes the commit depend on the state of a key at the begin.
    pub(super) fn depend_on(&mut self, key: &Bytes) {
        if let Some(row) = self.rows.get_mut(key) {
            row.is_read = true;
        }
    }

    /// Returns the operation that commits everything; `None` if nothing was written.
    pub(super) fn into_transaction(self) -> Result<Option<Transaction>, Refusal> {
        if self.is_overfull {
            return Err(overfull());
        }
        let (mut checks, mut writes) = (Vec::new(), Vec::new());
        for (key, Row { found, change, is_read, .. }) in self.rows {
            if is_read {
                checks.push(Check { key: key.clone(), expected: found });
            }
            writes.extend(change.map(|change| Write { key, change }));
        }
        if writes.is_empty() {
            return Ok(None);
        }
        Transaction::new(checks, writes).map(Some).map_err(|detail| refusal(&detail, false))
    }

    /// Carries out an operation on these keys, as the leader of a partition would.
    pub(super) fn operate(&mut self, op: &Op) -> Result<Answer, Refusal> {
        Ok(match op {
            Op::Get { key } => Answer::Value(self.read(key)?),
            Op::GetMany(many) => {
                Answer::Values(many.keys().iter().map(|key| self.read(key)).collect::<Result<_, _>>()?)
            }
            Op::Put { key, value } => self.put(key, value, None)?,
            Op::Delete { key } => Answer::Deleted { existed: self.delete(key)? },
            Op::CompareAndSet { key, expected, value } => match self.revision(key)? {
                revision if revision != *expected => Answer::ConditionFailed { revision },
                _ => self.put(key, value, None)?,
            },
            Op::PutExpiring { key, value, expected, expiry } => {
                if let Some(expected) = expected {
                    let revision = self.revision(key)?;
                    if revision != *expected {
                        return Ok(Answer::ConditionFailed { revision });
                    }
                }
                self.put(key, value, Some(*expiry))?
            }
            Op::Increment { key, by } => {
                let found = self.read(key)?;
                let before =
                    found.as_ref().map_or(Some(0), |found| std::str::from_utf8(&found.value).ok()?.parse().ok());
                match before.and_then(|before: i64| before.checked_add(*by)) {
                    None => Answer::NotANumber,
                    Some(sum) => {
                        let revision = self.write(key, sum.to_string().into(), Some(Expiry::Keep))?;
                        Answer::Counter { value: sum, revision }
                    }
                }
            }
            Op::Transaction(transaction) => {
                for (number, check) in (0..).zip(transaction.checks()) {
                    let revision = self.revision(&check.key)?;
                    if revision != check.expected {
                        return Ok(Answer::CheckFailed { check: number, revision });
                    }
                }
                let mut removed = 0;
                for Write { key, change } in transaction.writes() {
                    match change {
                        Change::Put { value, expiry } => drop(self.put(key, value, *expiry)?),
                        Change::Delete => removed += u32::from(self.delete(key)?),
                    }
                }
                Answer::Applied { revision: Revision::new(self.revision), removed }
            }
            Op::Scan { .. } => return Err(Refusal::new("ERR a transaction cannot list keys; nothing was changed")),
        })
    }

    fn row(&mut self, key: &Bytes) -> Result<&mut Row, Refusal> {
        self.rows.get_mut(key).ok_or_else(|| Refusal::new("ERR the command uses a key that it does not name"))
    }

    fn read(&mut self, key: &Bytes) -> Result<Option<StoredValue>, Refusal> {
        let row = self.row(key)?;
        row.is_read |= row.change.is_none();
        Ok(row.stored.clone())
    }

    fn revision(&mut self, key: &Bytes) -> Result<Revision, Refusal> {
        Ok(self.read(key)?.map_or(Revision::ZERO, |stored| stored.revision))
    }

    fn delete(&mut self, key: &Bytes) -> Result<bool, Refusal> {
        let existed = self.read(key)?.is_some();
        self.change(key, None, Change::Delete)?;
        Ok(existed)
    }

    fn put(&mut self, key: &Bytes, value: &Bytes, expiry: Option<Expiry>) -> Result<Answer, Refusal> {
        Ok(Answer::Written { revision: self.write(key, value.clone(), expiry)? })
    }

    /// Writes a value. The leader decides about its expiry at the commit, by a log time that may differ from the clock here.
    /// Commands that follow find a new expiry that has passed by this clock.
    fn write(&mut self, key: &Bytes, value: Bytes, expiry: Option<Expiry>) -> Result<Revision, Refusal> {
        self.revision += 1;
        let revision = Revision::new(self.revision);
        let (expires, expiry) = match expiry {
            None => (None, None),
            Some(Expiry::After(millis)) => (Some(expiry_after(self.now, millis)), expiry),
            // This time has passed by every clock.
            Some(Expiry::At(Millis::ZERO)) => {
                self.change(key, None, Change::Delete)?;
                return Ok(revision);
            }
            Some(Expiry::At(time)) => (Some(time), Some(self.given(time).unwrap_or(Expiry::At(time)))),
            Some(Expiry::Keep) => match self.read(key)? {
                Some(StoredValue { expires, .. }) => {
                    // One that an earlier command gave is counted from the commit, as that of this command would be.
                    let given = match &self.row(key)?.change {
                        Some(Change::Put { expiry, .. }) => *expiry,
                        Some(Change::Delete) | None => expires.map(Expiry::At),
                    };
                    let stored = StoredValue { value: value.clone(), revision, expires };
                    self.change(key, Some(stored), Change::Put { value, expiry: given })?;
                    return Ok(revision);
                }
                None => (None, None),
            },
        };
        let is_due = matches!(expiry, Some(Expiry::At(time)) if time <= self.now);
        let stored = StoredValue { value: value.clone(), revision, expires };
        self.change(key, Some(stored).filter(|_| !is_due), Change::Put { value, expiry })?;
        Ok(revision)
    }

    /// Returns the time to live of a value that expires at this time, if an earlier command set it: the time to live of a copy
    /// is counted from the commit, too.
    fn given(&self, time: Millis) -> Option<Expiry> {
        self.rows.values().find_map(|row| match (&row.stored, &row.change) {
            (Some(stored), Some(Change::Put { expiry: expiry @ Some(Expiry::After(_)), .. }))
                if stored.expires == Some(time) =>
            {
                *expiry
            }
            _ => None,
        })
    }

    fn change(&mut self, key: &Bytes, stored: Option<StoredValue>, change: Change) -> Result<(), Refusal> {
        let row = self.row(key)?;
        let before = row.bytes();
        (row.stored, row.change) = (stored, Some(change));
        let after = row.bytes();
        self.bytes = self.bytes + after - before;
        self.is_overfull |= self.bytes > TRANSACTION_BYTES_MAX;
        if self.is_overfull { Err(overfull()) } else { Ok(()) }
    }
}

fn overfull() -> Refusal {
    Refusal::new(format!("ERR the transaction writes more than {TRANSACTION_BYTES_MAX} bytes; nothing was changed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis::new(1_000);

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    /// Key `a` with a value of revision 7, `n` with a number that expires, and `absent`.
    fn workspace() -> Workspace {
        let stored = |value: &str, revision, expires| StoredValue {
            expires,
            ..StoredValue::new(bytes(value), Revision::new(revision))
        };
        let found = [
            ("a", Some(stored("x", 7, None))),
            ("n", Some(stored("5", 8, Some(Millis::new(2_000))))),
            ("absent", None),
        ];
        Workspace::new(found.map(|(key, stored)| (bytes(key), stored)), NOW)
    }

    fn put(key: &str, value: &str) -> Op {
        Op::Put { key: bytes(key), value: bytes(value) }
    }

    fn expiring(key: &str, expiry: Expiry) -> Op {
        Op::PutExpiring { key: bytes(key), value: bytes("v"), expected: None, expiry }
    }

    fn check(key: &str, expected: u64) -> Check {
        Check { key: bytes(key), expected: Revision::new(expected) }
    }

    fn commit(workspace: Workspace) -> (Vec<Check>, Vec<(String, Change)>) {
        let transaction = workspace.into_transaction().unwrap().unwrap();
        let name = |write: &Write| (String::from_utf8(write.key.to_vec()).unwrap(), write.change.clone());
        (transaction.checks().to_vec(), transaction.writes().iter().map(name).collect())
    }

    fn written(value: &str, expiry: Option<Expiry>) -> Change {
        Change::Put { value: bytes(value), expiry }
    }

    #[test]
    fn commit_depends_on_what_was_read_before_it_was_written() {
        let mut workspace = workspace();
        workspace.operate(&put("a", "1")).unwrap();
        assert!(matches!(
            workspace.operate(&Op::Get { key: bytes("a") }),
            Ok(Answer::Value(Some(found))) if found.value == "1"
        ));
        let sum = workspace.operate(&Op::Increment { key: bytes("n"), by: 2 }).unwrap();
        assert!(matches!(sum, Answer::Counter { value: 7, .. }));
        let (checks, writes) = commit(workspace);
        assert_eq!(checks, [check("n", 8)]);
        let expiry = Some(Expiry::At(Millis::new(2_000)));
        assert_eq!(writes, [("a".to_owned(), written("1", None)), ("n".to_owned(), written("7", expiry))]);
    }

    #[test]
    fn reads_alone_need_no_commit() {
        let mut workspace = workspace();
        assert_eq!(workspace.operate(&Op::Get { key: bytes("absent") }), Ok(Answer::Value(None)));
        workspace.depend_on(&bytes("a"));
        assert_eq!(workspace.into_transaction(), Ok(None));
    }

    #[test]
    fn conditions_see_earlier_commands() {
        let mut workspace = workspace();
        let create = Op::CompareAndSet { key: bytes("absent"), expected: Revision::ZERO, value: bytes("1") };
        let Ok(Answer::Written { revision }) = workspace.operate(&create) else { panic!() };
        assert_eq!(workspace.operate(&create), Ok(Answer::ConditionFailed { revision }));
        assert_eq!(workspace.operate(&Op::Delete { key: bytes("absent") }), Ok(Answer::Deleted { existed: true }));
        assert!(matches!(workspace.operate(&create), Ok(Answer::Written { .. })));
        let several = Transaction::new(vec![check("a", 8)], vec![]).unwrap();
        let failed = workspace.operate(&Op::Transaction(Box::new(several)));
        assert_eq!(failed, Ok(Answer::CheckFailed { check: 0, revision: Revision::new(7) }));
        let (checks, writes) = commit(workspace);
        assert_eq!(checks, [check("a", 7), check("absent", 0)]);
        assert_eq!(writes, [("absent".to_owned(), written("1", None))]);
    }

    #[test]
    fn time_to_live_is_counted_from_the_commit() {
        let mut workspace = workspace();
        workspace.operate(&expiring("a", Expiry::After(50))).unwrap();
        workspace.operate(&expiring("a", Expiry::Keep)).unwrap();
        let Ok(Answer::Value(Some(found))) = workspace.operate(&Op::Get { key: bytes("a") }) else { panic!() };
        assert_eq!(found.expires, Some(Millis::new(1_050)));
        // A copy of the value, as `RENAME` and `COPY` make.
        workspace.operate(&expiring("absent", Expiry::At(Millis::new(1_050)))).unwrap();
        workspace.operate(&expiring("n", Expiry::At(Millis::ZERO))).unwrap();
        assert_eq!(workspace.operate(&Op::Get { key: bytes("n") }), Ok(Answer::Value(None)));
        let (_, writes) = commit(workspace);
        let after = written("v", Some(Expiry::After(50)));
        let [a, absent, n] = ["a", "absent", "n"].map(str::to_owned);
        assert_eq!(writes, [(a, after.clone()), (absent, after), (n, Change::Delete)]);
    }

    /// The clock of a node that forwards operations may be ahead of the leader's.
    #[test]
    fn leader_decides_whether_a_value_has_expired() {
        let late = Millis::new(3_000);
        let mut workspace = Workspace { now: late, ..workspace() };
        let sum = workspace.operate(&Op::Increment { key: bytes("n"), by: 1 }).unwrap();
        assert!(matches!(sum, Answer::Counter { value: 6, .. }));
        assert!(matches!(workspace.operate(&Op::Get { key: bytes("n") }), Ok(Answer::Value(Some(_)))));
        let time = Expiry::At(Millis::new(2_500));
        workspace.operate(&expiring("a", time)).unwrap();
        assert_eq!(workspace.operate(&Op::Get { key: bytes("a") }), Ok(Answer::Value(None)));
        let (_, writes) = commit(workspace);
        let kept = written("6", Some(Expiry::At(Millis::new(2_000))));
        assert_eq!(writes, [("a".to_owned(), written("v", Some(time))), ("n".to_owned(), kept)]);
    }

    #[test]
    fn bytes_to_be_written_are_bounded() {
        let mut workspace = workspace();
        let large = "x".repeat(TRANSACTION_BYTES_MAX / 2);
        workspace.operate(&put("a", &large)).unwrap();
        workspace.operate(&put("a", &large)).unwrap();
        workspace.operate(&put("n", &large)).unwrap();
        let refused = workspace.operate(&put("absent", "1")).unwrap_err();
        assert!(matches!(refused, Refusal::Error(text) if text.contains("nothing was changed")));
        assert!(workspace.operate(&Op::Delete { key: bytes("a") }).is_err());
        assert!(workspace.into_transaction().is_err());
    }

    #[test]
    fn undeclared_key_is_refused() {
        assert!(workspace().operate(&put("other", "1")).is_err());
    }
}
