//! Queue of events that the service has not received. Pure.

use crate::protocol::{ErrorBody, ErrorKind, Event};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of events that the service has not received. A participant owns at most 32,768 partitions.
pub const EVENTS_MAX: usize = 131_072;

/// Events in order, each with the next number. Received ones are forgotten.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    unread: VecDeque<Arc<Event>>,
    /// Number of the newest event.
    newest: u64,
    /// Number of the newest event that the service has received.
    seen: u64,
}

impl EventQueue {
    /// Returns the number of the newest event; zero without one.
    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the number of the next event.
    pub(crate) const fn next_number(&self) -> u64 {
        self.newest + 1
    }

    /// Returns the number of the newest event that the service has received.
    pub(crate) const fn seen(&self) -> u64 {
        self.seen
    }

    /// Adds the event with the next number. Returns whether the service has received too few of them.
    pub(crate) fn push(&mut self, event: Event) -> bool {
        self.newest += 1;
        self.unread.push_back(Arc::new(event));
        self.unread.len() > EVENTS_MAX
    }

    /// Forgets the events up to a number, which the service has received.
    ///
    /// # Errors
    /// There was never such an event.
    pub(crate) fn confirm(&mut self, seen: u64) -> Result<(), ErrorBody> {
        if seen > self.newest {
            let message = format!("event {seen} does not exist; the newest one is {}", self.newest);
            return Err(ErrorBody::new(ErrorKind::Invalid, message));
        }
        while self.first() <= seen && self.unread.pop_front().is_some() {}
        self.seen = self.seen.max(seen);
        Ok(())
    }

    /// Returns events after a position, in order, and the position after them.
    pub(crate) fn after(&self, position: u64, most: usize) -> (Vec<Arc<Event>>, u64) {
        let first = self.first();
        let skip = usize::try_from((position + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        let events: Vec<Arc<Event>> = self.unread.iter().skip(skip).take(most).cloned().collect();
        let end = position.max(first - 1) + events.len() as u64;
        (events, end)
    }

    /// Returns the number of events that the service has not received.
    pub(crate) fn unread(&self) -> usize {
        self.unread.len()
    }

    fn first(&self) -> u64 {
        self.newest + 1 - self.unread.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::EndOfSession;

    fn queue(events: u64) -> EventQueue {
        let mut queue = EventQueue::default();
        for sequence in 1..=events {
            assert!(!queue.push(Event::Ended(EndOfSession { sequence, reason: String::new() })));
        }
        queue
    }

    fn numbers(queue: &EventQueue, position: u64, most: usize) -> (Vec<u64>, u64) {
        let (events, end) = queue.after(position, most);
        let number = |event: &Arc<Event>| match &**event {
            Event::Ended(ended) => ended.sequence,
            other => panic!("{other:?}"),
        };
        (events.iter().map(number).collect(), end)
    }

    #[test]
    fn reader_gets_each_event_once_and_in_order() {
        let mut queue = queue(5);
        assert_eq!(numbers(&queue, 0, 2), (vec![1, 2], 2));
        assert_eq!(numbers(&queue, 2, 9), (vec![3, 4, 5], 5));
        assert_eq!(numbers(&queue, 5, 9), (vec![], 5));
        queue.confirm(3).unwrap();
        assert_eq!(numbers(&queue, 3, 9), (vec![4, 5], 5));
        assert_eq!((queue.newest(), queue.seen(), queue.next_number()), (5, 3, 6));
    }

    #[test]
    fn confirmation_of_a_future_event_changes_nothing() {
        let mut queue = queue(2);
        assert!(queue.confirm(3).unwrap_err().message.contains("the newest one is 2"));
        assert_eq!(numbers(&queue, 0, 9), (vec![1, 2], 2));
        queue.confirm(2).unwrap();
        queue.confirm(1).unwrap();
        assert_eq!(queue.seen(), 2);
    }

    #[test]
    fn reader_that_is_too_slow_is_reported() {
        let mut queue = EventQueue::default();
        let event = || Event::Ended(EndOfSession { sequence: 1, reason: String::new() });
        assert!((0..EVENTS_MAX).all(|_| !queue.push(event())));
        assert!(queue.push(event()));
    }
}
