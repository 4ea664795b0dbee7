//! A member that asks to be registered, until it is, or until it is refused for good.

use archon_types::{ErrorDetail, ErrorKind, Incarnation, Millis};

/// How long another claimant of this member's name may keep it from registering, in milliseconds, unless a longer time-out is
/// asked for: a predecessor that died is failed within the failure time-out, so whoever still holds the name after this is alive.
const NAME_TAKEN_TIMEOUT_MS: u64 = 10_000;

/// Whether a registration that was refused is asked for again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    /// Never: the node will not be accepted as it is.
    Never,
    /// At once, with what it now knows to be on record.
    AtOnce,
    /// After a pause.
    Later,
}

/// The attempts to begin one life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registering {
    expects: Option<Incarnation>,
    name_taken: Option<Millis>,
    timeout_ms: u64,
}

impl Default for Registering {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Registering {
    /// A node whose data directory knows of this last registration, if of any.
    pub const fn new(last: Option<Incarnation>) -> Self {
        Self { expects: last, name_taken: None, timeout_ms: NAME_TAKEN_TIMEOUT_MS }
    }

    /// How long, in milliseconds, another claimant of the name is waited for, which may be dead: 10 s at least.
    #[must_use]
    pub fn with_timeout(self, timeout_ms: u64) -> Self {
        Self { timeout_ms: timeout_ms.max(NAME_TAKEN_TIMEOUT_MS), ..self }
    }

    /// The registration of this directory that is taken to be on record. What the next attempt says is said knowing of it.
    pub const fn expects(&self) -> Option<Incarnation> {
        self.expects
    }

    /// An attempt was refused at `now`.
    pub fn refused(&mut self, error: &ErrorDetail, now: Millis) -> Again {
        match error.kind {
            ErrorKind::NameTaken => {
                let since = *self.name_taken.get_or_insert(now);
                if now.since(since) < self.timeout_ms { Again::Later } else { Again::Never }
            }
            ErrorKind::WrongCluster
            | ErrorKind::ProtocolMismatch
            | ErrorKind::InvalidArgument
            | ErrorKind::Refused
            | ErrorKind::DataLoss => Again::Never,
            // Another registration of this directory is on record: one of ours whose answer was lost, or one by another
            // process.
            ErrorKind::StaleVersion => match error.have.map(Incarnation::new) {
                Some(have) if have != self.expects.unwrap_or(Incarnation::ZERO) => {
                    self.expects = Some(have);
                    Again::AtOnce
                }
                _ => Again::Later,
            },
            _ => Again::Later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(kind: ErrorKind) -> ErrorDetail {
        ErrorDetail::new(kind, "no")
    }

    #[test]
    fn a_name_that_another_holds_is_waited_for_as_long_as_a_dead_one_could_hold_it() {
        let mut registering = Registering::default();
        let taken = refusal(ErrorKind::NameTaken);
        assert_eq!(registering.refused(&taken, Millis::new(1_000)), Again::Later);
        assert_eq!(registering.refused(&taken, Millis::new(10_999)), Again::Later);
        assert_eq!(registering.refused(&taken, Millis::new(11_000)), Again::Never);
        let mut patient = Registering::default().with_timeout(20_000);
        assert_eq!(patient.refused(&taken, Millis::new(1_000)), Again::Later);
        assert_eq!(patient.refused(&taken, Millis::new(20_999)), Again::Later);
        assert_eq!(Registering::default().with_timeout(0), Registering::default());
    }

    #[test]
    fn a_registration_that_was_overtaken_is_repeated_at_once_knowing_of_the_other() {
        let mut registering = Registering::new(Some(Incarnation::new(3)));
        let overtaken = refusal(ErrorKind::StaleVersion).with_have_need(5, 3);
        assert_eq!(registering.refused(&overtaken, Millis::ZERO), Again::AtOnce);
        assert_eq!(registering.expects(), Some(Incarnation::new(5)));
        assert_eq!(registering.refused(&overtaken, Millis::ZERO), Again::Later, "that is known");
    }

    #[test]
    fn what_no_later_attempt_can_change_is_refused_for_good() {
        for kind in [ErrorKind::WrongCluster, ErrorKind::ProtocolMismatch, ErrorKind::Refused, ErrorKind::DataLoss] {
            assert_eq!(Registering::default().refused(&refusal(kind), Millis::ZERO), Again::Never);
        }
        assert_eq!(Registering::default().refused(&refusal(ErrorKind::NoQuorum), Millis::ZERO), Again::Later);
    }
}
