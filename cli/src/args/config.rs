//! Options of `archon config`.

use super::admin::WatchArgs;
use super::parse::threshold;
use crate::serve::file::suggestion;
use archon_client::{Setting, SettingChange, SettingUnit};
use clap::Subcommand;

/// `archon config …`
#[derive(Subcommand, Debug)]
pub(crate) enum ConfigVerb {
    /// Show all settings: current value, default, range, and whether the setting can be changed.
    #[command(after_help = "\
Examples:
  archon config show
  archon config show -o json | jq '.settings[] | select(.current != .default)'")]
    Show(WatchArgs),
    /// Change settings while the cluster runs: either all the given ones, or none.
    ///
    /// The change is committed and recorded as an event; coordinators apply it at once, and each node from its next
    /// heartbeat. Timings that leases depend on (heartbeat_ms, lease_ms, margin_ms) and settings used only at creation
    /// (partitions, replication) cannot be changed: the command refuses (exit 4) with the reason. A value out of range,
    /// or inconsistent with another setting, is wrong usage (exit 2).
    #[command(after_help = "\
Examples:
  archon config set replace_after_ms=60000
  archon config set failure_timeout_ms=3s replace_after_ms=10m --dry-run
  archon config set copies_per_node_max=4 --if-version 812    only if unchanged since `config show`")]
    Set(SetArgs),
}

/// Options of `archon config set`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SetArgs {
    /// Name of a setting (see `archon config show`) and its new value; times in milliseconds, or with a unit (5m).
    #[arg(value_name = "KEY=VALUE", required = true, num_args = 1.., value_parser = change)]
    pub(crate) changes: Vec<SettingChange>,
    /// Show the change, or why it is refused (exit 4); change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Apply only if the settings have this version; otherwise refuse (exit 4).
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
}

/// Parses a setting and its value, `replace_after_ms=60000`.
fn change(text: &str) -> Result<SettingChange, String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err("write KEY=VALUE, as in replace_after_ms=60000".to_owned());
    };
    let Ok(setting) = key.trim().parse::<Setting>() else {
        let known: Vec<&str> = Setting::ALL.iter().map(|setting| setting.as_str()).collect();
        return Err(format!("unknown setting `{key}`; {}", suggestion(key, &known)));
    };
    let value = setting.parse(&in_milliseconds(setting, value.trim()))?;
    Ok(SettingChange { setting, value })
}

/// Converts a time with a unit, such as `5m`, to the number of milliseconds in which the setting is stored. Other
/// values are unchanged.
fn in_milliseconds(setting: Setting, value: &str) -> String {
    let milliseconds = match setting.unit() {
        SettingUnit::Milliseconds if value.parse::<u64>().is_err() => {
            threshold(value).ok().map(|time| time.as_millis())
        }
        _ => None,
    };
    milliseconds.map_or_else(|| value.to_owned(), |milliseconds| milliseconds.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_change_shows_a_valid_one() {
        let wanted = SettingChange { setting: Setting::ReplaceAfterMs, value: 60_000 };
        assert_eq!(change("replace_after_ms=60000"), Ok(wanted));
        assert!(change("replace_after_ms").unwrap_err().contains("KEY=VALUE"));
        assert_eq!(
            change("replace-after-ms=1").unwrap_err(),
            "unknown setting `replace-after-ms`; did you mean `replace_after_ms`?"
        );
        assert!(change("colour=blue").unwrap_err().contains("known keys are partitions, replication, min_nodes"));
        assert!(change("copies_per_node_max=0").unwrap_err().contains("from 1 to 1000"));
        assert_eq!(change("replace_after_ms=5m"), Ok(SettingChange { value: 300_000, ..wanted }));
        for wrong in ["replace_after_ms=5x", "replace_after_ms=30d"] {
            assert!(change(wrong).unwrap_err().contains("from 1 to 604800000 milliseconds"), "{wrong}");
        }
        assert!(change("copies_per_node_max=5m").unwrap_err().contains("from 1 to 1000"));
    }
}
