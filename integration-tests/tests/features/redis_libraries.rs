//! Client libraries of other projects on clusters of real processes: values, pipelines, scans, TLS, leaders that are killed or
//! restarted, and partitions that move. `.ci/run` runs two libraries, `.ci/nightly` all.

use crate::EXE;
use crate::redis::{NODES, knows_listeners, ok, options};
use crate::redis_client::ClusterClient;
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::process::ProcessExt;
use archon_integration_tests::redis_driver::{Credentials, Reply};
use archon_integration_tests::{Cluster, Driver, Library, Options, Scrape, http};
use archon_security::Role;
use archon_testkit::{check, wait_for};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Most rounds that may fail during a series of faults: a client does not repeat a request with an unknown outcome.
const FAILED_MAX: usize = 10;
/// Pause after a failed request.
const PAUSE: Duration = Duration::from_millis(100);
/// Keys of a load.
const KEYS: u64 = 50;
/// Reads that replicas answer at least.
const REPLICA_READS: f64 = 10.0;
/// Every so many rounds are a pipeline.
const PIPELINE_EVERY: u64 = 10;
const FOUR: &[&str] = &["athens", "byzantium", "cyrene", "delos"];

fn wait<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(work)
}

/// Starts a library, as its users configure it; `None` if this machine does not have it.
fn start(library: Library, cluster: &Cluster, credentials: Option<&Credentials>) -> Option<Arc<Driver>> {
    let command = library.command()?;
    let listeners: Vec<&str> = NODES.iter().map(|node| cluster.redis_address(node)).collect();
    Some(Arc::new(Driver::start(command, &listeners, true, credentials)))
}

/// Repeats requests until none is refused for the moment: on a busy machine leases expire. `requests` may be done twice.
fn until_served(mut requests: impl FnMut() -> Vec<Reply>) -> Vec<Reply> {
    let refused = |reply: &Reply| match reply {
        Reply::Refused(text) => {
            ["CLUSTERDOWN", "ClusterDown", "Hash slot not served", "TRYAGAIN"].iter().any(|code| text.contains(code))
        }
        _ => false,
    };
    let served = || {
        let replies = requests();
        replies.iter().find(|reply| refused(reply)).cloned().map_or(Ok(replies), |reply| Err(format!("{reply:?}")))
    };
    wait_for("requests to be served", TIMEOUT, served).0
}

/// Returns how often leases of the nodes have lapsed.
fn lapses(cluster: &Cluster) -> usize {
    NODES.iter().map(|node| cluster.node(node).log().matches("lease lapsed").count()).sum()
}

/// Checks replies while nothing fails. A lease that lapses on a busy machine closes the connections of writes with unknown
/// outcome, and most libraries repeat these: then other replies are right, so the check starts over with other keys.
fn check_basics(driver: &Driver, cluster: &Cluster) {
    for attempt in 0.. {
        let before = lapses(cluster);
        let Err(wrong) = basics(driver, attempt) else { return };
        assert!(attempt < 2, "{wrong}, for the third time");
        // It is logged when the next grant comes.
        wait_for(&format!("a lapsed lease, as the reason of {wrong}"), TIMEOUT, || {
            check(lapses(cluster) > before, || "none lapsed".to_owned())
        });
    }
}

/// Returns the first wrong reply.
fn basics(driver: &Driver, attempt: usize) -> Result<(), String> {
    let is = |command: &[&[u8]], expected: Reply| {
        let found = until_served(|| vec![wait(driver.call(command))]).remove(0);
        check(found == expected, || format!("{found:?} instead of {expected:?}"))
    };
    let every_byte: Vec<u8> = (0..=255).cycle().take(768).collect();
    let key = [&b"\xff\0\r\n key "[..], attempt.to_string().as_bytes()].concat();
    let (key, value) = (key.as_slice(), every_byte.as_slice());
    is(&[b"SET", key, value], Reply::ok())?;
    is(&[b"GET", key], Reply::Bytes(every_byte.clone()))?;
    is(&[b"SET", key, b"x", b"NX"], Reply::Nil)?;
    is(&[b"SET", key, b"", b"IFEQ", value], Reply::ok())?;
    is(&[b"GET", key], Reply::Bytes(vec![]))?;
    is(&[b"DEL", key], Reply::Integer(1))?;
    is(&[b"GET", key], Reply::Nil)?;
    is(&[b"INCRBY", key, b"-7"], Reply::Integer(-7))?;
    is(&[b"SET", key, b"x"], Reply::ok())?;
    let refused = until_served(|| vec![wait(driver.call(&[b"INCRBY", key, b"1"]))]).remove(0);
    let not_an_integer = matches!(&refused, Reply::Refused(text) if text.contains("not an integer"));
    check(not_an_integer, || format!("{refused:?} when text is incremented"))?;
    // redis-cli opens a connection for each redirection. ioredis finds the nodes of pipelines by the text of keys, so these that
    // are no text need a tag.
    let keys: Vec<Vec<u8>> =
        (0..40).map(|number| [format!("{{clé {attempt} {number}}}").as_bytes(), b"\xff\0"].concat()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let commands = keys
        .iter()
        .flat_map(|&key| [vec![&b"SET"[..], key, key], vec![&b"APPEND"[..], key, &b"!"[..]], vec![&b"GET"[..], key]]);
    let commands: Vec<Vec<&[u8]>> = commands.collect();
    let commands: Vec<&[&[u8]]> = commands.iter().map(Vec::as_slice).collect();
    let replies = until_served(|| wait(driver.pipeline(&commands)));
    let expected = keys.iter().flat_map(|&key| {
        let appended = [key, &b"!"[..]].concat();
        [Reply::ok(), Reply::Integer(i64::try_from(appended.len()).expect("short")), Reply::Bytes(appended)]
    });
    for (number, (reply, expected)) in replies.iter().zip(expected).enumerate() {
        check(*reply == expected, || format!("{reply:?} instead of {expected:?}, reply {number} of a pipeline"))?;
    }
    let own = until_served(|| vec![wait(driver.check_own())]);
    check(own == [Reply::ok()], || format!("{own:?} by the library's own functions"))
}

/// Returns how many reads the replicas of running nodes have answered.
fn replica_reads(cluster: &Cluster) -> f64 {
    let of_node = |node: &&str| {
        let answer = http::get(cluster.metrics_address(node), "/metrics").expect("the metrics of the node");
        Scrape::read(&answer.body).expect("metrics").get("archon_node_stale_reads_total")
    };
    NODES.iter().map(of_node).sum()
}

/// Checks that the library finds replicas, and that they answer with what was written before, after a while.
fn check_replica_reads(driver: &Driver, cluster: &Cluster) {
    let (before, mut number) = (replica_reads(cluster), 0);
    let mut writer = ClusterClient::new(cluster.redis_address(NODES[0]));
    // On a busy machine leases expire, and leaders answer in the place of replicas.
    wait_for("reads at replicas", TIMEOUT, || {
        number += 1;
        let (key, value) = ([format!("{{réplica {number}}}").as_bytes(), b"\xff\0"].concat(), number.to_string());
        assert_eq!(writer.ask_until_answered(&[&b"SET"[..], &key, value.as_bytes()]), ok());
        let copies = writer.ask_until_answered(&["WAIT", "2", "1000"]);
        let expected = Reply::Bytes(value.into_bytes());
        wait_for("the write to be read", TIMEOUT, || match wait(driver.call_replica(&[b"GET", &key])) {
            reply if reply == expected => Ok(()),
            reply => Err(format!("{reply:?}; other copies: {copies:?}")),
        });
        match replica_reads(cluster) - before {
            answered if answered >= REPLICA_READS => Ok(()),
            answered => Err(format!("replicas answered {answered} times; {number} writes were read")),
        }
    });
}

/// Raises one count after the other, and checks that no acknowledged count is lost.
struct Load {
    driver: Arc<Driver>,
    /// Acknowledged counts.
    last: BTreeMap<String, u64>,
    done: u64,
    /// One for each round that failed.
    failures: Vec<String>,
    /// Error of the present round.
    failed: Option<String>,
    lost: Vec<String>,
}

impl Load {
    fn new(driver: Arc<Driver>) -> Self {
        Self { driver, last: BTreeMap::new(), done: 0, failures: Vec::new(), failed: None, lost: Vec::new() }
    }

    /// Runs until it is stopped, then reads every count once more.
    fn run(mut self, stopped: &AtomicBool) -> Self {
        for number in 1.. {
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            let keys = if number % PIPELINE_EVERY == 0 { 8 } else { 1 };
            self.round((number..number + keys).map(|number| format!("count {}", number % KEYS)).collect());
        }
        self.round(self.last.keys().cloned().collect());
        self
    }

    fn round(&mut self, keys: Vec<String>) {
        self.raise(keys);
        if let Some(failure) = self.failed.take() {
            self.failures.push(failure);
            sleep(PAUSE);
        }
    }

    fn raise(&mut self, keys: Vec<String>) {
        let reads: Vec<Vec<&[u8]>> = keys.iter().map(|key| vec![&b"GET"[..], key.as_bytes()]).collect();
        let found = self.send(&reads);
        let counts: Vec<Option<u64>> = keys.iter().zip(found).map(|(key, reply)| self.count(key, reply)).collect();
        let raised: Vec<(&String, String, u64)> = keys
            .iter()
            .zip(counts)
            .filter_map(|(key, count)| Some((key, (count? + 1).to_string(), count? + 1)))
            .collect();
        let writes: Vec<Vec<&[u8]>> =
            raised.iter().map(|(key, text, _)| vec![&b"SET"[..], key.as_bytes(), text.as_bytes()]).collect();
        if writes.is_empty() {
            return;
        }
        let written = self.send(&writes);
        for ((key, _, count), reply) in raised.iter().zip(written) {
            if reply == Reply::ok() {
                self.last.insert((*key).clone(), *count);
                self.done += 1;
            } else {
                self.fail(&reply);
            }
        }
    }

    fn send(&self, commands: &[Vec<&[u8]>]) -> Vec<Reply> {
        match commands {
            [command] => vec![wait(self.driver.call(command))],
            commands => wait(self.driver.pipeline(&commands.iter().map(Vec::as_slice).collect::<Vec<_>>())),
        }
    }

    /// Returns the count that a read found; `None` if it failed.
    fn count(&mut self, key: &str, reply: Reply) -> Option<u64> {
        let found = match &reply {
            Reply::Nil => 0,
            Reply::Bytes(text) => String::from_utf8_lossy(text).parse().expect("a count"),
            _ => {
                self.fail(&reply);
                return None;
            }
        };
        let acknowledged = self.last.get(key).copied().unwrap_or(0);
        if found < acknowledged {
            self.lost.push(format!("{key} was {acknowledged}, then {found}"));
        }
        Some(found)
    }

    fn fail(&mut self, reply: &Reply) {
        self.failed.get_or_insert(format!("{reply:?}"));
    }
}

/// Ends a load when this is dropped, also if the faults panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a load during faults; checks that it went on, and lost nothing.
fn under_load(driver: &Arc<Driver>, what: &str, faults: impl FnOnce()) {
    let stopped = AtomicBool::new(false);
    let load = std::thread::scope(|scope| {
        let load = Load::new(driver.clone());
        let running = scope.spawn(|| load.run(&stopped));
        let stop = Stop(&stopped);
        faults();
        drop(stop);
        running.join().expect("the load does not panic")
    });
    let Load { done, failures, lost, .. } = load;
    println!("{what}: {done} done, {} failed: {:#?}", failures.len(), &failures[..failures.len().min(5)]);
    assert!(lost.is_empty(), "{what}: {lost:#?}");
    assert!(done > 0 && failures.len() <= FAILED_MAX, "{what}: {done} done, failed: {failures:#?}");
}

fn goes_on_through_faults(library: Library) {
    if library.command().is_none() {
        return;
    }
    let three = Options { partitions: 9, replication: 3, metrics: true, ..options(FOUR) };
    let mut cluster = Cluster::start_whole(EXE, &three);
    knows_listeners(&cluster, NODES);
    let Some(driver) = start(library, &cluster, None) else { return };
    check_basics(&driver, &cluster);
    if library.reads_replicas() {
        check_replica_reads(&driver, &cluster);
    }
    under_load(&driver, "a leader was killed", || {
        let victim = cluster.leader_of("count 1");
        cluster.take_node(&victim).kill();
        wait_for("another leader", TIMEOUT, || match cluster.leader_of("count 1") {
            leader if leader == victim => Err(leader),
            leader => Ok(leader),
        });
        cluster.start_node(&victim);
        cluster.wait_node(&victim, "alive");
        cluster.wait_whole(3);
    });
    // Each restart hands over the leaderships of a node, so every slot moves.
    under_load(&driver, "all nodes were restarted", || {
        for node in NODES {
            assert!(cluster.take_node(node).terminate(TIMEOUT).success());
            cluster.start_node(node);
            cluster.wait_node(node, "alive");
            cluster.wait_whole(3);
        }
    });
    under_load(&driver, "the partitions of a node moved to another", || {
        cluster.start_node(FOUR[3]);
        cluster.wait_node(FOUR[3], "alive");
        cluster.done(&["node", "drain", NODES[0], "--wait"]);
    });
    check_basics(&driver, &cluster);
}

fn speaks_tls(library: Library) {
    if library.command().is_none() {
        return;
    }
    let cluster = Cluster::start_whole(
        EXE,
        &Options { coordinators: 1, partitions: 9, redis: NODES, tls: true, ..Options::default() },
    );
    let own = cluster.credentials(Role::Client, "shop");
    let credentials = ["ca.crt", "tls.crt", "tls.key"].map(|file| own.join(file));
    let Some(driver) = start(library, &cluster, Some(&credentials)) else { return };
    check_basics(&driver, &cluster);
}

#[test]
fn redis_py_goes_on_through_faults() {
    goes_on_through_faults(Library::RedisPy);
}

#[test]
fn redis_py_speaks_tls() {
    speaks_tls(Library::RedisPy);
}

#[test]
fn ioredis_goes_on_through_faults() {
    goes_on_through_faults(Library::IoRedis);
}

#[test]
fn ioredis_speaks_tls() {
    speaks_tls(Library::IoRedis);
}

#[test]
#[ignore = "`.ci/nightly` runs it"]
fn node_redis_goes_on_through_faults() {
    goes_on_through_faults(Library::NodeRedis);
}

#[test]
#[ignore = "`.ci/nightly` runs it"]
fn node_redis_speaks_tls() {
    speaks_tls(Library::NodeRedis);
}

#[test]
#[ignore = "`.ci/nightly` runs it"]
fn valkey_glide_goes_on_through_faults() {
    goes_on_through_faults(Library::ValkeyGlide);
}

#[test]
#[ignore = "`.ci/nightly` runs it"]
fn valkey_glide_speaks_tls() {
    speaks_tls(Library::ValkeyGlide);
}

#[test]
#[ignore = "`.ci/nightly` runs it"]
fn redis_rs_goes_on_through_faults() {
    goes_on_through_faults(Library::RedisRs);
}

#[test]
#[ignore = "`.ci/nightly` runs it"]
fn redis_rs_speaks_tls() {
    speaks_tls(Library::RedisRs);
}

#[test]
#[ignore = "`.ci/nightly` runs it"]
fn redis_cli_works_after_each_fault() {
    goes_on_through_faults(Library::RedisCli);
}

#[test]
#[ignore = "`.ci/nightly` runs it"]
fn redis_cli_speaks_tls() {
    speaks_tls(Library::RedisCli);
}
