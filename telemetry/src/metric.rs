//! Numbers that are counted where things happen, and how a room defines its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One number that any thread may change.
#[derive(Debug, Default)]
pub struct Metric(AtomicU64);

impl Metric {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes `count` away, stopping at zero.
    pub fn subtract(&self, count: u64) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(value.saturating_sub(count)));
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Time that adds up, counted in whole microseconds and told in seconds.
#[derive(Debug, Default)]
pub struct Elapsed(AtomicU64);

impl Elapsed {
    /// Adds to it.
    pub fn add(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// All of it so far.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// Defines a struct of metrics, each with its definition beside it. What is counted has fields that count
/// ([`Metric`], [`Histogram`](crate::Histogram)); what is only read when somebody asks has plain numbers, in a struct that cannot
/// be made without all of them.
///
/// ```
/// use archon_telemetry::{Definition, Metric, metrics};
///
/// metrics! {
///     /// What a tea house counts.
///     #[derive(Debug, Default)]
///     pub(crate) struct Metrics {
///         cups: Metric = Definition::counter("archon_tea_cups_total", "cups that were filled");
///         guests: u64 = Definition::gauge("archon_tea_guests", "guests that are here");
///     }
/// }
///
/// let metrics = Metrics { guests: 2, ..Metrics::default() };
/// metrics.cups.add(1);
/// assert_eq!(metrics.families().len(), Metrics::DEFINITIONS.len());
/// ```
#[macro_export]
macro_rules! metrics {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $definition:expr;)*
    }) => {
        $(#[$meta])*
        #[allow(missing_docs)] // Each field's definition says what it is.
        $vis struct $name { $($(#[$field_meta])* $vis $field: $type,)* }

        impl $name {
            /// What there is.
            $vis const DEFINITIONS: &'static [$crate::Definition] = &[$($definition,)*];

            /// Every metric with its values, in the order of the definitions.
            $vis fn families(&self) -> Vec<$crate::Family> {
                vec![$({
                    const DEFINITION: &$crate::Definition = &$definition;
                    $crate::Family::read(DEFINITION, &self.$field)
                },)*]
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_stops_at_zero() {
        let metric = Metric::default();
        metric.add(2);
        metric.subtract(5);
        assert_eq!(metric.get(), 0);
    }
}
