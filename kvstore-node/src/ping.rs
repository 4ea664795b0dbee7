//! Pings: whether clients reach this node is asked by a stream as theirs, and answered once every shard has had a turn (PROTOCOL rule
//! 73). What a client would wait for, a ping waits for.

use crate::inbox::PushError;
use crate::service::overloaded;
use crate::shard::{ShardMessage, Shards};
use crate::shared::shutting_down;
use archon_types::{ErrorDetail, ErrorKind};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// A ping on its way through the shards.
struct Ping {
    /// Its number, which the answer names.
    number: u64,
    /// How many shards are to have a turn yet.
    left: AtomicUsize,
    /// Where its stream waits.
    answer: Mutex<Option<mpsc::OwnedPermit<u64>>>,
}

/// A ping as one shard has it.
pub(crate) struct PingPart(Arc<Ping>);

impl PingPart {
    /// The shard has its turn. The last one answers.
    pub(crate) fn answer(&self) {
        let Ping { number, left, answer } = &*self.0;
        if left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(permit) = answer.lock().take()
        {
            permit.send(*number);
        }
    }
}

/// Has every shard asked. The answer goes to `answers`, which has room for one.
///
/// # Errors
/// `Overloaded` if there are requests enough, or another ping of this stream is not answered yet; `ShuttingDown`.
pub(crate) fn ping(shards: &Shards, number: u64, answers: &mpsc::Sender<u64>) -> Result<(), ErrorDetail> {
    let answer = answers.clone().try_reserve_owned();
    let answer = answer.map_err(|_| {
        ErrorDetail::new(ErrorKind::Overloaded, "another ping of this stream waits for its answer")
            .with_retry_after_ms(100)
    })?;
    let left = AtomicUsize::new(shards.count());
    let ping = Arc::new(Ping { number, left, answer: Mutex::new(Some(answer)) });
    for inbox in (0..shards.count()).filter_map(|number| shards.inbox(number)) {
        inbox.try_push(ShardMessage::Ping(PingPart(Arc::clone(&ping)))).map_err(|error| match error {
            PushError::Full(_) => overloaded(),
            PushError::Closed(_) => shutting_down(),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::INBOX_MESSAGES_MAX;

    fn parts(shards: &Shards, number: usize) -> Vec<PingPart> {
        let mut turn = Vec::new();
        shards.inbox(number).unwrap().drain(&mut turn);
        let part = |message| match message {
            ShardMessage::Ping(part) => Some(part),
            _ => None,
        };
        turn.into_iter().filter_map(part).collect()
    }

    #[tokio::test]
    async fn a_ping_was_answered_although_one_shard_had_no_turn() {
        let shards = Shards::new(3);
        let (answers, mut answered) = mpsc::channel(1);
        ping(&shards, 7, &answers).unwrap();
        let again = ping(&shards, 8, &answers).unwrap_err();
        assert_eq!(again.kind, ErrorKind::Overloaded, "one at a time");
        for number in 0..2 {
            parts(&shards, number).iter().for_each(PingPart::answer);
        }
        assert!(answered.try_recv().is_err());
        parts(&shards, 2).iter().for_each(PingPart::answer);
        assert_eq!(answered.recv().await, Some(7));
        ping(&shards, 9, &answers).unwrap();
    }

    #[test]
    fn a_shard_with_requests_enough_says_so() {
        let shards = Shards::new(1);
        let (answers, mut answered) = mpsc::channel(1);
        let grown = || ShardMessage::Peers;
        while shards.inbox(0).unwrap().try_push(grown()).is_ok() {}
        assert_eq!(shards.inbox(0).unwrap().len(), INBOX_MESSAGES_MAX);
        assert_eq!(ping(&shards, 7, &answers).unwrap_err().kind, ErrorKind::Overloaded);
        assert!(answered.try_recv().is_err());
    }
}
