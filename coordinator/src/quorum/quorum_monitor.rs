//! Logs this coordinator's view of the quorum: the leader, the lack of one, voters that the leader does not hear. Each
//! change once, and only if it lasts.

use crate::raft::{LowSpace, Quorum, QuorumView, VoterView, read_only};
use crate::statistics::metrics::Metrics;
use archon_types::{CoordinatorRole, Setting, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// An election takes less; only longer conditions are logged.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Watches, logs and counts until `stop`. `said`: the settings given to this coordinator, and which of them were
/// explicit.
pub(crate) async fn run(
    quorum: Quorum,
    said: (Settings, BTreeSet<Setting>),
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let mut leadership = quorum.leadership();
    let mut monitor = Observer::new(Instant::now(), TIMEOUT.max(2 * quorum.timing().election_max()));
    let mut compared = false;
    loop {
        for note in monitor.look(&quorum.view(), Instant::now()) {
            if matches!(note, Note::Leads { .. }) {
                metrics.leader_changes.add(1);
            }
            log_note(quorum.id(), &note);
        }
        if !compared {
            let state = quorum.replicated();
            let bootstrapped = state.read(|state| state.is_bootstrapped().then(|| state.settings.clone()));
            if let Some(cluster) = bootstrapped {
                compared = true;
                log_differences(&said, &cluster);
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = leadership.changed() => {}
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}

/// A logged change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Note {
    /// There is a leader.
    Leads { leader: u64, term: u64 },
    /// There has been no leader for a while.
    NoLeader,
    /// This leader has not heard a voter for a while.
    Away { voter: String },
    /// It hears the voter again.
    Back { voter: String },
    /// This leader hears too few voters to decide anything.
    MajorityLost { away: Vec<String> },
    /// It hears enough voters again.
    MajorityBack,
    /// A voter, this one or one that this leader hears, accepts no new log entries.
    Lacks { voter: String, lack: LowSpace },
    /// It accepts entries again.
    Space { voter: String },
    /// For lack of space this leader accepts no changes.
    ReadOnly { why: String },
    /// It accepts changes again.
    TakesChanges,
}

/// Observations and reports so far.
struct Observer {
    reported: Option<(u64, u64)>,
    nobody_since: Option<Instant>,
    nobody_reported: bool,
    /// Voters that this leader does not hear: since when, and true if that was reported.
    away: BTreeMap<u64, (Instant, bool)>,
    minority_reported: bool,
    /// Voters with a reported lack of space.
    lacking: BTreeSet<u64>,
    read_only_reported: bool,
    /// Time after which a change is reported.
    timeout: Duration,
}

impl Observer {
    const fn new(now: Instant, timeout: Duration) -> Self {
        Self {
            reported: None,
            nobody_since: Some(now),
            nobody_reported: false,
            away: BTreeMap::new(),
            minority_reported: false,
            lacking: BTreeSet::new(),
            read_only_reported: false,
            timeout,
        }
    }

    fn look(&mut self, view: &QuorumView, now: Instant) -> Vec<Note> {
        let mut notes = Vec::new();
        match view.leader {
            Some(leader) => {
                self.nobody_since = None;
                self.nobody_reported = false;
                if self.reported != Some((leader, view.term)) {
                    self.reported = Some((leader, view.term));
                    notes.push(Note::Leads { leader, term: view.term });
                }
            }
            None => {
                let since = *self.nobody_since.get_or_insert(now);
                if !self.nobody_reported && now.duration_since(since) >= self.timeout {
                    self.nobody_reported = true;
                    self.reported = None;
                    notes.push(Note::NoLeader);
                }
            }
        }
        if view.role == CoordinatorRole::Leader {
            self.look_at_voters(&view.voters, now, &mut notes);
        } else {
            // Only a leader knows which voters it hears.
            self.away.clear();
            self.minority_reported = false;
        }
        self.look_at_space(view, &mut notes);
        notes
    }

    fn look_at_space(&mut self, view: &QuorumView, notes: &mut Vec<Note>) {
        let leads = view.role == CoordinatorRole::Leader;
        // Only a leader knows about the others.
        self.lacking.retain(|id| leads || *id == view.id);
        for voter in &view.voters {
            match voter.lack {
                Some(lack) if self.lacking.insert(voter.id) => {
                    notes.push(Note::Lacks { voter: voter.to_string(), lack })
                }
                None if !voter.is_away() && self.lacking.remove(&voter.id) => {
                    notes.push(Note::Space { voter: voter.to_string() });
                }
                _ => {}
            }
        }
        let why = if leads { read_only(view.id, &view.voters) } else { None };
        if why.is_some() != self.read_only_reported {
            self.read_only_reported = why.is_some();
            match why {
                Some(why) => notes.push(Note::ReadOnly { why }),
                None if leads => notes.push(Note::TakesChanges),
                None => {}
            }
        }
    }

    fn look_at_voters(&mut self, voters: &[VoterView], now: Instant, notes: &mut Vec<Note>) {
        for voter in voters {
            if voter.is_away() {
                let (since, reported) = self.away.entry(voter.id).or_insert((now, false));
                if !*reported && now.duration_since(*since) >= self.timeout {
                    *reported = true;
                    notes.push(Note::Away { voter: voter.to_string() });
                }
            } else if let Some((_, true)) = self.away.remove(&voter.id) {
                notes.push(Note::Back { voter: voter.to_string() });
            }
        }
        let voters: Vec<&VoterView> = voters.iter().filter(|voter| voter.voter).collect();
        let gone = |voter: &&&VoterView| self.away.get(&voter.id).is_some_and(|(_, reported)| *reported);
        let away: Vec<String> = voters.iter().filter(gone).map(ToString::to_string).collect();
        let minority = voters.len() - away.len() < voters.len() / 2 + 1;
        if minority != self.minority_reported {
            self.minority_reported = minority;
            notes.push(if minority { Note::MajorityLost { away } } else { Note::MajorityBack });
        }
    }
}

fn log_note(me: u64, note: &Note) {
    match note {
        Note::Leads { leader, term } if *leader == me => tracing::info!(term, "this coordinator leads the quorum"),
        Note::Leads { leader, term } => tracing::info!(leader, term, "a coordinator leads the quorum"),
        Note::NoLeader => tracing::warn!(
            "no coordinator leads: more than half of them must run and reach each other; until then nothing is decided"
        ),
        Note::Away { voter } => tracing::warn!(voter, "does not answer this leader"),
        Note::Back { voter } => tracing::info!(voter, "answers this leader again"),
        Note::MajorityLost { away } => tracing::error!(
            away = away.join(", "),
            "this leader has lost the majority of the coordinators: no lease is granted and nothing is decided"
        ),
        Note::Lacks { voter, lack } => tracing::warn!("{voter} appends nothing to its log, {lack}"),
        Note::Space { voter } => tracing::info!("{voter} has space in its log again"),
        Note::ReadOnly { why } => tracing::error!(
            "the coordinators refuse changes (`ReadOnly`), because their disks lack space: {why}; reads and leases \
             continue"
        ),
        Note::TakesChanges => tracing::info!("the coordinators take changes again"),
        Note::MajorityBack => tracing::info!("a majority of the coordinators answers this leader again"),
    }
}

/// Logs a warning if a coordinator has other settings than the cluster: the cluster has those of the coordinator that
/// bootstrapped it, with later changes.
fn log_differences((given, said): &(Settings, BTreeSet<Setting>), cluster: &Settings) {
    let differences = differences(given, said, cluster);
    if !differences.is_empty() {
        tracing::warn!(
            ignored = differences.join(", "),
            "this coordinator was started with settings that differ from those of the cluster, which apply (`archon \
             config show`)"
        );
    }
}

fn differences(given: &Settings, said: &BTreeSet<Setting>, cluster: &Settings) -> Vec<String> {
    let differ = said.iter().filter(|setting| setting.of(given) != setting.of(cluster));
    let text = |setting: &Setting| {
        format!("{} {} (the cluster has {})", setting.as_str(), setting.of(given), setting.of(cluster))
    };
    differ.map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(role: CoordinatorRole, leader: Option<u64>, away: &[u64]) -> QuorumView {
        let role_of = |id| if away.contains(&id) { CoordinatorRole::Unreachable } else { CoordinatorRole::Follower };
        let voter = |id| VoterView::of(id, role_of(id));
        let voters = (1..=3).map(voter).collect();
        QuorumView { id: 1, role, leader, term: 4, last_log_index: 0, applied_index: 0, voters, fatal: None }
    }

    #[test]
    fn lack_of_space_is_logged_once_per_change() {
        let begun = Instant::now();
        let mut monitor = Observer::new(begun, TIMEOUT);
        let lacks = |role, of: &[u64]| {
            let mut view = view(role, Some(if role == CoordinatorRole::Leader { 1 } else { 2 }), &[]);
            for voter in &mut view.voters {
                voter.lack = of.contains(&voter.id).then_some(LowSpace::Fails);
            }
            view
        };
        let mut look = |view: QuorumView| {
            let mut notes = monitor.look(&view, begun);
            notes.retain(|note| !matches!(note, Note::Leads { .. }));
            notes
        };
        let reported =
            |id: u64| Note::Lacks { voter: format!("coordinator {id} at 127.0.0.1:{id}"), lack: LowSpace::Fails };
        let space = |id: u64| Note::Space { voter: format!("coordinator {id} at 127.0.0.1:{id}") };
        assert_eq!(look(lacks(CoordinatorRole::Leader, &[2])), [reported(2)]);
        assert_eq!(look(lacks(CoordinatorRole::Leader, &[2])), []);
        let both = look(lacks(CoordinatorRole::Leader, &[2, 3]));
        assert!(
            matches!(&both[..], [lacks, Note::ReadOnly { why }] if *lacks == reported(3) && why.contains("3 at")),
            "{both:?}"
        );
        assert_eq!(look(lacks(CoordinatorRole::Leader, &[2, 3])), []);
        assert_eq!(look(lacks(CoordinatorRole::Leader, &[3])), [space(2), Note::TakesChanges]);
        // A follower knows only about itself, and reports nothing about the others.
        assert_eq!(look(lacks(CoordinatorRole::Follower, &[1])), [reported(1)]);
        assert_eq!(look(lacks(CoordinatorRole::Follower, &[])), [space(1)]);
    }

    #[test]
    fn leader_logs_loss_of_its_peers() {
        let begun = Instant::now();
        let mut monitor = Observer::new(begun, TIMEOUT);
        let whole = view(CoordinatorRole::Leader, Some(1), &[]);
        assert_eq!(monitor.look(&whole, begun), [Note::Leads { leader: 1, term: 4 }]);
        let (alone, late) = (view(CoordinatorRole::Leader, Some(1), &[2, 3]), begun + TIMEOUT);
        assert_eq!(monitor.look(&alone, begun), [], "a moment's silence is none");
        let reported = monitor.look(&alone, late);
        assert!(
            matches!(&reported[..], [Note::Away { .. }, Note::Away { .. }, Note::MajorityLost { away }] if away.len() == 2)
        );
        assert_eq!(monitor.look(&alone, late + TIMEOUT), [], "once is enough");
        let back = monitor.look(&view(CoordinatorRole::Leader, Some(1), &[3]), late + TIMEOUT);
        assert_eq!(back, [Note::Back { voter: "coordinator 2 at 127.0.0.1:2".into() }, Note::MajorityBack]);
    }

    #[test]
    fn missing_and_new_leaders_are_logged_once() {
        let begun = Instant::now();
        let mut monitor = Observer::new(begun, TIMEOUT);
        let nobody = view(CoordinatorRole::Candidate, None, &[]);
        assert_eq!(monitor.look(&nobody, begun), []);
        assert_eq!(monitor.look(&nobody, begun + TIMEOUT), [Note::NoLeader]);
        assert_eq!(monitor.look(&nobody, begun + TIMEOUT * 2), []);
        let led = view(CoordinatorRole::Follower, Some(2), &[]);
        assert_eq!(monitor.look(&led, begun + TIMEOUT * 2), [Note::Leads { leader: 2, term: 4 }]);
        assert_eq!(monitor.look(&led, begun + TIMEOUT * 3), []);
    }

    #[test]
    fn ignored_settings_are_logged() {
        let cluster = Settings::default();
        let all = Setting::ALL.iter().copied().collect();
        assert!(differences(&cluster, &all, &cluster).is_empty());
        let given = Settings { partitions: 20, ..Settings::default() };
        assert_eq!(differences(&given, &all, &cluster), ["partitions 20 (the cluster has 64)"]);
    }

    #[test]
    fn default_settings_are_not_logged_as_ignored() {
        let cluster = Settings { partitions: 9, ..Settings::default() };
        assert!(differences(&Settings::default(), &BTreeSet::new(), &cluster).is_empty());
    }
}
