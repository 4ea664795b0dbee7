//! Memory limit of a node, on real processes.

use crate::EXE;
use archon_integration_tests::{Cluster, Options, Room, Scrape, http};
use futures::stream::{self, StreamExt, TryStreamExt};

const MIB: f64 = (1 << 20) as f64;
/// Bytes of a value.
const VALUE_BYTES: usize = 32 * 1024;
/// Keys written: 512 MiB of values, twice the node's memory limit.
const KEYS: u64 = 16 * 1024;
/// Concurrent operations.
const TASKS: usize = 64;

fn key(number: u64) -> String {
    format!("key-{number:05}")
}

/// Returns unique, incompressible values.
fn value(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut value = vec![0; VALUE_BYTES];
    // Iterator adapters would take longer in a test program, which is not optimised, than the write of the value.
    for word in value.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    value
}

fn scrape(cluster: &Cluster) -> Scrape {
    let answer = http::get(cluster.metrics_address("athens"), "/metrics").expect("the node tells its metrics");
    Scrape::read(&answer.body).expect("metrics")
}

/// Checks current memory use, and each of its parts against its bound.
fn look(cluster: &Cluster, most: &mut f64) {
    let now = scrape(cluster);
    *most = most.max(now.get("archon_process_resident_bytes"));
    let bounded = ["archon_node_row_cache_bytes", "archon_node_admitted_bytes"];
    for part in bounded {
        let (used, bound) = (now.get(part), now.get(&format!("{part}_max")));
        assert!(used <= bound, "{part}: {used} of {bound}");
    }
}

#[test]
fn node_stays_within_its_memory_limit_with_twice_the_data() {
    let small = Options {
        coordinators: 1,
        nodes: vec!["athens"],
        nodes_min: 1,
        partitions: 16,
        metrics: true,
        memory: Some("256MiB"),
        // The engine holds more while a busy disk is slow.
        room: Room::Whole,
        ..Options::default()
    };
    let cluster = Cluster::start(EXE, &small);
    cluster.wait_whole(1);
    assert_eq!(scrape(&cluster).get("archon_node_memory_bytes_max"), 256.0 * MIB);
    let mut most = 0.0_f64;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = cluster.client().build().await.expect("a client");
        for from in (0..KEYS).step_by(512) {
            let numbers = stream::iter(from..from + 512);
            let writes = numbers.map(|number| client.put(key(number), value(number)));
            writes.buffer_unordered(TASKS).try_collect::<Vec<_>>().await.expect("every write is taken");
            look(&cluster, &mut most);
        }
        for from in (0..KEYS).step_by(512) {
            let reads = stream::iter(from..from + 512).map(|number| {
                let client = &client;
                async move { (number, client.get(key(number)).await.expect("a read")) }
            });
            let found: Vec<_> = reads.buffer_unordered(TASKS).collect().await;
            for (number, found) in found {
                assert!(found.is_some_and(|found| found.value == value(number)), "key {number}");
            }
            look(&cluster, &mut most);
        }
    });
    println!("{:.0} MiB resident at most", most / MIB);
    assert!(most <= 256.0 * MIB, "{:.0} MiB resident", most / MIB);
}
