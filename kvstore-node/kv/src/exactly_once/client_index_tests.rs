//! Tests of the client index: its bound, its eviction order, and that no operation is applied twice.

use super::*;
use crate::MemoryEngine;
use crate::engine::{Engine, Page, PageLimit};
use crate::exactly_once::dedup::forgotten_through;
use crate::exactly_once::window::Window;
use crate::operations::evaluate::{Evaluation, Request, evaluate};
use crate::rows::memtable::Memtable;
use crate::rows::memtable_budget::MemtableBudget;
use crate::rows::plain::Rows;
use crate::rows::view::{ClientPage, PartitionView, Reader};
use archon_types::{Answer, Op, OpId, PlacementId, Revision, ScanOrder, Seq};
use bytes::Bytes;
use proptest::prelude::*;
use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;
use uuid::Uuid;

const LIMITS: DedupLimits = DedupLimits { outcomes_max: 64, clients_max: 2, age_ms_max: 100, ..DedupLimits::DEFAULT };

fn client(number: u128) -> ClientId {
    ClientId::new(Uuid::from_u128(number))
}

fn id(owner: u128, number: u64, stamp: u64) -> OpId {
    OpId { client: client(owner), number, done_below: 0, stamp: Millis::new(stamp) }
}

fn windows(rows: &Rows) -> usize {
    rows.1.len()
}

/// A leader as in the shells: it makes room, then evaluates.
struct Leader {
    rows: Rows,
    index: ClientIndex,
    limits: DedupLimits,
}

impl Leader {
    fn new(rows: Rows, limits: DedupLimits) -> Self {
        Self { rows, index: ClientIndex::unread(), limits }
    }

    fn read_all(&mut self) {
        while self.index.read(&self.rows, &self.limits).unwrap() {}
    }

    fn carry_out(&mut self, forgetting: ForgottenClients) {
        self.index.remove(&forgetting.clients);
        if let Some(effect) = forgetting.effect {
            self.rows.apply(&effect);
        }
    }

    /// Returns `None` if there was no room.
    fn write(&mut self, id: &OpId, at: u64) -> Option<Evaluation> {
        let at = Millis::new(at);
        match self.index.capacity_for(id.client, &self.rows, at, &self.limits).unwrap() {
            ClientCapacity::Free => {}
            ClientCapacity::Forget(forgetting) => self.carry_out(forgetting),
            ClientCapacity::Unknown(_) => return None,
        }
        let op = Op::Increment { key: Bytes::from(format!("{}-{}", id.client, id.number)), by: 1 };
        let request = Request { op: &op, id: Some(id) };
        let done = evaluate(request, &self.rows, at, Revision::new(at.get()), &self.limits).unwrap();
        if let Some(effect) = &done.effect {
            self.rows.apply(effect);
            self.index.touch(id.client, at, &self.limits);
        }
        Some(done)
    }
}

fn leader(limits: DedupLimits) -> Leader {
    let mut leader = Leader::new(Rows::default(), limits);
    leader.read_all();
    leader
}

#[test]
fn oldest_client_is_forgotten_first() {
    let limits = DedupLimits { age_ms_max: 100_000, clients_max: 4, ..LIMITS };
    let mut index = ClientIndex::default();
    let rows = Rows::default();
    let to_forget = |index: &ClientIndex, at| {
        let found = index.to_forget(&rows, Millis::new(at), &limits).unwrap();
        found.map_or_else(Vec::new, |forgetting| forgetting.clients)
    };
    for (owner, at) in [(1, 10_000), (2, 11_000), (2, 11_999), (1, 12_000)] {
        index.touch(client(owner), Millis::new(at), &limits);
    }
    assert_eq!(to_forget(&index, 50_000), []);
    assert_eq!(to_forget(&index, 111_001), [client(2)]);
    for owner in 3..=5 {
        index.touch(client(owner), Millis::new(13_000), &limits);
    }
    assert_eq!(to_forget(&index, 50_000), [client(2)]);
    index.remove(&[client(2)]);
    assert_eq!((to_forget(&index, 50_000), index.len()), (vec![], 4));
    assert_eq!(to_forget(&index, 200_000).len(), 4, "all that are too old, in one batch");
}

#[test]
fn recently_used_client_outlives_one_time_clients() {
    let mut leader = leader(DedupLimits { clients_max: 100, age_ms_max: 100_000, ..LIMITS });
    for number in 1..1_000_u64 {
        let at = 10 * number;
        let own = OpId { done_below: number, ..id(1, number, at - 1) };
        assert!(leader.write(&own, at).unwrap().answer.is_ok());
        leader.write(&id(u128::from(number) + 1, 1, at - 1), at).unwrap();
        assert!(leader.index.knows(client(1)), "forgotten after {number} newcomers");
    }
}

/// One client id per request could make a partition remember as many clients as there were requests.
#[test]
fn client_per_request_stays_within_bound() {
    let limits = DedupLimits { clients_max: 500, age_ms_max: 1_000_000, ..LIMITS };
    let mut leader = leader(limits);
    let mut entries = 0;
    for number in 1..3_000 {
        let before = leader.index.len();
        let done = leader.write(&id(u128::from(number), 1, number - 1), number).unwrap();
        assert!(done.answer.is_ok(), "{:?}", done.answer);
        entries += u64::from(leader.index.len() <= before);
        assert!(leader.index.len() <= limits.clients_max, "{} are remembered", leader.index.len());
    }
    assert_eq!(windows(&leader.rows), leader.index.len());
    assert!(entries * 5 < 3_000, "{entries} entries only forget: they come in batches");
}

/// Records the pages that were read.
struct PageRecorder<'a> {
    rows: PartitionView<'a>,
    pages: RefCell<Vec<usize>>,
}

impl View for PageRecorder<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        self.rows.get(key)
    }

    fn page(&self, from: Bound<&[u8]>, to: &[u8], order: ScanOrder, limit: PageLimit) -> Result<Page, ViewError> {
        self.rows.page(from, to, order, limit)
    }

    fn window(&self, client: ClientId) -> Result<Option<Arc<Window>>, ViewError> {
        self.rows.window(client)
    }

    fn clients(&self, from: ClientId, clients_max: usize) -> Result<ClientPage, ViewError> {
        let page = self.rows.clients(from, clients_max)?;
        self.pages.borrow_mut().push(page.0.len());
        Ok(page)
    }
}

#[test]
fn takeover_reads_windows_in_slices() {
    const CLIENTS: u128 = 1_500;
    const OUTCOMES: u64 = 3;
    let limits = DedupLimits { outcomes_max: 1_000, clients_max: 4_096, age_ms_max: 1_000_000, ..LIMITS };
    let mut former = leader(limits);
    // Every third client is in the engine, in frozen rows, or in committed ones, some in several.
    let (space, engine) = (PlacementId::new(1), MemoryEngine::new());
    let mut memtable = Memtable::new(Seq::ZERO, MemtableBudget::default());
    for part in 0..3 {
        for owner in (0..CLIENTS).filter(|owner| owner % 3 == part || owner % 50 == 0).map(|owner| u128::MAX - owner) {
            for number in 1..=OUTCOMES {
                let number = OUTCOMES * part as u64 + number;
                let effect = former.write(&id(owner, number, 0), 10).unwrap().effect.unwrap();
                memtable.push(Seq::new(memtable.last().get() + 1), effect).unwrap();
            }
        }
        memtable.commit(memtable.last());
        let frozen = memtable.freeze().unwrap();
        if part == 0 {
            engine.write(&frozen.changes(&engine, space).collect::<Result<Vec<_>, _>>().unwrap()).unwrap();
            memtable.flushed(frozen.upto);
        }
    }
    let rows = PartitionView::new(&memtable, &engine, space, Reader::Newest);
    let noting = PageRecorder { rows, pages: RefCell::default() };
    let mut index = ClientIndex::unread();
    let mut slices = 0;
    loop {
        let more = index.read(&noting, &limits).unwrap();
        slices += 1;
        assert!(noting.pages.borrow().iter().all(|read| *read <= PAGE_ROWS), "{:?}", noting.pages);
        let read: usize = noting.pages.borrow_mut().drain(..).sum();
        assert!(read < limits.read_rows_max + PAGE_ROWS, "{read} windows in one slice");
        if !more {
            break;
        }
    }
    assert_eq!(index.len(), CLIENTS as usize);
    let most = (CLIENTS as usize).div_ceil(limits.read_rows_max) + 1;
    assert!((2..=most).contains(&slices), "{slices} slices for {CLIENTS} windows");
    assert_eq!(index.last, former.index.last);
}

#[test]
fn unread_index_serves_known_clients_and_delays_others() {
    let limits = DedupLimits { clients_max: 1_000, read_rows_max: 1, age_ms_max: 1_000_000, ..LIMITS };
    let mut former = leader(limits);
    (1..=100).for_each(|owner| drop(former.write(&id(owner, 1, 0), 10).unwrap()));
    let mut next = Leader::new(former.rows, limits);
    assert!(next.index.read(&next.rows, &limits).unwrap());
    assert!(next.write(&id(100, 2, 0), 11).is_some(), "its window is there");
    assert!(next.write(&id(101, 1, 0), 11).is_none(), "whether there is room for it is not known");
    assert_eq!(next.index.to_forget(&next.rows, Millis::new(u64::MAX), &limits).unwrap(), None);
    next.read_all();
    assert!(next.write(&id(101, 1, 0), 11).is_some());
    assert_eq!((next.index.len(), windows(&next.rows)), (101, 101));
}

#[test]
fn forgetting_many_raises_mark_to_latest_use() {
    let limits = DedupLimits { clients_max: 8, age_ms_max: 5, ..LIMITS };
    let mut leader = leader(limits);
    (1..=4).for_each(|owner| drop(leader.write(&id(owner, 1, 0), 10 + owner as u64).unwrap()));
    let forgetting = leader.index.to_forget(&leader.rows, Millis::new(19), &limits).unwrap().unwrap();
    assert_eq!(forgetting.clients, [client(1), client(2), client(3)]);
    leader.carry_out(forgetting);
    assert_eq!(forgotten_through(&leader.rows).unwrap(), Some(Millis::new(13)));
    assert_eq!(windows(&leader.rows), 1);
    assert!(leader.rows.window(client(4)).unwrap().is_some());
    assert!(leader.rows.window(client(3)).unwrap().is_none());
}

#[test]
fn index_is_restored_from_rows() {
    let mut leader = leader(DedupLimits { clients_max: 10, ..LIMITS });
    for (owner, number, at) in [(1, 1, 10), (u128::MAX, 1, 11), (1, 2, 22)] {
        leader.write(&id(owner, number, 0), at);
    }
    let mut index = ClientIndex::unread();
    assert!(!index.read(&leader.rows, &LIMITS).unwrap(), "the last client there can be ends it");
    assert_eq!(index.len(), 2);
    assert_eq!(index.by_last.first(), Some(&(Millis::new(11), client(u128::MAX))));
}

#[derive(Clone, Debug)]
enum Step {
    /// Time passes.
    Pass(u64),
    /// One of many clients begins an operation and sends it.
    Begin(u128),
    /// A message sent earlier arrives again, late and out of order.
    Again(usize),
    /// Clients above the age limit are forgotten.
    Tick,
    /// Another leader takes over, and has read this many slices when the first operation arrives.
    TakeOver(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..40_u64).prop_map(Step::Pass),
        10 => (1..40_u128).prop_map(Step::Begin),
        6 => any::<usize>().prop_map(Step::Again),
        2 => Just(Step::Tick),
        1 => (0..4_usize).prop_map(Step::TakeOver),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn client_bound_holds_and_nothing_is_applied_twice(
        steps in prop::collection::vec(step(), 1..200),
        clients_max in 1..9_usize,
    ) {
        let limits = DedupLimits { clients_max, read_rows_max: 3, ..LIMITS };
        let mut leader = leader(limits);
        let (mut now, mut sent, mut next) = (1, Vec::new(), [1_u64; 40]);
        for step in steps {
            let id = match step {
                Step::Pass(by) => {
                    now += by;
                    continue;
                }
                Step::Tick => {
                    let found = leader.index.to_forget(&leader.rows, Millis::new(now), &limits).unwrap();
                    found.into_iter().for_each(|forgetting| leader.carry_out(forgetting));
                    continue;
                }
                Step::TakeOver(slices) => {
                    leader.index = ClientIndex::unread();
                    for _ in 0..slices {
                        leader.index.read(&leader.rows, &limits).unwrap();
                    }
                    continue;
                }
                Step::Begin(owner) => {
                    let id = id(owner, next[owner as usize], now);
                    next[owner as usize] += 1;
                    sent.push(id);
                    id
                }
                Step::Again(which) if !sent.is_empty() => sent[which % sent.len()],
                Step::Again(_) => continue,
            };
            let done = leader.write(&id, now);
            if let Some(Ok(Answer::Counter { value, .. })) = done.map(|done| done.answer) {
                prop_assert_eq!(value, 1, "{:?} was applied again", id);
            }
            prop_assert!(windows(&leader.rows) <= clients_max, "{} remembered", windows(&leader.rows));
            if !leader.index.is_unread() {
                prop_assert_eq!(windows(&leader.rows), leader.index.len());
            }
        }
    }
}
