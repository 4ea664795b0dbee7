//! Settings of the cluster, looked at and changed.

use super::ids::{request_id, uuid_bytes};
use super::{ConvertError, bounded};
use crate::v1;
use archon_types::{RequestId, Setting, SettingChange, SettingStep, Settings, Version, Vocabulary};

/// A request to change settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configure {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// What is to change.
    pub changes: Vec<SettingChange>,
    /// Only if the settings are as of this version.
    pub if_version: Option<Version>,
    /// Whether it is only to be judged.
    pub dry_run: bool,
}

/// A setting as it is, for whoever looks.
pub fn setting_value(setting: Setting, settings: &Settings) -> v1::SettingValue {
    v1::SettingValue {
        setting: setting.as_str().to_owned(),
        value: setting.of(settings),
        default_value: setting.default_value(),
        low: *setting.range().start(),
        high: *setting.range().end(),
        unit: setting.unit().as_str().to_owned(),
        fixed: setting.fixed().map(str::to_owned),
        meaning: setting.meaning().to_owned(),
    }
}

impl From<SettingStep> for v1::SettingStep {
    fn from(step: SettingStep) -> Self {
        Self { setting: step.setting.as_str().to_owned(), from: step.from, to: step.to }
    }
}

impl TryFrom<v1::ConfigureRequest> for Configure {
    type Error = ConvertError;

    fn try_from(wire: v1::ConfigureRequest) -> Result<Self, ConvertError> {
        if wire.changes.is_empty() {
            return Err(ConvertError::new("ConfigureRequest.changes", "name at least one setting"));
        }
        bounded(wire.changes.len(), Setting::ALL.len(), "ConfigureRequest.changes")?;
        let change = |change: v1::SettingChange| {
            let setting = change.setting.parse::<Setting>();
            let setting = setting.map_err(|error| ConvertError::new("SettingChange.setting", error.to_string()))?;
            Ok(SettingChange { setting, value: change.value })
        };
        Ok(Self {
            request: request_id(&wire.request_id, "ConfigureRequest.request_id")?,
            changes: wire.changes.into_iter().map(change).collect::<Result<_, ConvertError>>()?,
            if_version: wire.if_version.map(Version::new),
            dry_run: wire.dry_run,
        })
    }
}

impl From<Configure> for v1::ConfigureRequest {
    fn from(request: Configure) -> Self {
        let change = |change: SettingChange| v1::SettingChange {
            setting: change.setting.as_str().to_owned(),
            value: change.value,
        };
        Self {
            cluster: None,
            request_id: uuid_bytes(request.request.get()),
            changes: request.changes.into_iter().map(change).collect(),
            if_version: request.if_version.map(Version::get),
            dry_run: request.dry_run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;
    use uuid::Uuid;

    proptest! {
        #[test]
        fn requests_round_trip_through_bytes(
            id in 1u128..,
            changes in proptest::collection::vec((proptest::sample::select(Setting::ALL), any::<u64>()), 1..8),
            if_version in any::<Option<u64>>(),
            dry_run in any::<bool>(),
        ) {
            let changes = changes.into_iter().map(|(setting, value)| SettingChange { setting, value }).collect();
            let request = RequestId::new(Uuid::from_u128(id));
            let asked = Configure { request, changes, if_version: if_version.map(Version::new), dry_run };
            let bytes = v1::ConfigureRequest::from(asked.clone()).encode_to_vec();
            prop_assert_eq!(Configure::try_from(v1::ConfigureRequest::decode(bytes.as_slice()).unwrap()), Ok(asked));
        }

        #[test]
        fn any_bytes_are_handled_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(wire) = v1::ConfigureRequest::decode(bytes.as_slice()) {
                let _ = Configure::try_from(wire);
            }
        }
    }

    #[test]
    fn bad_requests_are_named() {
        let change = |setting: &str| v1::SettingChange { setting: setting.to_owned(), value: 1 };
        let request_id = uuid_bytes(Uuid::from_u128(5));
        let good = v1::ConfigureRequest { request_id, changes: vec![change("lease_ms")], ..Default::default() };
        assert!(Configure::try_from(good.clone()).is_ok());
        let field = |wire: v1::ConfigureRequest| Configure::try_from(wire).unwrap_err().field;
        assert_eq!(field(v1::ConfigureRequest { changes: vec![], ..good.clone() }), "ConfigureRequest.changes");
        let many = vec![change("lease_ms"); Setting::ALL.len() + 1];
        assert_eq!(field(v1::ConfigureRequest { changes: many, ..good.clone() }), "ConfigureRequest.changes");
        let request_id = Default::default();
        assert_eq!(field(v1::ConfigureRequest { request_id, ..good.clone() }), "ConfigureRequest.request_id");
        let unknown = v1::ConfigureRequest { changes: vec![change("leash_ms")], ..good };
        let error = Configure::try_from(unknown).unwrap_err().to_string();
        assert!(error.contains("\"leash_ms\" is no setting; write partitions, replication, min_nodes"), "{error}");
    }

    #[test]
    fn a_setting_is_shown_with_all_that_is_known_of_it() {
        let lease = setting_value(Setting::LeaseMs, &Settings::default());
        assert_eq!((lease.value, lease.default_value, lease.unit.as_str()), (1_000, 1_000, "milliseconds"));
        assert!(lease.fixed.is_some_and(|why| why.contains("another cluster")));
        assert_eq!(setting_value(Setting::ReplaceAfterMs, &Settings::default()).fixed, None);
    }
}
