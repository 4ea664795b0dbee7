//! Tests of coordinators after Raft has ended by itself.

use super::test_founders::{SOON, founder, listening, until};
use crate::Coordinator;
use archon_testkit::ScratchDirectory;
use tokio::time::timeout;

#[tokio::test]
async fn coordinator_ends_after_a_panic_of_raft() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let (peers, mut listeners) = listening(1).await;
    let (id, listener) = listeners.remove(0);
    let coordinator = Coordinator::start(listener, founder(id, &peers, directory.path())).await.unwrap();
    let quorum = until("it to be open", async || coordinator.quorum().cloned().ok_or("not open".into())).await;
    quorum.break_raft().await;
    let error = timeout(SOON, coordinator.failed()).await.expect("it ends");
    assert!(error.to_string().contains("raft ended without a reason"), "{error}");
}
