//! `archon lock`: runs a command while it owns a named lock.

mod command;
mod signals;

use crate::args::{Connection, LockArgs};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::kv;
use crate::output::talk;
use archon_client::{Client, Lock, LockError, LockOptions};
use archon_local_cluster::end_with_parent;
use command::{CommandEnd, HeldCommand, Schedule};
pub(crate) use command::{exec, held_command};
use signals::Signals;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit to release the lock after the command has ended.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);
/// The same for a lock that was lost, as a rule because the cluster is unavailable.
const RELEASE_LOST_WITHIN: Duration = Duration::from_secs(1);

/// Runs a command under a lock, and returns its exit code.
///
/// # Errors
/// The lock was not obtained, or was lost; the command does not start.
pub(crate) fn run(args: &LockArgs, connection: &Connection) -> Result<ExitCode, Failure> {
    end_with_parent()?;
    kv::KeyForm::Text.key(&args.name)?;
    crate::on_runtime(held(args, connection))
}

async fn held(args: &LockArgs, connection: &Connection) -> Result<ExitCode, Failure> {
    let mut signals = Signals::install()?;
    let lock = tokio::select! {
        lock = obtain(args, connection) => lock?,
        // A lock that was being obtained stays taken for its lease.
        signal = signals.next_deadly() => return Ok(ExitCode::from(128 + signal)),
    };
    let mut command = match HeldCommand::start(args, &lock) {
        Ok(command) => command,
        Err(failure) => {
            let _ = release(lock, RELEASE_WITHIN).await;
            return Err(failure);
        }
    };
    match command.run(&lock, &mut signals, Schedule::of(args.lease)).await {
        CommandEnd::Exited(code) => {
            if let Err(why) = release(lock, RELEASE_WITHIN).await {
                talk(&format!("the lock {:?} was not released, others wait for its lease: {why}", args.name));
            }
            Ok(ExitCode::from(code))
        }
        CommandEnd::LeaseEnds => {
            let why = if lock.is_taken() {
                "another holder has it, its row was deleted, or its table was dropped"
            } else {
                "it could not be renewed"
            };
            // Others need not wait for the lease: the command has ended.
            let _ = release(lock, RELEASE_LOST_WITHIN).await;
            let message = format!("the lock {:?} was lost, and the command was ended: {why}", args.name);
            Err(Failure::new(Exit::LockLost, message)
                .with_remedy("`archon status` shows the cluster; run the command again"))
        }
    }
}

async fn release(lock: Lock, within: Duration) -> Result<(), String> {
    match timeout(within, lock.release()).await {
        Ok(released) => released.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {within:?}")),
    }
}

/// Waits for the lock.
async fn obtain(args: &LockArgs, connection: &Connection) -> Result<Lock, Failure> {
    let client: Client =
        connect::client(connection, &args.table, None).await.map_err(|failure| table_failure(failure, &args.table))?;
    let mut options = LockOptions::default().lease(args.lease).holder(holder());
    if let Some(limit) = args.wait {
        options = options.wait(limit);
    }
    if args.no_wait {
        options = options.no_wait();
    }
    client.lock(&args.name, options).await.map_err(|error| match error {
        LockError::Client(error) => table_failure(error.into(), &args.table),
        LockError::Held { .. } => Failure::new(Exit::NotObtained, error.to_string())
            .with_remedy("wait longer (--wait), or end the command of that holder"),
        error => Failure::new(Exit::Refused, error.to_string()),
    })
}

fn table_failure(failure: Failure, table: &str) -> Failure {
    if failure.exit == Exit::NotFound {
        return failure.with_remedy(format!("create the table of locks: `archon table create {table} --partitions 8`"));
    }
    failure
}

/// Returns the name of this process for people.
fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().take(200).collect();
    format!("{host}:{}", std::process::id())
}
