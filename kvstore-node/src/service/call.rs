//! What the plain calls of `Kv` have in common: one operation, a page, or several operations at once, each answered when
//! it is committed.

use super::kv::KvService;
use super::overloaded;
use crate::admit::Permit;
use crate::asked::Asked;
use crate::inbox::PushError;
use crate::reply::{CallReply, Outcome, ReplyTo};
use crate::shard::{OpRequest, ShardMessage, StaleRead};
use crate::shared::shutting_down;
use archon_host::{Origin, StaleRow};
use archon_proto::convert::key_range::scan_of;
use archon_proto::convert::kv::{KeyedOp, TaggedReply, check_batch};
use archon_proto::v1;
use archon_security::Caller;
use archon_types::{
    Answer, ErrorDetail, ErrorKind, Keys, Millis, Op, OpId, PartitionId, Right, Table, TableId, partition_of, slot_of,
    tag_of,
};
use futures::{StreamExt, stream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;

/// Bytes of values that the answer to one `Batch` holds: a client of another language takes messages of 4 MiB at most
/// unless it is told otherwise.
const BATCH_ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Operations of one `Batch` under way at once; each may hold a value.
const BATCH_CONCURRENT_MAX: usize = 32;
/// Tells those who take turns with plain calls from streams, whose numbers are counted up from zero.
const PLAIN: u64 = 1 << 63;

type Result<T, E = ErrorDetail> = std::result::Result<T, E>;

impl KvService {
    /// Carries out one operation on a key; gives the partition's log time with the answer.
    pub(super) async fn call(
        &self,
        caller: &Caller,
        cluster: Option<&v1::ClusterRef>,
        table: &str,
        op: Op,
        id: Option<v1::OpId>,
    ) -> Result<(Millis, Answer)> {
        self.check(cluster, None)?;
        let id: Option<OpId> = id.map(TryInto::try_into).transpose()?;
        op.check()?;
        let table = self.table(table)?;
        check_named(&table, None, id.as_ref(), &op)?;
        self.check_right(caller, table.id, &op)?;
        let partition = self.of_key(&table, &op)?;
        let reply = self.operate(caller, partition, op, id).await;
        Ok((reply.log_time, reply.outcome?))
    }

    /// Reads a page of one partition.
    pub(super) async fn page(&self, caller: &Caller, request: v1::ScanRequest) -> Result<(Millis, Answer)> {
        self.check(request.cluster.as_ref(), None)?;
        let table = self.table(&request.table)?;
        let op = scan_of(&request)?;
        op.check()?;
        self.check_right(caller, table.id, &op)?;
        let partition = self.of_scan(&table, &request, &op)?;
        let reply = self.operate(caller, partition, op, None).await;
        Ok((reply.log_time, reply.outcome?))
    }

    /// Reads a key at the copy on this node, whether it leads or not.
    pub(super) async fn stale(&self, caller: &Caller, request: v1::GetStaleRequest) -> Result<StaleRow> {
        self.check(request.cluster.as_ref(), None)?;
        let op = Op::Get { key: request.key.clone() };
        op.check()?;
        let table = self.table(&request.table)?;
        self.check_right(caller, table.id, &op)?;
        let partition = self.of_key(&table, &op)?;
        let permit = self.shared.admission.client(caller.from).try_admit(op.cost())?;
        let (sender, answer) = oneshot::channel();
        let read = StaleRead { partition, key: request.key, permit, answer: sender };
        match self.shards.of(partition).try_push(ShardMessage::ReadStale(read)) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(shutting_down())),
            Err(PushError::Full(_)) => Err(overloaded()),
            Err(PushError::Closed(_)) => Err(shutting_down()),
        }
    }

    /// Carries out several operations, each on its own; the replies stand in their order.
    pub(super) async fn several(&self, caller: &Caller, request: v1::BatchRequest) -> Result<Vec<v1::Reply>> {
        self.check(request.cluster.as_ref(), None)?;
        check_batch(&request.ops, "BatchRequest.ops")?;
        let table = self.table(&request.table)?;
        let budget = AnswerBudget::default();
        let replies = stream::iter(request.ops).map(|op| self.one_of_several(caller, &table, op, &budget));
        // Answers hold their shares of admission until all of them are there.
        let replies: Vec<(v1::Reply, Option<Permit>)> = replies.buffered(BATCH_CONCURRENT_MAX).collect().await;
        Ok(replies.into_iter().map(|(reply, _)| reply).collect())
    }

    async fn one_of_several(
        &self,
        caller: &Caller,
        table: &Table,
        op: v1::Op,
        budget: &AnswerBudget,
    ) -> (v1::Reply, Option<Permit>) {
        let tag = op.tag;
        let CallReply { log_time, outcome, permit } = match self.placed(caller, table, op, budget) {
            Ok((partition, op, id)) => self.operate(caller, partition, op, id).await,
            Err(detail) => CallReply::refusal(detail),
        };
        let outcome = outcome.and_then(|answer| budget.admit(answer));
        let permit = permit.filter(|_| outcome.is_ok());
        (TaggedReply { tag, log_time, outcome }.into(), permit)
    }

    fn placed(
        &self,
        caller: &Caller,
        table: &Table,
        op: v1::Op,
        budget: &AnswerBudget,
    ) -> Result<(PartitionId, Op, Option<OpId>)> {
        let KeyedOp { partition, id, op, .. } = op.try_into()?;
        check_named(table, partition, id.as_ref(), &op)?;
        let by_key = self.of_key(table, &op)?;
        if op.is_read() && budget.is_full() {
            return Err(full());
        }
        // One that the client named wrongly is refused by the shard, as in a stream; it may be another table's.
        let partition = partition.unwrap_or(by_key);
        self.check_right(caller, partition.table, &op)?;
        Ok((partition, op, id))
    }

    /// The partition of which a page is asked.
    fn of_scan(&self, table: &Table, request: &v1::ScanRequest, op: &Op) -> Result<PartitionId> {
        let invalid = |why: String| Err(ErrorDetail::new(ErrorKind::InvalidArgument, why));
        let index = match (request.partition, table.keys) {
            (Some(asked), keys) if asked < keys.numbers_end() => asked,
            (Some(asked), keys) => {
                let last = keys.numbers_end().saturating_sub(1);
                return invalid(format!("table {} has no partition {asked}; its numbers are 0 to {last}", table.name));
            }
            (None, Keys::Range { .. }) => {
                let Op::Scan { keys, order, .. } = op else { return invalid("this is no scan".to_owned()) };
                let first = self.shared.tables.first_of(table.id, keys, *order);
                return first.ok_or_else(|| self.shared.tables.unknown(&table.name));
            }
            (None, Keys::Hash { partitions }) if tag_of(&request.prefix).is_some() => {
                partition_of(slot_of(&request.prefix), partitions)
            }
            (None, Keys::Hash { partitions: 1 }) => 0,
            (None, Keys::Hash { .. }) => {
                return invalid("this call reads one partition: name it, or give a prefix with a {tag}".to_owned());
            }
        };
        Ok(PartitionId::new(table.id, index))
    }

    /// The partition of the key that an operation is about.
    fn of_key(&self, table: &Table, op: &Op) -> Result<PartitionId> {
        let Some(key) = op.key() else {
            let why = "a scan cannot be part of a batch; call Scan";
            return Err(ErrorDetail::new(ErrorKind::InvalidArgument, why));
        };
        self.shared.tables.partition_of(table.id, key).ok_or_else(|| self.shared.tables.unknown(&table.name))
    }

    pub(super) fn check_right(&self, caller: &Caller, table: TableId, op: &Op) -> Result<()> {
        let call = match op {
            Op::Get { .. } => "/archon.v1.Kv/Get",
            Op::Put { .. } => "/archon.v1.Kv/Put",
            Op::Delete { .. } => "/archon.v1.Kv/Delete",
            Op::CompareAndSet { .. } => "/archon.v1.Kv/CompareAndSet",
            Op::Increment { .. } => "/archon.v1.Kv/Increment",
            Op::Scan { .. } => "/archon.v1.Kv/Scan",
        };
        self.shared.access.of(caller, call).check(&self.shared.tables, table, Right::of(op))
    }

    pub(super) fn table(&self, name: &str) -> Result<Table> {
        self.shared.tables.table(name).ok_or_else(|| self.shared.tables.unknown(name))
    }

    async fn operate(&self, caller: &Caller, partition: PartitionId, op: Op, id: Option<OpId>) -> CallReply {
        self.operate_as(caller, partition, op, id, Origin::AnyNodeClient).await
    }

    /// Has an operation carried out that came so.
    pub(super) async fn operate_as(
        &self,
        caller: &Caller,
        partition: PartitionId,
        op: Op,
        id: Option<OpId>,
        origin: Origin,
    ) -> CallReply {
        let admission = self.shared.admission.client(caller.from);
        let permit = match admission.try_admit(op.cost()) {
            Ok(permit) => permit,
            Err(detail) => return CallReply::refusal(detail),
        };
        let asked = Some(Asked::new(&op, partition, Instant::now()));
        let (sender, answer) = oneshot::channel();
        let request = OpRequest {
            partition,
            origin,
            client: PLAIN | admission.number(),
            op,
            id,
            known: archon_types::Version::ZERO,
            parked_at: None,
            confirmed: None,
            reply: ReplyTo::Call { sender, asked, permit },
        };
        match self.shards.of(partition).try_push(ShardMessage::Operations(vec![request])) {
            Ok(()) => answer.await.unwrap_or_else(|_| CallReply::refusal(shutting_down())),
            Err(PushError::Full(_)) => CallReply::refusal(overloaded()),
            Err(PushError::Closed(_)) => CallReply::refusal(shutting_down()),
        }
    }
}

/// Holds that a write with a name says which partition it began at, where keys can come to be another partition's: only that one
/// remembers it by its name (PROTOCOL rule 42), and whoever asks again without saying so might be sent to the other one.
fn check_named(table: &Table, partition: Option<PartitionId>, id: Option<&OpId>, op: &Op) -> Result<()> {
    if !table.keys.is_range() || partition.is_some() || id.is_none() || op.is_read() {
        return Ok(());
    }
    let why = format!(
        "keys of table {} may come to be another partition's, which would not know this write by its name: call Batch with the \
         partition where it began in each operation, or write without a name",
        table.name
    );
    Err(ErrorDetail::new(ErrorKind::InvalidArgument, why))
}

/// How many bytes of values the answer to one `Batch` holds so far.
#[derive(Default)]
struct AnswerBudget(AtomicUsize);

impl AnswerBudget {
    fn is_full(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= BATCH_ANSWER_BYTES_MAX
    }

    /// Lets an answer pass if its value still fits; the first one always does.
    fn admit(&self, answer: Answer) -> Outcome {
        let Answer::Value(Some((value, _))) = &answer else { return Ok(answer) };
        let before = self.0.fetch_add(value.len(), Ordering::Relaxed);
        if before > 0 && before + value.len() > BATCH_ANSWER_BYTES_MAX { Err(full()) } else { Ok(answer) }
    }
}

fn full() -> ErrorDetail {
    let why =
        format!("one answer holds {BATCH_ANSWER_BYTES_MAX} bytes of values; ask for the rest of them in another batch");
    ErrorDetail::new(ErrorKind::Overloaded, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::Revision;
    use bytes::Bytes;

    #[test]
    fn an_answer_with_many_large_values_is_bounded() {
        let value = |bytes: usize| Answer::Value(Some((Bytes::from(vec![0; bytes]), Revision::new(1))));
        let budget = AnswerBudget::default();
        assert!(budget.admit(value(BATCH_ANSWER_BYTES_MAX - 10)).is_ok() && !budget.is_full());
        assert_eq!(budget.admit(value(11)).unwrap_err().kind, ErrorKind::Overloaded);
        assert!(budget.is_full());
        // What is small, and what was done, is told all the same.
        assert!(budget.admit(Answer::Value(None)).is_ok());
        assert!(budget.admit(Answer::Written { revision: Revision::new(1) }).is_ok());
    }
}
