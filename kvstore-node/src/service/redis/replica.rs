//! Reads at the replica of this node, for connections that sent `READONLY` (ADR 0100).

use super::refusal::{Refusal, refusal};
use super::session::Session;
use super::state::RedisService;
use archon_types::{Answer, ErrorKind, ManyKeys, Op, PartitionId};

impl RedisService {
    /// Carries out a read at the replica of this node. Returns `None` if that cannot answer, and the leader can: there is
    /// no replica, or it is not in sync, or may lack recent writes.
    pub(super) async fn read_replica(
        &self,
        session: &mut Session,
        partition: PartitionId,
        op: &Op,
    ) -> Option<Result<Answer, Refusal>> {
        let many = match op {
            Op::Get { key } => ManyKeys::new(vec![key.clone()]).ok()?,
            Op::GetMany(many) => ManyKeys::clone(many),
            _ => return None,
        };
        let read = self.kv.read_replica(&session.caller, partition, many).await;
        let values = read.and_then(|answer| {
            session.permit = Some(answer.permit);
            answer.values
        });
        match (values, op) {
            (Ok(mut values), Op::Get { .. }) => Some(Ok(Answer::Value(values.pop().flatten()))),
            (Ok(values), _) => Some(Ok(Answer::Values(values))),
            (Err(detail), _) if matches!(detail.kind, ErrorKind::Overloaded | ErrorKind::InvalidArgument) => {
                Some(Err(refusal(&detail, false)))
            }
            (Err(_), _) => None,
        }
    }
}
