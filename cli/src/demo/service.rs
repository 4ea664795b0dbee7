//! Chapter: a service owns partitions in three processes, one of which is killed.

use super::looks::{ensure, wait_for};
use super::narrator::Narrator;
use super::worker::{JOBS, Note};
use crate::exit::Failure;
use archon_client::{Admin, Client, Right, Role, Routes};
use archon_load::CheckOutcome;
use archon_local_cluster::{Cluster, Process};
use std::collections::BTreeMap;
use std::ffi::OsString;

const NAMES: [&str; 3] = ["ada", "grace", "mary"];
const PARTITIONS: u32 = 6;
/// Undisturbed time of an owner, in nanoseconds.
const A_WHILE_NS: u64 = 300_000_000;

/// Owners by partition and epoch: latest begin and earliest end of the ownership, on the machine's clock.
type Owners = BTreeMap<u32, BTreeMap<u64, OwnedPartition>>;

#[derive(Clone, PartialEq, Eq, Debug)]
struct OwnedPartition {
    name: String,
    from_ns: u64,
    until_ns: u64,
}

/// Starts a service, kills the owner of a partition, and checks the owners. Returns the time without an owner, in
/// milliseconds.
pub(super) async fn service(cluster: &mut Cluster, admin: &Admin, say: &Narrator) -> Result<u64, Failure> {
    say.step(
        "A service of yours, and an owner is killed (kill -9)",
        "Three processes share six partitions of a lease table, which stores only the owner of each partition.",
    );
    let table = admin.create_lease_table(JOBS, PARTITIONS).await?;
    if cluster.transport(Role::Admin)?.tls().is_some() {
        // The cluster begins with the first protocol, which has no such right.
        wait_for("the participants to be granted the table", async || {
            Ok(match admin.grant(Right::Own, None, Some(JOBS)).await {
                Ok(granted) => CheckOutcome::Yes(granted),
                Err(error) => CheckOutcome::NotYet(error.to_string()),
            })
        })
        .await?;
    }
    let mut workers = BTreeMap::new();
    for name in NAMES {
        let program = crate::own_program()?.display().to_string();
        let words = [&program, "demo", "--worker", name, "--coordinators", &cluster.endpoints().join(",")];
        let mut command = words.map(OsString::from).to_vec();
        if let Some(credentials) = cluster.credentials(Role::Participant, name)? {
            command.extend(["--tls-dir".into(), credentials.into()]);
        }
        workers.insert(name.to_owned(), Process::start(name, &command, &[], cluster.directory())?);
    }
    let routes = Client::builder(cluster.endpoints()).transport(cluster.transport(Role::Client)?).routes(JOBS).await?;
    let share = PARTITIONS as usize / NAMES.len();
    wait_for("two partitions at each process", async || {
        cluster.check_alive()?;
        Ok(owned(&routes, |counts| NAMES.iter().all(|name| counts.get(*name) == Some(&share))))
    })
    .await?;
    say.checked(format!("{} own two partitions each", NAMES.join(", ")));

    let (victim, _) = wait_for("partition 0 to be owned for a while", async || owned_for_a_while(&workers, 1)).await?;
    let killed = workers.get_mut(&victim).ok_or_else(|| {
        Failure::failed(format!(
            "{victim} is not a process of this \
                                                                                 tour"
        ))
    })?;
    let pid = killed.pid();
    killed.kill();
    let (_, took) = wait_for("the others to own everything", async || {
        cluster.check_alive()?;
        let all = |counts: &BTreeMap<String, usize>| {
            !counts.contains_key(&victim) && counts.values().sum::<usize>() == PARTITIONS as usize
        };
        Ok(owned(&routes, all))
    })
    .await?;
    say.checked(format!("process {pid} killed; {} ms later the other two owned all six", took.as_millis()));

    wait_for("partition 0 to be owned for a while again", async || owned_for_a_while(&workers, 2)).await?;
    wait_for("the processes to end", async || {
        let mut running = Vec::new();
        for (name, worker) in &mut workers {
            if worker.exited().is_none() {
                worker.ask_to_end();
                running.push(name.clone());
            }
        }
        Ok(if running.is_empty() { CheckOutcome::Yes(()) } else { CheckOutcome::NotYet(format!("{running:?} run")) })
    })
    .await?;
    let owners = owners(logs(&workers))?;
    let both = two_at_once(&owners);
    ensure(both.is_none(), "never two owners of one partition", || format!("{both:?}"))?;
    let first = owners.get(&0).into_iter().flat_map(in_turn).find(|(before, _)| before.name == victim);
    let (before, after) = first.ok_or_else(|| Failure::failed("no log names an owner of partition 0 after that"))?;
    let millis = |from: u64, until: u64| until.saturating_sub(from) / 1_000_000;
    let gap = millis(before.until_ns, after.from_ns);
    say.show(&format!("{JOBS}/0  {} for {} ms", before.name, millis(before.from_ns, before.until_ns)));
    say.show(&format!("        no owner for {gap} ms"));
    say.show(&format!("        {} for {} ms", after.name, millis(after.from_ns, after.until_ns)));
    say.checked("each logged its partitions by one clock: never two owners");
    // Removes all traces for later experiments with the cluster.
    admin.drop_table(JOBS, table.id).await?;
    for name in NAMES {
        admin.remove_node(name).await?;
    }
    Ok(gap)
}

/// Checks the number of partitions of each owner.
fn owned(routes: &Routes, right: impl Fn(&BTreeMap<String, usize>) -> bool) -> CheckOutcome<()> {
    let mut counts = BTreeMap::new();
    for owner in routes.map().owners.into_iter().flatten().filter(|owner| owner.serves) {
        *counts.entry(owner.name).or_default() += 1;
    }
    if right(&counts) { CheckOutcome::Yes(()) } else { CheckOutcome::NotYet(format!("{counts:?} do")) }
}

/// Checks that partition 0 has had this many owners, and the last of them for [`A_WHILE_NS`]; returns that owner.
fn owned_for_a_while(workers: &BTreeMap<String, Process>, count: usize) -> Result<CheckOutcome<String>, Failure> {
    let owners = owners(logs(workers))?;
    let owners: Vec<&OwnedPartition> = owners.get(&0).into_iter().flat_map(BTreeMap::values).collect();
    Ok(match owners.last() {
        Some(last) if owners.len() >= count && last.until_ns.saturating_sub(last.from_ns) >= A_WHILE_NS => {
            CheckOutcome::Yes(last.name.clone())
        }
        _ => CheckOutcome::NotYet(format!("{owners:?}")),
    })
}

fn logs(workers: &BTreeMap<String, Process>) -> impl Iterator<Item = (&str, Vec<Note>)> {
    workers.iter().map(|(name, worker)| (name.as_str(), Note::read(&worker.log())))
}

/// Merges the notes of all processes.
///
/// # Errors
/// If a partition had two owners in one epoch.
fn owners<'a>(logs: impl Iterator<Item = (&'a str, Vec<Note>)>) -> Result<Owners, Failure> {
    let mut owners = Owners::new();
    for (name, notes) in logs {
        for note in notes {
            for (partition, epoch) in note.owned {
                let new = || OwnedPartition { name: name.to_owned(), from_ns: note.after_ns, until_ns: note.before_ns };
                let owned = owners.entry(partition).or_default().entry(epoch).or_insert_with(new);
                ensure(owned.name == name, "one owner in each epoch", || {
                    format!("{} and {name} in epoch {epoch} of partition {partition}", owned.name)
                })?;
                owned.until_ns = note.before_ns;
            }
        }
    }
    Ok(owners)
}

/// Returns each owner of a partition with its successor.
fn in_turn(epochs: &BTreeMap<u64, OwnedPartition>) -> impl Iterator<Item = (&OwnedPartition, &OwnedPartition)> {
    epochs.values().zip(epochs.values().skip(1))
}

/// Returns two owners of one partition whose ownerships overlap.
fn two_at_once(owners: &Owners) -> Option<(&OwnedPartition, &OwnedPartition)> {
    owners.values().flat_map(in_turn).find(|(before, after)| before.until_ns > after.from_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(before_ns: u64, after_ns: u64, epoch: u64) -> Note {
        Note { before_ns, after_ns, owned: vec![(0, epoch)] }
    }

    #[test]
    fn owners_differ_by_epoch_and_two_in_one_epoch_are_found() {
        let logs = [("ada", vec![note(1, 2, 1), note(5, 6, 1)]), ("mary", vec![note(9, 12, 2), note(20, 21, 2)])];
        let owners = owners(logs.into_iter()).unwrap();
        let (before, after) = in_turn(&owners[&0]).next().unwrap();
        assert_eq!((before.from_ns, before.until_ns, after.from_ns, after.until_ns), (2, 5, 12, 20));
        assert_eq!(two_at_once(&owners), None);
        let logs = [("ada", vec![note(1, 2, 1), note(13, 14, 1)]), ("mary", vec![note(9, 12, 2)])];
        assert!(two_at_once(&super::owners(logs.into_iter()).unwrap()).is_some());
        let logs = [("ada", vec![note(1, 2, 1)]), ("mary", vec![note(3, 4, 1)])];
        assert!(super::owners(logs.into_iter()).unwrap_err().message.contains("ada and mary in epoch 1"));
    }
}
