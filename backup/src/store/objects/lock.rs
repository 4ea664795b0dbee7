//! Keeps two writers apart where no operating system does: by an object that says who writes, put on the condition that none is there, and
//! renewed as long as somebody does.
//!
//! Nobody compares clocks of two machines. Whoever finds the object watches it, by the time that passes on its own machine: one that is renewed
//! meanwhile is somebody's; one that is not for [`GONE_AFTER`] is of a process that is no more, and is taken over on the condition that it is
//! still the same. The holder in turn ends its own work once it could not renew for [`LOST_AFTER`], which is sooner.

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

/// How often the holder renews.
pub(super) const RENEWED_EVERY: Duration = Duration::from_secs(5);
/// After how long without being renewed the holder gives up.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(20);
/// After how long without being renewed another one takes over.
pub(super) const GONE_AFTER: Duration = Duration::from_secs(30);
/// How often one that is watched is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The pause after a renewal that failed.
const PAUSE: Duration = Duration::from_secs(1);

const CANNOT: &str = "the lock cannot be written";

/// What the object holds, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Holder {
    /// Which process on which machine.
    holder: String,
    /// Since when, by the clock of that machine.
    since_ms: u64,
    /// Which of its backups.
    id: Uuid,
    /// How often it was renewed: so each content is another one.
    renewals: u64,
}

/// A prefix that is this process's own to write to.
#[derive(Debug)]
pub(crate) struct ObjectLock {
    objects: Objects,
    holder: Holder,
    version: UpdateVersion,
    renewed_at: Instant,
    is_lost: bool,
}

impl ObjectLock {
    /// Takes the lock, or one that nobody renews any more.
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
                // It was put, and the answer got lost.
                return held(version, renewed_at).proved().await;
            }
            let who = named(there);
            progress.waits_for(Some(format!("{who} has begun a backup at {}; is it alive?", objects.place())));
            let gone = is_gone(objects, &version).await;
            progress.waits_for(None);
            let occupied =
                || Err(BackupError::Occupied { place: objects.place(), why: format!("{who} takes a backup there") });
            match gone? {
                Watched::Freed => continue,
                Watched::Renewed => return occupied(),
                Watched::Gone => {}
            }
            let renewed_at = Instant::now();
            match put(objects, &holder, PutMode::Update(version)).await {
                Ok(put) => return held(put.into(), renewed_at).proved().await,
                Err(Error::Precondition { .. }) => return occupied(),
                Err(error) => return Err(refused(objects, error)),
            }
        }
    }

    /// Makes sure that the store looks at conditions: some take no notice of them, or of one of both, and would let everybody in.
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

    /// Does some work as long as the lock is held.
    pub(crate) async fn keep<T>(
        &mut self,
        work: impl Future<Output = Result<T, BackupError>>,
    ) -> Result<T, BackupError> {
        tokio::select! {
            // Work of somebody who was stopped for longer does not go on.
            biased;
            lost = self.lost() => {
                self.is_lost = true;
                Err(lost)
            }
            done = work => done,
        }
    }

    /// Renews until that is no longer possible.
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
                // It was renewed, and the answer got lost.
                Some((Some(there), version)) if there.id == self.holder.id => self.version = version,
                there => {
                    let who = named(there.and_then(|(there, _)| there));
                    let why = format!("{who} has taken it over, as this process was not heard of");
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

    /// Lets others in.
    pub(crate) async fn release(self) {
        // One that is another's by now stays, also where the store takes long to answer; one that cannot be deleted is taken over
        // some time.
        let until = self.renewed_at + LOST_AFTER;
        if !self.is_lost && Instant::now() < until {
            let _ = timeout_at(until, self.objects.delete(LOCK)).await;
        }
    }
}

/// Who holds a lock, for people.
fn named(there: Option<Holder>) -> String {
    there.map_or_else(|| "somebody".to_owned(), |there| there.holder)
}

/// What became of a lock that was watched.
enum Watched {
    Freed,
    Renewed,
    Gone,
}

async fn is_gone(objects: &Objects, version: &UpdateVersion) -> Result<Watched, BackupError> {
    let since = Instant::now();
    while since.elapsed() < GONE_AFTER {
        sleep(LOOK_EVERY).await;
        match look(objects).await? {
            None => return Ok(Watched::Freed),
            Some((_, now)) if now != *version => return Ok(Watched::Renewed),
            Some(_) => {}
        }
    }
    Ok(Watched::Gone)
}

/// Who holds the lock, if that can be read, and in which version of the object.
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
