//! Lock of a prefix in an object store: an object that names the writer, created on the condition that none exists,
//! and renewed while the writer lives.
//!
//! The protocol does not compare clocks of different machines. A process that finds the object watches it, by its own
//! clock: if it is renewed, the holder lives; if it is not renewed for [`GONE_AFTER`], the holder is dead, and the
//! object is replaced on the condition that it is unchanged. A holder stops its own work earlier: if it could not
//! renew for [`LOST_AFTER`].

use super::Objects;
use super::failed::failed;
use crate::create::now_ms;
use crate::error::BackupError;
use crate::progress::Progress;
use crate::store::LOCK;
use crate::trouble::StoreTrouble;
use object_store::{Error, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutResult, UpdateVersion};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

/// Interval of renewals.
pub(super) const RENEWED_EVERY: Duration = Duration::from_secs(5);
/// Time without a successful renewal after which the holder stops.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(20);
/// Time without a renewal after which another process takes over.
pub(super) const GONE_AFTER: Duration = Duration::from_secs(30);
/// Interval of checks while watching.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Pause after a failed renewal.
const PAUSE: Duration = Duration::from_secs(1);

const CANNOT: &str = "the lock cannot be written";

/// Content of the object, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Holder {
    /// Process and machine.
    holder: String,
    /// Start time by the clock of that machine.
    since_ms: u64,
    /// Id of the lock.
    id: Uuid,
    /// Number of renewals; makes each content unique.
    renewals: u64,
}

/// A prefix that this process has locked for writing.
#[derive(Debug)]
pub(crate) struct ObjectLock {
    objects: Objects,
    holder: Holder,
    version: UpdateVersion,
    renewed_at: Instant,
    is_lost: bool,
}

impl ObjectLock {
    /// Takes the lock, or replaces one that is no longer renewed.
    pub(super) async fn take(objects: &Objects, progress: &Progress) -> Result<Self, BackupError> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let holder = format!("process {} on {host}", std::process::id());
        let holder = Holder { holder, since_ms: now_ms(), id: Uuid::new_v4(), renewals: 0 };
        let held = |version, renewed_at| {
            let (objects, holder) = (objects.clone(), holder.clone());
            Self { objects, holder, version, renewed_at, is_lost: false }
        };
        loop {
            let renewed_at = Instant::now();
            match put(objects, &holder, PutMode::Create).await {
                Ok(put) => return held(put.into(), renewed_at).proved().await,
                Err(Error::AlreadyExists { .. }) => {}
                Err(error) => return Err(refused(objects, error)),
            }
            let Some((there, version)) = look(objects).await? else { continue };
            if there.as_ref().is_some_and(|there| there.id == holder.id) {
                // Our own lock: it was written, but the answer was lost.
                return held(version, renewed_at).proved().await;
            }
            let who = named(there);
            progress.waits_for(Some(format!("{who} started a backup at {}; is it still running?", objects.place())));
            let gone = is_gone(objects, &version).await;
            progress.waits_for(None);
            let occupied = || {
                Err(BackupError::Occupied { place: objects.place(), why: format!("{who} is running a backup there") })
            };
            match gone? {
                WatchOutcome::Freed => continue,
                WatchOutcome::Renewed => return occupied(),
                WatchOutcome::Gone => {}
            }
            let renewed_at = Instant::now();
            match put(objects, &holder, PutMode::Update(version)).await {
                Ok(put) => return held(put.into(), renewed_at).proved().await,
                Err(Error::Precondition { .. }) => return occupied(),
                Err(error) => return Err(refused(objects, error)),
            }
        }
    }

    /// Verifies that the store evaluates conditions: some ignore them, or one of the two kinds, and would admit every
    /// writer.
    async fn proved(mut self) -> Result<Self, BackupError> {
        let ignored = match put(&self.objects, &self.holder, PutMode::Create).await {
            Err(Error::AlreadyExists { .. }) => {
                let before = self.version.clone();
                self.renew().await?;
                match put(&self.objects, &self.holder, PutMode::Update(before)).await {
                    Err(Error::Precondition { .. }) => return Ok(self),
                    Err(error) => return Err(refused(&self.objects, error)),
                    Ok(_) => "it puts an object over another version of it than it was told",
                }
            }
            Err(error) => return Err(refused(&self.objects, error)),
            Ok(_) => "it puts an object although one is there",
        };
        let objects = self.objects.clone();
        self.release().await;
        Err(without_conditions(&objects, ignored))
    }

    /// Runs `work` while the lock is held.
    pub(crate) async fn keep<T>(
        &mut self,
        work: impl Future<Output = Result<T, BackupError>>,
    ) -> Result<T, BackupError> {
        tokio::select! {
            // Biased: after a long pause of the process, the work must not continue.
            biased;
            lost = self.lost() => {
                self.is_lost = true;
                Err(lost)
            }
            done = work => done,
        }
    }

    /// Renews until that fails for too long.
    async fn lost(&mut self) -> BackupError {
        loop {
            sleep(RENEWED_EVERY).await;
            let until = self.renewed_at + LOST_AFTER;
            loop {
                let begun_at = Instant::now();
                let error = match timeout_at(until, self.renew()).await {
                    Ok(Ok(())) => {
                        self.renewed_at = begun_at;
                        break;
                    }
                    Ok(Err(error)) => error,
                    Err(_) => self.not_renewed(),
                };
                if matches!(error, BackupError::Occupied { .. }) || begun_at + PAUSE >= until {
                    return error;
                }
                sleep(PAUSE).await;
            }
        }
    }

    async fn renew(&mut self) -> Result<(), BackupError> {
        let next = Holder { renewals: self.holder.renewals + 1, ..self.holder.clone() };
        match put(&self.objects, &next, PutMode::Update(self.version.clone())).await {
            Ok(put) => self.version = put.into(),
            Err(Error::Precondition { .. }) => match look(&self.objects).await? {
                // It was renewed, but the answer was lost.
                Some((Some(there), version)) if there.id == self.holder.id => self.version = version,
                there => {
                    let who = named(there.and_then(|(there, _)| there));
                    let why = format!("{who} has taken it over, because this process did not renew its lock");
                    return Err(BackupError::Occupied { place: self.objects.place(), why });
                }
            },
            Err(error) => return Err(failed(self.objects.named(LOCK), CANNOT)(error)),
        }
        self.holder = next;
        Ok(())
    }

    fn not_renewed(&self) -> BackupError {
        BackupError::ObjectStore {
            place: self.objects.named(LOCK),
            what: CANNOT,
            trouble: StoreTrouble::Unreachable,
            said: format!("it was not renewed for {} s, after which another one may take over", LOST_AFTER.as_secs()),
        }
    }

    /// Releases the lock.
    pub(crate) async fn release(self) {
        // If another process may have taken the lock by now, it stays, even if the store is slow; a lock that cannot
        // be deleted is taken over later.
        let until = self.renewed_at + LOST_AFTER;
        if !self.is_lost && Instant::now() < until {
            let _ = timeout_at(until, self.objects.delete(LOCK)).await;
        }
    }
}

/// Returns the holder's name for people.
fn named(there: Option<Holder>) -> String {
    there.map_or_else(|| "somebody".to_owned(), |there| there.holder)
}

/// Outcome of watching a lock.
enum WatchOutcome {
    Freed,
    Renewed,
    Gone,
}

async fn is_gone(objects: &Objects, version: &UpdateVersion) -> Result<WatchOutcome, BackupError> {
    let since = Instant::now();
    while since.elapsed() < GONE_AFTER {
        sleep(LOOK_EVERY).await;
        match look(objects).await? {
            None => return Ok(WatchOutcome::Freed),
            Some((_, now)) if now != *version => return Ok(WatchOutcome::Renewed),
            Some(_) => {}
        }
    }
    Ok(WatchOutcome::Gone)
}

/// Reads the lock: its holder, if readable, and the version of the object.
async fn look(objects: &Objects) -> Result<Option<(Option<Holder>, UpdateVersion)>, BackupError> {
    let cannot = || failed(objects.named(LOCK), "the lock cannot be read");
    let found = match objects.client.get(&objects.path(LOCK)).await {
        Ok(found) => found,
        Err(error) if super::failed::is_absent(&error) => return Ok(None),
        Err(error) => return Err(cannot()(error)),
    };
    let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
    let bytes = found.bytes().await.map_err(cannot())?;
    Ok(Some((serde_json::from_slice(&bytes).ok(), version)))
}

async fn put(objects: &Objects, holder: &Holder, mode: PutMode) -> object_store::Result<PutResult> {
    let bytes =
        serde_json::to_vec(holder).map_err(|error| Error::Generic { store: "lock", source: Box::new(error) })?;
    objects.client.put_opts(&objects.path(LOCK), bytes.into(), PutOptions::from(mode)).await
}

fn refused(objects: &Objects, error: Error) -> BackupError {
    match error {
        Error::NotImplemented { .. } | Error::NotSupported { .. } => without_conditions(objects, "it says so"),
        error => failed(objects.named(LOCK), CANNOT)(error),
    }
}

fn without_conditions(objects: &Objects, why: &str) -> BackupError {
    BackupError::ObjectStore {
        place: objects.named(LOCK),
        what: "the store cannot keep two writers apart",
        trouble: StoreTrouble::NoConditions,
        said: format!("it does not put objects on condition: {why}"),
    }
}
