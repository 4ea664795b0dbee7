//! `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH` (ADR 0096): commands are queued, executed on values read as of one
//! moment, and committed as one entry if nothing that they depend on has changed since.

use super::execute::dispatch;
use super::keys::{ATTEMPTS_MAX, Operations, contended, revision};
use super::queue::{ARGUMENT_BYTES, COMMANDS_MAX, Queue, TransactionState, WATCHED_MAX};
use super::refusal::{CommandResult, Refusal};
use super::session::Session;
use super::several::check_slot;
use super::state::RedisService;
use super::workspace::Workspace;
use archon_resp::{Command, CommandKind, Reply, lookup};
use archon_types::Op;
use bytes::Bytes;

/// Most bytes of the replies to all commands of a transaction.
const REPLIES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Executes the commands about transactions, and queues others while one is open. Returns `None` for a command that is
/// executed at once.
pub(super) async fn execute(
    service: &RedisService,
    session: &mut Session,
    command: &Command,
    request: &[Bytes],
) -> Option<CommandResult> {
    let is_open = session.transaction.is_open();
    Some(match command.kind {
        CommandKind::Multi if is_open => Err(Refusal::new("ERR MULTI calls can not be nested")),
        CommandKind::Multi => {
            session.transaction.queue = Some(Queue::default());
            Ok(Reply::OK)
        }
        CommandKind::Discard if !is_open => Err(Refusal::new("ERR DISCARD without MULTI")),
        CommandKind::Discard => {
            session.transaction = TransactionState::new();
            Ok(Reply::OK)
        }
        CommandKind::Exec if !is_open => Err(Refusal::new("ERR EXEC without MULTI")),
        CommandKind::Exec => {
            let mut state = std::mem::take(&mut session.transaction);
            match state.queue.take().unwrap_or_default() {
                queue if queue.is_refused => {
                    Err(Refusal::new("EXECABORT Transaction discarded because of previous errors."))
                }
                queue => {
                    let executed = execute_queue(service, session, queue, state).await;
                    session.transaction = TransactionState::new();
                    executed
                }
            }
        }
        CommandKind::Watch if is_open => Err(Refusal::new("ERR WATCH inside MULTI is not allowed")),
        CommandKind::Watch => watch(service, session, &request[1..]).await,
        CommandKind::Unwatch if !is_open => {
            session.transaction = TransactionState::new();
            Ok(Reply::OK)
        }
        CommandKind::Quit | CommandKind::Reset => return None,
        _ if is_open => {
            let queued = enqueue(service, session, command, request).await;
            if queued.is_err() {
                session.transaction.refuse();
            }
            queued
        }
        _ => return None,
    })
}

/// Queues a command. As in Redis Cluster, its keys must be in one slot, which this node serves.
async fn enqueue(service: &RedisService, session: &mut Session, command: &Command, request: &[Bytes]) -> CommandResult {
    let keys: Vec<Bytes> =
        archon_resp::keys_of(command, request)?.into_iter().map(|at| Bytes::copy_from_slice(&request[at])).collect();
    let keyless = matches!(
        command.kind,
        CommandKind::Ping
            | CommandKind::Echo
            | CommandKind::Time
            | CommandKind::Select
            | CommandKind::Unwatch
            | CommandKind::Eval
            | CommandKind::EvalSha
    );
    if keys.is_empty() && !keyless {
        return Err(Refusal::new("ERR Command not allowed inside a transaction"));
    }
    check_slot(&keys)?;
    if let Some(key) = keys.first() {
        let operations = Operations::at_leader(service, session, key.clone());
        operations.check_place(&Op::Get { key: key.clone() }).await?;
    }
    let bytes = request.iter().map(|argument| argument.len() + ARGUMENT_BYTES).sum();
    session.transaction.hold(bytes)?;
    let Some(queue) = &mut session.transaction.queue else { return Err(Refusal::new("ERR EXEC without MULTI")) };
    if queue.commands.len() >= COMMANDS_MAX {
        return Err(Refusal::new(format!(
            "ERR the transaction has more than {COMMANDS_MAX} commands; nothing was changed"
        )));
    }
    queue.keys.extend(keys);
    // A copy of its own: a part of the input would keep all of that.
    queue.commands.push(request.iter().map(|argument| Bytes::copy_from_slice(argument)).collect());
    Ok(Reply::Status("QUEUED"))
}

/// Notes the revisions of keys.
async fn watch(service: &RedisService, session: &mut Session, keys: &[Bytes]) -> CommandResult {
    let earlier = session.transaction.watched.first().map(|(key, _)| key.clone());
    check_slot(&earlier.into_iter().chain(keys.iter().cloned()).collect::<Vec<_>>())?;
    for key in keys {
        let watched = &session.transaction.watched;
        if watched.iter().any(|(other, _)| other == key) {
            continue;
        }
        if watched.len() >= WATCHED_MAX {
            return Err(Refusal::new(format!("ERR more than {WATCHED_MAX} keys are watched; nothing was changed")));
        }
        let mut operations = Operations::at_leader(service, session, key.clone());
        let partition = operations.partition(&Op::Get { key: key.clone() }).await?;
        let found = operations.get().await?;
        session.transaction.watched_in.get_or_insert(partition);
        session.transaction.hold(key.len() + ARGUMENT_BYTES)?;
        session.transaction.watched.push((Bytes::copy_from_slice(key), revision(&found)));
    }
    Ok(Reply::OK)
}

/// Executes queued commands, and commits what they wrote.
async fn execute_queue(
    service: &RedisService,
    session: &mut Session,
    queue: Queue,
    TransactionState { watched, watched_in, .. }: TransactionState,
) -> CommandResult {
    let mut keys = queue.keys;
    keys.extend(watched.iter().map(|(key, _)| key.clone()));
    let keys: Vec<Bytes> = keys.into_iter().collect();
    check_slot(&keys)?;
    let Some(first) = keys.first() else { return run(service, session, &queue.commands).await };
    let operations = Operations::at_leader(service, session, first.clone());
    let partition = operations.partition(&Op::Get { key: first.clone() }).await?;
    if watched_in.is_some_and(|watched| watched != partition) {
        return Ok(Reply::NullArray);
    }
    session.transaction.partition = Some(partition);
    for _ in 0..ATTEMPTS_MAX {
        let mut operations = Operations::at_leader(service, session, first.clone());
        let found = operations.get_many(keys.clone()).await?;
        let revision_of = |key: &Bytes| keys.binary_search(key).ok().map(|at| revision(&found[at]));
        if watched.iter().any(|(key, expected)| revision_of(key) != Some(*expected)) {
            return Ok(Reply::NullArray);
        }
        let mut workspace = Workspace::new(keys.iter().cloned().zip(found), service.kv.shared.wall.now());
        watched.iter().for_each(|(key, _)| workspace.depend_on(key));
        session.transaction.workspace = Some(workspace);
        let replies = run(service, session, &queue.commands).await;
        let workspace = session.transaction.workspace.take();
        let replies = replies?;
        let transaction = workspace.map_or(Ok(None), Workspace::into_transaction)?;
        let Some(transaction) = transaction else { return Ok(replies) };
        let mut operations = Operations::at_leader(service, session, first.clone());
        if operations.commit(transaction).await?.is_some() {
            return Ok(replies);
        }
    }
    Err(contended())
}

/// Executes queued commands one after the other. As in Redis, one that fails does not stop the others.
async fn run(service: &RedisService, session: &mut Session, commands: &[Vec<Bytes>]) -> CommandResult {
    let (mut replies, mut bytes) = (Vec::with_capacity(commands.len()), 0);
    for request in commands {
        let command = lookup(request)?;
        let reply = match dispatch(service, session, command, request).await {
            Ok(reply) => reply,
            Err(Refusal::Error(text)) => Reply::Error(text),
            Err(unknown @ Refusal::Unknown(_)) => return Err(unknown),
        };
        bytes += reply.bytes();
        if bytes > REPLIES_BYTES_MAX {
            return Err(Refusal::new(format!(
                "ERR the replies of this transaction have more than {REPLIES_BYTES_MAX} bytes; nothing was changed"
            )));
        }
        replies.push(reply);
        // A long transaction must not delay other tasks of this thread.
        tokio::task::consume_budget().await;
    }
    Ok(Reply::Array(replies))
}
