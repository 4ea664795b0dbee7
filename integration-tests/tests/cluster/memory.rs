//! Memory limit of a node, on real processes.

use crate::EXE;
use archon_integration_tests::{Cluster, Options, Room, Scrape, http};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::fmt::{self, Display, Formatter};

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

/// Gauges of memory that add up to less than what is resident: the rest is not counted by the node.
const COUNTED: [&str; 4] = [
    "archon_node_memtable_bytes",
    "archon_engine_queue_bytes",
    "archon_node_row_cache_bytes",
    "archon_node_admitted_bytes",
];

/// Highest memory use so far.
#[derive(Default)]
struct Peak {
    resident: f64,
    /// Values of [`COUNTED`] at that time.
    counted: [f64; 4],
}

impl Peak {
    /// Looks at current memory use, and checks each bounded part.
    fn look(&mut self, cluster: &Cluster) {
        let now = scrape(cluster);
        let resident = now.get("archon_process_resident_bytes");
        if resident > self.resident {
            *self = Self { resident, counted: COUNTED.map(|part| now.get(part)) };
        }
        for part in ["archon_node_row_cache_bytes", "archon_node_admitted_bytes"] {
            let (used, bound) = (now.get(part), now.get(&format!("{part}_max")));
            assert!(used <= bound, "{part}: {used} of {bound}");
        }
    }
}

impl Display for Peak {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} MiB resident at most; of them", self.resident / MIB)?;
        COUNTED.iter().zip(self.counted).try_for_each(|(part, bytes)| write!(f, " {part} {:.0}", bytes / MIB))
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
    let mut peak = Peak::default();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = cluster.client().build().await.expect("a client");
        for from in (0..KEYS).step_by(512) {
            let numbers = stream::iter(from..from + 512);
            let writes = numbers.map(|number| client.put(key(number), value(number)));
            writes.buffer_unordered(TASKS).try_collect::<Vec<_>>().await.expect("every write is taken");
            peak.look(&cluster);
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
            peak.look(&cluster);
        }
    });
    println!("{peak}");
    assert!(peak.resident <= 256.0 * MIB, "{peak}");
}
