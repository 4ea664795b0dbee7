//! The console of real coordinators: its interface and its feed.

use crate::EXE;
use archon_integration_tests::http as plain;
use archon_integration_tests::{Cluster, Options};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn options() -> Options {
    Options { consoles: true, replication: 3, ..Options::default() }
}

/// Returns a raw request.
pub(crate) fn request(address: &str, method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: \
         {length}\r\n{headers}\r\n{body}"
    )
}

/// Headers of a changing request, as a program sends it.
pub(crate) const CHANGES: &str = "x-archon-console: 1\r\ncontent-type: application/json\r\n";

/// Sends a request to a console; returns the status and the JSON answer.
fn ask(address: &str, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
    let answer = plain::send(address, &request(address, method, path, headers, body)).expect("a console");
    let body = serde_json::from_str(&answer.body).unwrap_or(Value::String(answer.body));
    (answer.status, body)
}

fn get(address: &str, path: &str) -> (u16, Value) {
    ask(address, "GET", path, "", "")
}

fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {answer}"))
}

#[test]
fn console_api_matches_the_command_line() {
    let cluster = Cluster::start(EXE, &options());
    let at = cluster.console_address(0);
    for (path, verb) in [
        ("/api/v1/status", &["status"][..]),
        ("/api/v1/tables", &["table", "list"]),
        ("/api/v1/partitions/default", &["partition", "list"]),
        ("/api/v1/partitions/default/0", &["partition", "describe", "0"]),
        ("/api/v1/rebalance/plan", &["rebalance", "plan"]),
        ("/api/v1/settings", &["config", "show"]),
    ] {
        // Measured values may differ; the fields may not.
        let fields = |value: &Value| -> Vec<String> {
            let first = value.as_array().and_then(|all| all.first()).unwrap_or(value);
            first.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
        };
        let (status, said) = get(at, path);
        let printed = cluster.json(verb).expect("a document");
        // A printed plan names its cluster as well.
        let printed = printed.get("plan").cloned().unwrap_or(printed);
        let (said, printed) = (fields(&said), fields(&printed));
        let missing: Vec<_> = said.iter().filter(|field| !printed.contains(field)).collect();
        assert!(status == 200 && missing.is_empty() && !said.is_empty(), "{path}: {status} {said:?} {printed:?}");
    }
    // Every read operation in the description exists.
    let (_, description) = get(at, "/api/v1/openapi.json");
    assert_eq!(ask(at, "PUT", "/api/v1/rows/default/k", CHANGES, "v").0, 200);
    cluster.json(&["table", "create", "jobs", "--partitions", "2", "--lease"]).expect("a lease table");
    for (path, operations) in description["paths"].as_object().expect("paths") {
        // A watch does not end.
        if operations.get("get").is_none() || path.ends_with("/watch") {
            continue;
        }
        let table = if path.contains("/owners/") { "jobs" } else { "default" };
        let named = [("{name}", "athens"), ("{table}", table), ("{number}", "1"), ("{key}", "k")];
        let path = named.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value));
        let (status, said) = get(at, &path);
        assert_eq!(status, 200, "{path}: {said}");
    }
}

#[test]
fn console_reads_and_writes_rows() {
    let cluster = Cluster::start(EXE, &options());
    let at = cluster.console_address(2);
    let row = "/api/v1/rows/default/city%2F1";
    let put = |condition: &str, value: &str| ask(at, "PUT", row, &format!("{CHANGES}{condition}"), value);
    assert_eq!(put("if-match: \"7\"\r\n", "Athens").0, 412, "it is absent");
    let (status, written) = put("if-none-match: *\r\n", "Athens");
    let revision = written["revision"].as_u64().expect("a revision");
    assert_eq!((status, put("if-none-match: *\r\n", "Byzantium").0), (200, 412));
    let answer = plain::send(at, &request(at, "GET", row, "", "")).expect("an answer");
    let etag = format!("etag: \"{revision}\"");
    assert!(answer.status == 200 && answer.body == "Athens" && answer.head.contains(&etag), "{answer:?}");
    assert!(
        answer.head.contains("content-type: application/octet-stream"),
        "no script of whoever wrote it: {answer:?}"
    );
    let condition = format!("if-none-match: \"{revision}\"\r\n");
    let known = plain::send(at, &request(at, "GET", row, &condition, "")).expect("an answer");
    assert!(known.status == 304 && known.body.is_empty() && known.head.contains(&etag), "{known:?}");
    assert_eq!(cluster.archon(&["kv", "get", "city/1"]).stdout.trim(), "Athens");
    assert_eq!(put(&format!("if-match: \"{revision}\"\r\n"), "Cyrene").0, 200);
    let (_, found) = get(at, "/api/v1/rows/default?prefix=city%2F&limit=5");
    assert_eq!((&found["rows"][0]["value"], &found["more"]), (&json!("Cyrene"), &json!(false)), "{found}");
    assert_eq!(ask(at, "DELETE", row, CHANGES, ""), (200, json!({ "existed": true })));
    assert_eq!(ask(at, "DELETE", row, CHANGES, ""), (200, json!({ "existed": false })));
    let (status, absent) = get(at, row);
    assert!(status == 404 && message(&absent).contains("is absent from table default"), "{absent}");
}

/// A request without an answer is sent again, to another console as well, and counts once.
#[test]
fn repeated_increment_over_http_counts_once() {
    let cluster = Cluster::start(EXE, &options());
    let row = "/api/v1/rows/default/visits";
    let increment = |console: usize, headers: &str, body: &str| {
        let headers = format!("{CHANGES}{headers}");
        ask(cluster.console_address(console), "POST", &format!("{row}/increment"), &headers, body)
    };
    let sum = |console, headers: &str, body| {
        let (status, said) = increment(console, headers, body);
        assert_eq!(status, 200, "{said}");
        said["value"].as_i64().expect("a sum")
    };
    assert_eq!((sum(0, "", r#"{"by":41}"#), sum(1, "", "{}")), (41, 42), "without a name each counts");
    let stamp = plain::send(cluster.console_address(0), &request(cluster.console_address(0), "GET", row, "", ""));
    let head = stamp.expect("an answer").head;
    let stamp = head.lines().find(|line| line.starts_with("archon-stamp-ms: ")).expect("a stamp").to_owned();
    let named = |number: u32, stamp: &str| {
        format!("archon-operation: 6fa459ea-ee8a-4ca4-894e-db77e160355e/{number}\r\n{stamp}")
    };
    let stamp = format!("{stamp}\r\n");
    assert_eq!(sum(0, &named(1, &stamp), "{}"), 43);
    for (console, stamp) in [(0, stamp.as_str()), (1, &stamp), (2, "archon-stamp-ms: 0\r\n"), (0, "")] {
        assert_eq!(sum(console, &named(1, stamp), "{}"), 43, "sent before");
    }
    assert_eq!(sum(2, &named(2, ""), r#"{"by":-3}"#), 40);
    // A write and a deletion are repeated in the same way.
    let put = |number, value| {
        let headers = format!("{CHANGES}{}", named(number, ""));
        ask(cluster.console_address(0), "PUT", row, &headers, value)
    };
    let first = put(3, "7");
    assert_eq!((first.0, put(3, "7")), (200, first), "one revision");
    let delete = || ask(cluster.console_address(1), "DELETE", row, &format!("{CHANGES}{}", named(4, "")), "");
    assert_eq!((delete(), delete()), ((200, json!({ "existed": true })), (200, json!({ "existed": true }))));

    put(5, "many");
    let (status, said) = increment(0, &named(6, ""), "{}");
    assert!(status == 409 && said["error"]["kind"] == "wrong_value_type", "{said}");
    for (headers, means) in
        [("archon-operation: 17\r\n", "CLIENT/NUMBER"), ("archon-stamp-ms: 17\r\n", "needs the archon-operation")]
    {
        let (status, said) = increment(0, headers, "{}");
        assert!(status == 400 && message(&said).contains(means), "{said}");
    }
    let ranges = r#"{"name":"times","kind":"range"}"#;
    assert_eq!(ask(cluster.console_address(0), "POST", "/api/v1/tables", CHANGES, ranges).0, 200);
    let times = "/api/v1/rows/times/visits/increment";
    let headers = format!("{CHANGES}{}", named(7, ""));
    let (status, said) = ask(cluster.console_address(0), "POST", times, &headers, "{}");
    assert!(status == 400 && message(&said).contains("hashed keys"), "{said}");
}

#[test]
fn concurrent_first_row_requests_keep_tables_apart() {
    let cluster = Cluster::start(EXE, &options());
    let (made, said) = ask(
        cluster.console_address(0),
        "POST",
        "/api/v1/tables",
        CHANGES,
        r#"{"name":"other","kind":"hash","partitions":3}"#,
    );
    assert_eq!(made, 200, "{said}");
    // Each console gets its first request for rows.
    for console in 0..3 {
        let at = cluster.console_address(console);
        let key = format!("k{console}");
        thread::scope(|scope| {
            for table in ["default", "other"] {
                let path = format!("/api/v1/rows/{table}/{key}");
                scope.spawn(move || assert_eq!(ask(at, "PUT", &path, CHANGES, table).0, 200));
            }
        });
        for table in ["default", "other"] {
            let found = cluster.archon(&["kv", "get", &key, "--table", table]);
            assert_eq!(found.stdout.trim(), table, "of console {console}: {}", found.stderr);
        }
    }
}

#[test]
fn impossible_console_requests_are_refused_with_reason() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..options() });
    let at = cluster.console_address(0);
    let huge = "x".repeat(9 * 1024 * 1024);
    let cordon = "/api/v1/nodes/athens/cordon";
    for (method, path, headers, body, status, says) in [
        ("GET", "/api/v1/nosuch", "", "", 404, "openapi.json"),
        ("GET", "/api/v1/nodes/nosuch", "", "", 404, "nosuch"),
        ("GET", "/api/v1/partitions/default/999", "", "", 404, "999"),
        ("GET", "/api/v1/partitions/default/x", "", "", 400, "x"),
        ("GET", "/api/v1/events?mst=3", "", "", 400, "mst"),
        ("GET", "/api/v1/rows/default?limit=0", "", "", 400, "limit"),
        ("POST", cordon, "content-type: application/json\r\n", "{}", 403, "x-archon-console"),
        ("POST", cordon, "x-archon-console: 1\r\norigin: http://elsewhere.example\r\n", "{}", 403, "elsewhere.example"),
        ("POST", cordon, "x-archon-console: 1\r\n", "{}", 415, "application/json"),
        ("POST", cordon, CHANGES, "{\"force\":true}", 422, "force"),
        ("POST", cordon, CHANGES, "[]", 400, "must be a JSON object"),
        ("POST", cordon, CHANGES, "{", 400, "the body is not valid JSON"),
        ("GET", "/api/v1/rows/default/%zz", "", "", 400, "write % as %25"),
        ("GET", "/api/v1/rows/default/%ff", "", "", 404, "xff"),
        ("GET", "/api/v1/rows/default?prefx=a", "", "", 400, "prefx"),
        ("POST", "/api/v1/nodes/athens/fly", CHANGES, "{}", 400, "fly"),
        ("POST", "/api/v1/nodes/athens/undrain", CHANGES, "{}", 200, ""),
        (
            "POST",
            "/api/v1/tables",
            CHANGES,
            "{\"name\":\"t\",\"kind\":\"lease\"}",
            400,
            "give the number of partitions",
        ),
        ("POST", "/api/v1/tables", CHANGES, "{\"name\":\"t\",\"kind\":\"hash\",\"partitons\":3}", 422, "partitons"),
        ("POST", "/api/v1/rebalance/cancel", CHANGES, "{}", 409, ""),
        ("POST", "/api/v1/rebalance/apply", CHANGES, "{\"moves\":[]}", 422, "table_version"),
        ("PUT", "/api/v1/rows/default/k", CHANGES, &huge, 413, "larger than 8388608 bytes"),
        ("DELETE", "/api/v1/rows/default/k", "x-archon-console: 1\r\nif-match: \"1\"\r\n", "", 400, "has no condition"),
        ("PATCH", "/api/v1/nodes", CHANGES, "", 405, "does not support PATCH"),
        ("DELETE", "/api/v1/tables/default?table_id=99", CHANGES, "", 409, ""),
    ] {
        let (found, said) = ask(at, method, path, headers, body);
        let text = said.to_string();
        assert!(found == status && text.contains(says), "{method} {path} {headers}: {found} {text}");
    }
    let other = plain::send(at, &request(at, "PATCH", "/api/v1/nodes", CHANGES, "")).expect("an answer");
    assert!(other.head.to_lowercase().contains("allow: get"), "{other:?}");
    // A foreign name that resolves to this address.
    let rebound = request("rebound.example", "GET", "/api/v1/status", "", "");
    assert_eq!(plain::send(at, &rebound).expect("an answer").status, 403);
    // The page may load nothing from elsewhere, and may not be framed.
    let page = plain::get(at, "/").map(|answer| answer.head.to_lowercase()).expect("the page");
    assert!(page.contains("default-src 'none'") && page.contains("frame-ancestors 'none'"), "{page}");
    // Unfinished requests keep no other client out.
    let idle: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(at).expect("a connection");
            stream.write_all(b"GET /api/v1/status HT").expect("sent");
            stream
        })
        .collect();
    assert_eq!(get(at, "/api/v1/status").0, 200);
    drop(idle);
}

/// A client of the feed.
struct Watcher {
    lines: BufReader<TcpStream>,
    /// Latest state of each section.
    latest: BTreeMap<String, Value>,
}

impl Watcher {
    fn new(address: &str) -> Self {
        let mut stream = TcpStream::connect(address).expect("a console");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
        let request = format!("GET /api/v1/feed HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("asked");
        Self { lines: BufReader::new(stream), latest: BTreeMap::new() }
    }

    /// Waits until `wished` accepts a section; fails with its last state.
    fn wait(&mut self, section: &str, what: &str, wished: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + TIMEOUT;
        loop {
            if let Some(said) = self.latest.get(section).filter(|said| wished(said)) {
                return said.clone();
            }
            let late = Instant::now() > until;
            assert!(!late, "{what}: {section} said last {:?}", self.latest.get(section));
            self.read();
        }
    }

    /// Returns the next change of leaders.
    fn change(&mut self) -> Value {
        self.latest.remove("map_change");
        self.wait("map_change", "a change", |_| true)
    }

    /// Applies a change of nodes, as the page does.
    fn change_nodes(&mut self, change: &Value) {
        let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let (changed, gone, id) = (all(&change["nodes"]), all(&change["gone"]), |node: &Value| node["node_id"].clone());
        let mut nodes = all(self.latest.get("nodes").expect("they were told whole"));
        nodes.retain(|node| !gone.contains(&id(node)) && !changed.iter().any(|other| id(other) == id(node)));
        self.latest.insert("nodes".to_owned(), [nodes, changed].concat().into());
    }

    /// Reads the next message.
    fn read(&mut self) {
        let mut section = String::new();
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line);
            assert!(matches!(read, Ok(1..)), "{read:?} of the feed");
            if let Some(name) = line.strip_prefix("event: ") {
                section = name.trim().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                let said = serde_json::from_str(data).expect("JSON");
                if section == "nodes_change" {
                    self.change_nodes(&said);
                }
                self.latest.insert(section, said);
                return;
            }
        }
    }
}

#[test]
fn feed_shows_node_death_and_leader_change() {
    let mut cluster = Cluster::start(EXE, &options());
    let (leader, _) = cluster.wait_leader();
    let other = (leader + 1) % 3;
    let mut watcher = Watcher::new(cluster.console_address(other));
    let hello = watcher.wait("hello", "who serves it", |_| true);
    assert_eq!((&hello["may_change"], &hello["identity"]), (&json!(true), &Value::Null));
    let nodes = watcher.wait("nodes", "all nodes", |nodes| nodes.as_array().is_some_and(|all| all.len() == 3));
    let athens = nodes.as_array().into_iter().flatten().find(|node| node["node"] == "athens").expect("athens");
    let athens = athens["node_id"].clone();
    let map = watcher.wait("map", "the table", |map| map["table"] == "default");
    let led: Vec<usize> = (0..)
        .zip(map["leaders"].as_array().expect("leaders"))
        .filter(|(_, id)| **id == athens)
        .map(|(n, _)| n)
        .collect();
    assert!(!led.is_empty() && !map["states"].as_str().expect("states").contains('l'), "{map}");
    cluster.take_node("athens").kill();
    let mut left = led.clone();
    while !left.is_empty() {
        let change = watcher.change();
        for row in change["changes"].as_array().expect("changes") {
            if row[1] != athens && row[1] != 0 {
                left.retain(|number| row[0] != json!(number));
            }
        }
    }
    watcher.wait("nodes", "athens failed", |nodes| {
        nodes.as_array().into_iter().flatten().any(|node| node["node"] == "athens" && node["status"] == "failed")
    });
    watcher.wait("events", "the failure is told", |events| events.to_string().contains("node_failed"));
    // The leader stops; the console of another coordinator shows its successor.
    cluster.take_coordinator(leader).kill();
    let new = watcher.wait("status", "another one leads", |status| {
        status["leader_id"].as_u64().is_some_and(|id| id != leader as u64 + 1)
    });
    assert!(new["term"].as_u64() >= Some(2), "{new}");
    watcher.wait("quorum", "one does not answer", |all| {
        all.as_array().into_iter().flatten().filter(|one| one["error"].is_string()).count() == 1
    });
    // Without a majority the known state remains visible, and is marked as old.
    cluster.take_coordinator((leader + 2) % 3).kill();
    watcher.wait("trouble", "no quorum", |trouble| trouble["message"].is_string());
}

#[test]
fn console_shows_throughput_and_latency_under_load() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..options() });
    let mut watcher = Watcher::new(cluster.console_address(0));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let load = runtime.spawn({
        let client = cluster.client();
        async move {
            let client = client.build().await.expect("a client");
            for number in 0_u64.. {
                client.put(number.to_string(), "v").await.expect("a put");
                client.get(number.to_string()).await.expect("a get");
            }
        }
    });
    let shown =
        watcher.wait("load", "some load", |load| load["put_p99_ms"].is_number() && load["get_p50_ms"].is_number());
    assert!(shown["puts_per_second"].as_f64() > Some(0.0) && shown["nodes_asked"] == 3, "{shown}");
    load.abort();
}
