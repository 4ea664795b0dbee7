//! The story: a quorum of three; athens, byzantium and cyrene with nine partitions of three copies each; keys; a node
//! killed while clients write, and its return; ephesus joins; a rebalance during which the leading coordinator is
//! killed; a check of all keys; a service with processes that own partitions, one of which is killed.
//!
//! Every step is checked. A failed expectation ends the story with a message.

use super::draw::{Picture, copies, draw, gained, leaders, picture};
use super::looks::{TABLE, all_whole, ensure, look_whole, node_registered, phases, table, wait_for};
use super::narrator::Narrator;
use super::node_dies::node_dies;
use super::service::service;
use super::workload::{Traffic, fill, verify};
use crate::admin::rebalance::progress::Progress;
use crate::args::DemoArgs;
use crate::documents::{Plan, Status};
use crate::exit::Failure;
use crate::output::{count_text, moved_bytes_text};
use archon_client::{Admin, Client, CoordinatorRole, Role};
use archon_load::CheckOutcome;
use archon_local_cluster::{Cluster, FIRST_NODES, LATE_NODE, REQUEST_LIMIT, SMALL};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time limit of an operation on a key, including all disturbances of the cluster.
const OPERATION_LIMIT: Duration = Duration::from_secs(10);
/// Time limit of one request during a search for a new leader: short, so that the next attempt is soon.
const FAILOVER_REQUEST_LIMIT: Duration = Duration::from_millis(250);

/// Measurements; `archon demo -o json` prints them.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    seconds: f64,
    elected_ms: u64,
    assigned_ms: u64,
    keys: u32,
    puts_per_second: u64,
    gets_per_second: u64,
    node_failed_ms: u64,
    node_gap_ms: u64,
    node_returned_ms: u64,
    moves: usize,
    rebalance_ms: u64,
    failover_ms: u64,
    traffic_ops: u64,
    traffic_failed: u64,
    traffic_slowest_ms: u64,
    keys_verified: usize,
    owner_gap_ms: u64,
}

/// Runs all chapters; the cluster stays up.
///
/// # Errors
/// The first failed check.
pub(super) async fn tell(args: &DemoArgs, cluster: &mut Cluster, say: &Narrator) -> Result<Summary, Failure> {
    let started = Instant::now();
    say.say("Archon decides which node owns which partition, and moves partitions without losing a write.");
    say.say("Everything below happens now, in real processes on this machine, and every step is checked.");

    let (status, elected) = quorum(cluster, say).await?;
    let admin = cluster.admin()?;
    let assigned = three_cities(cluster, &admin, say).await?;

    let client = Client::builder(cluster.endpoints())
        .transport(cluster.transport(Role::Client)?)
        .timeout(OPERATION_LIMIT)
        .build()
        .await?;
    let (puts_per_second, gets_per_second) = keys(args.keys, &client, say).await?;

    let lost_node = node_dies(cluster, &admin, &client, say).await?;
    let before = late_node_joins(cluster, &admin, say).await?;
    let plan = plan(&admin, say).await?;

    let traffic = Traffic::start(&client, "rebalance");
    let told = rebalance(cluster, &admin, &plan, &status, say).await;
    // Stopped in any case, so that its tasks are awaited.
    let seen = traffic.stop().await?;
    let (rebalance_ms, failover_ms, killed) = told?;
    seen.check()?;
    say.checked(format!(
        "meanwhile {} reads and writes went on: none failed, the slowest took {} ms",
        seen.ops,
        seen.slowest.as_millis()
    ));

    let after = outcome(&admin, &before, &plan, say).await?;
    let on_traffic = lost_node.seen.verify(&client).await? + seen.verify(&client).await?;
    let took = verify(&client, args.keys).await?;
    let keys_verified = args.keys as usize + on_traffic;
    say.checked(format!(
        "all {keys_verified} keys are there, each with its latest value (read in {} ms)",
        took.as_millis()
    ));
    killed_one_returns(cluster, &admin, killed, say).await?;
    let owner_gap_ms = service(cluster, &admin, say).await?;
    cluster.check_alive()?;

    let seconds = started.elapsed().as_secs_f64();
    say.say("");
    say.say(format!(
        "The end: {} partitions on {} nodes, nothing lost, {seconds:.1} s in all.",
        SMALL.partitions,
        after.len()
    ));
    Ok(Summary {
        seconds,
        elected_ms: elected.as_millis() as u64,
        assigned_ms: assigned.as_millis() as u64,
        keys: args.keys,
        puts_per_second,
        gets_per_second,
        node_failed_ms: lost_node.failed_ms,
        node_gap_ms: lost_node.seen.slowest.as_millis() as u64,
        node_returned_ms: lost_node.returned_ms,
        moves: plan.moves.len(),
        rebalance_ms,
        failover_ms,
        traffic_ops: seen.ops,
        traffic_failed: seen.failed,
        traffic_slowest_ms: seen.slowest.as_millis() as u64,
        keys_verified,
        owner_gap_ms,
    })
}

async fn quorum(cluster: &mut Cluster, say: &Narrator) -> Result<(Status, Duration), Failure> {
    say.step(
        "A quorum of three",
        "Three coordinators keep the partition table in a replicated log. Any two of them can decide.",
    );
    let (status, took) = cluster.start_quorum().await?;
    let leader = status.leader_id.unwrap_or_default();
    for id in 1..=SMALL.coordinators as u64 {
        let role = if id == leader { "leads" } else { "follows" };
        say.show(&format!("coordinator {id}  {}  {role}", cluster.address(id)));
    }
    let consoles = cluster.consoles();
    if let Some(first) = consoles.first() {
        say.say(format!("Look at it in a browser while it happens: {first}"));
        if first.starts_with("https") {
            say.say(
                "It requires a client certificate, like all of this cluster: see docs/operate/console.md for browsers.",
            );
        }
    }
    ensure(status.coordinators.len() == SMALL.coordinators, "three coordinators", || format!("{status:?}"))?;
    say.checked(format!(
        "coordinator {leader} was elected in term {}, {} ms after the start",
        status.term,
        took.as_millis()
    ));
    Ok((status, took))
}

async fn three_cities(cluster: &mut Cluster, admin: &Admin, say: &Narrator) -> Result<Duration, Failure> {
    say.step(
        "Athens, Byzantium, Cyrene",
        "Three nodes register. Nine partitions get three replicas each, one on every node; each node leads three.",
    );
    let mut registered = Duration::ZERO;
    for (count, name) in FIRST_NODES.iter().enumerate() {
        cluster.start_node(name)?;
        // One after the other, so that the order of registration, and with it the assignment, is the same each time.
        registered += node_registered(cluster, admin, name).await?;
        if count + 1 < FIRST_NODES.len() {
            let status = admin.status().await?;
            ensure(status.partitions_online == 0, "no partition online before three nodes are there", || {
                format!("{} are", status.partitions_online)
            })?;
        }
    }
    let (partitions, took) = all_whole(cluster, admin).await?;
    let picture = picture(&partitions, &FIRST_NODES);
    say.show(&draw(&picture, SMALL.partitions, &BTreeSet::new()));
    say.show("[3] leads, 3 follows: it holds every write before it is acknowledged");
    ensure(copies(&picture) == [9, 9, 9], "nine replicas on each node", || format!("{:?}", copies(&picture)))?;
    ensure(leaders(&picture) == [3, 3, 3], "three leaders on each node", || format!("{:?}", leaders(&picture)))?;
    say.checked(format!("nine partitions online {} ms after the third node registered", took.as_millis()));
    Ok(registered + took)
}

async fn keys(count: u32, client: &Client, say: &Narrator) -> Result<(u64, u64), Failure> {
    say.step(
        &format!("{count} keys"),
        "A client keeps the table and calls the right node at once. An answer means: it is on three disks.",
    );
    let rate = |took: Duration| (f64::from(count) / took.as_secs_f64().max(0.001)) as u64;
    let wrote = rate(fill(client, count).await?);
    say.checked(format!("{count} keys of 1 KiB written, {wrote} per second"));
    let read = rate(verify(client, count).await?);
    say.checked(format!("{count} keys read back and compared, {read} per second"));
    Ok((wrote, read))
}

async fn late_node_joins(cluster: &mut Cluster, admin: &Admin, say: &Narrator) -> Result<Picture, Failure> {
    say.step(
        "Ephesus joins",
        "A new node owns nothing yet: moving data costs something, so moving is the admin's decision.",
    );
    let before = picture(&table(admin).await?, &FIRST_NODES);
    cluster.start_node(LATE_NODE)?;
    let took = node_registered(cluster, admin, LATE_NODE).await?;
    let now = picture(&table(admin).await?, &FIRST_NODES);
    ensure(now == before, "nothing to move by itself", || draw(&now, SMALL.partitions, &BTreeSet::new()))?;
    say.checked(format!("ephesus registered in {} ms; nothing moved", took.as_millis()));
    Ok(before)
}

async fn plan(admin: &Admin, say: &Narrator) -> Result<Plan, Failure> {
    say.step("The plan (archon rebalance plan)", "As few moves as will do, each with its reason. Nothing happens yet.");
    // Nodes report their sizes periodically; an earlier plan would show moves of no bytes.
    wait_for("the nodes to report their sizes", async || {
        Ok(match admin.list_nodes().await {
            Ok(nodes)
                if nodes
                    .iter()
                    .all(|node| node.name == LATE_NODE || node.bytes_stored.is_some_and(|bytes| bytes > 0)) =>
            {
                CheckOutcome::Yes(())
            }
            Ok(nodes) => CheckOutcome::NotYet(format!(
                "{:?}",
                nodes.iter().map(|node| (&node.name, node.bytes_stored)).collect::<Vec<_>>()
            )),
            Err(error) => CheckOutcome::NotYet(error.to_string()),
        })
    })
    .await?;
    let plan = admin.plan().await?;
    for step in &plan.moves {
        say.show(&format!(
            "{TABLE}/{}  {} -> {}  {}  ({})",
            step.partition,
            step.from,
            step.to,
            moved_bytes_text(step.bytes_total),
            step.message
        ));
    }
    let count = plan.moves.len();
    // 27 copies on four nodes: six or seven each. Transfers of leadership count as moves as well.
    let new = plan.moves.iter().filter(|step| step.to == LATE_NODE).count();
    ensure((6..=7).contains(&new), "six or seven replicas to go to ephesus", || format!("{plan:?}"))?;
    ensure(plan.unmet.is_empty(), "nothing that cannot be met", || format!("{:?}", plan.unmet))?;
    say.checked(format!("{} for table version {}", count_text(count, "move", "moves"), plan.table_version));
    Ok(plan)
}

/// Applies the plan, kills the leading coordinator at once, and follows the moves to their end. Returns the duration of
/// the moves, the time without a leading coordinator, and the killed coordinator.
async fn rebalance(
    cluster: &mut Cluster,
    admin: &Admin,
    plan: &Plan,
    first: &Status,
    say: &Narrator,
) -> Result<(u64, u64, u64), Failure> {
    say.step(
        "Applied, and the leading coordinator is killed (kill -9)",
        "Clients keep writing and reading. The moves are in the replicated log, so the next leader continues them.",
    );
    let leader = admin.status().await?.leader_id.or(first.leader_id).unwrap_or(1);
    let applied = Instant::now();
    let moves = admin.apply(plan).await?;
    let pid = cluster.kill_coordinator(leader)?;
    let killed = Instant::now();
    say.show(&format!(
        "{} begun; coordinator {leader} (process {pid}) killed {} ms later",
        count_text(moves as usize, "move", "moves"),
        killed.duration_since(applied).as_millis()
    ));

    let impatient =
        Admin::with_transport(cluster.endpoints(), FAILOVER_REQUEST_LIMIT, cluster.transport(Role::Admin)?)?;
    let (status, _) = wait_for("a new leading coordinator", async || {
        cluster.check_alive()?;
        Ok(match impatient.status().await {
            Ok(status) if status.leader_id.is_some_and(|id| id != leader) => CheckOutcome::Yes(status),
            Ok(status) => CheckOutcome::NotYet(format!("the leader is {:?}", status.leader_id)),
            Err(error) => CheckOutcome::NotYet(error.to_string()),
        })
    })
    .await?;
    let failover_ms = killed.elapsed().as_millis() as u64;
    say.checked(format!(
        "coordinator {} took over in term {} and answered {failover_ms} ms after the kill",
        status.leader_id.unwrap_or_default(),
        status.term
    ));

    let mut progress = Progress::completions_only(applied);
    wait_for("the moves to be done", async || {
        cluster.check_alive()?;
        let rebalance = match admin.rebalance_status().await {
            Ok(rebalance) => rebalance,
            Err(error) => return Ok(CheckOutcome::NotYet(error.to_string())),
        };
        for line in progress.changes(&rebalance) {
            say.show(&line);
        }
        Ok(if rebalance.running { CheckOutcome::NotYet(phases(&rebalance)) } else { CheckOutcome::Yes(()) })
    })
    .await?;
    Ok((applied.elapsed().as_millis() as u64, failover_ms, leader))
}

async fn outcome(admin: &Admin, before: &Picture, plan: &Plan, say: &Narrator) -> Result<Picture, Failure> {
    say.step("Afterwards", "Only the partitions of the plan have moved (*).");
    let (partitions, _) =
        wait_for("nine partitions online with three replicas each", async || look_whole(admin).await).await?;
    let after = picture(&partitions, &[&FIRST_NODES[..], &[LATE_NODE]].concat());
    let new = gained(before, &after);
    say.show(&draw(&after, SMALL.partitions, &new));
    let planned: BTreeSet<(u32, String)> = plan.moves.iter().map(|step| (step.partition, step.to.clone())).collect();
    ensure(new.is_subset(&planned), "no replica where the plan named none", || {
        format!("{new:?}, planned {planned:?}")
    })?;
    let shares = copies(&after);
    ensure(shares == [7, 7, 7, 6], "7/7/7/6 replicas", || format!("{shares:?}"))?;
    say.checked("the nodes hold 7/7/7/6 replicas");
    let second = admin.plan().await?;
    ensure(second.moves.is_empty(), "a second plan to be empty", || format!("{:?}", second.moves))?;
    say.checked("planning again finds nothing to move");
    Ok(after)
}

async fn killed_one_returns(cluster: &mut Cluster, admin: &Admin, id: u64, say: &Narrator) -> Result<(), Failure> {
    say.step(
        "The killed coordinator returns",
        "It is started again with its data directory and catches up from the log.",
    );
    cluster.start_coordinators()?;
    let (_, took) = wait_for("three coordinators in step", async || {
        cluster.check_alive()?;
        let status = match admin.status().await {
            Ok(status) => status,
            Err(error) => return Ok(CheckOutcome::NotYet(error.to_string())),
        };
        let back = status.coordinators.iter().any(|coordinator| {
            coordinator.id == id
                && coordinator.role != CoordinatorRole::Unreachable
                && coordinator.entries_behind.unwrap_or(0) == 0
        });
        Ok(if back { CheckOutcome::Yes(()) } else { CheckOutcome::NotYet(format!("{:?}", status.coordinators)) })
    })
    .await?;
    let its_own =
        Admin::with_transport(vec![cluster.address(id).to_owned()], REQUEST_LIMIT, cluster.transport(Role::Admin)?)?;
    wait_for("the returned coordinator to serve the same table", async || {
        let (newest, its) = match (table(admin).await, its_own.table(TABLE).await) {
            (Ok(newest), Ok(its)) => (newest, its),
            (Err(failure), _) => return Ok(CheckOutcome::NotYet(failure.message)),
            (_, Err(error)) => return Ok(CheckOutcome::NotYet(error.to_string())),
        };
        Ok(if its == newest {
            CheckOutcome::Yes(())
        } else {
            CheckOutcome::NotYet(format!("it has {its:?}, the leader {newest:?}"))
        })
    })
    .await?;
    say.checked(format!("coordinator {id} is back and in step after {} ms", took.as_millis()));
    Ok(())
}
