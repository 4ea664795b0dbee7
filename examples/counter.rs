//! A small service that keeps counters, in three processes that share a lease table: each counter is in one of them at a
//! time. One is killed halfway. Each request of a user counts once, under any number of retries, and no two processes own
//! the same counter at once.
//!
//! ```sh
//! cargo run --release -p archon-examples --example counter
//! ```
//!
//! The service is in `src/counter/`. One instance of it beside a cluster of yours: `… --example counter serve --help`.

use archon_client::{Admin, Client, Routes};
use archon_examples::Result;
use archon_examples::counter::{FrontEnd, Line, Use, Uses, boot_clock_ns, read_lines, serve};
use archon_local_cluster::Process;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const TABLE: &str = "counters";
const PARTITIONS: u32 = 12;
const INSTANCES: [&str; 3] = ["ada", "grace", "mary"];
const COUNTERS: [&str; 3] = ["pages", "downloads", "votes"];
const USERS: u64 = 6;
/// Requests of each user.
const REQUESTS: u64 = 100;
/// Time-out of every wait.
const TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(verb) if verb == "serve" => serve(arguments),
        Some(flag) if flag == "--help" || flag == "-h" => {
            println!(
                "counter: runs the demonstration in a cluster of its own\ncounter serve --help: one instance beside a cluster of yours"
            );
            ExitCode::SUCCESS
        }
        // The members of that cluster are this program as well.
        _ => archon_examples::run(counter),
    }
}

async fn counter() -> Result {
    let cluster = archon_examples::cluster().await?;
    let admin = Admin::new(cluster.endpoints(), Duration::from_secs(10))?;
    admin.create_lease_table(TABLE, PARTITIONS).await?;
    let logs = tempfile::tempdir()?;
    let mut instances = BTreeMap::new();
    for name in INSTANCES {
        instances.insert(name.to_owned(), start(name, &cluster.endpoints().join(","), logs.path())?);
    }
    let client = Client::builder(cluster.endpoints()).build().await?;
    let mut routes = client.routes(TABLE).await?;
    shared(&mut routes).await?;
    println!("{} own {PARTITIONS} partitions, {} each.", INSTANCES.join(", "), PARTITIONS as usize / INSTANCES.len());

    let began = boot_clock_ns();
    let (answered, mut answers) = mpsc::channel(1);
    let mut users = JoinSet::new();
    for number in 1..=USERS {
        users.spawn(user(number, FrontEnd::new(routes.clone(), TIMEOUT), answered.clone()));
    }
    drop(answered);

    // Halfway, the instance that owns one of the counters is killed, without a notification to anyone else.
    for _ in 0..USERS * REQUESTS / 2 {
        answers.recv().await.ok_or("the users have given up")?;
    }
    let owner = routes.owner_of("votes").ok_or("nobody owns the votes")?;
    instances.get_mut(&owner.name).ok_or("a stranger owns the votes")?.kill();
    println!("{}, which counts the votes, is killed after half of the requests.\n", owner.name);
    while answers.recv().await.is_some() {}
    let attempts: u64 = users.join_all().await.into_iter().sum::<Result<u64>>()?;

    let mut front_end = FrontEnd::new(routes, TIMEOUT);
    let mut counted = 0;
    for counter in COUNTERS {
        counted += front_end.read(counter).await?;
    }
    for instance in instances.into_values() {
        stop(instance).await?;
    }

    let mut uses = Uses::default();
    for name in INSTANCES {
        uses.add(&log(logs.path(), name)?);
    }
    println!("Who owned the votes, as each noted it by the clock of this machine:");
    tell(&uses.by_partition()[&owner.partition.index], began);
    let alone = uses.by_partition().values().all(|epochs| {
        let epochs: Vec<&Use> = epochs.values().collect();
        epochs.iter().all(|used| used.instances.len() == 1)
            && epochs.windows(2).all(|pair| pair[0].last_ns <= pair[1].first_ns)
    });
    println!("requests of users:             {}", USERS * REQUESTS);
    println!("attempts they made:            {attempts}");
    println!("counted:                       {counted}");
    println!("two owners at once:            {}", if alone { "never" } else { "seen" });
    let right = alone && counted == USERS * REQUESTS;
    if right { Ok(()) } else { Err("two owned the same, or a request was lost or counted twice".into()) }
}

/// Starts an instance: a process of this program with other arguments. It ends with this one.
fn start(name: &str, coordinators: &str, logs: &Path) -> Result<Process> {
    let mut command = vec![std::env::current_exe()?.into_os_string()];
    command.extend(["serve", "--name", name, "--coordinators", coordinators, "--table", TABLE].map(OsString::from));
    command.extend(["--log".into(), log_file(logs, name).into_os_string()]);
    Ok(Process::start(name, &command, &[], logs)?)
}

/// Waits until every instance owns its share, and prints it.
async fn shared(routes: &mut Routes) -> Result {
    let shared = async {
        loop {
            let owners: Vec<_> = routes.map().owners.into_iter().flatten().filter(|owner| owner.serves).collect();
            let share = |name: &&str| owners.iter().filter(|owner| owner.name == *name).count();
            if INSTANCES.iter().all(|name| share(name) == PARTITIONS as usize / INSTANCES.len()) {
                return Ok(());
            }
            routes.changed().await?;
        }
    };
    timeout(TIMEOUT, shared).await.map_err(|_| "the instances did not get their shares in time")?
}

/// Runs a user that sends requests one after the other. Returns the number of attempts.
async fn user(number: u64, mut front_end: FrontEnd, answered: mpsc::Sender<()>) -> Result<u64> {
    for request in 1..=REQUESTS {
        let counter = COUNTERS[(number + request) as usize % COUNTERS.len()];
        front_end.count(counter, number, request).await?;
        answered.send(()).await?;
    }
    Ok(front_end.attempts())
}

/// Sends SIGTERM: the instance hands its partitions over before it ends.
async fn stop(mut instance: Process) -> Result {
    instance.ask_to_end();
    let ended = async {
        while instance.exited().is_none() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TIMEOUT, ended).await.map_err(|_| "an instance does not stop")?;
    Ok(())
}

fn log_file(logs: &Path, name: &str) -> PathBuf {
    logs.join(format!("{name}.owned"))
}

fn log(logs: &Path, name: &str) -> Result<Vec<Line>> {
    Ok(read_lines(&log_file(logs, name))?)
}

/// Prints the owners of a partition, and the time without one between two of them.
fn tell(epochs: &BTreeMap<u64, Use>, began: u64) {
    let seconds = |at_ns: u64| (at_ns as f64 - began as f64) / 1e9;
    let mut before: Option<u64> = None;
    for (epoch, used) in epochs {
        if let Some(before) = before {
            println!("            nobody for {:.3} s", seconds(used.first_ns) - seconds(before));
        }
        let names: Vec<&str> = used.instances.iter().map(|instance| instance.name.as_str()).collect();
        println!(
            "{:7.3} s   {} in epoch {epoch}, until {:.3} s",
            seconds(used.first_ns),
            names.join(" and "),
            seconds(used.last_ns)
        );
        before = Some(used.last_ns);
    }
}
