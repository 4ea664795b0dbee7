//! Minimised history that is not linearizable, small enough for a person to follow.

use super::checker::{Verdict, check};
use super::operation::{Outcome, Record};
use std::fmt::{self, Display};

/// The smallest contradictory part found of a key's history.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The key.
    pub key: String,
    /// Number of operations in the whole history.
    pub operations: usize,
    /// The remaining operations, by time of call.
    pub part: Vec<Record>,
}

impl Violation {
    /// Minimises a violated history: first to the shortest violated prefix, then by leaving out reads one by one while
    /// the violation persists. (Removing a read or the end of a linearizable history leaves it linearizable; removing a
    /// write need not, so writes stay.)
    pub fn minimise(key: &str, history: &[Record]) -> Self {
        let mut returns: Vec<u64> = history.iter().filter(|r| !r.is_open()).map(|r| r.returned_ns).collect();
        returns.sort_unstable();
        let violated_until = |until: u64| check(&beginning(history, until)) == Verdict::Violated;
        let shortest = returns.partition_point(|until| !violated_until(*until));
        let mut part = match returns.get(shortest) {
            Some(until) => beginning(history, *until),
            None => history.to_vec(),
        };
        part.sort_by_key(|record| record.called_ns);
        let mut index = 0;
        while index < part.len() {
            let left_out = part.remove(index);
            let may_go = left_out.is_read() && (left_out.is_open() || check(&part) == Verdict::Violated);
            if !may_go {
                part.insert(index, left_out);
                index += 1;
            }
        }
        Self { key: key.to_owned(), operations: history.len(), part }
    }
}

/// Returns the operations called by `until_ns`; those that had not returned by then are open.
fn beginning(history: &[Record], until_ns: u64) -> Vec<Record> {
    let called = history.iter().filter(|record| record.called_ns <= until_ns).cloned();
    let known = |record: Record| match record.returned_ns <= until_ns {
        true => record,
        false => Record { outcome: Outcome::Unknown, returned_ns: until_ns, ..record },
    };
    called.map(known).collect()
}

impl Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "key {:?} is not linearizable; {} of its {} operations show it (milliseconds from the first call):",
            self.key,
            self.part.len(),
            self.operations
        )?;
        let first_ns = self.part.iter().map(|record| record.called_ns).min().unwrap_or(0);
        let millis = |at_ns: u64| at_ns.saturating_sub(first_ns) as f64 / 1e6;
        for record in &self.part {
            let end =
                if record.is_open() { "    open".to_owned() } else { format!("{:8.1}", millis(record.returned_ns)) };
            let (begin, client) = (millis(record.called_ns), record.client);
            writeln!(f, "  {begin:8.1} to {end}  client {client:<3} {} → {}", record.request, record.outcome)?;
        }
        Ok(())
    }
}
