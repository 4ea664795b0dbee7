//! Delivery in pieces of tables larger than a message should be, to nodes and clients.

use crate::common::{FakeNode, Quorum, Trouble, channel};
use crate::settings;
use archon_proto::v1;
use archon_proto::v1::table_client::TableClient;
use archon_types::limits::PIECE_BYTES_MAX;
use archon_types::{Assembly, AssemblyResult, PartitionTable, TablePiece};
use std::time::{Duration, Instant};

/// Default maximum size of a message in gRPC libraries.
const MESSAGE_BYTES: usize = 4 * 1024 * 1024;
const PARTITIONS: u32 = 16_384;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Registers a node, with a fault to come, when another one has the whole table already; it has it too at the end.
async fn delivered(quorum: &Quorum, trouble: Option<Trouble>) -> FakeNode {
    let leader = quorum.leader_address().await;
    let mut first = FakeNode::new("athens").await;
    first.register(&leader).await.unwrap();
    let begun = Instant::now();
    while !is_assigned(&first) {
        assert!(begun.elapsed() < TIMEOUT, "not assigned");
        let _ = first.heartbeat(&leader).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut node = FakeNode::new("byzantium").await;
    node.pushed.tables.lock().unwrap().trouble = trouble;
    node.register(&leader).await.unwrap();
    while !is_assigned(&node) {
        let pieces = node.pushed.tables.lock().unwrap().pieces.clone();
        assert!(begun.elapsed() < TIMEOUT, "not delivered: {pieces:?}");
        for node in [&mut first, &mut node] {
            let _ = node.heartbeat(&leader).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    {
        let tables = node.pushed.tables.lock().unwrap();
        assert!(tables.trouble.is_none() && tables.nodes >= 2);
    }
    node
}

/// Returns true if a node has a table with a leader for every partition.
fn is_assigned(node: &FakeNode) -> bool {
    let tables = node.pushed.tables.lock().unwrap();
    let led = tables.held.as_ref().map_or(0, |table| table.partitions().filter(|row| row.leader.is_some()).count());
    tables.complete > 0 && led == PARTITIONS as usize
}

/// Fetches a whole table like a client, and returns it with the number of pieces.
async fn fetched(address: &str) -> (PartitionTable, usize) {
    let (mut client, mut held, mut from, mut count) = (TableClient::new(channel(address)), None, 0, 0);
    loop {
        let request = v1::GetTableRequest { from, ..v1::GetTableRequest::default() };
        let answer = client.get_table(request).await.unwrap().into_inner();
        count += 1;
        match Assembly::take(&mut held, TablePiece::try_from(answer.delta.unwrap()).unwrap()) {
            AssemblyResult::More(next) => from = next,
            AssemblyResult::Whole(delta) => return (PartitionTable::from_whole(delta).unwrap(), count),
            AssemblyResult::Gap => panic!("the pieces do not go together"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_table_reaches_node_and_client_in_pieces() {
    let quorum = Quorum::start(1, settings(1, PARTITIONS)).await;
    let node = delivered(&quorum, None).await;
    let (table, pieces) = fetched(&quorum.leader_address().await).await;
    assert!(pieces >= 2, "{pieces} pieces for a client");
    {
        let tables = node.pushed.tables.lock().unwrap();
        assert!(tables.pieces.iter().filter(|(from, _)| *from > 0).count() >= 1, "{:?}", tables.pieces);
        let bytes = tables.largest_push_bytes;
        assert!(bytes > PIECE_BYTES_MAX / 4 && bytes < MESSAGE_BYTES, "{bytes} bytes in one push");
        let held = tables.held.as_ref().unwrap();
        assert!(held.partitions().eq(table.partitions()), "node and client hold the same");
    }
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_delivery_continues_where_it_stopped() {
    let quorum = Quorum::start(1, settings(1, PARTITIONS)).await;
    let node = delivered(&quorum, Some(Trouble::Cut)).await;
    {
        let tables = node.pushed.tables.lock().unwrap();
        let cut = tables.pieces.iter().position(|(from, _)| *from > 0).unwrap();
        assert_eq!(tables.pieces[cut].0, tables.pieces[cut + 1].0, "the same piece again: {:?}", tables.pieces);
    }
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_lost_first_pieces_gets_table_again() {
    let quorum = Quorum::start(1, settings(1, PARTITIONS)).await;
    let node = delivered(&quorum, Some(Trouble::Gap)).await;
    {
        let tables = node.pushed.tables.lock().unwrap();
        let lost = tables.pieces.iter().position(|(from, _)| *from > 0).unwrap();
        assert_eq!(tables.pieces[lost + 1].0, 0, "from the start: {:?}", tables.pieces);
    }
    quorum.stop_all().await;
}
