//! Pings: probes of this node's reachability for clients, sent over a stream like theirs and answered once every shard
//! has had a turn (PROTOCOL rule 73). A ping waits for everything that a client would wait for.

use crate::node::state::shutting_down;
use crate::service::overloaded;
use crate::shard::inbox::PushError;
use crate::shard::{PingPart, ShardMessage, Shards};
use archon_types::{ErrorDetail, ErrorKind};
use tokio::sync::mpsc;

/// Sends a ping to every shard. The answer goes to `answers`, which has room for one.
///
/// # Errors
/// `Overloaded` if too many requests wait, or another ping of this stream is not answered yet; `ShuttingDown`.
pub(crate) fn ping(shards: &Shards, number: u64, answers: &mpsc::Sender<u64>) -> Result<(), ErrorDetail> {
    let answer = answers.clone().try_reserve_owned();
    let answer = answer.map_err(|_| {
        ErrorDetail::new(ErrorKind::Overloaded, "another ping of this stream waits for its answer")
            .with_retry_after_ms(100)
    })?;
    let inboxes = (0..shards.count()).filter_map(|number| shards.inbox(number));
    for (inbox, part) in inboxes.zip(PingPart::for_each_shard(shards.count(), number, answer)) {
        inbox.try_push(ShardMessage::Ping(part)).map_err(|error| match error {
            PushError::Full(_) => overloaded(),
            PushError::Closed(_) => shutting_down(),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::inbox::INBOX_MESSAGES_MAX;

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
    async fn ping_is_answered_after_turn_of_every_shard() {
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
    fn ping_to_full_shard_is_overloaded() {
        let shards = Shards::new(1);
        let (answers, mut answered) = mpsc::channel(1);
        let grown = || ShardMessage::Peers;
        while shards.inbox(0).unwrap().try_push(grown()).is_ok() {}
        assert_eq!(shards.inbox(0).unwrap().len(), INBOX_MESSAGES_MAX);
        assert_eq!(ping(&shards, 7, &answers).unwrap_err().kind, ErrorKind::Overloaded);
        assert!(answered.try_recv().is_err());
    }
}
