//! Client operations, within their clients' turns.

use super::{Budget, OpRequest, ReplicaAnswer, ReplicaRead, Shard, StaleRead};
use archon_types::{ErrorKind, Op};
use std::time::Instant;

impl Shard {
    /// Evaluates the operations of a message within its client's turn; the rest waits.
    pub(super) fn arrived(&mut self, operations: Vec<OpRequest>, budget: &mut Budget) {
        self.context.shared.metrics.operations.add(operations.len() as u64);
        let mut operations = operations.into_iter();
        if self.backlog.is_empty() {
            budget.next_client();
            while !budget.is_slice_spent()
                && let Some(request) = operations.next()
            {
                self.operation(request, budget);
            }
        }
        for request in operations {
            self.backlog.push(request.client, request);
        }
    }

    /// Evaluates waiting operations, client by client, until the turn's time is spent.
    pub(super) fn go_on(&mut self, budget: &mut Budget) {
        while !self.backlog.is_empty() && !budget.is_spent() {
            budget.next_client();
            while !budget.is_slice_spent()
                && let Some(request) = self.backlog.pop()
            {
                // A read of an ended stream is dropped; a write is carried out all the same.
                if !(request.op.is_read() && request.reply.is_gone()) {
                    self.operation(request, budget);
                }
            }
            self.backlog.rotate();
        }
        self.context.shared.metrics.turns_cut.add(u64::from(!self.backlog.is_empty()));
    }

    /// Reads at the copy here, whether it leads or not.
    pub(super) fn read_stale(&mut self, read: StaleRead, budget: &mut Budget) {
        let StaleRead { partition, key, permit, answer } = read;
        // The caller may have given up.
        if answer.is_closed() {
            return;
        }
        self.context.shared.metrics.stale_reads.add(1);
        let row = permit.room().and_then(|()| {
            let row = self.partitions.read_stale(partition, &key);
            row.map_err(|refusal| self.partitions.shell().words(partition, refusal))
        });
        self.context.shared.metrics.operations_refused.add(u64::from(row.is_err()));
        let _ = answer.send(row);
        budget.spend(false, Instant::now);
    }

    /// Reads at the copy here, whether it leads or not, within a bound on what the read may miss.
    pub(super) fn read_replica(&mut self, read: ReplicaRead, budget: &mut Budget) {
        let ReplicaRead { partition, keys, mut permit, answer } = read;
        if answer.is_closed() {
            return;
        }
        let values = permit.room().and_then(|()| {
            let values = self.partitions.read_replica(partition, &keys);
            let values = values.map_err(|refusal| self.partitions.shell().words(partition, refusal))?;
            permit.answered(values.iter().flatten().map(|stored| stored.value.len()).sum())?;
            Ok(values)
        });
        // The leader answers in the place of a replica that cannot.
        let metrics = &self.context.shared.metrics;
        match &values {
            Ok(_) => metrics.stale_reads.add(1),
            Err(detail) if matches!(detail.kind, ErrorKind::Overloaded | ErrorKind::InvalidArgument) => {
                metrics.operations_refused.add(1);
            }
            Err(_) => {}
        }
        let _ = answer.send(ReplicaAnswer { values, permit });
        budget.spend(keys.keys().len() > 1, Instant::now);
    }

    fn operation(&mut self, mut request: OpRequest, budget: &mut Budget) {
        if let Some(asked) = request.reply.asked_mut() {
            asked.take_up(self.partitions.shell().journal.turn());
        }
        let is_long = matches!(request.op, Op::Scan { .. } | Op::GetMany(_) | Op::Transaction(_));
        self.partitions.operate(request);
        budget.spend(is_long, Instant::now);
    }

    /// Reads client records of partitions just taken over, while there is time, and at least once.
    pub(super) fn read_clients(&mut self, budget: &mut Budget) {
        while self.partitions.clients_to_read() > 0 {
            self.partitions.read_clients();
            budget.spend(true, Instant::now);
            if budget.is_spent() {
                break;
            }
        }
    }
}
