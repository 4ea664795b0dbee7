//! Commands on several keys of one slot (ADR 0096). Each reads its keys as of one moment, or writes them in one entry.

use super::conversions::{FoundValue, count, unexpected, value};
use super::keys::{ATTEMPTS_MAX, Operations, contended};
use super::refusal::{CommandResult, Refusal, refusal};
use archon_resp::{Command, CommandKind, Reply, SYNTAX, parse_integer, wrong_arity};
use archon_types::{Answer, Change, Check, Expiry, ManyKeys, Op, Revision, StoredValue, Transaction, Write, slot_of};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the keys of a request, if there is at least one and all are in one slot.
pub(super) fn keys_of(command: &Command, request: &[Bytes]) -> Result<Vec<Bytes>, Refusal> {
    if matches!(command.kind, CommandKind::MSet | CommandKind::MSetNx) && request.len().is_multiple_of(2) {
        return Err(wrong_arity(command.name).into());
    }
    let keys: Vec<Bytes> =
        archon_resp::keys_of(command, request)?.into_iter().map(|position| request[position].clone()).collect();
    if keys.is_empty() {
        return Err(wrong_arity(command.name).into());
    }
    check_slot(&keys)?;
    Ok(keys)
}

/// Refuses keys of several slots.
pub(super) fn check_slot(keys: &[Bytes]) -> Result<(), Refusal> {
    let slot = keys.first().map(|key| slot_of(key));
    match keys.iter().any(|key| Some(slot_of(key)) != slot) {
        true => Err(Refusal::new("CROSSSLOT Keys in request don't hash to the same slot")),
        false => Ok(()),
    }
}

/// Returns whether a command on so many keys is executed here; others are operations on one key.
pub(super) const fn takes(kind: CommandKind, keys: usize) -> bool {
    let always = matches!(kind, CommandKind::MSetNx | CommandKind::Rename | CommandKind::RenameNx | CommandKind::Copy);
    always || keys > 1
}

/// Executes a command on several keys. `operations` has the first one.
pub(super) async fn execute(
    operations: &mut Operations<'_>,
    command: &Command,
    request: &[Bytes],
    keys: Vec<Bytes>,
) -> CommandResult {
    match command.kind {
        CommandKind::MGet => Ok(Reply::Array(operations.get_many(keys).await?.into_iter().map(value).collect())),
        CommandKind::Exists | CommandKind::Touch => {
            let found = operations.get_many(keys).await?;
            Ok(Reply::Integer(count(found.iter().flatten().count())))
        }
        CommandKind::Del | CommandKind::Unlink => {
            let keys: BTreeSet<Bytes> = keys.into_iter().collect();
            let writes = keys.into_iter().map(|key| Write { key, change: Change::Delete }).collect();
            match operations.transact(vec![], writes).await? {
                Some(removed) => Ok(Reply::Integer(removed.into())),
                None => Err(contended()),
            }
        }
        CommandKind::MSet => {
            // It has no checks.
            operations.transact(vec![], puts(request)).await?;
            Ok(Reply::OK)
        }
        CommandKind::MSetNx => {
            let writes = puts(request);
            let checks = writes.iter().map(|write| check(&write.key, Revision::ZERO)).collect();
            Ok(Reply::Integer(operations.transact(checks, writes).await?.is_some().into()))
        }
        CommandKind::Rename => rename(operations, &keys[0], &keys[1], true).await.map(|_| Reply::OK),
        CommandKind::RenameNx => {
            let is_renamed = rename(operations, &keys[0], &keys[1], false).await?;
            Ok(Reply::Integer(is_renamed.into()))
        }
        CommandKind::Copy => copy(operations, &keys[0], &keys[1], &request[3..]).await,
        _ => Err(Refusal::new(format!("ERR command '{}' does not take several keys", command.name))),
    }
}

/// Returns the writes of a request with keys and values in turn. As in Redis, the last value of a key counts.
fn puts(request: &[Bytes]) -> Vec<Write> {
    let values: BTreeMap<&Bytes, &Bytes> = request[1..].chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect();
    let put = |value: &Bytes| Change::Put { value: value.clone(), expiry: None };
    values.into_iter().map(|(key, value)| Write { key: key.clone(), change: put(value) }).collect()
}

fn check(key: &Bytes, expected: Revision) -> Check {
    Check { key: key.clone(), expected }
}

/// Returns the write of a value with the expiry that it has already.
fn put_stored(key: &Bytes, stored: &StoredValue) -> Write {
    let change = Change::Put { value: stored.value.clone(), expiry: stored.expires.map(Expiry::At) };
    Write { key: key.clone(), change }
}

/// Returns the value to be moved or copied, if there is one, and whether the destination exists and is not to be
/// overwritten. A destination that is overwritten is not read: it may be large.
async fn source_of(
    operations: &mut Operations<'_>,
    from: &Bytes,
    to: &Bytes,
    overwrites: bool,
) -> Result<Option<(StoredValue, bool)>, Refusal> {
    if overwrites {
        return Ok(operations.get().await?.map(|source| (source, false)));
    }
    let mut found = operations.get_many(vec![from.clone(), to.clone()]).await?;
    let is_taken = found.pop().flatten().is_some();
    Ok(found.pop().flatten().map(|source| (source, is_taken)))
}

/// Renames a key, unless the destination exists and is not overwritten. Returns whether it did.
async fn rename(operations: &mut Operations<'_>, from: &Bytes, to: &Bytes, overwrites: bool) -> Result<bool, Refusal> {
    for _ in 0..ATTEMPTS_MAX {
        let Some((source, is_taken)) = source_of(operations, from, to, overwrites).await? else {
            return Err(Refusal::new("ERR no such key"));
        };
        if from == to {
            return Ok(overwrites);
        }
        if is_taken {
            return Ok(false);
        }
        let mut checks = vec![check(from, source.revision)];
        if !overwrites {
            checks.push(check(to, Revision::ZERO));
        }
        let writes = vec![put_stored(to, &source), Write { key: from.clone(), change: Change::Delete }];
        if operations.transact(checks, writes).await?.is_some() {
            return Ok(true);
        }
    }
    Err(contended())
}

async fn copy(operations: &mut Operations<'_>, from: &Bytes, to: &Bytes, options: &[Bytes]) -> CommandResult {
    let (mut replaces, mut rest) = (false, options);
    loop {
        rest = match rest {
            [] => break,
            [option, more @ ..] if option.eq_ignore_ascii_case(b"replace") => {
                replaces = true;
                more
            }
            [option, number, more @ ..] if option.eq_ignore_ascii_case(b"db") => match parse_integer(number) {
                Some(0) => more,
                Some(_) => return Err(Refusal::new("ERR DB index is out of range")),
                None => return Err(Refusal::new(archon_resp::NOT_AN_INTEGER)),
            },
            _ => return Err(Refusal::new(SYNTAX)),
        };
    }
    if from == to {
        return Err(Refusal::new("ERR source and destination objects are the same"));
    }
    for _ in 0..ATTEMPTS_MAX {
        let Some((source, false)) = source_of(operations, from, to, replaces).await? else {
            return Ok(Reply::Integer(0));
        };
        let mut checks = vec![check(from, source.revision)];
        if !replaces {
            checks.push(check(to, Revision::ZERO));
        }
        if operations.transact(checks, vec![put_stored(to, &source)]).await?.is_some() {
            return Ok(Reply::Integer(1));
        }
    }
    Err(contended())
}

impl Operations<'_> {
    /// Reads several keys as of one moment.
    pub(super) async fn get_many(&mut self, keys: Vec<Bytes>) -> Result<Vec<FoundValue>, Refusal> {
        let expected = keys.len();
        let many = ManyKeys::new(keys).map_err(|detail| refusal(&detail, false))?;
        match self.operate(Op::GetMany(Box::new(many))).await? {
            Answer::Values(values) if values.len() == expected => Ok(values),
            other => Err(unexpected(&other)),
        }
    }

    /// Carries out a transaction. Returns the number of values that its deletes removed; `None` if a check did not hold.
    pub(super) async fn transact(&mut self, checks: Vec<Check>, writes: Vec<Write>) -> Result<Option<u32>, Refusal> {
        self.commit(Transaction::new(checks, writes).map_err(|detail| refusal(&detail, false))?).await
    }

    /// Does the same with a transaction that was made before.
    pub(super) async fn commit(&mut self, transaction: Transaction) -> Result<Option<u32>, Refusal> {
        match self.operate(Op::Transaction(Box::new(transaction))).await? {
            Answer::Applied { removed, .. } => Ok(Some(removed)),
            Answer::CheckFailed { .. } => Ok(None),
            other => Err(unexpected(&other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_resp::lookup;

    fn keys(text: &'static str) -> Result<Vec<Bytes>, Refusal> {
        let request: Vec<Bytes> = text.split(' ').map(|part| Bytes::from_static(part.as_bytes())).collect();
        keys_of(lookup(&request).unwrap(), &request)
    }

    fn found(keys: &[&'static str]) -> Result<Vec<Bytes>, Refusal> {
        Ok(keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect())
    }

    #[test]
    fn keys_of_several_slots_are_refused() {
        let crossing = Err(Refusal::new("CROSSSLOT Keys in request don't hash to the same slot"));
        assert_eq!(keys("DEL a"), found(&["a"]));
        assert_eq!(keys("DEL a b"), crossing);
        assert_eq!(keys("DEL {a}1 {a}2 a"), found(&["{a}1", "{a}2", "a"]));
        assert_eq!(keys("EVALSHA s 2 a b"), crossing);
        assert_eq!(keys("RENAME {a}1 {b}2"), crossing);
        assert!(matches!(keys("MSET a 1 b"), Err(Refusal::Error(text)) if text.contains("wrong number")));
        assert_eq!(keys("MSET {a} 1 a 2"), found(&["{a}", "a"]));
    }

    #[test]
    fn last_value_of_a_key_counts() {
        let request: Vec<Bytes> = ["MSET", "a", "1", "b", "2", "a", "3"].map(Bytes::from).into();
        let written: Vec<_> = puts(&request)
            .into_iter()
            .map(|write| match write.change {
                Change::Put { value, .. } => (write.key, value),
                Change::Delete => panic!(),
            })
            .collect();
        assert_eq!(written, [("a".into(), "3".into()), ("b".into(), "2".into())]);
    }
}
