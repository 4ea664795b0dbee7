//! Long work in steps, interleaved with work for other spaces. Work for its own space waits.

use super::Work;
use crate::copies::copy_pace::REST;
use crate::engine::Change;
use archon_host::{FormJob, FormingCopy};
use archon_kv::FrozenRows;
use archon_replica::Position;
use archon_types::{KeyRange, PlacementId, Seq};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Work in steps.
pub(super) enum Job {
    /// Removes every row of a space.
    Clear {
        /// The number of the clearing.
        clear: u64,
        /// Some row was removed.
        removed: bool,
    },
    /// Clears the ranges of a memtable's list, before its rows are written.
    ClearRanges {
        upto: Seq,
        rows: FrozenRows,
        /// Number of cleared ranges.
        cleared: usize,
    },
    /// Forms a copy in the space.
    Form(FormingCopy),
}

impl Job {
    fn has_step(&self) -> bool {
        match self {
            Self::Form(forming) => forming.has_step(),
            Self::Clear { .. } | Self::ClearRanges { .. } => true,
        }
    }

    /// Returns whether a client or shard waits for its end.
    const fn is_waited_for(&self) -> bool {
        match self {
            Self::Form(forming) => forming.is_ending(),
            Self::Clear { .. } | Self::ClearRanges { .. } => true,
        }
    }
}

/// At most one job per space; the jobs take steps in turn.
#[derive(Default)]
pub(super) struct Jobs {
    under_way: VecDeque<(PlacementId, Job)>,
    /// Spaces with a job begun in this turn, before its rows are written.
    fresh: BTreeSet<PlacementId>,
    /// Work queued for each space since its job began, in order. It still counts in the queue.
    behind: BTreeMap<PlacementId, VecDeque<Work>>,
    /// Work to be done before anything that is queued.
    ready: VecDeque<Work>,
    /// End of the rest of copies without waiters.
    rest_until: Option<Instant>,
}

impl Jobs {
    /// Returns when there is work to do: a past moment if now, `None` if not before more is queued.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        if !self.ready.is_empty() {
            return Some(now);
        }
        let due = |job: &Job| if job.is_waited_for() { now } else { self.rest_until.unwrap_or(now) };
        self.under_way.iter().filter(|(_, job)| job.has_step()).map(|(_, job)| due(job)).min()
    }

    /// Returns whether nothing waits except for jobs in progress.
    pub(super) fn is_settled(&self) -> bool {
        self.ready.is_empty()
    }

    /// Takes work that waited for a finished job.
    pub(super) fn next_ready(&mut self) -> Option<Work> {
        self.ready.pop_front()
    }

    /// Returns work that was just taken from the queue, unless earlier work is ready.
    pub(super) fn after_ready(&mut self, work: Work) -> Option<Work> {
        if self.ready.is_empty() {
            return Some(work);
        }
        self.ready.push_back(work);
        None
    }

    /// Returns work unless it has to wait for a job of its space, or of the space that it reads.
    pub(super) fn admit(&mut self, work: Work) -> Option<Work> {
        let spaces = match &work {
            Work::Apply { space, .. } | Work::Clear { space, .. } => [Some(*space), None],
            Work::Form(job) => [Some(job.to), Some(job.from)],
            // The copy's own space has a job, which this work is for.
            Work::EndForm { from, .. } => [Some(*from), None],
            Work::Cleared { .. } | Work::Barrier(_) | Work::LetGo(_) | Work::StopForm(_) => [None, None],
        };
        match spaces.into_iter().flatten().find(|space| self.behind.contains_key(space)) {
            Some(space) => {
                self.behind.entry(space).or_default().push_back(work);
                None
            }
            None => Some(work),
        }
    }

    /// Begins a job in a space that has none. Returns the copies that can no longer be formed, with the attempts of
    /// their jobs.
    pub(super) fn begin(&mut self, space: PlacementId, job: Job) -> Vec<(PlacementId, u64)> {
        let spoilt: Vec<(PlacementId, u64)> = match &job {
            Job::Clear { .. } => self.spoilt_by(space, &[KeyRange::ALL]),
            Job::ClearRanges { rows, .. } => self.spoilt_by(space, rows.clears()),
            Job::Form(_) => Vec::new(),
        };
        for (to, _) in &spoilt {
            tracing::info!(%space, %to, "a copy is not formed any further: what it is formed from is cleared");
            self.stop_form(*to);
        }
        self.behind.entry(space).or_default();
        self.under_way.push_back((space, job));
        self.fresh.insert(space);
        spoilt
    }

    /// Returns copies formed from rows that are about to be cleared: they would silently lack them.
    fn spoilt_by(&self, space: PlacementId, ranges: &[KeyRange]) -> Vec<(PlacementId, u64)> {
        let spoilt = |forming: &&FormingCopy| ranges.iter().any(|range| forming.is_spoilt_by(space, range));
        let forms = self.under_way.iter().filter_map(|(_, job)| match job {
            Job::Form(forming) => Some(forming),
            Job::Clear { .. } | Job::ClearRanges { .. } => None,
        });
        forms.filter(spoilt).map(|forming| (forming.job().to, forming.job().attempt)).collect()
    }

    /// Takes the next job with a step, if any; it is returned by [`Jobs::go_on`] or ended by [`Jobs::end`].
    pub(super) fn next(&mut self, now: Instant) -> Option<(PlacementId, Job)> {
        let rests = self.rest_until.is_some_and(|until| now < until);
        let at = self.under_way.iter().position(|(_, job)| job.has_step() && (job.is_waited_for() || !rests))?;
        self.under_way.remove(at)
    }

    /// Takes the next job for a step between rows that are written. A job begun in the same turn comes after the rows,
    /// as they were queued before it, and so does a copy's end.
    pub(super) fn next_between(&mut self, now: Instant) -> Option<(PlacementId, Job)> {
        let rests = self.rest_until.is_some_and(|until| now < until);
        let may_go_on = |(space, job): &(PlacementId, Job)| match job {
            Job::Form(forming) => forming.has_step() && !forming.is_ending() && !rests && !self.fresh.contains(space),
            Job::Clear { .. } | Job::ClearRanges { .. } => !self.fresh.contains(space),
        };
        let at = self.under_way.iter().position(may_go_on)?;
        self.under_way.remove(at)
    }

    /// Lets jobs begun in a turn continue, as its rows are written.
    pub(super) fn turn_is_written(&mut self) {
        self.fresh.clear();
    }

    /// Records work on a copy without waiters, which rests afterwards.
    pub(super) fn rest_after(&mut self, worked: Duration, now: Instant) {
        self.rest_until(now + worked * REST);
    }

    /// Lets copies without waiters rest until then.
    pub(super) fn rest_until(&mut self, until: Instant) {
        self.rest_until = Some(until);
    }

    /// Returns a job with steps left.
    pub(super) fn go_on(&mut self, space: PlacementId, job: Job) {
        self.under_way.push_back((space, job));
    }

    /// Ends the job of a space: `then` is done next, and then the work that waited.
    pub(super) fn end(&mut self, space: PlacementId, then: Option<Work>) {
        // Work that is ready already came after all waiting work, as far as it is of this space.
        let later = std::mem::take(&mut self.ready);
        let waited = self.behind.remove(&space).into_iter().flatten();
        self.ready = then.into_iter().chain(waited).chain(later).collect();
    }

    /// Sets the end of the copy formed in this space.
    pub(super) fn end_form(&mut self, to: PlacementId, end: Position) {
        for (space, job) in &mut self.under_way {
            if let Job::Form(forming) = job
                && *space == to
            {
                forming.end_at(end);
            }
        }
    }

    /// Returns whether a copy is being formed and needs mirrored changes.
    pub(super) fn are_forming(&self) -> bool {
        self.under_way.iter().any(|(_, job)| matches!(job, Job::Form(_)))
    }

    /// Returns these changes with their mirrored changes for copies being formed.
    pub(super) fn mirrored(&self, changes: Vec<Change>) -> Vec<Change> {
        if !self.are_forming() {
            return changes;
        }
        let mut all = Vec::with_capacity(changes.len() * 2);
        for change in changes {
            let follow = self.under_way.iter().filter_map(|(_, job)| match job {
                Job::Form(forming) => forming.mirrored(&change),
                Job::Clear { .. } | Job::ClearRanges { .. } => None,
            });
            let follow: Vec<Change> = follow.collect();
            all.push(change);
            all.extend(follow);
        }
        all
    }

    /// Stops forming a copy in this space, whether it has begun or waits.
    pub(super) fn stop_form(&mut self, to: PlacementId) {
        let waits = |work: &Work| match work {
            Work::Form(FormJob { to: of, .. }) | Work::EndForm { to: of, .. } => *of == to,
            _ => false,
        };
        self.behind.values_mut().for_each(|behind| behind.retain(|work| !waits(work)));
        self.ready.retain(|work| !waits(work));
        let before = self.under_way.len();
        self.under_way.retain(|(space, job)| *space != to || !matches!(job, Job::Form(_)));
        if self.under_way.len() < before {
            self.end(to, None);
        }
    }
}
