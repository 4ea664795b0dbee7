//! Address hints for members that are not reached where the log has them: from `--peers` at the start of an existing
//! member, and from the members' own messages to the leader. If all members get new addresses at once, they could not
//! find each other otherwise; and a leader that lost the others could not commit their new addresses. Hints do not
//! decide membership.

use super::addresses::{AddressChange, Addresses};
use super::hello::{HelloQuestions, ask_all, boot_at};
use super::peer_lookup::PeerLookup;
use super::wire::LocalVoter;
use crate::raft::machine::ReplicatedState;
use crate::raft::machine::raft::Raft;
use crate::raft::quorum::members::addresses_of;
use archon_proto::v1::Standing;
use archon_security::Transport;
use openraft::async_runtime::WatchReceiver as _;
use openraft::{Instant as _, ServerState};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use uuid::Uuid;

/// Interval of searches for members that do not answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Number of searches before a member is reported as missing: it may be starting together with this one.
const GRACE_LOOKS: u32 = 4;
/// Silence of a member towards the leader, or of leaders, before members are searched for.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Addresses from `--peers` and the search results. Clones share them.
#[derive(Clone)]
pub(crate) struct Hints(Arc<Inner>);

struct Inner {
    said: Mutex<BTreeMap<u64, AddressHint>>,
    addresses: Addresses,
    /// Members that answer neither at the log's address nor at the hint's, with the reason.
    missing: Mutex<BTreeMap<u64, String>>,
}

/// Hint about a member's address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AddressHint {
    address: String,
    /// Source of the hint.
    by: &'static str,
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SearchResult {
    /// At the address in the log.
    Recorded,
    /// At the address of the hint.
    Hinted,
    /// At neither address; contains the reason.
    Nowhere(String),
}

impl Hints {
    /// Creates the hints; search results go to `addresses`.
    pub(in crate::raft) fn new(said: BTreeMap<u64, String>, addresses: Addresses) -> Self {
        let said = said.into_iter().map(|(id, address)| (id, AddressHint { address, by: "--peers says" }));
        Self(Arc::new(Inner { said: Mutex::new(said.collect()), addresses, missing: Mutex::default() }))
    }

    /// Notes the address that a member reports of itself.
    pub(in crate::raft) fn hear(&self, id: u64, address: &str) {
        let said = AddressHint { address: address.to_owned(), by: "it says itself" };
        self.0.said.lock().insert(id, said);
    }

    /// Returns the members that answer at the hint's address and not at the log's.
    pub(in crate::raft) fn found(&self) -> BTreeMap<u64, AddressChange> {
        self.0.addresses.elsewhere()
    }

    /// Returns the addresses where members are reached, given those in the log.
    pub(in crate::raft) fn reached_at(&self, recorded: BTreeMap<u64, String>) -> BTreeMap<u64, String> {
        self.0.addresses.reached_at(recorded)
    }

    /// Returns the members that answer neither at the log's address nor at the hint's, with the reason.
    pub(in crate::raft) fn missing(&self) -> BTreeMap<u64, String> {
        self.0.missing.lock().clone()
    }

    /// Searches for members until `stop`; `boot`: this incarnation of the process.
    pub(in crate::raft) async fn run(
        self,
        (raft, introductions, replicated): (Raft, PeerLookup, Arc<ReplicatedState>),
        local_voter: LocalVoter,
        boot: Uuid,
        transport: Transport,
        stop: CancellationToken,
    ) {
        let asks = SearchContext { raft, introductions, local_voter, boot, transport };
        let mut looks: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut strangers_told, mut settled) = (false, None::<String>);
        loop {
            let members = addresses_of(asks.raft.server_metrics().borrow_watched().membership_config.membership());
            // A log that was behind does not name members that joined since.
            if !strangers_told && asks.is_led() {
                strangers_told = true;
                let retired = replicated.read(|state| state.coordinators.retired.keys().copied().collect());
                let strangers = self.strangers(&members, &retired);
                if !strangers.is_empty() {
                    tracing::warn!(
                        coordinators = strangers.join(", "),
                        "--peers names coordinators that are not members: with an existing data directory it only adds \
                         addresses, not members (`archon quorum list`)"
                    );
                }
            }
            let sought = self.sought(&asks, &members, settled.as_deref());
            looks.retain(|id, _| sought.contains_key(id));
            self.0.missing.lock().retain(|id, _| sought.contains_key(id));
            let found = futures::future::join_all(sought.iter().map(async |(id, (recorded, said))| {
                let found = asks.find(*id, recorded, &said.address).await;
                (*id, recorded, said, found)
            }));
            for (id, recorded, said, found) in found.await {
                let looked = looks.entry(id).or_default();
                *looked = looked.saturating_add(1);
                if id == asks.local_voter.id && found == SearchResult::Recorded {
                    settled = Some(recorded.clone());
                }
                self.note(id, (recorded, said), found, *looked);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
    }

    /// Returns those that `--peers` names and that were never members: initial lists still name members that left
    /// since.
    fn strangers(&self, members: &BTreeMap<u64, String>, retired: &BTreeSet<u64>) -> Vec<String> {
        let said = self.0.said.lock();
        let strangers = said.keys().filter(|id| !members.contains_key(id) && !retired.contains(id));
        strangers.map(u64::to_string).collect()
    }

    /// Returns the members to search for, with both addresses. `settled`: the address where this coordinator has
    /// reached itself.
    fn sought(
        &self,
        asks: &SearchContext,
        members: &BTreeMap<u64, String>,
        settled: Option<&str>,
    ) -> BTreeMap<u64, (String, AddressHint)> {
        let (found, all) = (self.found(), self.0.said.lock().clone());
        let differs = |(id, recorded): (&u64, &String)| {
            let said = all.get(id).filter(|said| said.address != *recorded)?;
            // Only a caller needs to know that a member is still there; a coordinator knows its own address.
            let settled = *id == asks.local_voter.id && (found.contains_key(id) || settled == Some(recorded.as_str()));
            (!settled && asks.misses(*id)).then(|| (*id, (recorded.clone(), said.clone())))
        };
        members.iter().filter_map(differs).collect()
    }

    fn note(&self, id: u64, (recorded, said): (&str, &AddressHint), found: SearchResult, looked: u32) {
        let AddressHint { address, by } = said;
        let elsewhere =
            (found == SearchResult::Hinted).then(|| AddressChange { was: recorded.to_owned(), is: address.clone() });
        match found {
            // A member that answers at neither address for a moment is still searched for at its last one.
            SearchResult::Nowhere(_) => {}
            _ if self.0.addresses.set_elsewhere(id, elsewhere) => match found {
                SearchResult::Hinted => tracing::info!(
                    id,
                    recorded,
                    found = address,
                    "a coordinator does not answer at its known address, but does where {by}"
                ),
                _ => tracing::info!(id, recorded, "a coordinator answers at its known address"),
            },
            _ => {}
        }
        let mut missing = self.0.missing.lock();
        match found {
            SearchResult::Nowhere(why) if looked >= GRACE_LOOKS => {
                let text = format!(
                    "coordinator {id} answers neither at its known address {recorded} nor at {address}, where {by} \
                     that it is: {why}"
                );
                if missing.get(&id) != Some(&text) {
                    tracing::warn!("{text}");
                    missing.insert(id, text);
                }
            }
            SearchResult::Nowhere(_) => {}
            _ => drop(missing.remove(&id)),
        }
    }
}

struct SearchContext {
    raft: Raft,
    introductions: PeerLookup,
    local_voter: LocalVoter,
    boot: Uuid,
    transport: Transport,
}

impl SearchContext {
    /// Returns the silence after which a member is searched for.
    fn silence(&self) -> Duration {
        self.local_voter.timing.silence(SILENCE_MAX)
    }

    /// Returns true if this coordinator leads, or follows with everything it was sent.
    fn is_led(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let has_applied = metrics.last_applied.map(|last| last.index) == metrics.last_log_index;
        has_applied && (metrics.state == ServerState::Leader || self.introductions.hears_leader(self.silence()))
    }

    /// Returns true if a member needs a search: this coordinator hears no leader, or it leads and does not hear
    /// that member.
    fn misses(&self, id: u64) -> bool {
        if id == self.local_voter.id {
            return true;
        }
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        if metrics.state != ServerState::Leader {
            return !self.introductions.hears_leader(self.silence());
        }
        let heard = metrics.heartbeat.as_ref().and_then(|all| all.get(&id)).copied().flatten();
        heard.is_none_or(|heard| heard.elapsed() > self.silence())
    }

    async fn find(&self, id: u64, recorded: &str, said: &str) -> SearchResult {
        let (recorded, said) = futures::future::join(self.answers(id, recorded), self.answers(id, said)).await;
        match (recorded, said) {
            (Ok(()), _) => SearchResult::Recorded,
            (Err(_), Ok(())) => SearchResult::Hinted,
            (Err(_), Err(why)) => SearchResult::Nowhere(why),
        }
    }

    /// Checks that a member of this quorum with this number, which knows this coordinator as a member, answers there.
    async fn answers(&self, id: u64, address: &str) -> Result<(), String> {
        if id == self.local_voter.id {
            return match boot_at(&self.transport, &self.local_voter, address).await {
                Some(boot) if boot == self.boot => Ok(()),
                Some(_) => Err("another process with a copy of this data directory answers".to_owned()),
                None => Err("it does not reach itself there".to_owned()),
            };
        }
        let asked = BTreeMap::from([(id, address.to_owned())]);
        match ask_all(&self.transport, &self.local_voter, &asked, &HelloQuestions::default()).await.remove(&id) {
            Some(Ok(answer)) if answer.id == id && answer.initialized && answer.standing() == Standing::Member => {
                Ok(())
            }
            Some(Ok(_)) => Err("the process at that address does not know this coordinator".to_owned()),
            Some(Err(status)) if status.code() == Code::FailedPrecondition => Err(status.message().to_owned()),
            Some(Err(_)) | None => Err("no process answers there".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_peer_list_may_name_removed_members() {
        let at = |ids: &[u64]| ids.iter().map(|id| (*id, format!("127.0.0.1:{id}"))).collect::<BTreeMap<_, _>>();
        let hints = Hints::new(at(&[1, 2, 3]), Addresses::default());
        assert!(hints.strangers(&at(&[2, 3, 4]), &BTreeSet::from([1])).is_empty());
        assert_eq!(hints.strangers(&at(&[2, 4]), &BTreeSet::from([1])), ["3"], "a slip, or another quorum's");
    }
}
