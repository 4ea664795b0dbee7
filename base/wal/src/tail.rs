//! Rules of one stream's numbers (pure). The writer, recovery and the index use the same functions, so that accepted
//! steps replay identically.

/// Numbers that a stream holds and accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tail {
    /// Lower numbers are trimmed for good.
    pub(crate) floor: u64,
    /// First stored number; equal to `next` if the stream is empty.
    pub(crate) first: u64,
    /// The number after the last stored one.
    pub(crate) next: u64,
    /// The stream lost data: it accepts no puts or cuts until it is dropped.
    pub(crate) frozen: bool,
}

/// Reason why a step was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Sequence { expected: u64, or_above: bool },
    Frozen,
}

impl Tail {
    pub(crate) fn is_empty(&self) -> bool {
        self.first == self.next
    }

    pub(crate) fn put(&mut self, seq: u64) -> Result<(), Refusal> {
        if self.frozen {
            return Err(Refusal::Frozen);
        }
        if self.is_empty() {
            if seq < self.floor || seq == u64::MAX {
                return Err(Refusal::Sequence { expected: self.floor, or_above: true });
            }
            self.first = seq;
        } else if seq != self.next || seq == u64::MAX {
            return Err(Refusal::Sequence { expected: self.next, or_above: false });
        }
        self.next = seq + 1;
        Ok(())
    }

    pub(crate) fn cut(&mut self, from: u64) -> Result<(), Refusal> {
        if self.frozen {
            return Err(Refusal::Frozen);
        }
        if from <= self.first {
            self.empty();
        } else if from < self.next {
            self.next = from;
        }
        Ok(())
    }

    /// Forgets numbers below `floor`, limited to stored ones.
    pub(crate) fn trim(&mut self, floor: u64) {
        if self.is_empty() {
            return;
        }
        self.floor = self.floor.max(floor.min(self.next));
        self.first = self.first.max(self.floor);
        if self.first >= self.next {
            self.empty();
        }
    }

    fn empty(&mut self) {
        self.first = self.floor;
        self.next = self.floor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_are_consecutive_and_start_above_the_floor() {
        let mut tail = Tail::default();
        tail.put(10).unwrap();
        tail.put(11).unwrap();
        let refused = tail.put(13);
        assert_eq!(refused, Err(Refusal::Sequence { expected: 12, or_above: false }));
        tail.trim(100);
        assert!(tail.is_empty() && tail.floor == 12, "a trim never reaches beyond what is held");
        assert_eq!(tail.put(11), Err(Refusal::Sequence { expected: 12, or_above: true }));
        tail.put(50).unwrap();
        assert_eq!((tail.first, tail.next), (50, 51));
        tail.cut(0).unwrap();
        tail.put(12).unwrap();
    }

    #[test]
    fn cut_keeps_lower_numbers_and_ignores_missing_ones() {
        let mut tail = Tail::default();
        (1..=9).for_each(|seq| tail.put(seq).unwrap());
        tail.cut(20).unwrap();
        assert_eq!(tail.next, 10);
        tail.cut(5).unwrap();
        assert_eq!((tail.first, tail.next), (1, 5));
        tail.cut(1).unwrap();
        assert!(tail.is_empty());
    }

    #[test]
    fn largest_number_is_rejected() {
        let mut tail = Tail::default();
        assert!(tail.put(u64::MAX).is_err());
        tail.put(u64::MAX - 1).unwrap();
        assert!(tail.put(u64::MAX).is_err());
    }
}
