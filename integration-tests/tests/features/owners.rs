//! Owners of a lease table for its callers: watches at an agent and at consoles, and the file for Envoy.

use crate::EXE;
use archon_client::{AcquireError, Callbacks, Epoch, Grant, Participant, PartitionId, ReleaseCause, Role};
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::disk::Injection;
use archon_integration_tests::{Cluster, Options, Process};
use archon_testkit::{check, skipped, wait_for};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

struct Service;

impl Callbacks for Service {
    async fn acquire(&self, _: Grant) -> Result<(), AcquireError> {
        Ok(())
    }
    async fn release(&self, _: Grant, _: ReleaseCause) {}
    fn lost(&self, _: PartitionId, _: Epoch) {}
}

/// Place that serves watches.
enum Place {
    Agent(PathBuf),
    Console(String),
}

impl Place {
    /// Sends a request for a path below the one of owners, and returns its status and the rest of its answer.
    fn get(&self, path: &str, headers: &str) -> (u16, Box<dyn std::io::BufRead>) {
        let owners = match self {
            Self::Agent(_) => "/v1/owners",
            Self::Console(_) => "/api/v1/owners/jobs",
        };
        self.request(&format!("{owners}{path}"), headers)
    }

    /// Returns the owner of a key's partition.
    fn find(&self, key: &str) -> Value {
        let path = match self {
            Self::Agent(_) => format!("/v1/where/{key}"),
            Self::Console(_) => format!("/api/v1/owners/jobs/where/{key}"),
        };
        let (status, answer) = self.request(&path, "connection: close\r\n");
        assert_eq!(status, 200);
        serde_json::from_reader(answer).expect("a document")
    }

    fn request(&self, path: &str, headers: &str) -> (u16, Box<dyn std::io::BufRead>) {
        let mut stream: Box<dyn Stream> = match self {
            Self::Agent(socket) => {
                let stream = UnixStream::connect(socket).expect("the agent listens");
                stream.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
                Box::new(stream)
            }
            Self::Console(address) => {
                let stream = TcpStream::connect(address).expect("the console listens");
                stream.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
                Box::new(stream)
            }
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut reader = BufReader::new(stream);
        let mut status = 0;
        loop {
            let mut line = String::new();
            assert!(reader.read_line(&mut line).expect("a head") > 0, "the connection ended");
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest[..3].parse().expect("a status");
            }
            if line == "\r\n" {
                return (status, Box::new(reader));
            }
        }
    }

    fn watch(&self, last: Option<&str>) -> Watch {
        let headers = last.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        let (status, reader) = self.get("/watch", &headers);
        assert_eq!(status, 200);
        Watch { reader, id: String::new() }
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// An open watch.
struct Watch {
    reader: Box<dyn std::io::BufRead>,
    /// Id of the newest event.
    id: String,
}

impl Watch {
    /// Returns the next event; `None` at the end of the stream.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).expect("a line in time") == 0 || line == "0\r\n" {
                return None;
            }
            if let Some(id) = line.strip_prefix("id: ") {
                self.id = id.trim().to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).expect("a document"));
            }
        }
    }

    /// Applies events to the owners by partition until they are as wanted.
    fn until(&mut self, owners: &mut [Option<String>; 2], wanted: [Option<&str>; 2]) {
        while owners.each_ref().map(Option::as_deref) != wanted {
            let event = self.next().expect("the watch goes on");
            let listed = event["partitions"].as_array().expect("partitions");
            assert!(event["complete"] == false || listed.len() == 2, "{event}");
            for row in listed {
                let index = usize::try_from(row["partition"].as_u64().expect("a number")).expect("a small one");
                let serves = row["owner"]["serves"] == true;
                owners[index] = row["owner"]["address"].as_str().filter(|_| serves).map(str::to_owned);
            }
        }
    }
}

/// Returns the addresses and partitions in a file for Envoy.
fn endpoints(file: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    // The file is replaced as a whole: it is a document at any moment.
    let map: Value = serde_json::from_str(&text).expect("a whole document");
    assert_eq!(map["resources"][0]["cluster_name"], "jobs");
    let listed = map["resources"][0]["endpoints"][0]["lb_endpoints"].as_array().expect("endpoints");
    let shown = |one: &Value| {
        let socket = &one["endpoint"]["address"]["socket_address"];
        let partitions = &one["metadata"]["filter_metadata"]["envoy.lb"]["partition"];
        format!("{}:{} {partitions}", socket["address"].as_str().unwrap_or_default(), socket["port_value"])
    };
    Ok(listed.iter().map(shown).collect())
}

/// Regression: the map was written on a thread of the runtime, so a service got no permissions while the disk hung.
#[tokio::test(flavor = "multi_thread")]
async fn agent_answers_while_map_waits_for_disk() {
    let options = Options { coordinators: 1, nodes: vec!["athens"], nodes_min: 1, tls: false, ..Options::default() };
    let cluster = Cluster::start(EXE, &options);
    cluster.done(&["table", "create", "jobs", "--partitions", "2", "--lease"]);
    let (socket, map) = (cluster.directory().join("a.sock"), cluster.directory().join("jobs.json"));
    let (listen, coordinators) = (format!("unix:{}", socket.display()), cluster.coordinator_list());
    let map_argument = map.display().to_string();
    let command = [EXE, "participant", "--table", "jobs", "--name", "agent", "--address", "10.0.0.9:8080"];
    let more = ["--listen", &listen, "--coordinators", &coordinators, "--write-map", &map_argument];
    let one_thread = [("TOKIO_WORKER_THREADS", "1".to_owned())];
    let process = Process::start("agent", &[&command[..], &more].concat(), &one_thread, cluster.directory());
    let process = process.expect("it starts");
    wait_for("the agent to listen, and to write the map", TIMEOUT, || {
        check(socket.exists() && map.exists(), || process.log())
    });
    let Some(injection) = Injection::start(process.pid(), &["fsync:delay_enter=600000000"]) else {
        return skipped("this machine does not let a test trace a process");
    };
    let builder =
        Participant::builder(cluster.coordinator_addresses()).table("jobs").name("w1").address("10.0.0.7:8080");
    let participant = builder.start(Service).await.expect("a participant");
    wait_for("a write of the map to wait for the disk", TIMEOUT, || {
        let files = fs::read_dir(cluster.directory()).expect("a directory").flatten();
        let names: Vec<_> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        check(names.iter().any(|name| name.starts_with(".archon-map-")), || format!("{names:?}"))
    });
    let (status, _) = Place::Agent(socket).get("", "connection: close\r\n");
    assert_eq!(status, 200);
    drop(injection);
    drop(process);
    assert!(participant.stop(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_and_map_follow_the_owners() {
    let options = Options { nodes: vec!["athens"], nodes_min: 1, tls: false, consoles: true, ..Options::default() };
    let cluster = Cluster::start(EXE, &options);
    cluster.done(&["table", "create", "jobs", "--partitions", "2", "--lease"]);
    let (socket, map) = (cluster.directory().join("a.sock"), cluster.directory().join("jobs.json"));
    let listen = format!("unix:{}", socket.display());
    let coordinators = cluster.coordinator_list();
    let arguments = ["participant", "--table", "jobs", "--name", "agent", "--address", "10.0.0.9:8080"];
    let map_argument = map.display().to_string();
    let more = ["--listen", &listen, "--coordinators", &coordinators, "--write-map", &map_argument];
    let arguments: Vec<String> = arguments.iter().chain(&more).map(|word| (*word).to_owned()).collect();
    let agent = cluster.spawn("agent", &arguments);
    wait_for("the agent to listen", TIMEOUT, || if socket.exists() { Ok(()) } else { Err(agent.log()) });
    let (agent, console) = (Place::Agent(socket), Place::Console(cluster.console_address(1).to_owned()));

    let mut watch = agent.watch(None);
    let first = watch.next().expect("all owners");
    assert!(first["complete"] == true && first["table"] == "jobs", "{first}");
    assert_eq!(first["partitions"].as_array().map(Vec::len), Some(2), "{first}");
    wait_for("an empty map", TIMEOUT, || {
        endpoints(&map).and_then(|found| if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) })
    });

    let builder =
        Participant::builder(cluster.coordinator_addresses()).table("jobs").name("w1").address("10.0.0.7:8080");
    let participant = builder.start(Service).await.expect("a participant");
    let mut owners = [None, None];
    let owned = Some("10.0.0.7:8080");
    tokio::task::block_in_place(|| watch.until(&mut owners, [owned, owned]));
    let id = watch.id.clone();
    drop(watch);
    wait_for("the map to name the owner", TIMEOUT, || {
        let found = endpoints(&map)?;
        if found == [r#"10.0.0.7:8080 ["0","1"]"#] { Ok(()) } else { Err(format!("{found:?}")) }
    });
    let listed = wait_for("the console to list the owner", TIMEOUT, || {
        let (status, mut reader) = console.get("", "connection: close\r\n");
        let mut body = String::new();
        reader.read_to_string(&mut body).map_err(|error| error.to_string())?;
        let version = body.split(r#""version":"#).nth(1).and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        let seen = id.split_once('-').and_then(|(_, version)| version.parse::<u64>().ok());
        let is_as_new = status == 200 && version >= seen;
        if is_as_new && body.matches("10.0.0.7:8080").count() == 2 { Ok(body) } else { Err(body) }
    });
    assert!(listed.0.contains(r#""participant":"w1""#), "{}", listed.0);
    for key in ["customer-17", "a%2Fb", "%FF%00"] {
        let found = agent.find(key);
        assert!(found["owner"]["address"] == "10.0.0.7:8080" && found["table"] == "jobs", "{found}");
        assert_eq!(console.find(key), found);
    }

    // The watch goes on elsewhere, after the last event.
    assert!(participant.stop(Duration::from_secs(10)).await);
    let mut resumed = console.watch(Some(&id));
    tokio::task::block_in_place(|| {
        let event = resumed.next().expect("a change");
        assert_eq!(event["complete"], false, "{event}");
        for row in event["partitions"].as_array().expect("partitions") {
            let index = usize::try_from(row["partition"].as_u64().expect("a number")).expect("a small one");
            owners[index] = row["owner"]["address"].as_str().map(str::to_owned);
        }
        resumed.until(&mut owners, [None, None]);
    });
    wait_for("the map to be empty again", TIMEOUT, || {
        endpoints(&map).and_then(|found| if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) })
    });

    // A position of another table means nothing: everything is listed.
    for place in [&agent, &console] {
        let all = place.watch(Some("999-1")).next().expect("all owners");
        assert_eq!(all["complete"], true, "{all}");
        let (status, _) = place.get("/watch", "last-event-id: yesterday\r\n");
        assert_eq!(status, 400);
    }
    // Callers at the socket share all watches; at the console half of them are for others.
    for (place, most) in [(&agent, 16), (&console, 32)] {
        let mut answers: Vec<_> = Vec::new();
        while answers.last().is_none_or(|(status, _)| *status == 200) {
            answers.push(place.get("/watch", ""));
        }
        let open = answers.len() - 1;
        assert!((most / 2..=most).contains(&open), "{open} watches are open");
        assert_eq!(answers[open].0, 429);
    }
    cluster.done(&["table", "drop", "jobs", "--yes"]);
    tokio::task::block_in_place(|| while resumed.next().is_some() {});
}

/// Every certificate may read the owners of leases, and nothing of tables with rows.
#[test]
fn clients_read_owners_of_lease_tables_only() {
    let options = Options {
        coordinators: 1,
        nodes: vec!["athens"],
        nodes_min: 1,
        tls: true,
        clients_may: false,
        consoles: true,
        ..Options::default()
    };
    let cluster = Cluster::start(EXE, &options);
    cluster.done(&["table", "create", "jobs", "--partitions", "2", "--lease"]);
    let status = |role, name: &str, table: &str| {
        let own = cluster.credentials(role, name).display().to_string();
        let url = format!("https://{}/api/v1/owners/{table}", cluster.console_address(0));
        let file = |name: &str| format!("{own}/{name}");
        let output = Command::new("curl")
            .args(["-s", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}"])
            .args(["--cacert", &file("ca.crt"), "--cert", &file("tls.crt"), "--key", &file("tls.key"), &url])
            .output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    if let Err(error) = status(Role::Client, "shop", "jobs") {
        skipped(format!("curl does not start: {error}"));
        return;
    }
    let status = |role, name: &str, table: &str| status(role, name, table).expect("curl starts");
    for (role, name) in [(Role::Client, "shop"), (Role::Participant, "w1")] {
        assert_eq!(
            ["jobs", "jobs/where/k", "default", "default/where/k", "nosuch"].map(|path| status(role, name, path)),
            ["200", "200", "403", "403", "403"],
            "{name}"
        );
    }
    assert_eq!(["jobs", "default", "nosuch"].map(|table| status(Role::Operator, "eye", table)), ["200", "400", "404"]);
}
