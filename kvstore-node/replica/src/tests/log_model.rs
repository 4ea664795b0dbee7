//! Model test of the log: a plain list of epochs.

use super::script::{at, entry, recovered};
use crate::log::Log;
use crate::{Position, RecoveredState};
use archon_types::{Epoch, Seq};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Change {
    Push { rise: u64 },
    Cut { back: u64 },
    Trim { forth: u64 },
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0_u64..3).prop_map(|rise| Change::Push { rise }),
        2 => (0_u64..4).prop_map(|back| Change::Cut { back }),
        1 => (0_u64..4).prop_map(|forth| Change::Trim { forth }),
    ]
}

proptest! {
    #[test]
    fn log_agrees_with_plain_list(changes in prop::collection::vec(change(), 0..60)) {
        let identity = *super::script::Script::new(1, RecoveredState::default()).replica.identity();
        let mut log = Log::recover(&identity, &recovered(0, &[], 0)).unwrap();
        // `epochs[seq]` for every position from the beginning; `base` is the first one still known.
        let (mut epochs, mut base) = (vec![0_u64], 0_usize);
        for change in changes {
            let last = epochs.len() - 1;
            match change {
                Change::Push { rise } => {
                    let epoch = epochs[last].max(1) + rise;
                    log.push(entry(epoch, last as u64 + 1));
                    epochs.push(epoch);
                }
                Change::Cut { back } => {
                    let after = last.saturating_sub(back as usize).max(base);
                    log.cut(Seq::new(after as u64));
                    epochs.truncate(after + 1);
                }
                Change::Trim { forth } => {
                    base = (base + forth as usize).min(last);
                    log.trim(Seq::new(base as u64));
                }
            }
            let last = epochs.len() - 1;
            prop_assert_eq!(log.last(), at(epochs[last], last as u64));
            prop_assert_eq!(log.base(), at(epochs[base], base as u64));
            for seq in 0..last + 2 {
                let known = (base..=last).contains(&seq).then(|| Epoch::new(epochs[seq]));
                prop_assert_eq!(log.epoch_at(Seq::new(seq as u64)), known);
                for epoch in 0..epochs[last] + 2 {
                    let below = (base..=last.min(seq)).rev().find(|seq| epochs[*seq] <= epoch);
                    let floor: Option<Position> = below.filter(|_| seq >= base).map(|seq| at(epochs[seq], seq as u64));
                    prop_assert_eq!(log.floor(at(epoch, seq as u64)), floor, "floor of {} {}", epoch, seq);
                }
            }
        }
    }
}
