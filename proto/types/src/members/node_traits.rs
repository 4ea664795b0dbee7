//! Traits of a node: place and size, from its flags or changed by an operator at runtime.

use crate::common::limits::{WEIGHT_ORDINARY, WEIGHTS, check_name};
use crate::error::{ErrorDetail, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Properties that decide how many replicas a node gets, and next to which others.
///
/// The most recent change takes effect. A value that an operator sets while the node runs (`archon node set`) survives
/// restarts, as long as the node starts with the same flags as before; a flag that changed since the last registration
/// takes effect from then on. So a restart does not undo a change at runtime, and a change of the unit file is not
/// ignored. Each of the three values is handled separately. A node with another data directory is another node: its
/// flags take effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeTraits {
    /// Failure zone, if any.
    pub zone: Option<String>,
    /// Share of partitions relative to other nodes, at least 1; 100 is the default.
    pub weight: u32,
    /// Maximum number of replicas, if limited.
    pub partitions_max: Option<u32>,
}

/// A change of a node's traits; `None` stays as it is. In JSON an absent field stays as it is, and `null` is none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TraitsChange {
    /// The zone; null: none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub zone: Option<Option<String>>,
    /// The weight: 1 to 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The limit, at least 1; null: none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u32>")]
    pub partitions_max: Option<Option<u32>>,
}

/// Reads a field that is present, null included.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl TraitsChange {
    /// Accepts only what a node can have.
    ///
    /// # Errors
    /// As [`NodeTraits::check`].
    pub fn check(&self) -> Result<(), ErrorDetail> {
        NodeTraits::default().with(self).check()
    }
}

impl Default for NodeTraits {
    fn default() -> Self {
        Self { zone: None, weight: WEIGHT_ORDINARY, partitions_max: None }
    }
}

impl NodeTraits {
    /// Accepts only possible values.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`], naming the value found and the limit.
    pub fn check(&self) -> Result<(), ErrorDetail> {
        let invalid = |message: String| Err(ErrorDetail::new(ErrorKind::InvalidArgument, message));
        if let Some(zone) = &self.zone {
            check_name("zone", zone)?;
        }
        if !WEIGHTS.contains(&self.weight) {
            return invalid(format!(
                "the weight {} must be {} to {}; the default is {WEIGHT_ORDINARY}",
                self.weight,
                WEIGHTS.start(),
                WEIGHTS.end()
            ));
        }
        if self.partitions_max == Some(0) {
            return invalid("a limit of 0 partitions makes the node useless; give at least 1, or no limit".to_owned());
        }
        Ok(())
    }

    /// Returns these traits with a change applied.
    pub fn with(&self, change: &TraitsChange) -> Self {
        Self {
            zone: change.zone.clone().unwrap_or_else(|| self.zone.clone()),
            weight: change.weight.unwrap_or(self.weight),
            partitions_max: change.partitions_max.unwrap_or(self.partitions_max),
        }
    }

    /// Returns the traits of a node that registers with `now`, had `self` until then, and registered with `before` the
    /// last time.
    pub fn registered(&self, before: &Self, now: &Self) -> Self {
        let differs = TraitsChange {
            zone: (now.zone != before.zone).then(|| now.zone.clone()),
            weight: (now.weight != before.weight).then_some(now.weight),
            partitions_max: (now.partitions_max != before.partitions_max).then_some(now.partitions_max),
        };
        self.with(&differs)
    }
}

impl fmt::Display for NodeTraits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weight {}, ", self.weight)?;
        match self.partitions_max {
            Some(most) => write!(f, "at most {most} replicas, ")?,
            None => f.write_str("any number of replicas, ")?,
        }
        match &self.zone {
            Some(zone) => write!(f, "zone {zone}"),
            None => f.write_str("no zone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_recent_change_of_traits_takes_effect() {
        let flags = NodeTraits { zone: Some("east".into()), ..NodeTraits::default() };
        let set = flags.with(&TraitsChange { weight: Some(50), ..TraitsChange::default() });
        assert_eq!(set.registered(&flags, &flags), set, "a restart with the same flags undoes nothing");
        let edited = NodeTraits { weight: 200, ..flags.clone() };
        assert_eq!(set.registered(&flags, &edited), edited, "a flag that was changed counts");
        let limited = NodeTraits { partitions_max: Some(7), ..flags.clone() };
        let both = set.registered(&flags, &limited);
        assert_eq!((both.weight, both.partitions_max), (50, Some(7)), "each goes by itself");
        assert_eq!(flags.with(&TraitsChange { zone: Some(None), ..TraitsChange::default() }).zone, None);
    }

    #[test]
    fn traits_are_displayed_in_words() {
        assert_eq!(NodeTraits::default().to_string(), "weight 100, any number of replicas, no zone");
        let some = NodeTraits { zone: Some("east".into()), weight: 5, partitions_max: Some(3) };
        assert_eq!(some.to_string(), "weight 5, at most 3 replicas, zone east");
        assert!(NodeTraits { weight: 0, ..some.clone() }.check().is_err());
        assert!(NodeTraits { partitions_max: Some(0), ..some.clone() }.check().is_err());
        assert!(NodeTraits { zone: Some("a b".into()), ..some }.check().is_err());
    }
}
