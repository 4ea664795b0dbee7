//! The flags for the settings of the whole cluster, made of the table of settings ([`Setting`]).

use archon_types::{Setting, SettingUnit, Vocabulary};
use clap::{Arg, ArgMatches, Command};
use std::collections::BTreeMap;

/// Settings of the whole cluster, as flags and variables say them. The first leader writes them into the log; afterwards the
/// log is what counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct BootstrapArgs {
    said: BTreeMap<Setting, u64>,
}

impl BootstrapArgs {
    /// What was said of a setting.
    pub(crate) fn get(&self, setting: Setting) -> Option<u64> {
        self.said.get(&setting).copied()
    }
}

/// The flag of a setting, without the dashes in front.
pub(crate) fn flag_of(setting: Setting) -> String {
    setting.as_str().replace('_', "-")
}

/// The variable of a setting.
pub(crate) fn variable_of(setting: Setting) -> String {
    format!("ARCHON_{}", setting.as_str().to_uppercase())
}

/// What holds if nobody says anything.
fn otherwise(setting: Setting) -> String {
    match setting {
        Setting::Replication => "3, or as many as --min-nodes if that is less".to_owned(),
        Setting::MinNodes => "as many as there are copies".to_owned(),
        other => other.default_value().to_string(),
    }
}

fn flag(setting: Setting) -> Arg {
    let (range, milliseconds) = (setting.range(), setting.unit() == SettingUnit::Milliseconds);
    let unit = if milliseconds { " ms" } else { "" };
    let meaning = setting.meaning().trim_end_matches('.');
    let help = format!("{meaning}; {} to {}{unit}; otherwise {}", range.start(), range.end(), otherwise(setting));
    Arg::new(setting.as_str())
        .long(flag_of(setting))
        .env(variable_of(setting))
        .hide_env_values(true)
        .value_name(if milliseconds { "MS" } else { "N" })
        .value_parser(move |text: &str| setting.parse(text))
        .help(help)
}

impl clap::Args for BootstrapArgs {
    fn augment_args(command: Command) -> Command {
        let command =
            command.next_help_heading("Settings of the cluster (used once, when it is created; see `archon config`)");
        Setting::ALL.iter().fold(command, |command, setting| command.arg(flag(*setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for BootstrapArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let said = |setting: &Setting| Some((*setting, *matches.get_one::<u64>(setting.as_str())?));
        Ok(Self { said: Setting::ALL.iter().filter_map(said).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.said.extend(Self::from_arg_matches(matches)?.said);
        Ok(())
    }
}
