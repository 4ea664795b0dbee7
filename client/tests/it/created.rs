//! A client that opens a table which was created a moment ago, against in-memory nodes.

use crate::support::FakeCluster;
use archon_client::{Client, Error, ErrorDetail, ErrorKind};
use std::time::Duration;

/// Time-out far above the duration of any call here.
const DEADLINE: Duration = Duration::from_secs(60);

fn refuse(cluster: &FakeCluster, node: usize, detail: Option<ErrorDetail>) {
    *cluster.nodes[node].state.no_table.lock().unwrap() = detail;
}

async fn open(cluster: &FakeCluster) -> Result<Client, Error> {
    let building = Client::builder(cluster.addresses()).timeout(DEADLINE).build();
    tokio::time::timeout(DEADLINE / 2, building).await.expect("an answer before the deadline")
}

/// In every order of the sources.
#[tokio::test]
async fn absence_is_believed_beside_sources_that_do_not_lead() {
    let cluster = FakeCluster::start(3, 4).await;
    refuse(&cluster, 0, Some(ErrorDetail::new(ErrorKind::NotCoordinatorLeader, "ask another one")));
    refuse(&cluster, 1, Some(ErrorDetail::new(ErrorKind::NotFound, "it does not exist")));
    refuse(&cluster, 2, Some(ErrorDetail::new(ErrorKind::NoQuorum, "no coordinator leads now")));
    for opened in 1..=8 {
        let error = open(&cluster).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(cluster.count(|node| &node.fetches), 3 * opened, "each source is asked once");
    }
}

#[tokio::test]
async fn table_that_is_being_assigned_is_waited_for() {
    let cluster = FakeCluster::start(2, 4).await;
    let assigned = ErrorDetail::new(ErrorKind::Unavailable, "it is just being assigned").with_retry_after_ms(5);
    refuse(&cluster, 0, Some(ErrorDetail::new(ErrorKind::NotCoordinatorLeader, "ask another one")));
    refuse(&cluster, 1, Some(assigned));
    let opening = open(&cluster);
    tokio::pin!(opening);
    for _ in 0..20 {
        tokio::select! {
            opened = &mut opening => panic!("{opened:?}"),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
    refuse(&cluster, 1, None);
    opening.await.unwrap().put("k", "v").await.unwrap();
}
