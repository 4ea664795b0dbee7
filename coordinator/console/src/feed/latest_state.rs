//! Latest state of the cluster, with subscriptions to changes.

use super::map::TableMap;
use super::members::Members;
use crate::feed::state_section::StateSection;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::broadcast;

/// Number of kept measurements: five minutes.
const LOADS_MAX: usize = 300;
/// Updates that a subscriber can lag behind before it gets the full state again.
const BEHIND_MAX: usize = 256;

/// The latest state of the cluster.
#[derive(Debug)]
pub(crate) struct LatestState {
    held: Mutex<FeedState>,
    news: broadcast::Sender<StateSection>,
}

#[derive(Debug, Default)]
struct FeedState {
    sections: BTreeMap<&'static str, Arc<str>>,
    members: Option<Members>,
    maps: BTreeMap<u64, TableMap>,
    loads: VecDeque<Arc<str>>,
    /// Set while a task polls the cluster.
    polled: bool,
}

impl FeedState {
    /// Drops everything except the measurements, which have times.
    fn forget(&mut self) {
        *self = Self { loads: std::mem::take(&mut self.loads), ..Self::default() };
    }
}

impl Default for LatestState {
    fn default() -> Self {
        Self { held: Mutex::default(), news: broadcast::Sender::new(BEHIND_MAX) }
    }
}

impl LatestState {
    /// Returns the full state, and a receiver of changes.
    pub(crate) fn watch(&self) -> (Vec<StateSection>, broadcast::Receiver<StateSection>) {
        let held = self.held.lock();
        let later = self.news.subscribe();
        let sections = held.sections.iter().map(|(section, data)| StateSection { section, data: Arc::clone(data) });
        let members = held.members.iter().map(Members::whole);
        let maps = held.maps.values().map(|map| StateSection::new("map", map));
        let loads = held.loads.iter().map(|data| StateSection { section: "load", data: Arc::clone(data) });
        (sections.chain(members).chain(maps).chain(loads).collect(), later)
    }

    /// Returns the number of subscribers.
    pub(crate) fn watchers(&self) -> usize {
        self.news.receiver_count()
    }

    /// Marks the cluster as polled; returns true if the caller must start polling.
    pub(crate) fn begin(&self) -> bool {
        !std::mem::replace(&mut self.held.lock().polled, true)
    }

    /// Returns true if no page is open, so that the caller may stop polling. Everything but the measurements is dropped: it would be stale.
    pub(crate) fn end(&self) -> bool {
        let mut held = self.held.lock();
        let ends = self.watchers() == 0;
        if ends {
            held.forget();
        }
        ends
    }

    /// Returns whether the cluster is polled for open pages.
    pub(crate) fn is_polled(&self) -> bool {
        self.held.lock().polled
    }

    /// Marks the cluster as not polled; the next subscriber starts polling again.
    pub(crate) fn abandon(&self) {
        self.held.lock().forget();
    }

    /// Sets a section.
    pub(crate) fn set(&self, section: &'static str, content: &impl Serialize) {
        let news = StateSection::new(section, content);
        let mut held = self.held.lock();
        if held.sections.get(section) != Some(&news.data) {
            held.sections.insert(section, Arc::clone(&news.data));
            self.tell(news);
        }
    }

    /// Sets the nodes and participants.
    pub(crate) fn set_members(&self, members: Members) {
        let mut held = self.held.lock();
        let news = match &held.members {
            Some(before) => members.changes_since(before),
            None => Some(members.whole()),
        };
        held.members = Some(members);
        if let Some(news) = news {
            self.tell(news);
        }
    }

    /// Adds a measurement.
    pub(crate) fn add_load(&self, load: &impl Serialize) {
        let news = StateSection::new("load", load);
        let mut held = self.held.lock();
        if held.loads.len() == LOADS_MAX {
            held.loads.pop_front();
        }
        held.loads.push_back(Arc::clone(&news.data));
        self.tell(news);
    }

    /// Sets the owners of a table's partitions.
    pub(crate) fn set_map(&self, map: TableMap) {
        let mut held = self.held.lock();
        let news = match held.maps.get(&map.table_id) {
            Some(before) => map.changes_since(before),
            None => Some(StateSection::new("map", &map)),
        };
        held.maps.insert(map.table_id, map);
        if let Some(news) = news {
            self.tell(news);
        }
    }

    /// Removes a table.
    pub(crate) fn remove_map(&self, table_id: u64) {
        let mut held = self.held.lock();
        if held.maps.remove(&table_id).is_some() {
            self.tell(StateSection::new("gone", &serde_json::json!({ "table_id": table_id })));
        }
    }

    fn tell(&self, news: StateSection) {
        // There may be no subscribers.
        let _ = self.news.send(news);
    }
}

/// The published state.
pub(crate) type Feed = LatestState;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriber_gets_full_state_then_changes() {
        let latest = LatestState::default();
        let (now, mut first) = latest.watch();
        assert!(now.is_empty() && latest.begin() && !latest.begin());
        latest.set("status", &1);
        latest.set("status", &1);
        latest.set("status", &2);
        let (now, mut second) = latest.watch();
        assert_eq!(now, [StateSection::new("status", &2)]);
        latest.set("nodes", &3);
        let heard = |of: &mut broadcast::Receiver<StateSection>| -> Vec<String> {
            std::iter::from_fn(|| of.try_recv().ok()).map(|news| format!("{}={}", news.section, news.data)).collect()
        };
        assert_eq!(heard(&mut first), ["status=1", "status=2", "nodes=3"]);
        assert_eq!(heard(&mut second), ["nodes=3"]);
    }

    #[test]
    fn state_is_dropped_without_subscribers() {
        let latest = LatestState::default();
        let (_, watcher) = latest.watch();
        assert!(latest.begin());
        latest.set("status", &1);
        assert!(!latest.end(), "somebody watches");
        drop(watcher);
        assert!(latest.end() && latest.watch().0.is_empty() && latest.begin());
    }

    #[test]
    fn measurements_survive_without_subscribers() {
        let latest = LatestState::default();
        assert!(latest.begin() && latest.is_polled());
        latest.set("status", &1);
        latest.add_load(&2);
        assert!(latest.end() && !latest.is_polled());
        assert_eq!(latest.watch().0, [StateSection::new("load", &2)]);
    }

    #[test]
    fn measurements_are_kept_for_five_minutes() {
        let latest = LatestState::default();
        for second in 0..LOADS_MAX + 5 {
            latest.add_load(&second);
        }
        let (now, _) = latest.watch();
        assert_eq!((now.len(), &*now[0].data), (LOADS_MAX, "5"));
    }
}
