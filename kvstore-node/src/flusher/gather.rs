//! Gathering of rows of copies, and their bulk ingest.

use super::FlushRows;
use super::jobs::Job;
use super::writer::Writer;
use crate::engine::{Change, EngineError};
use archon_types::PlacementId;
use std::time::Instant;

impl Writer {
    /// Gathers rows of copies, and returns the other rows and those that cannot wait; `bytes` counts the gathered ones.
    /// `None` if the flusher was stopped while the disk was full.
    pub(super) fn gather(
        &mut self,
        rows: Vec<(PlacementId, FlushRows)>,
        bytes: &mut usize,
    ) -> Result<Option<Vec<(PlacementId, FlushRows)>>, EngineError> {
        let mut others = Vec::new();
        for (space, rows) in rows {
            match rows {
                FlushRows::Copied(page) if self.gathers(space, &page.rows) => {
                    *bytes += page.bytes();
                    self.copied.add(space, page);
                    self.unsynced_since.get_or_insert_with(Instant::now);
                }
                // The rows gathered there were queued before.
                rows => match self.ingest(space)? {
                    true => others.push((space, rows)),
                    false => return Ok(None),
                },
            }
        }
        while self.copied.bytes() >= self.shared.config.ingest_bytes
            && let Some(space) = self.copied.largest()
        {
            if !self.ingest(space)? {
                return Ok(None);
            }
        }
        Ok(Some(others))
    }

    fn gathers(&self, space: PlacementId, rows: &[Change]) -> bool {
        self.engine.writes_tables() && !self.jobs.are_forming() && self.copied.is_followed_by(space, rows)
    }

    /// Writes the gathered rows of a space to the engine. Returns whether none are left: not if the flusher was stopped
    /// while the disk was full.
    fn ingest(&mut self, space: PlacementId) -> Result<bool, EngineError> {
        let Some(rows) = self.copied.take(space) else { return Ok(true) };
        *self.shared.busy_since.lock() = None;
        if !self.await_disk_space()? {
            return Ok(false);
        }
        self.set_busy();
        self.shared.snapshots.before_write(&*self.engine, &rows);
        let began = Instant::now();
        self.engine.ingest(&rows)?;
        self.worked_on_copies(began.elapsed());
        self.unsynced_since.get_or_insert_with(Instant::now);
        Ok(true)
    }

    /// The same for every space.
    pub(super) fn ingest_all(&mut self) -> Result<bool, EngineError> {
        while let Some(space) = self.copied.largest() {
            if !self.ingest(space)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the gathered rows in the spaces of a job, which were queued before it, or drops them if the job would
    /// clear them. Returns whether that is done.
    pub(super) fn settle(&mut self, space: PlacementId, job: &Job) -> Result<bool, EngineError> {
        match job {
            Job::Clear { .. } => {
                self.copied.take(space);
                Ok(true)
            }
            Job::ClearRanges { .. } => self.ingest(space),
            Job::Form(forming) => Ok(self.ingest(space)? && self.ingest(forming.job().from)?),
        }
    }
}
