//! Addresses of coordinators that answers name.

use archon_proto::convert::ids::check_address;
use parking_lot::Mutex;
use std::sync::Arc;

/// Addresses of the coordinators as of the last answer that named any. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LearnedCoordinators(Arc<Mutex<Vec<String>>>);

impl LearnedCoordinators {
    /// Returns the addresses; none before the first answer.
    pub fn addresses(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Replaces the addresses by the valid ones of an answer, if it has any.
    pub fn learn(&self, mut addresses: Vec<String>) {
        addresses.retain(|address| check_address(address, "coordinator").is_ok());
        if !addresses.is_empty() {
            *self.0.lock() = addresses;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_addresses_are_learned() {
        let learned = LearnedCoordinators::default();
        learned.learn(vec!["a:1".to_owned(), "no port".to_owned()]);
        for useless in [vec![], vec!["no port".to_owned()]] {
            learned.learn(useless);
            assert_eq!(learned.clone().addresses(), ["a:1"]);
        }
    }
}
