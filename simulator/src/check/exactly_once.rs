//! X: each operation takes effect at most once, and whatever took effect is remembered.

use super::Violation;
use archon_kv::Effect;
use archon_kv::row::{KIND_CLIENT, KIND_VALUE, decode_client_key};
use archon_types::{ClientId, Seq};
use std::collections::BTreeMap;

/// Where each operation took effect.
#[derive(Debug, Default)]
pub(super) struct Applied(BTreeMap<(ClientId, u64), Seq>);

impl Applied {
    /// An effect was committed.
    pub(super) fn take(&mut self, at: Seq, effect: &Effect) -> Result<(), Violation> {
        let mut remembered = false;
        for change in effect.changes.iter().filter(|change| change.key.first() == Some(&KIND_CLIENT)) {
            let Ok((client, Some(number))) = decode_client_key(&change.key) else { continue };
            if change.value.is_none() {
                continue;
            }
            remembered = true;
            if let Some(before) = self.0.insert((client, number), at) {
                let detail = format!("operation {number} of {client} took effect at {before} and again at {at}");
                return Err(Violation::Twice { detail });
            }
        }
        let writes = effect.changes.iter().any(|change| change.key.first() == Some(&KIND_VALUE));
        if writes && !remembered {
            let detail = format!("the effect at {at} does not say whose operation it is");
            return Err(Violation::Twice { detail });
        }
        Ok(())
    }
}
