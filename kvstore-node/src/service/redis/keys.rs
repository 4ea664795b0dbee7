//! Commands on one key. Each is one operation, or a read and a write on the condition that the key has not changed since,
//! repeated until it holds: as atomic as in Redis.

use super::conversions::{FoundValue, count, expiry_of, integer, unexpected, unix_ms, value};
use super::refusal::{CommandResult, Refusal, cluster_down, refusal};
use super::routing::{Redirection, moved, partition_of_key};
use super::session::Session;
use super::several;
use super::single::SingleCommand;
use super::state::RedisService;
use super::values::{digest, encoding, overwrite};
use archon_host::Origin;
use archon_resp::{
    Command, CommandKind, Comparison, Condition, Decimal, ExpireConditions, ExpiryUnit, GetExOptions, NewExpiry, Reply,
    SetOptions, unknown_subcommand, wrong_arity,
};
use archon_types::limits::VALUE_BYTES_MAX;
use archon_types::{Answer, ErrorKind, Op, PartitionId, Revision, StoredValue};
use bytes::Bytes;

/// Most attempts of a write on a condition. Each failure means that another client has written the key.
pub(super) const ATTEMPTS_MAX: usize = 64;

/// Executes a command on keys.
pub(super) async fn execute(
    service: &RedisService,
    session: &mut Session,
    command: &Command,
    request: &[Bytes],
) -> CommandResult {
    let keys = several::keys_of(command, request)?;
    // A command that writes reads at the leader first, also if it then writes nothing.
    let reads_replica = session.reads_replica && !command.is_write();
    let mut operations = Operations { service, session, key: keys[0].clone(), reads_replica };
    if several::takes(command.kind, keys.len()) {
        return several::execute(&mut operations, command, request, keys).await;
    }
    let now_ms = || unix_ms(service.kv.shared.wall.now());
    if let Some(single) = SingleCommand::of(command, request, now_ms) {
        let SingleCommand { op, reply } = single?;
        return reply.reply(operations.operate(op).await?, now_ms);
    }
    match command.kind {
        CommandKind::Set => operations.set(request[2].clone(), SetOptions::parse(&request[3..], now_ms())?).await,
        CommandKind::GetSet => {
            let options = SetOptions { returns_old: true, ..SetOptions::default() };
            operations.set(request[2].clone(), options).await
        }
        CommandKind::GetEx => operations.get_and_expire(GetExOptions::parse(&request[2..])?).await,
        CommandKind::GetDel => operations.get_and_delete().await,
        CommandKind::Expire | CommandKind::PExpire | CommandKind::ExpireAt | CommandKind::PExpireAt => {
            let unit = ExpiryUnit {
                seconds: matches!(command.kind, CommandKind::Expire | CommandKind::ExpireAt),
                absolute: matches!(command.kind, CommandKind::ExpireAt | CommandKind::PExpireAt),
            };
            let conditions = ExpireConditions::parse(&request[3..])?;
            let time = unit.parse(&request[2], command.name, now_ms())?;
            operations.expire(unit.absolute, time, conditions).await
        }
        CommandKind::Persist => operations.persist().await,
        CommandKind::Append => operations.append(&request[2]).await,
        CommandKind::SetRange => operations.set_range(integer(&request[2])?, &request[3]).await,
        CommandKind::IncrByFloat => operations.add_decimal(Decimal::parse(&request[2])?).await,
        CommandKind::DelEx => operations.delete_if(Comparison::parse(&request[2..])?).await,
        CommandKind::Object => operations.describe(request).await,
        _ => Err(Refusal::new(format!("ERR command '{}' is not about keys", command.name))),
    }
}

/// Operations of one command on one key, or on several of its slot.
pub(super) struct Operations<'a> {
    pub(super) service: &'a RedisService,
    pub(super) session: &'a mut Session,
    pub(super) key: Bytes,
    /// Reads may be answered by the replica of this node.
    reads_replica: bool,
}

impl<'a> Operations<'a> {
    /// Creates operations with reads that leaders answer, also if the connection reads replicas.
    pub(super) const fn at_leader(service: &'a RedisService, session: &'a mut Session, key: Bytes) -> Self {
        Self { service, session, key, reads_replica: false }
    }

    pub(super) async fn get(&mut self) -> Result<FoundValue, Refusal> {
        match self.operate(Op::Get { key: self.key.clone() }).await? {
            Answer::Value(value) => Ok(value),
            other => Err(unexpected(&other)),
        }
    }

    /// Writes the key if it has this revision, or is absent with revision zero. Returns whether it had.
    async fn write_if(&mut self, expected: Revision, value: Bytes, expiry: Option<NewExpiry>) -> Result<bool, Refusal> {
        let op = Op::write(self.key.clone(), value, Some(expected), expiry.and_then(expiry_of));
        match self.operate(op).await? {
            Answer::Written { .. } => Ok(true),
            Answer::ConditionFailed { .. } => Ok(false),
            other => Err(unexpected(&other)),
        }
    }

    /// Writes a value that depends on the one before.
    async fn set(
        &mut self,
        value_new: Bytes,
        SetOptions { condition, returns_old, expiry }: SetOptions,
    ) -> CommandResult {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.get().await?;
            let is_met = match &condition {
                None => true,
                Some(Condition::Absent) => found.is_none(),
                Some(Condition::Present) => found.is_some(),
                Some(Condition::Value(condition)) => {
                    condition.holds(found.as_ref().map(|found| &found.value[..]), digest)
                }
            };
            if !is_met || self.write_if(revision(&found), value_new.clone(), expiry).await? {
                let is_set = if is_met { Reply::OK } else { Reply::Null };
                return Ok(if returns_old { value(found) } else { is_set });
            }
        }
        Err(contended())
    }

    async fn append(&mut self, more: &Bytes) -> CommandResult {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.get().await?;
            let before = found.as_ref().map_or(&b""[..], |found| &found.value);
            if before.len() + more.len() > VALUE_BYTES_MAX {
                return Err(too_long());
            }
            let whole = Bytes::from([before, more].concat());
            let length = whole.len();
            // As Redis does, an empty string creates an absent key, and leaves a present one.
            let keep = Some(NewExpiry::Keep);
            if more.is_empty() && found.is_some() || self.write_if(revision(&found), whole, keep).await? {
                return Ok(Reply::Integer(count(length)));
            }
        }
        Err(contended())
    }

    /// Writes the value again with what `change` makes of its expiry, and returns the value before. `change` returns `None`
    /// to leave it, which is also done with an absent key.
    pub(super) async fn rewrite(
        &mut self,
        change: impl Fn(&StoredValue) -> Result<Option<NewExpiry>, Refusal>,
    ) -> Result<(FoundValue, bool), Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(found) = self.get().await? else { return Ok((None, false)) };
            let Some(expiry) = change(&found)? else { return Ok((Some(found), false)) };
            if self.write_if(found.revision, found.value.clone(), Some(expiry)).await? {
                return Ok((Some(found), true));
            }
        }
        Err(contended())
    }

    async fn get_and_expire(&mut self, options: GetExOptions<'_>) -> CommandResult {
        let wall = &self.service.kv.shared.wall;
        let change = |found: &StoredValue| {
            let expiry = options.expiry(unix_ms(wall.now()))?;
            Ok(expiry.filter(|expiry| *expiry != NewExpiry::Never || found.expires.is_some()))
        };
        Ok(value(self.rewrite(change).await?.0))
    }

    async fn get_and_delete(&mut self) -> CommandResult {
        Ok(value(self.rewrite(|_| Ok(Some(NewExpiry::LONG_AGO))).await?.0))
    }

    /// Sets the expiry to a time in milliseconds, if the conditions hold. A time that has passed deletes the key.
    async fn expire(&mut self, absolute: bool, time: i64, conditions: ExpireConditions) -> CommandResult {
        let wall = &self.service.kv.shared.wall;
        let change = |found: &StoredValue| {
            Ok(conditions.choose(found.expires.map(unix_ms), absolute, time, unix_ms(wall.now())))
        };
        Ok(Reply::Integer(self.rewrite(change).await?.1.into()))
    }

    async fn persist(&mut self) -> CommandResult {
        let change = |found: &StoredValue| Ok(found.expires.is_some().then_some(NewExpiry::Never));
        Ok(Reply::Integer(self.rewrite(change).await?.1.into()))
    }

    async fn set_range(&mut self, offset: i64, part: &Bytes) -> CommandResult {
        let offset = usize::try_from(offset).map_err(|_| Refusal::new("ERR offset is out of range"))?;
        for _ in 0..ATTEMPTS_MAX {
            let found = self.get().await?;
            let before = found.as_ref().map_or(&b""[..], |found| &found.value);
            // As in Redis, an empty string changes nothing at any offset.
            if part.is_empty() {
                return Ok(Reply::Integer(count(before.len())));
            }
            let whole = overwrite(before, offset, part).ok_or_else(too_long)?;
            let length = whole.len();
            if self.write_if(revision(&found), whole, Some(NewExpiry::Keep)).await? {
                return Ok(Reply::Integer(count(length)));
            }
        }
        Err(contended())
    }

    async fn add_decimal(&mut self, by: Decimal) -> CommandResult {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.get().await?;
            let before = Decimal::parse(found.as_ref().map_or(&b"0"[..], |found| &found.value))?;
            let sum = Bytes::from(before.plus(by)?.to_string());
            if self.write_if(revision(&found), sum.clone(), Some(NewExpiry::Keep)).await? {
                return Ok(Reply::Bulk(sum));
            }
        }
        Err(contended())
    }

    /// Deletes the key if it is present and the condition holds.
    async fn delete_if(&mut self, condition: Option<Comparison>) -> CommandResult {
        let change = |found: &StoredValue| {
            let holds = condition.as_ref().is_none_or(|condition| condition.holds(Some(&found.value), digest));
            Ok(holds.then_some(NewExpiry::LONG_AGO))
        };
        Ok(Reply::Integer(self.rewrite(change).await?.1.into()))
    }

    /// Executes `OBJECT` and its subcommands.
    async fn describe(&mut self, request: &[Bytes]) -> CommandResult {
        let name = request[1].to_ascii_lowercase();
        if !matches!(&name[..], b"encoding" | b"freq" | b"idletime" | b"refcount") {
            return Err(unknown_subcommand("object", &request[1]).into());
        }
        if request.len() != 3 {
            return Err(wrong_arity(&format!("object|{}", String::from_utf8_lossy(&name))).into());
        }
        let Some(found) = self.get().await? else { return Ok(Reply::Null) };
        match &name[..] {
            b"encoding" => Ok(Reply::bulk(encoding(&found.value))),
            b"refcount" => Ok(Reply::Integer(1)),
            b"idletime" => Err(Refusal::new("ERR the node does not record when keys were read")),
            _ => Err(Refusal::new("ERR the node does not record how often keys are read")),
        }
    }

    /// Carries out one operation: here if this node leads the partition of the key; by its leader if that has no Redis
    /// listener; otherwise the client is redirected.
    pub(super) async fn operate(&mut self, op: Op) -> Result<Answer, Refusal> {
        op.check().map_err(|detail| refusal(&detail, false))?;
        if let Some(workspace) = &mut self.session.transaction.workspace {
            return workspace.operate(&op);
        }
        let partition = self.partition(&op).await?;
        if self.session.transaction.partition.is_some_and(|expected| expected != partition) {
            return Err(Refusal::new("TRYAGAIN the table was created again; nothing was changed"));
        }
        let (service, session) = (self.service, &mut *self.session);
        let (kv, is_write) = (&service.kv, !op.is_read());
        let refuse = |detail| refusal(&detail, is_write);
        for _ in 0..2 {
            let origin = match service.redirection(partition) {
                Redirection::To(address) => {
                    let read =
                        if self.reads_replica { service.read_replica(session, partition, &op).await } else { None };
                    return read.unwrap_or_else(|| Err(moved(&self.key, &address)));
                }
                Redirection::Forward => Origin::AnyNodeClient,
                Redirection::None => Origin::RoutingClient,
            };
            let reply = kv.operate_as(&session.caller, partition, op.clone(), None, origin).await;
            session.permit = reply.permit;
            match reply.outcome {
                Ok(answer) => {
                    if is_write {
                        session.written = Some(partition);
                    }
                    return Ok(answer);
                }
                // Nothing was done. The table may name another leader by now.
                Err(detail) if detail.kind == ErrorKind::NotPartitionLeader => {
                    if origin == Origin::AnyNodeClient || service.redirection(partition) == Redirection::None {
                        return Err(refuse(detail));
                    }
                }
                Err(detail) => return Err(refuse(detail)),
            }
        }
        Err(cluster_down("the leadership of its partition is changing"))
    }

    /// Returns the partition of the key, if the caller has the right to this operation there.
    pub(super) async fn partition(&self, op: &Op) -> Result<PartitionId, Refusal> {
        let (table, partitions) = self.service.table_for(self.session, op).await?;
        Ok(partition_of_key(table.id, partitions, &self.key))
    }

    /// Redirects the client if another node carries out operations on the key.
    pub(super) async fn check_place(&self, op: &Op) -> Result<(), Refusal> {
        match self.service.redirection(self.partition(op).await?) {
            Redirection::To(address) => Err(moved(&self.key, &address)),
            Redirection::None | Redirection::Forward => Ok(()),
        }
    }
}

pub(super) fn revision(found: &FoundValue) -> Revision {
    found.as_ref().map_or(Revision::ZERO, |found| found.revision)
}

pub(super) fn contended() -> Refusal {
    Refusal::new("TRYAGAIN other clients write this key at the same time; nothing was changed")
}

fn too_long() -> Refusal {
    Refusal::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
}
