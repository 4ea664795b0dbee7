//! `archon backup create | verify | show | restore`.

mod progress;

use crate::args::{BackupVerb, Connection, CreateBackupArgs, LookAtBackupArgs, RestoreBackupArgs};
use crate::connect;
use crate::documents::BackupTaken;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, bytes_text, count_text};
use archon_backup::{
    BackupError, BackupSummary, CreateOptions, Manifest, Progress, RestoreOptions, RestoredTable, SkippedTable, Store,
    StoreTrouble, TableBackup,
};
use archon_client::ErrorKind;
use progress::shown;

/// Runs a verb.
pub(crate) async fn run(verb: &BackupVerb, connection: &Connection) -> Result<Exit, Failure> {
    let output = Output::new(connection.output);
    match verb {
        BackupVerb::Create(args) => create(args, connection, &output).await,
        BackupVerb::Verify(args) => verify(args, &output).await,
        BackupVerb::Show(args) => show(args, &output).await,
        BackupVerb::Restore(args) => restore(args, connection, &output).await,
    }
}

async fn create(args: &CreateBackupArgs, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let store = Store::at(&args.to).map_err(failure)?;
    let since = args.since.as_deref().map(Store::at).transpose().map_err(failure)?;
    let (admin, client) = (connect::admin(connection)?, connect::builder(connection)?);
    let options = CreateOptions {
        tables: args.tables.clone(),
        bytes_per_second: args.max_rate,
        partitions_at_once: args.parallel.into(),
        since,
    };
    let progress = Progress::default();
    let taken = archon_backup::create(&admin, client, &store, &options, &progress);
    let taken = shown(taken, &progress, args.progress, output).await.map_err(|error| {
        let goes_on = matches!(
            error,
            BackupError::Cluster(_)
                | BackupError::GaveUp { .. }
                | BackupError::Io { .. }
                | BackupError::ObjectStore { trouble: StoreTrouble::Unreachable | StoreTrouble::Other, .. }
        );
        let failure = failure(error);
        let remedy = failure.remedy.clone().map_or_else(String::new, |remedy| format!("{remedy}; then "));
        match goes_on {
            true => failure.with_remedy(format!("{remedy}repeat the command to resume the backup")),
            false => failure,
        }
    })?;
    // An incomplete backup of all tables must be visible in the exit code, even if the output is not read.
    let ends = if taken.left_out.is_empty() { Exit::Done } else { Exit::Found };
    let (files_taken_over, bytes_taken_over) = (taken.files_taken_over, taken.bytes_taken_over);
    if output.is_json() {
        output.json(&BackupTaken {
            summary: BackupSummary::of(&taken.manifest),
            files_taken_over,
            bytes_taken_over,
            left_out: taken.left_out,
        })?;
        return Ok(ends);
    }
    told(&store, &taken.manifest, "backed up", output)?;
    if let Some(since) = &args.since {
        let files = count_text(files_taken_over as usize, "file", "files");
        let bytes = bytes_text(bytes_taken_over);
        output.line(format!("reused from {since}: {files}, {bytes}"))?;
    }
    for left in &taken.left_out {
        output.line(left_out_text(left))?;
    }
    output.talk(format!("next: archon backup verify {}", store.place()));
    Ok(ends)
}

fn left_out_text(left: &SkippedTable) -> String {
    let SkippedTable { table, files_restored, files_total } = left;
    format!(
        "skipped: table {table} is incomplete: a restore into it has written {files_restored} of {files_total} files; \
         `archon backup restore --resume` of its backup completes it, `archon table drop {table} --yes` deletes it"
    )
}

async fn verify(args: &LookAtBackupArgs, output: &Output) -> Result<Exit, Failure> {
    let store = Store::at(&args.from).map_err(failure)?;
    let progress = Progress::default();
    let manifest = shown(archon_backup::verify(&store, &progress), &progress, args.progress, output).await;
    told(&store, &manifest.map_err(failure)?, "intact", output)?;
    Ok(Exit::Done)
}

fn told(store: &Store, manifest: &Manifest, what: &str, output: &Output) -> Result<(), Failure> {
    let summary = BackupSummary::of(manifest);
    if output.is_json() {
        return output.json(&summary);
    }
    let count = |count: u32, one, many| count_text(usize::try_from(count).unwrap_or(usize::MAX), one, many);
    output.line(format!(
        "{what}: {} with {} entries, {} in {} at {}",
        count(summary.tables_total, "table", "tables"),
        summary.entries_total,
        bytes_text(summary.bytes_total),
        count(summary.files_total, "file", "files"),
        store.place()
    ))
}

async fn show(args: &LookAtBackupArgs, output: &Output) -> Result<Exit, Failure> {
    let store = Store::at(&args.from).map_err(failure)?;
    let manifest = archon_backup::show(&store).await.map_err(failure)?;
    if output.is_json() {
        output.json(&manifest)?;
        return Ok(Exit::Done);
    }
    let columns = [
        Column::text("TABLE"),
        Column::text("HOLDS"),
        Column::text("KEYS"),
        Column::number("PARTITIONS"),
        Column::number("REPLICAS"),
        Column::number("ENTRIES"),
        Column::number("BYTES"),
    ];
    let rows = manifest.tables.iter().map(row).collect();
    output.rows(&columns, rows, "the backup has no tables")?;
    output.talk(format!("taken from cluster {} by archon {}", manifest.cluster_id, manifest.archon_version));
    Ok(Exit::Done)
}

fn row(backup: &TableBackup) -> Vec<String> {
    let TableBackup { table, pieces } = backup;
    vec![
        table.name.clone(),
        table.holds.to_string(),
        table.keys.to_string(),
        table.partitions_total.to_string(),
        table.replication.to_string(),
        pieces.iter().map(|piece| piece.entries).sum::<u64>().to_string(),
        bytes_text(pieces.iter().map(|piece| piece.file_bytes).sum()),
    ]
}

async fn restore(args: &RestoreBackupArgs, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let store = Store::at(&args.from).map_err(failure)?;
    let (admin, client) = (connect::admin(connection)?, connect::builder(connection)?);
    let options = RestoreOptions {
        table: args.table.clone(),
        rename: args.rename.clone(),
        partitions: args.partitions,
        replication: args.replication,
        bytes_per_second: args.max_rate,
        resume: args.resume,
    };
    let progress = Progress::default();
    let restored = archon_backup::restore(&admin, client, &store, &options, &progress);
    let restored = tokio::select! {
        restored = shown(restored, &progress, args.progress, output) => restored,
        _ = tokio::signal::ctrl_c() => return Err(interrupted(args)),
    };
    let restored = restored.map_err(|error| match &error {
        BackupError::Damaged { .. } | BackupError::DamagedFiles { .. } => {
            let message = format!("{error}; nothing was restored");
            let remedy = match &args.table {
                Some(_) => "restore another backup; check it with `archon backup verify`",
                None => {
                    "restore another backup, or the intact tables of this one, each with --table; `archon backup \
                         verify` lists the damaged ones"
                }
            };
            Failure::new(Exit::Refused, message).with_remedy(remedy)
        }
        _ => failure(error),
    })?;
    if output.is_json() {
        output.json(&restored)?;
        return Ok(Exit::Done);
    }
    for table in &restored {
        output.line(restored_text(table))?;
    }
    Ok(Exit::Done)
}

/// Reports a restore that Ctrl-C ended.
fn interrupted(args: &RestoreBackupArgs) -> Failure {
    let (what, table) = match args.rename.as_ref().or(args.table.as_ref()) {
        Some(table) => (format!("table {table} is incomplete"), table.as_str()),
        None => {
            ("the table being restored is incomplete, and the following tables were not started".to_owned(), "TABLE")
        }
    };
    Failure::failed(format!("interrupted: {what}")).with_remedy(format!(
        "repeat the command with --resume to complete it; `archon table drop {table} --yes` deletes it"
    ))
}

/// Rejects a table with an unfinished restore, whose content is incomplete.
///
/// # Errors
/// Like [`archon_backup::check_whole`].
pub(crate) async fn check_whole(client: &archon_client::Client, table: &str) -> Result<(), Failure> {
    archon_backup::check_whole(client, table).await.map_err(failure)
}

fn restored_text(restored: &RestoredTable) -> String {
    let RestoredTable { table, from_table, entries_total } = restored;
    let was = if *from_table == table.name { String::new() } else { format!(", which was {from_table},") };
    let partitions = count_text(table.partitions_total as usize, "partition", "partitions");
    format!("restored table {}{was} with {entries_total} entries in {partitions}", table.name)
}

/// Converts the error, with the exit code and the remedy of this command line.
fn failure(error: BackupError) -> Failure {
    let message = error.to_string();
    let refused = |message| Failure::new(Exit::Refused, message);
    match error {
        BackupError::NoBackup { .. } => Failure::new(Exit::NotFound, message)
            .with_remedy("name the place that `archon backup create --to PLACE` wrote"),
        BackupError::Newer { .. } | BackupError::Occupied { .. } => refused(message),
        BackupError::Earlier { .. } => refused(message).with_remedy(
            "name another earlier backup, or omit --since to read everything from the \
                                          nodes",
        ),
        BackupError::TableExists { table } => {
            let kind = ErrorKind::AlreadyExists.as_str();
            let remedy = format!("give it another name: --table {table} --as {table}_restored");
            Failure { kind, ..refused(message) }.with_remedy(remedy)
        }
        BackupError::OfAnotherBackup { table, .. } => refused(message)
            .with_remedy(format!("name that backup, or delete the table: `archon table drop {table} --yes`")),
        BackupError::Unfinished { table, .. } => refused(message).with_remedy(format!(
            "`archon backup restore --resume` of its backup completes it; `archon table drop {table} --yes` deletes it"
        )),
        BackupError::Partial { table, .. } => Failure::failed(message).with_remedy(format!(
            "repeat the command with --resume to complete it; `archon table drop {table} --yes` deletes it"
        )),
        BackupError::TooFewNodes { nodes, .. } => refused(message)
            .with_remedy(format!("give it fewer replicas (--replication {}), or start more nodes", nodes.max(1))),
        BackupError::NoTable { .. } => Failure::new(Exit::NotFound, message),
        BackupError::Usage(_) => Failure::new(Exit::Usage, message),
        BackupError::GaveUp { last, .. } => Failure { message, ..Failure::from(*last) },
        BackupError::Cluster(error) => error.into(),
        BackupError::ObjectStore { trouble, .. } => {
            let exit = match trouble {
                StoreTrouble::Credentials
                | StoreTrouble::Region
                | StoreTrouble::PlainHttp
                | StoreTrouble::Certificate
                | StoreTrouble::Settings => Exit::Usage,
                StoreTrouble::NoBucket => Exit::NotFound,
                StoreTrouble::NotPermitted | StoreTrouble::NoConditions => Exit::Refused,
                StoreTrouble::Unreachable => Exit::Unreachable,
                _ => Exit::Failed,
            };
            let failure = Failure::new(exit, message);
            match trouble.remedy() {
                Some(remedy) => failure.with_remedy(remedy),
                None => failure,
            }
        }
        _ => Failure::failed(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_table_is_rejected_with_the_alternative() {
        let failure = failure(BackupError::TableExists { table: "orders".into() });
        assert_eq!((failure.exit, failure.kind), (Exit::Refused, "already_exists"));
        assert!(failure.message.contains("nothing was changed"), "{failure}");
        assert!(failure.remedy.as_deref().is_some_and(|remedy| remedy.contains("--as orders_restored")), "{failure}");
    }

    #[test]
    fn damage_is_distinguished_from_transient_failures() {
        let damaged =
            BackupError::Damaged { file: "data/t1-000000.entries".into(), block: Some(7), what: "why".into() };
        let failed = failure(damaged);
        assert_eq!(failed.exit, Exit::Failed);
        assert!(failed.message.starts_with("data/t1-000000.entries is damaged in block 7"), "{failed}");
        let nothing = failure(BackupError::NoBackup { place: "/backups".into(), why: "it is empty".into() });
        assert_eq!(nothing.exit, Exit::NotFound);
    }
}
