//! The log against a naive model: random batches, trims and reopenings on tiny segments.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Model, Step, memory_disk};
use archon_wal::disk::{Disk, RealDisk};
use archon_wal::{StreamId, Wal, WalBatch, WalConfig, WalError};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Action {
    Batch(Vec<Step>),
    Trim { stream: u64, back: u64 },
    Reopen,
}

fn config() -> WalConfig {
    WalConfig {
        segment_bytes: 4096,
        queue_bytes_max: 1 << 20,
        write_bytes_max: 2048,
        kept_bytes_max: 8192,
        ..WalConfig::default()
    }
}

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..5u64;
    prop_oneof![
        12 => (stream.clone(), prop_oneof![19 => Just(0u64), 1 => 1..4u64], 0..600usize, any::<u8>())
            .prop_map(|(stream, skip, bytes, fill)| Step::Put { stream, skip, bytes, fill }),
        2 => (stream.clone(), 0..6u64).prop_map(|(stream, back)| Step::Cut { stream, back }),
        1 => stream.clone().prop_map(|stream| Step::CutAll { stream }),
        1 => (stream.clone(), 0..8u64).prop_map(|(stream, back)| Step::Trim { stream, back }),
        3 => (stream.clone(), 0..4u32, 0..200usize, any::<u8>())
            .prop_map(|(stream, key, bytes, fill)| Step::Meta { stream, key, bytes, fill }),
        1 => stream.prop_map(|stream| Step::Drop { stream }),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => prop::collection::vec(step(), 0..8).prop_map(Action::Batch),
        4 => (0..5u64, 0..8u64).prop_map(|(stream, back)| Action::Trim { stream, back }),
        1 => Just(Action::Reopen),
    ]
}

fn run(disk: Arc<dyn Disk>, actions: &[Action]) -> Result<(), TestCaseError> {
    let (mut wal, _) = Wal::open_on(disk.clone(), config()).unwrap();
    let mut model = Model::default();
    for action in actions {
        match action {
            Action::Batch(steps) => {
                let mut batch = WalBatch::new();
                let after = model.prepare(steps, &mut batch);
                match (wal.append_wait(batch), after) {
                    (Ok(()), Some(after)) => model = after,
                    (Err(WalError::Sequence { .. }), None) => {}
                    (result, after) => {
                        prop_assert!(false, "the log says {result:?}, the model accepts: {}", after.is_some())
                    }
                }
            }
            Action::Trim { stream, back } => {
                if let Some(bounds) = wal.bounds(StreamId(*stream)) {
                    let upto = (bounds.last + 2).saturating_sub(*back);
                    wal.trim(StreamId(*stream), upto);
                    model.trim(*stream, upto);
                }
            }
            Action::Reopen => {
                wal.close(Duration::from_secs(60)).unwrap();
                let (again, recovered) = Wal::open_on(disk.clone(), config()).unwrap();
                prop_assert!(recovered.damaged.is_empty(), "{:?}", recovered.damaged);
                prop_assert_eq!(recovered.torn_bytes_cut, 0);
                wal = again;
            }
        }
        model.check(&wal).map_err(TestCaseError::fail)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn log_agrees_with_the_model(actions in prop::collection::vec(action(), 1..60), kind in 0..3u64) {
        run(Arc::new(memory_disk(kind)), &actions)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn log_on_real_disk_agrees_with_the_model(actions in prop::collection::vec(action(), 1..40), buffered in any::<bool>()) {
        let directory = tempfile::tempdir().unwrap();
        let open = if buffered { RealDisk::open_buffered } else { RealDisk::open };
        run(Arc::new(open(directory.path()).unwrap()), &actions)?;
    }
}
