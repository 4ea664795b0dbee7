//! Work that takes long and goes in steps, so that other spaces' work goes on meanwhile. The work of its own space waits.

use super::Work;
use crate::copy_pace::REST;
use crate::engine::Change;
use archon_host::{FormJob, Forming};
use archon_kv::Frozen;
use archon_replica::Position;
use archon_types::{KeyRange, PlacementId, Seq};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// What goes in steps.
pub(super) enum Job {
    /// Every row of a space is removed.
    Clear {
        /// The number of the clearing.
        clear: u64,
        /// Whether any row was removed yet.
        removed: bool,
    },
    /// The ranges that a memtable's list clears, before its rows are written.
    ClearRanges {
        upto: Seq,
        rows: Frozen,
        /// How many of them are cleared.
        cleared: usize,
    },
    /// A copy is formed in the space.
    Form(Forming),
}

impl Job {
    fn has_step(&self) -> bool {
        match self {
            Self::Form(forming) => forming.has_step(),
            Self::Clear { .. } | Self::ClearRanges { .. } => true,
        }
    }

    /// Somebody waits for its end.
    const fn is_waited_for(&self) -> bool {
        match self {
            Self::Form(forming) => forming.is_ending(),
            Self::Clear { .. } | Self::ClearRanges { .. } => true,
        }
    }
}

/// One job per space at most, of which each takes a step in turn.
#[derive(Default)]
pub(super) struct Jobs {
    under_way: VecDeque<(PlacementId, Job)>,
    /// Whose job began in this turn, whose rows are not written yet.
    fresh: BTreeSet<PlacementId>,
    /// What was queued for each space with a job since, in order. It counts in the queue still.
    behind: BTreeMap<PlacementId, VecDeque<Work>>,
    /// To be done before anything that is queued.
    ready: VecDeque<Work>,
    /// Until when copies rest for which nobody waits yet.
    rest_until: Option<Instant>,
}

impl Jobs {
    /// When there is something to do: a moment that is past if there is now, `None` if there is not before something is queued.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        if !self.ready.is_empty() {
            return Some(now);
        }
        let due = |job: &Job| if job.is_waited_for() { now } else { self.rest_until.unwrap_or(now) };
        self.under_way.iter().filter(|(_, job)| job.has_step()).map(|(_, job)| due(job)).min()
    }

    /// Whether nothing waits but for jobs that are under way.
    pub(super) fn is_settled(&self) -> bool {
        self.ready.is_empty()
    }

    /// What has waited for a job that is over.
    pub(super) fn next_ready(&mut self) -> Option<Work> {
        self.ready.pop_front()
    }

    /// Gives work back that was just taken from the queue, unless something is ready that was queued before it.
    pub(super) fn after_ready(&mut self, work: Work) -> Option<Work> {
        if self.ready.is_empty() {
            return Some(work);
        }
        self.ready.push_back(work);
        None
    }

    /// Gives work back unless it has to wait for a job of its space, or of the space that it reads.
    pub(super) fn admit(&mut self, work: Work) -> Option<Work> {
        let spaces = match &work {
            Work::Apply { space, .. } | Work::Clear { space, .. } => [Some(*space), None],
            Work::Form(job) => [Some(job.to), Some(job.from)],
            // The copy's own space has a job, which this is for.
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

    /// A job begins in a space that has none. Returns the copies that are formed no further, with the attempts of their jobs.
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

    /// Where copies are formed from rows that are about to go: they would lack them, and nobody would know.
    fn spoilt_by(&self, space: PlacementId, ranges: &[KeyRange]) -> Vec<(PlacementId, u64)> {
        let spoilt = |forming: &&Forming| ranges.iter().any(|range| forming.is_spoilt_by(space, range));
        let forms = self.under_way.iter().filter_map(|(_, job)| match job {
            Job::Form(forming) => Some(forming),
            Job::Clear { .. } | Job::ClearRanges { .. } => None,
        });
        forms.filter(spoilt).map(|forming| (forming.job().to, forming.job().attempt)).collect()
    }

    /// The job whose turn it is, if any has something to do; it is given back by [`Jobs::go_on`] or ended by [`Jobs::end`].
    pub(super) fn next(&mut self, now: Instant) -> Option<(PlacementId, Job)> {
        let rests = self.rest_until.is_some_and(|until| now < until);
        let at = self.under_way.iter().position(|(_, job)| job.has_step() && (job.is_waited_for() || !rests))?;
        self.under_way.remove(at)
    }

    /// The job that is to have a step in the midst of rows that are written. One that began in the same turn comes after them, as they
    /// were queued before it, and so does a copy's end.
    pub(super) fn next_between(&mut self, now: Instant) -> Option<(PlacementId, Job)> {
        let rests = self.rest_until.is_some_and(|until| now < until);
        let may_go_on = |(space, job): &(PlacementId, Job)| match job {
            Job::Form(forming) => forming.has_step() && !forming.is_ending() && !rests && !self.fresh.contains(space),
            Job::Clear { .. } | Job::ClearRanges { .. } => !self.fresh.contains(space),
        };
        let at = self.under_way.iter().position(may_go_on)?;
        self.under_way.remove(at)
    }

    /// The rows of a turn are written: whatever began in it may go on.
    pub(super) fn turn_is_written(&mut self) {
        self.fresh.clear();
    }

    /// A copy for which nobody waits yet has worked for so long.
    pub(super) fn rest_after(&mut self, worked: Duration, now: Instant) {
        self.rest_until(now + worked * REST);
    }

    /// Copies for which nobody waits yet rest until then.
    pub(super) fn rest_until(&mut self, until: Instant) {
        self.rest_until = Some(until);
    }

    /// There are steps left.
    pub(super) fn go_on(&mut self, space: PlacementId, job: Job) {
        self.under_way.push_back((space, job));
    }

    /// The job of a space is over: `then` is done next, and after it what has waited.
    pub(super) fn end(&mut self, space: PlacementId, then: Option<Work>) {
        // What is ready already came after all that has waited, as far as it is of this space.
        let later = std::mem::take(&mut self.ready);
        let waited = self.behind.remove(&space).into_iter().flatten();
        self.ready = then.into_iter().chain(waited).chain(later).collect();
    }

    /// The copy that is formed in this space ends there.
    pub(super) fn end_form(&mut self, to: PlacementId, end: Position) {
        for (space, job) in &mut self.under_way {
            if let Job::Form(forming) = job
                && *space == to
            {
                forming.end_at(end);
            }
        }
    }

    /// Whether a copy is formed, which is to have what follows from changes of its source.
    pub(super) fn are_forming(&self) -> bool {
        self.under_way.iter().any(|(_, job)| matches!(job, Job::Form(_)))
    }

    /// These changes, and what follows from them for copies that are formed.
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

    /// No copy is formed in this space any more, whether it has begun or waits.
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
