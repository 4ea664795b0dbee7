//! Counters and gauges, and the macro that defines a crate's metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that any thread can change.
#[derive(Debug, Default)]
pub struct Metric(AtomicU64);

impl Metric {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Subtracts `count`, stopping at zero.
    pub fn subtract(&self, count: u64) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(value.saturating_sub(count)));
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Accumulated time, counted in whole microseconds and reported in seconds.
#[derive(Debug, Default)]
pub struct TimeCounter(AtomicU64);

impl TimeCounter {
    /// Adds a duration.
    pub fn add(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the total.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// Defines a struct of metrics, each with its definition beside it. Counted metrics have fields that count
/// ([`Metric`], [`Histogram`](crate::Histogram)). Metrics that are read at scrape time have plain numbers, in a
/// struct that cannot be created without all of them.
///
/// ```
/// use archon_telemetry::{Definition, Metric, metrics};
///
/// metrics! {
///     /// Metrics of a tea house.
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
        #[allow(missing_docs)] // The definition of each field describes it.
        $vis struct $name { $($(#[$field_meta])* $vis $field: $type,)* }

        impl $name {
            /// All definitions.
            $vis const DEFINITIONS: &'static [$crate::Definition] = &[$($definition,)*];

            /// Returns every metric with its values, in the order of the definitions.
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
    fn gauge_stops_at_zero() {
        let metric = Metric::default();
        metric.add(2);
        metric.subtract(5);
        assert_eq!(metric.get(), 0);
    }
}
