//! `archon quorum recover`: a new generation from the remains of a quorum, without any request; and `archon quorum
//! snapshot`, which saves a state to recover from.

use crate::admin::{short_time, since};
use crate::args::{QuorumRecoverArgs, QuorumSaveArgs, QuorumVerifyArgs};
use crate::documents::{QuorumRecovered, QuorumSnapshotFile};
use crate::exit::{Exit, Failure};
use crate::output::{Output, count_text};
use archon_client::Admin;
use archon_coordinator::{NewGeneration, RecoverError, SnapshotFile, Survivor, SurvivorSummary};
use std::path::Path;

/// Describes the remains, and begins a generation with them if that is accepted.
pub(crate) fn run(args: &QuorumRecoverArgs, output: &Output) -> Result<Exit, Failure> {
    let survivor = Survivor::read(&args.from).map_err(failure)?;
    let summary = survivor.summary();
    if !output.is_json() {
        show(&args.from, &summary, output)?;
    }
    let generation = args.generation.unwrap_or(summary.generation.saturating_add(1));
    let (Some(into), Some(id), Some(address), true) = (&args.into, args.id, &args.address, args.accept_data_loss)
    else {
        if output.is_json() {
            output.json(&document(&summary, generation, None))?;
        }
        let words = "nothing was created: later decisions of the lost majority may be missing, and acknowledged writes \
                     with them";
        return Err(Failure::new(Exit::Refused, words).with_remedy(
            "look at the other coordinators' directories first, if any is left; then `archon quorum recover --from \
             PATH --into DIR \
             --id ID --address H:P --accept-data-loss`",
        ));
    };
    let new = NewGeneration { into: into.clone(), id, address: address.clone(), generation: args.generation };
    let generation = survivor.begin(&new).map_err(failure)?;
    if output.is_json() {
        output.json(&document(&summary, generation, Some(into)))?;
        return Ok(Exit::Done);
    }
    output.line(format!(
        "\ngeneration {generation} is ready in {}; {} stays as it was",
        into.display(),
        args.from.display()
    ))?;
    output.talk(format!(
        "1. never start any of the old coordinators again, nor any recovered from them before\n2. archon coordinator \
         --id {id} --listen {address} --data-dir {}\n3. archon quorum list: reports of the nodes, and the next \
         step\n4. add other coordinators with --join",
        into.display()
    ));
    Ok(Exit::Done)
}

/// Writes the whole state of the coordinators to a file.
pub(crate) async fn save(args: &QuorumSaveArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let mut file = SnapshotFile::create(&args.to).map_err(failure)?;
    let mut snapshot = admin.snapshot_quorum().await?;
    while let Some(bytes) = snapshot.next().await? {
        file.write(&bytes).map_err(failure)?;
    }
    let summary = file.finish().map_err(failure)?;
    told(&args.to, &summary, "saved", output)?;
    output.talk("next: keep it apart from the coordinators' disks, with a backup of the tables (archon backup create)");
    Ok(Exit::Done)
}

/// Reads and checks such a file completely.
pub(crate) fn verify(args: &QuorumVerifyArgs, output: &Output) -> Result<Exit, Failure> {
    let summary = Survivor::read_file(&args.file).map_err(failure)?.summary();
    told(&args.file, &summary, "as it was written", output)?;
    Ok(Exit::Done)
}

fn told(file: &Path, summary: &SurvivorSummary, what: &str, output: &Output) -> Result<(), Failure> {
    if !output.is_json() {
        show(file, summary, output)?;
        return output.line(what);
    }
    output.json(&QuorumSnapshotFile {
        cluster_id: summary.cluster.clone(),
        generation: summary.generation,
        last_index: summary.last_index,
        last_event_at_ms: summary.last_event_at_ms,
        nodes_total: summary.nodes,
        tables_total: summary.tables,
        partitions_total: summary.partitions,
    })
}

fn show(from: &Path, summary: &SurvivorSummary, output: &Output) -> Result<(), Failure> {
    let whose = summary.coordinator.map_or_else(|| "a snapshot".to_owned(), |id| format!("coordinator {id}"));
    let age = summary
        .last_event_at_ms
        .and_then(since)
        .map_or_else(String::new, |age| format!("; the last event in it is {} old", short_time(age)));
    let key = summary.generation_key.map_or_else(String::new, |key| format!(", key {key}"));
    output.line(format!(
        "{}: {whose} of cluster {}, generation {}{key}",
        from.display(),
        summary.cluster,
        summary.generation
    ))?;
    output.line(format!("up to entry {} of the log{age}", summary.last_index))?;
    output.line(format!(
        "{}, {}, {}",
        count_text(summary.nodes, "node", "nodes"),
        count_text(summary.tables, "table", "tables"),
        count_text(summary.partitions, "partition", "partitions")
    ))?;
    let members: Vec<String> = summary.coordinators.iter().map(|(id, address)| format!("{id} at {address}")).collect();
    output.line(format!("coordinators: {}", members.join(", ")))?;
    Ok(())
}

fn document(summary: &SurvivorSummary, generation: u64, into: Option<&Path>) -> QuorumRecovered {
    QuorumRecovered {
        cluster_id: summary.cluster.clone(),
        generation,
        base_index: summary.last_index,
        last_event_at_ms: summary.last_event_at_ms,
        nodes_total: summary.nodes,
        tables_total: summary.tables,
        partitions_total: summary.partitions,
        data_dir: into.map(|into| into.display().to_string()),
    }
}

fn failure(error: RecoverError) -> Failure {
    let exit = match error {
        RecoverError::Nothing { .. } => Exit::NotFound,
        RecoverError::NotNew { .. }
        | RecoverError::Taken { .. }
        | RecoverError::InUse { .. }
        | RecoverError::OfANode { .. }
        | RecoverError::Useless { .. } => Exit::Refused,
        RecoverError::Address { .. } | RecoverError::NoFile { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
