//! Automatic merges of small partitions, on real processes. The test waits for more than a minute, and its name lets it start
//! among the first.

use crate::merges::cluster;
use archon_integration_tests::CounterLoad;
use std::time::Duration;

#[test]
fn small_neighbours_are_merged_automatically_without_loss() {
    let cluster = cluster(1, "key-12");
    cluster.done(&["table", "alter", "times", "--merge-below", "1MiB"]);
    let counting = CounterLoad::begin(&cluster, "times");
    // Leaders report a partition as small after a minute.
    cluster.wait_settled("times", "the two to be merged", Duration::from_secs(200), |rows| rows.len() == 1);
    let seen = counting.end();
    assert!(seen.iter().all(|seen| seen.open == 0), "nothing failed, so nothing is open: {seen:?}");
    let events = cluster.done(&["events"]);
    assert!(events.contains("merged automatically"), "{events}");
}
