//! Registration of a member, retried until it succeeds or is refused for good.

use archon_types::{ErrorDetail, ErrorKind, Incarnation, Millis};

/// Time in milliseconds for which another holder of this member's name can delay the registration, unless a longer
/// time-out is set. A dead predecessor is failed within the failure time-out, so a later holder of the name is alive.
const NAME_TAKEN_TIMEOUT_MS: u64 = 10_000;

/// Retry decision after a refused registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryDecision {
    /// Never: the node is not acceptable in its current state.
    Never,
    /// At once, with the incarnation that is now known to be on record.
    AtOnce,
    /// After a pause.
    Later,
}

/// The attempts to start one incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegistrationAttempts {
    expects: Option<Incarnation>,
    name_taken: Option<Millis>,
    timeout_ms: u64,
}

impl Default for RegistrationAttempts {
    fn default() -> Self {
        Self::new(None)
    }
}

impl RegistrationAttempts {
    /// Starts for a data directory with this last registration, if any.
    pub const fn new(last: Option<Incarnation>) -> Self {
        Self { expects: last, name_taken: None, timeout_ms: NAME_TAKEN_TIMEOUT_MS }
    }

    /// Sets the time in milliseconds to wait for another holder of the name, which may be dead: 10 s at least.
    #[must_use]
    pub fn with_timeout(self, timeout_ms: u64) -> Self {
        Self { timeout_ms: timeout_ms.max(NAME_TAKEN_TIMEOUT_MS), ..self }
    }

    /// Returns the incarnation of this directory that is assumed to be on record; the next attempt names it.
    pub const fn expects(&self) -> Option<Incarnation> {
        self.expects
    }

    /// Handles a refusal at `now`.
    pub fn refused(&mut self, error: &ErrorDetail, now: Millis) -> RetryDecision {
        match error.kind {
            ErrorKind::NameTaken => {
                let since = *self.name_taken.get_or_insert(now);
                if now.since(since) < self.timeout_ms { RetryDecision::Later } else { RetryDecision::Never }
            }
            ErrorKind::WrongCluster
            | ErrorKind::ProtocolMismatch
            | ErrorKind::InvalidArgument
            | ErrorKind::Refused
            | ErrorKind::DataLoss => RetryDecision::Never,
            // Another registration of this directory is on record: an own one whose answer was lost, or one of
            // another process.
            ErrorKind::StaleVersion => match error.have.map(Incarnation::new) {
                Some(have) if have != self.expects.unwrap_or(Incarnation::ZERO) => {
                    self.expects = Some(have);
                    RetryDecision::AtOnce
                }
                _ => RetryDecision::Later,
            },
            _ => RetryDecision::Later,
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
    fn taken_name_is_retried_until_the_time_out() {
        let mut registering = RegistrationAttempts::default();
        let taken = refusal(ErrorKind::NameTaken);
        assert_eq!(registering.refused(&taken, Millis::new(1_000)), RetryDecision::Later);
        assert_eq!(registering.refused(&taken, Millis::new(10_999)), RetryDecision::Later);
        assert_eq!(registering.refused(&taken, Millis::new(11_000)), RetryDecision::Never);
        let mut patient = RegistrationAttempts::default().with_timeout(20_000);
        assert_eq!(patient.refused(&taken, Millis::new(1_000)), RetryDecision::Later);
        assert_eq!(patient.refused(&taken, Millis::new(20_999)), RetryDecision::Later);
        assert_eq!(RegistrationAttempts::default().with_timeout(0), RegistrationAttempts::default());
    }

    #[test]
    fn stale_registration_is_retried_at_once_with_new_version() {
        let mut registering = RegistrationAttempts::new(Some(Incarnation::new(3)));
        let overtaken = refusal(ErrorKind::StaleVersion).with_have_need(5, 3);
        assert_eq!(registering.refused(&overtaken, Millis::ZERO), RetryDecision::AtOnce);
        assert_eq!(registering.expects(), Some(Incarnation::new(5)));
        assert_eq!(registering.refused(&overtaken, Millis::ZERO), RetryDecision::Later, "that is known");
    }

    #[test]
    fn permanent_refusals_are_not_retried() {
        for kind in [ErrorKind::WrongCluster, ErrorKind::ProtocolMismatch, ErrorKind::Refused, ErrorKind::DataLoss] {
            assert_eq!(RegistrationAttempts::default().refused(&refusal(kind), Millis::ZERO), RetryDecision::Never);
        }
        assert_eq!(
            RegistrationAttempts::default().refused(&refusal(ErrorKind::NoQuorum), Millis::ZERO),
            RetryDecision::Later
        );
    }
}
