//! Model of the screen: the last poll of the cluster, and the reader's position in it. Values in, values out: the time
//! is an argument.

use super::cluster_view::ClusterView;
use super::draw::page;
use super::history::{Columns, History};
use super::key::Key;
use super::order::Order;
use super::share::Shares;
use crate::documents::{Node, Rebalance};
use crate::output::Output;
use archon_client::{MovePhase, MoveStatus};
use ratatui::layout::Size;
use std::time::Duration;

/// Delay of the next answer after which the reader is informed.
const LATE: Duration = Duration::from_secs(3);

/// Result of a key press.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// The program continues.
    GoOn,
    /// The program ends.
    Quit,
}

/// Content of the screen. Times are counted from the start of the program.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// The last poll, with its nodes sorted.
    look: ClusterView,
    answered_at: Duration,
    /// Reason for which the last poll was not answered.
    trouble: Option<String>,
    every: Duration,
    shares: Shares,
    history: History,
    /// Bytes per second that moves copy, from the last two polls.
    copy_rate: Option<u64>,
    /// Moves up to this number have ended.
    moves_after: u64,
    order: Order,
    /// The first visible node.
    first: usize,
    size: Size,
    help: bool,
    output: Output,
}

impl Model {
    /// Creates the model from the first poll, which was answered at `now`; further ones follow at the interval `every`.
    pub(super) fn new(look: ClusterView, now: Duration, every: Duration, output: Output) -> Self {
        let mut model = Self {
            look,
            answered_at: now,
            trouble: None,
            every,
            shares: Shares::default(),
            history: History::default(),
            copy_rate: None,
            moves_after: 0,
            order: Order::default(),
            first: 0,
            size: Size::default(),
            help: false,
            output,
        };
        model.arrange();
        model
    }

    /// Applies the next poll, which was answered at `now`.
    pub(super) fn looked(&mut self, look: ClusterView, now: Duration) {
        let between = now.saturating_sub(self.answered_at);
        self.copy_rate = copied(&self.look.rebalance, &look.rebalance, between);
        self.look = look;
        self.answered_at = now;
        self.trouble = None;
        self.arrange();
    }

    /// Derives the rest of the model from a new poll.
    fn arrange(&mut self) {
        self.order.sort(&mut self.look.nodes);
        self.shares = Shares::new(&self.look.nodes);
        let rates = || self.look.nodes.iter().filter_map(|node| node.operations_per_second);
        // A new leader that has not heard of any node yet knows no rate.
        if rates().next().is_some() {
            self.history.add(self.answered_at, rates().fold(0, u64::saturating_add));
        }
        self.moves_after = over_up_to(&self.look.rebalance, self.moves_after);
        self.hold();
    }

    /// Notes a poll without an answer: the last content stays.
    pub(super) fn unanswered(&mut self, reason: String) {
        self.trouble = Some(reason);
    }

    /// Notes the size of the terminal.
    pub(super) fn resized(&mut self, size: Size) {
        self.size = size;
        self.hold();
    }

    /// Executes a key.
    pub(super) fn press(&mut self, key: Key) -> Flow {
        let page = page(self, self.size.height).max(1);
        match key {
            // Leaves the help first, as usual.
            Key::Quit if self.help => self.help = false,
            Key::Quit => return Flow::Quit,
            Key::Help => self.help = !self.help,
            Key::Sort => {
                self.order = self.order.next();
                self.order.sort(&mut self.look.nodes);
                self.first = 0;
            }
            Key::Up => self.first = self.first.saturating_sub(1),
            Key::Down => self.first = self.first.saturating_add(1),
            Key::PageUp => self.first = self.first.saturating_sub(page),
            Key::PageDown => self.first = self.first.saturating_add(page),
            Key::First => self.first = 0,
            Key::Last => self.first = usize::MAX,
            Key::Other => {}
        }
        self.hold();
        Flow::GoOn
    }

    /// Keeps the last page full.
    fn hold(&mut self) {
        self.first = self.first.min(self.first_max(page(self, self.size.height)));
    }

    /// Returns the first node of the last page.
    fn first_max(&self, page: usize) -> usize {
        self.look.nodes.len().saturating_sub(page)
    }

    /// Returns the last poll.
    pub(super) const fn look(&self) -> &ClusterView {
        &self.look
    }

    /// Returns the polling interval.
    pub(super) const fn every(&self) -> Duration {
        self.every
    }

    /// Returns the number up to which moves have ended, and need not be requested.
    pub(super) const fn moves_after(&self) -> u64 {
        self.moves_after
    }

    /// Returns the output, with its colour setting.
    pub(super) const fn output(&self) -> &Output {
        &self.output
    }

    /// Returns the sort order of the nodes.
    pub(super) const fn order(&self) -> Order {
        self.order
    }

    /// Returns true if the help is shown.
    pub(super) const fn helps(&self) -> bool {
        self.help
    }

    /// Returns the fair shares.
    pub(super) const fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Returns the nodes visible on a page of `page` rows, and the number of the first, from 0.
    pub(super) fn nodes(&self, page: usize) -> (usize, &[Node]) {
        let first = self.first.min(self.first_max(page));
        let nodes = &self.look.nodes[first..];
        (first, &nodes[..page.min(nodes.len())])
    }

    /// Returns the moves that have started and not ended.
    pub(super) fn running(&self) -> impl Iterator<Item = &MoveStatus> {
        self.look.rebalance.moves.iter().filter(|moving| !moving.is_over() && moving.phase != MovePhase::Queued)
    }

    /// Returns the bytes copied per second, known after two polls.
    pub(super) const fn copy_rate(&self) -> Option<u64> {
        self.copy_rate
    }

    /// Returns the operations per second of the last poll.
    pub(super) fn rate(&self) -> Option<u64> {
        self.history.last()
    }

    /// Returns the operations per second over the last minutes, in `count` columns.
    pub(super) fn rates(&self, now: Duration, count: u16) -> Columns {
        self.history.columns(now, self.every, count)
    }

    /// Returns the time without an answer, and the reason, if it is longer than it should be.
    pub(super) fn silence(&self, now: Duration) -> Option<(Duration, &str)> {
        let silent = now.saturating_sub(self.answered_at);
        match &self.trouble {
            Some(reason) => Some((silent, reason)),
            None if silent > self.every.saturating_add(LATE) => Some((silent, "still waiting for one")),
            None => None,
        }
    }

    /// Returns the time from a Unix time to `now`; `None` if it is unknown (zero).
    pub(super) fn age(&self, at_ms: u64, now: Duration) -> Option<Duration> {
        let passed = Duration::from_millis(self.look.at_ms.saturating_sub(at_ms));
        (at_ms > 0).then(|| passed.saturating_add(now.saturating_sub(self.answered_at)))
    }
}

/// Returns the bytes per second between two polls of one running plan.
fn copied(before: &Rebalance, after: &Rebalance, between: Duration) -> Option<u64> {
    let same = before.summary.plan_id == after.summary.plan_id && after.running && !between.is_zero();
    let bytes = after.summary.bytes_done.saturating_sub(before.summary.bytes_done);
    same.then(|| (bytes as f64 / between.as_secs_f64()) as u64)
}

/// Returns the number up to which moves have ended, given that those up to `after` have: of a large plan, only the
/// unfinished moves are requested repeatedly.
fn over_up_to(rebalance: &Rebalance, after: u64) -> u64 {
    let moves = &rebalance.moves;
    match moves.iter().find(|moving| !moving.is_over()) {
        Some(open) => open.id.saturating_sub(1),
        None => match moves.last() {
            Some(last) => last.id,
            // A move runs, and its number is not above `after`: the numbers have started over.
            None if rebalance.running => 0,
            None => after,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{look, model, moving, nodes};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn first_of(model: &Model) -> usize {
        model.nodes(page(model, model.size.height)).0
    }

    #[test]
    fn scrolling_ends_at_both_ends_and_comes_back_at_once() {
        let mut model = model(nodes(1_000), Size::new(80, 24));
        let page = page(&model, 24);
        assert!((8..20).contains(&page), "{page}");
        model.press(Key::Up);
        assert_eq!(first_of(&model), 0);
        model.press(Key::Down);
        model.press(Key::PageDown);
        assert_eq!(first_of(&model), 1 + page);
        model.press(Key::Last);
        for _ in 0..50 {
            model.press(Key::Down);
        }
        assert_eq!(first_of(&model), 1_000 - page);
        assert_eq!(model.nodes(page).1.len(), page, "the last page is full");
        model.press(Key::Up);
        assert_eq!(first_of(&model), 1_000 - page - 1, "what was pressed beyond the end is forgotten");
        model.press(Key::First);
        assert_eq!(first_of(&model), 0);
    }

    #[test]
    fn page_stays_full_with_fewer_nodes_or_a_larger_terminal() {
        let mut model = model(nodes(1_000), Size::new(80, 24));
        model.press(Key::Last);
        model.looked(look(nodes(20)), SECOND);
        assert_eq!(first_of(&model), 20 - page(&model, 24));
        model.resized(Size::new(80, 200));
        assert_eq!(first_of(&model), 0);
        model.resized(Size::new(0, 0));
        model.looked(look(vec![]), SECOND);
        model.press(Key::Down);
        assert_eq!(model.nodes(0), (0, &[][..]));
    }

    #[test]
    fn quitting_leaves_the_help_first() {
        let mut model = model(nodes(3), Size::new(80, 24));
        model.press(Key::Help);
        assert!(model.helps());
        assert_eq!((model.press(Key::Quit), model.helps()), (Flow::GoOn, false));
        assert_eq!(model.press(Key::Quit), Flow::Quit);
    }

    #[test]
    fn sorting_begins_at_the_top_and_holds_for_the_next_picture() {
        let mut model = model(nodes(1_000), Size::new(80, 24));
        model.press(Key::Last);
        model.press(Key::Sort);
        model.press(Key::Sort);
        assert_eq!((model.order(), first_of(&model)), (Order::Led, 0));
        model.looked(look(nodes(1_000)), SECOND);
        let led: Vec<u32> = model.nodes(10).1.iter().map(|node| node.partitions_led).collect();
        assert!(led.is_sorted_by(|left, right| left >= right) && led[0] > led[9], "{led:?}");
    }

    #[test]
    fn late_answer_is_reported_until_it_comes() {
        let mut model = model(nodes(3), Size::new(80, 24));
        assert_eq!(model.silence(4 * SECOND), None);
        assert_eq!(model.silence(5 * SECOND).map(|(time, _)| time), Some(5 * SECOND));
        model.unanswered("no leader".to_owned());
        assert_eq!(model.silence(2 * SECOND), Some((2 * SECOND, "no leader")));
        assert_eq!(model.look().nodes.len(), 3, "the picture stays");
        model.looked(look(nodes(4)), 9 * SECOND);
        assert_eq!(model.silence(10 * SECOND), None);
    }

    #[test]
    fn only_unfinished_moves_are_requested() {
        let plan = |running, moves| Rebalance { running, moves, ..look(vec![]).rebalance };
        let (done, open) = (MovePhase::Done, MovePhase::Copying);
        assert_eq!(over_up_to(&plan(true, vec![moving(7, done), moving(8, open), moving(9, done)]), 0), 7);
        assert_eq!(over_up_to(&plan(true, vec![moving(7, done), moving(8, done)]), 0), 8, "the next page");
        assert_eq!(over_up_to(&plan(false, vec![]), 8), 8);
        assert_eq!(over_up_to(&plan(true, vec![]), 8), 0, "another cluster's");
    }

    #[test]
    fn copy_rate_is_computed_from_two_polls_of_one_plan() {
        let plan = |plan_id, bytes_done| {
            let mut rebalance = Rebalance { running: true, ..look(vec![]).rebalance };
            (rebalance.summary.plan_id, rebalance.summary.bytes_done) = (plan_id, bytes_done);
            rebalance
        };
        assert_eq!(copied(&plan(1, 1_000), &plan(1, 5_000), 2 * SECOND), Some(2_000));
        assert_eq!(copied(&plan(1, 1_000), &plan(2, 5_000), 2 * SECOND), None);
        assert_eq!(copied(&plan(1, 1_000), &plan(1, 1), 2 * SECOND), Some(0), "thrown away");
        assert_eq!(copied(&plan(1, 0), &plan(1, 1), Duration::ZERO), None);
    }

    #[test]
    fn ages_grow_between_polls() {
        let model = model(nodes(1), Size::new(80, 24));
        let began = model.look().at_ms - 2_000;
        assert_eq!(model.age(began, 3 * SECOND), Some(5 * SECOND));
        assert_eq!(model.age(0, SECOND), None);
        assert_eq!(model.age(u64::MAX, Duration::ZERO), Some(Duration::ZERO), "a clock that is ahead");
    }
}
