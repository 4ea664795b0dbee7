use super::settings::{CoordinatorSettings, MemberKind, allowed, node_config};
use crate::args::Cli;
use crate::exit::{Exit, Failure};
use crate::serve::file::ConfigFile;
use archon_client::Transport;
use archon_coordinator::FirstStart;
use archon_kvstore_node::{EngineKind, NodeConfig};
use archon_security::connection_limit::NODE_CONNECTIONS_MAX;
use archon_types::DEFAULT_TABLE;
use clap::CommandFactory;
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

fn words(verb: &str, line: &[&str]) -> Vec<OsString> {
    ["archon", verb].iter().chain(line).map(OsString::from).collect()
}

fn coordinator(line: &[&str]) -> Result<CoordinatorSettings, Failure> {
    CoordinatorSettings::resolve(&words("coordinator", line))
}

fn node(line: &[&str]) -> Result<NodeConfig, Failure> {
    node_config(&words("node", line))
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

const WHOLE: &[&str] =
    &["--id", "1", "--listen", "127.0.0.1:7101", "--peers", "1=127.0.0.1:7101", "--data-dir", "/tmp/c1"];

#[test]
fn flag_overrides_file_and_file_overrides_default() {
    let file = file(
        "id = 2\nlisten = '127.0.0.1:7102'\npeers = ['1=127.0.0.1:7101', '2=127.0.0.1:7102', '3=127.0.0.1:7103']\n\
         data_dir = '/tmp/c2'\npartitions = 30\nmin_nodes = 3\n",
    );
    let path = file.path().to_str().unwrap();
    let found = coordinator(&["--config", path, "--partitions", "9"]).unwrap();
    assert_eq!((found.id, found.cluster.partitions, found.cluster.nodes_min), (2, 9, 3));
    assert!(matches!(&found.start, Some(FirstStart::Found { peers }) if peers.len() == 3), "{:?}", found.start);
}

#[test]
fn default_is_three_copies_or_as_many_as_fit() {
    let found = |line: &[&str]| {
        let cluster = coordinator(&[WHOLE, line].concat()).unwrap().cluster;
        (cluster.replication, cluster.nodes_min)
    };
    assert_eq!(found(&[]), (3, 3));
    assert_eq!(found(&["--min-nodes", "1"]), (1, 1));
    assert_eq!(found(&["--min-nodes", "2"]), (2, 2));
    assert_eq!(found(&["--min-nodes", "300"]), (3, 300));
    assert_eq!(found(&["--replication", "1"]), (1, 1));
    assert_eq!(found(&["--replication", "5"]), (5, 5));
    assert_eq!(found(&["--replication", "2", "--min-nodes", "4"]), (2, 4));
}

#[test]
fn missing_setting_is_reported_with_three_ways_to_set_it() {
    let failure = coordinator(&["--id", "1"]).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    let text = failure.to_string();
    for part in ["--listen is missing", "--listen 127.0.0.1:7101", "ARCHON_LISTEN", "`listen`"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn unsafe_timing_is_refused_with_the_arithmetic() {
    let failure = coordinator(&[WHOLE, &["--lease-ms", "500"]].concat()).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(failure.message.contains("3 × 200 ms = 600 ms >= 500 ms"), "{failure}");
}

#[test]
fn profile_sets_the_time_outs_that_are_not_set_individually() {
    let timing = |line: &[&str]| {
        let timing = coordinator(&[WHOLE, line].concat()).unwrap().cluster.timing;
        (timing.heartbeat_ms, timing.lease_ms, timing.failure_timeout_ms)
    };
    let (by_file, own_lease) = (file("failover = 'fast'\n"), file("lease_ms = 900\n"));
    let path = |file: &tempfile::NamedTempFile| file.path().to_str().unwrap().to_owned();
    assert_eq!(timing(&["--failover", "fast"]), (100, 600, 750));
    assert_eq!(timing(&["--config", &path(&by_file)]), (100, 600, 750));
    assert_eq!(timing(&["--config", &path(&by_file), "--failover", "standard"]), (200, 1_000, 1_250));
    assert_eq!(
        timing(&["--config", &path(&own_lease), "--failover", "fast"]),
        (100, 600, 750),
        "a flag beats the file"
    );
    assert_eq!(timing(&["--failover", "fast", "--failure-timeout-ms", "800"]), (100, 600, 800));
    let failure = coordinator(&[WHOLE, &["--failover", "fast", "--lease-ms", "700"]].concat()).unwrap_err();
    assert!(failure.remedy.unwrap().contains("failure_timeout_ms is from --failover fast"));
    let unknown = file("failover = 'swift'\n");
    let failure = coordinator(&[WHOLE, &["--config", &path(&unknown)]].concat()).unwrap_err();
    assert!(failure.to_string().contains("line 1") && failure.to_string().contains("fast"), "{failure}");
}

#[test]
fn quorum_heartbeat_is_read_from_flag_and_file_within_its_range() {
    let heartbeat = |line: &[&str]| coordinator(&[WHOLE, line].concat()).map(|read| read.timing.heartbeat_ms());
    let (by_file, too_long) = (file("quorum_heartbeat_ms = 300\n"), file("quorum_heartbeat_ms = 2001\n"));
    let path = |file: &tempfile::NamedTempFile| file.path().to_str().unwrap().to_owned();
    assert_eq!(heartbeat(&[]).unwrap(), 50);
    assert_eq!(heartbeat(&["--config", &path(&by_file)]).unwrap(), 300);
    assert_eq!(heartbeat(&["--config", &path(&by_file), "--quorum-heartbeat-ms", "600"]).unwrap(), 600);
    let failure = heartbeat(&["--config", &path(&too_long)]).unwrap_err().to_string();
    assert!(failure.contains("quorum_heartbeat_ms") && failure.contains("2000"), "{failure}");
}

/// Two settings that do not fit each other may come from different places: each is reported with its own.
#[test]
fn conflicting_settings_are_traced_to_their_origins() {
    let timing = file("# timing\nlease_ms = 500\n");
    let path = timing.path().to_str().unwrap();
    let failure = coordinator(&[WHOLE, &["--config", path, "--margin-ms", "50"]].concat()).unwrap_err();
    let remedy = failure.remedy.unwrap();
    for part in [
        format!("lease_ms is from {path}, line 2;"),
        "heartbeat_ms is the default;".to_owned(),
        "margin_ms is from --margin-ms or ARCHON_MARGIN_MS".to_owned(),
    ] {
        assert!(remedy.contains(&part), "{part:?} is not in {remedy:?}");
    }
    let copies = file("replication = 3\n\nmin_nodes = 2\n");
    let path = copies.path().to_str().unwrap();
    let failure = coordinator(&[WHOLE, &["--config", path]].concat()).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(failure.message.contains("min_nodes is 2"), "{failure}");
    let remedy = failure.remedy.unwrap();
    assert!(remedy.contains("raise min_nodes to 3") && remedy.contains(&format!("{path}, line 3")), "{remedy}");
    let failure = coordinator(&[WHOLE, &["--config", path, "--min-nodes", "1"]].concat()).unwrap_err();
    assert!(failure.to_string().contains("--min-nodes or ARCHON_MIN_NODES"), "{failure}");
    assert!(coordinator(&[WHOLE, &["--config", path, "--min-nodes", "3"]].concat()).is_ok());
}

#[test]
fn peers_must_be_distinct_and_more_than_two() {
    let peers = |list| coordinator(&["--id", "1", "--listen", "127.0.0.1:1", "--data-dir", "d", "--peers", list]);
    assert!(peers("1=127.0.0.1:1,1=127.0.0.1:2").unwrap_err().message.contains("named twice"));
    let two = peers("1=127.0.0.1:1,2=127.0.0.1:2").unwrap_err();
    assert!(two.message.contains("tolerate no failure") && two.remedy.unwrap().contains("3 or 5"));
}

#[test]
fn coordinator_founds_joins_or_restarts() {
    let with = |flags: &[&str]| {
        coordinator(&[&["--id", "4", "--listen", "127.0.0.1:7104", "--data-dir", "d"], flags].concat())
    };
    assert_eq!(with(&[]).unwrap().start, None, "its directory may say it");
    let joins = with(&["--join", "127.0.0.1:7101,127.0.0.1:7102", "--learner"]).unwrap().start;
    let through = vec!["127.0.0.1:7101".to_owned(), "127.0.0.1:7102".to_owned()];
    assert_eq!(joins, Some(FirstStart::Join { through, learner: true }));
    let file = file("peers = ['4=127.0.0.1:7104']\njoin = ['127.0.0.1:7101']\nadvertise = '127.0.0.1:7114'\n");
    let path = file.path().to_str().unwrap();
    let both = with(&["--config", path]).unwrap_err();
    assert!(both.exit == Exit::Usage && both.message.contains("founds a quorum or joins one"), "{both}");
    // A flag overrides the file also if the file chooses the alternative.
    let flag = with(&["--config", path, "--join", "127.0.0.1:7102"]).unwrap();
    assert!(matches!(flag.start, Some(FirstStart::Join { through, learner: false }) if through == ["127.0.0.1:7102"]));
    assert_eq!(flag.advertise.as_deref(), Some("127.0.0.1:7114"));
    let beyond = with(&["--join", "10.0.0.1:7101"]).unwrap_err();
    assert!(beyond.to_string().contains("join") && beyond.to_string().contains("--insecure"), "{beyond}");
}

#[test]
fn plaintext_stays_on_this_machine_unless_allowed() {
    for here in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"] {
        assert!(allowed("listen", here, &Transport::default()).is_ok(), "{here}");
    }
    for beyond in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "db.example.org:1", "127.0.0.1.evil.org:1"] {
        let failure = allowed("listen", beyond, &Transport::default()).unwrap_err();
        assert!(failure.to_string().contains("--insecure"), "{beyond}");
        assert!(allowed("listen", beyond, &Transport::plaintext(true)).is_ok(), "{beyond}");
    }
    let flags = ["--name", "athens", "--listen", "10.0.0.1:7201", "--data-dir", "d", "--coordinators", "127.0.0.1:1"];
    assert!(node(&flags).is_err());
    let told = [WHOLE, &["--metrics-listen", "0.0.0.0:9101"]].concat();
    assert!(coordinator(&told).unwrap_err().to_string().contains("0.0.0.0:9101"));
    let shown = [WHOLE, &["--http-listen", "0.0.0.0:8101"]].concat();
    assert!(coordinator(&shown).unwrap_err().to_string().contains("0.0.0.0:8101"));
    let twice = [WHOLE, &["--http-listen", "127.0.0.1:8101", "--metrics-listen", "127.0.0.1:8101"]].concat();
    assert!(coordinator(&twice).unwrap_err().to_string().contains("both for --metrics-listen and for --http-listen"));
    // Others would be directed to it over the network.
    let local = ["--name", "athens", "--listen", "127.0.0.1:7201", "--data-dir", "d", "--coordinators", "127.0.0.1:1"];
    let abroad = [&local[..], &["--advertise", "10.0.0.1:7201"]].concat();
    assert!(node(&abroad).unwrap_err().message.contains("10.0.0.1:7201"));
    assert!(node(&[&abroad[..], &["--insecure"]].concat()).is_ok());
    let told = [&local[..], &["--metrics-listen", "10.0.0.1:9201"]].concat();
    assert!(node(&told).unwrap_err().message.contains("10.0.0.1:9201"));
    assert!(node(&[&told[..], &["--insecure"]].concat()).is_ok());
    assert!(node(&[&flags[..], &["--insecure"]].concat()).is_ok());
}

#[test]
fn refused_address_is_reported_with_its_flag() {
    let of_node =
        ["--name", "athens", "--listen", "127.0.0.1:7201", "--data-dir", "d", "--coordinators", "127.0.0.1:1"];
    let of_coordinator = |flag: &str| coordinator(&[WHOLE, &[flag, "10.0.0.1:9"]].concat()).unwrap_err();
    let of_node = |flag: &str| node(&[&of_node[..], &[flag, "10.0.0.1:9"]].concat()).unwrap_err();
    let told = [
        ("--metrics-listen", of_coordinator("--metrics-listen")),
        ("--http-listen", of_coordinator("--http-listen")),
        ("--metrics-listen", of_node("--metrics-listen")),
        ("--advertise", of_node("--advertise")),
    ];
    for (flag, failure) in told {
        assert!(failure.message.starts_with(&format!("{flag} 10.0.0.1:9 is not a loopback address")), "{failure}");
        assert!(!failure.to_string().contains("not on this machine"), "it may well be: {failure}");
        let remedy = failure.remedy.unwrap();
        assert!(remedy.contains("--tls-dir") && remedy.contains("--insecure"), "{remedy}");
    }
    let alone = ["--id", "1", "--listen", "10.0.0.1:7101", "--data-dir", "d", "--peers", "1=127.0.0.1:7101"];
    let failure = coordinator(&alone).unwrap_err();
    assert!(failure.message.starts_with("--listen 10.0.0.1:7101 "), "{failure}");
}

#[test]
fn file_of_a_node_is_read_and_checked() {
    let good =
        file("name = 'athens'\nlisten = '127.0.0.1:0'\ncoordinators = ['127.0.0.1:7101']\ndata_dir = '/tmp/a'\n");
    let found = node(&["--config", good.path().to_str().unwrap(), "--zone", "east"]).unwrap();
    assert_eq!((found.name.as_str(), found.traits.zone.as_deref(), found.traits.weight), ("athens", Some("east"), 100));
    let bad = file("name = 'athens'\nweight = 0\n");
    let failure = node(&["--config", bad.path().to_str().unwrap()]).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(failure.message.contains("line 2: weight: 0 is out of range; write a number from 1 to 10000"), "{failure}");
    let absent = node(&["--config", "/nonexistent/archon.toml"]).unwrap_err();
    assert!(absent.message.starts_with("/nonexistent/archon.toml: "), "{absent}");
}

#[test]
fn probable_mistakes_cause_warnings() {
    let warnings = |listen: &str, peers: &str| {
        let flags = ["--id", "1", "--listen", listen, "--data-dir", "d", "--peers", peers, "--min-nodes", "3"];
        coordinator(&flags).unwrap().warnings()
    };
    let three = |first: &str| format!("1={first},2=127.0.0.1:7102,3=127.0.0.1:7103");
    assert_eq!(warnings("127.0.0.1:7101", &three("127.0.0.1:7101")), [""; 0]);
    assert_eq!(warnings("127.0.0.1:7101", &three("localhost:7101")), [""; 0]);
    let port = warnings("127.0.0.1:7101", &three("127.0.0.1:7111"));
    assert!(port.len() == 1 && port[0].contains("at 127.0.0.1:7111 (--peers)"), "{port:?}");
    assert!(port[0].contains("listens on 127.0.0.1:7101 (--listen)"), "{port:?}");
    assert_eq!(warnings("127.0.0.2:7101", &three("127.0.0.1:7101")).len(), 1);
    let four = warnings("127.0.0.1:7101", &format!("{},4=127.0.0.1:7104", three("127.0.0.1:7101")));
    assert_eq!(four, ["4 coordinators tolerate the failure of 1, no more than 3 do; use 3 or 5"]);
}

/// Returns an example file, and the same with the keys that are commented out. Credentials do not exist here, and a
/// coordinator that founds a quorum joins none.
fn example(name: &str) -> (tempfile::NamedTempFile, tempfile::NamedTempFile) {
    let path = format!("{}/../docs/operate/examples/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let is_left_out = |line: &str| line.contains("tls_dir = ") || line.contains("join = ");
    let shown = text.lines().filter(|line| !is_left_out(line)).map(|line| match line.strip_prefix("# ") {
        Some(rest) if rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => rest,
        _ => line,
    });
    (file(&text), file(&shown.collect::<Vec<_>>().join("\n")))
}

/// Users copy the examples, so an example must be valid and show every key.
#[test]
fn example_files_are_valid_and_show_all_keys_with_defaults() {
    let command = Cli::command();
    for (kind, name) in [(MemberKind::Coordinator, "coordinator.toml"), (MemberKind::Node, "node.toml")] {
        let (_, shown) = example(name);
        let shown = kind.values(&ConfigFile::read(shown.path()).unwrap()).unwrap();
        for option in kind.options(&command) {
            let key = option.get_id().as_str();
            let Some(value) = shown.get(key) else {
                assert!(["tls_dir", "join"].contains(&key), "{name} does not show {key}");
                continue;
            };
            let default: Vec<String> = match key {
                "connections_max" => vec![NODE_CONNECTIONS_MAX.to_string()],
                "redis_table" => vec![DEFAULT_TABLE.to_owned()],
                "engine" => vec![EngineKind::default().to_string()],
                _ if !option.get_action().takes_values() => vec!["false".to_owned()],
                _ => option.get_default_values().iter().map(|word| word.to_string_lossy().into()).collect(),
            };
            assert!(default.is_empty() || value.words == default, "{name}: {key} = {:?}, not {default:?}", value.words);
        }
    }
    let (as_it_is, shown) = example("coordinator.toml");
    let read = |file: &tempfile::NamedTempFile| coordinator(&["--config", file.path().to_str().unwrap()]).unwrap();
    let shown = read(&shown);
    assert!(
        shown.metrics_listen.is_some() && shown.http_listen.is_some() && shown.advertise.is_some(),
        "an example of what is nowhere unless said"
    );
    let as_it_is = read(&as_it_is);
    assert!(as_it_is.cluster_said.is_empty() && !shown.cluster_said.is_empty());
    let cluster_said = as_it_is.cluster_said.clone();
    assert_eq!(
        as_it_is,
        CoordinatorSettings {
            metrics_listen: None,
            http_listen: None,
            advertise: None,
            failover: None,
            cluster_said,
            ..shown
        },
        "what is commented out is the default"
    );
    let (as_it_is, shown) = example("node.toml");
    for example in [as_it_is, shown] {
        node(&["--config", example.path().to_str().unwrap()]).unwrap();
    }
}

#[test]
fn replacement_and_replication_time_outs_can_be_set() {
    let of_cluster = file("replace_after_ms = 60000\nreplication_timeout_ms = 700\n");
    let path = of_cluster.path().to_str().unwrap();
    let found = coordinator(&[WHOLE, &["--config", path, "--replace-after-ms", "2000"]].concat()).unwrap().cluster;
    assert_eq!((found.replace_after_ms, found.replication_timeout_ms), (2_000, 700));
    let default = coordinator(WHOLE).unwrap().cluster;
    assert_eq!((default.replace_after_ms, default.replication_timeout_ms), (300_000, 1_000));

    let failure = coordinator(&[WHOLE, &["--replace-after-ms", "1200"]].concat()).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(failure.message.contains("1200 ms < 1250 ms (failure_timeout_ms)"), "{failure}");
    let failure = coordinator(&[WHOLE, &["--replication-timeout-ms", "399"]].concat()).unwrap_err();
    assert!(failure.message.contains("399 ms < 2 × 200 ms (heartbeat_ms) = 400 ms"), "{failure}");
    assert!(failure.remedy.unwrap().contains("--replication-timeout-ms or ARCHON_REPLICATION_TIMEOUT_MS"));
}

#[test]
fn slow_operation_threshold_is_100_ms_by_default() {
    let asked = ["--name", "athens", "--listen", "127.0.0.1:1", "--coordinators", "127.0.0.1:2", "--data-dir", "d"];
    assert_eq!(node(&asked).unwrap().slow_operation, Duration::from_millis(100));
    let none = [&asked[..], &["--slow-operation-ms", "0"]].concat();
    assert_eq!(node(&none).unwrap().slow_operation, Duration::ZERO);
    let later = file("slow_operation_ms = 2_000\n");
    let later = [&asked[..], &["--config", later.path().to_str().unwrap()]].concat();
    assert_eq!(node(&later).unwrap().slow_operation, Duration::from_secs(2));
}

#[test]
fn memory_of_a_node_is_a_sufficient_size() {
    let asked = ["--name", "athens", "--listen", "127.0.0.1:1", "--coordinators", "127.0.0.1:2", "--data-dir", "d"];
    assert_eq!(node(&asked).unwrap().memory_bytes, None);
    let given = [&asked[..], &["--memory", "1.5GiB"]].concat();
    assert_eq!(node(&given).unwrap().memory_bytes, Some(1_610_612_736));
    let little = file("memory = \"255MiB\"\n");
    let failure = node(&[&asked[..], &["--config", little.path().to_str().unwrap()]].concat()).unwrap_err();
    assert!(failure.to_string().contains("\"255MiB\" is too little for a node; the minimum is 256 MiB"), "{failure}");
}

#[test]
fn copy_rate_has_a_minimum() {
    let asked = ["--name", "athens", "--listen", "127.0.0.1:1", "--coordinators", "127.0.0.1:2", "--data-dir", "d"];
    assert_eq!(node(&asked).unwrap().copy_bytes_per_second, None);
    let limited = [&asked[..], &["--copy-bytes-per-second", "1000000"]].concat();
    assert_eq!(node(&limited).unwrap().copy_bytes_per_second, Some(1_000_000));
    let slow = file("copy_bytes_per_second = 1\n");
    let failure = node(&[&asked[..], &["--config", slow.path().to_str().unwrap()]].concat()).unwrap_err();
    assert!(failure.to_string().contains("1 bytes per second is less than the minimum of 65536"), "{failure}");
}

#[test]
fn redis_listener_has_address_and_table() {
    let asked = ["--name", "athens", "--listen", "127.0.0.1:1", "--coordinators", "127.0.0.1:2", "--data-dir", "d"];
    assert_eq!(node(&asked).unwrap().redis, None);
    let given = [&asked[..], &["--redis-listen", "127.0.0.1:6379"]].concat();
    let redis = node(&given).unwrap().redis.unwrap();
    assert_eq!((redis.listen.port(), redis.advertise, redis.table.as_str()), (6379, None, "default"));
    let from_file = file("redis_listen = \"127.0.0.1:6380\"\nredis_table = \"cache\"\n");
    let path = from_file.path().to_str().unwrap();
    let both = [&asked[..], &["--config", path, "--redis-advertise", "localhost:6381"]].concat();
    let redis = node(&both).unwrap().redis.unwrap();
    assert_eq!(
        (redis.listen.port(), redis.advertise.as_deref(), redis.table.as_str()),
        (6380, Some("localhost:6381"), "cache")
    );

    let failure = node(&[&asked[..], &["--redis-table", "cache"]].concat()).unwrap_err();
    assert!(failure.to_string().contains("there is none"), "{failure}");
    // Plaintext beyond this machine must be asked for, and clients need an address.
    let failure = node(&[&asked[..], &["--redis-listen", "10.0.0.7:6379"]].concat()).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    let anywhere = ["--redis-listen", "0.0.0.0:6379", "--insecure"];
    let error = node(&[&asked[..], &anywhere].concat()).unwrap().check().unwrap_err();
    assert!(error.to_string().contains("clients cannot call 0.0.0.0:6379"), "{error}");
}
