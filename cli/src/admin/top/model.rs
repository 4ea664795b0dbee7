//! What is shown: the last picture of the cluster, and where in it the reader stands. Values in, values out: the time is told.

use super::draw::page;
use super::history::{Columns, History};
use super::key::Key;
use super::look::Look;
use super::order::Order;
use super::share::Shares;
use crate::documents::{Node, Rebalance};
use crate::output::Output;
use archon_client::{MovePhase, MoveStatus};
use ratatui::layout::Size;
use std::time::Duration;

/// How much longer than its time the next answer may take before the reader is told.
const LATE: Duration = Duration::from_secs(3);

/// Whether it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// It does.
    GoOn,
    /// It does not.
    Quit,
}

/// What is shown. Times are counted from the beginning of the program.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// The last picture, its nodes in order.
    look: Look,
    answered_at: Duration,
    /// Why the last look was not answered, if it was not.
    trouble: Option<String>,
    every: Duration,
    shares: Shares,
    history: History,
    /// Bytes per second that moves copy, from the last two pictures.
    copy_rate: Option<u64>,
    /// Moves up to this number are over.
    moves_after: u64,
    order: Order,
    /// The first node that is to be seen.
    first: usize,
    size: Size,
    help: bool,
    output: Output,
}

impl Model {
    /// With the first picture, which came at `now`; further ones come `every` so often.
    pub(super) fn new(look: Look, now: Duration, every: Duration, output: Output) -> Self {
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

    /// Takes the next picture, which came at `now`.
    pub(super) fn looked(&mut self, look: Look, now: Duration) {
        let between = now.saturating_sub(self.answered_at);
        self.copy_rate = copied(&self.look.rebalance, &look.rebalance, between);
        self.look = look;
        self.answered_at = now;
        self.trouble = None;
        self.arrange();
    }

    /// Draws from a picture that is new what is shown beside it.
    fn arrange(&mut self) {
        self.order.sort(&mut self.look.nodes);
        self.shares = Shares::new(&self.look.nodes);
        let rates = || self.look.nodes.iter().filter_map(|node| node.operations_per_second);
        // While a new leader has not heard of any node, nobody knows.
        if rates().next().is_some() {
            self.history.add(self.answered_at, rates().fold(0, u64::saturating_add));
        }
        self.moves_after = over_up_to(&self.look.rebalance, self.moves_after);
        self.hold();
    }

    /// A look was not answered: the last picture stays.
    pub(super) fn unanswered(&mut self, reason: String) {
        self.trouble = Some(reason);
    }

    /// The terminal has this size.
    pub(super) fn resized(&mut self, size: Size) {
        self.size = size;
        self.hold();
    }

    /// Does what a key asks for.
    pub(super) fn press(&mut self, key: Key) -> Flow {
        let page = page(self, self.size.height).max(1);
        match key {
            // Out of the help first, as everywhere else.
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

    /// The first node of the last page.
    fn first_max(&self, page: usize) -> usize {
        self.look.nodes.len().saturating_sub(page)
    }

    /// The last picture.
    pub(super) const fn look(&self) -> &Look {
        &self.look
    }

    /// How far looks are apart.
    pub(super) const fn every(&self) -> Duration {
        self.every
    }

    /// Moves up to this number are over, and not to be asked for.
    pub(super) const fn moves_after(&self) -> u64 {
        self.moves_after
    }

    /// Where it is drawn, and whether in colour.
    pub(super) const fn output(&self) -> &Output {
        &self.output
    }

    /// By what the nodes are sorted.
    pub(super) const fn order(&self) -> Order {
        self.order
    }

    /// Whether the help is shown.
    pub(super) const fn helps(&self) -> bool {
        self.help
    }

    /// What would be fair.
    pub(super) const fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The nodes that are to be seen on a page of so many rows, and the number of the first, from 0.
    pub(super) fn nodes(&self, page: usize) -> (usize, &[Node]) {
        let first = self.first.min(self.first_max(page));
        let nodes = &self.look.nodes[first..];
        (first, &nodes[..page.min(nodes.len())])
    }

    /// Moves that are neither over nor wait for their turn.
    pub(super) fn running(&self) -> impl Iterator<Item = &MoveStatus> {
        self.look.rebalance.moves.iter().filter(|moving| !moving.is_over() && moving.phase != MovePhase::Queued)
    }

    /// Bytes per second that are copied, once two pictures could tell.
    pub(super) const fn copy_rate(&self) -> Option<u64> {
        self.copy_rate
    }

    /// Operations per second, as last seen.
    pub(super) fn rate(&self) -> Option<u64> {
        self.history.last()
    }

    /// Operations per second over the last minutes, in so many columns.
    pub(super) fn rates(&self, now: Duration, count: u16) -> Columns {
        self.history.columns(now, self.every, count)
    }

    /// How long nobody has answered, and why, if that is longer than it should be.
    pub(super) fn silence(&self, now: Duration) -> Option<(Duration, &str)> {
        let silent = now.saturating_sub(self.answered_at);
        match &self.trouble {
            Some(reason) => Some((silent, reason)),
            None if silent > self.every.saturating_add(LATE) => Some((silent, "still waiting for one")),
            None => None,
        }
    }

    /// How long ago a Unix time was at `now`; `None` if the time is unknown (zero).
    pub(super) fn age(&self, at_ms: u64, now: Duration) -> Option<Duration> {
        let passed = Duration::from_millis(self.look.at_ms.saturating_sub(at_ms));
        (at_ms > 0).then(|| passed.saturating_add(now.saturating_sub(self.answered_at)))
    }
}

/// Bytes per second between two pictures of one plan that is under way.
fn copied(before: &Rebalance, after: &Rebalance, between: Duration) -> Option<u64> {
    let same = before.summary.plan_id == after.summary.plan_id && after.running && !between.is_zero();
    let bytes = after.summary.bytes_done.saturating_sub(before.summary.bytes_done);
    same.then(|| (bytes as f64 / between.as_secs_f64()) as u64)
}

/// The number up to which moves are over, given that those up to `after` are: of a large plan, only what is still to end is
/// asked for again and again.
fn over_up_to(rebalance: &Rebalance, after: u64) -> u64 {
    let moves = &rebalance.moves;
    match moves.iter().find(|moving| !moving.is_over()) {
        Some(open) => open.id.saturating_sub(1),
        None => match moves.last() {
            Some(last) => last.id,
            // Something runs, and it is not beyond: the numbers have begun anew.
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
    fn fewer_nodes_or_a_larger_terminal_leave_nobody_beyond_the_end() {
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
    fn silence_is_told_once_it_is_longer_than_it_should_be_and_ends_with_an_answer() {
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
    fn of_a_large_plan_only_what_is_still_to_end_is_asked_for() {
        let plan = |running, moves| Rebalance { running, moves, ..look(vec![]).rebalance };
        let (done, open) = (MovePhase::Done, MovePhase::Copying);
        assert_eq!(over_up_to(&plan(true, vec![moving(7, done), moving(8, open), moving(9, done)]), 0), 7);
        assert_eq!(over_up_to(&plan(true, vec![moving(7, done), moving(8, done)]), 0), 8, "the next page");
        assert_eq!(over_up_to(&plan(false, vec![]), 8), 8);
        assert_eq!(over_up_to(&plan(true, vec![]), 8), 0, "another cluster's");
    }

    #[test]
    fn what_is_copied_is_told_from_two_pictures_of_one_plan() {
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
    fn ages_grow_while_a_picture_stands() {
        let model = model(nodes(1), Size::new(80, 24));
        let began = model.look().at_ms - 2_000;
        assert_eq!(model.age(began, 3 * SECOND), Some(5 * SECOND));
        assert_eq!(model.age(0, SECOND), None);
        assert_eq!(model.age(u64::MAX, Duration::ZERO), Some(Duration::ZERO), "a clock that is ahead");
    }
}
