//! Scripts that can be executed, by their digests.

use super::refusal::Refusal;
use archon_resp::{DIGEST_BYTES, Script, known_digests, script_digest};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Most scripts that clients have loaded; the first ones are forgotten then.
const LOADED_MAX: usize = 256;

type Digest = [u8; DIGEST_BYTES];

/// Scripts of the node by their digests.
pub(super) struct Scripts {
    known: Vec<(Digest, Script)>,
    /// Loaded by clients, in order.
    loaded: Mutex<VecDeque<(Digest, Script)>>,
}

impl Default for Scripts {
    fn default() -> Self {
        Self { known: known_digests().collect(), loaded: Mutex::default() }
    }
}

impl Scripts {
    /// Returns the script with this digest.
    pub(super) fn find(&self, digest: &Digest) -> Option<Script> {
        let known = self.known.iter().find(|(known, _)| known == digest).map(|(_, script)| *script);
        known.or_else(|| self.loaded.lock().iter().find(|(loaded, _)| loaded == digest).map(|(_, script)| *script))
    }

    /// Keeps a script, if it is one that can be executed here, and returns its digest.
    pub(super) fn load(&self, text: &[u8]) -> Result<(Digest, Script), Refusal> {
        let script = Script::of_text(text).ok_or(Refusal::Error(REFUSED.into()))?;
        let digest = script_digest(text);
        if self.find(&digest).is_none() {
            let mut loaded = self.loaded.lock();
            if loaded.len() >= LOADED_MAX {
                loaded.pop_front();
            }
            loaded.push_back((digest, script));
        }
        Ok((digest, script))
    }

    /// Forgets the scripts that clients have loaded.
    pub(super) fn flush(&self) {
        self.loaded.lock().clear();
    }
}

const REFUSED: &str = "ERR this script cannot be executed: only the scripts by which locks are released and extended are \
     known here; use MULTI, EXEC and WATCH, or conditions of SET";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaded_scripts_are_bounded() {
        let scripts = Scripts::default();
        let text = |spaces: usize| {
            let call = "redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
            format!("if{} {call}", " ".repeat(spaces))
        };
        let digests: Vec<Digest> =
            (1..=LOADED_MAX + 1).map(|spaces| scripts.load(text(spaces).as_bytes()).unwrap().0).collect();
        assert_eq!(scripts.loaded.lock().len(), LOADED_MAX);
        assert_eq!((scripts.find(&digests[0]), scripts.find(&digests[1])), (None, Some(Script::Release)));
        assert!(scripts.load(b"return 1").is_err());
        assert!(known_digests().all(|(digest, script)| scripts.find(&digest) == Some(script)));
    }
}
