//! Flags for the settings of the whole cluster, generated from the table of settings ([`Setting`]).

use archon_types::{Failover, Setting, SettingUnit, UnknownWord, Vocabulary};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use std::collections::{BTreeMap, BTreeSet};

/// Settings of the whole cluster, from flags, variables and the file. The first leader writes them into the log; afterwards the
/// values in the log apply.
#[derive(Clone, Debug, Default)]
pub(crate) struct BootstrapArgs {
    said: BTreeMap<Setting, u64>,
    failover: Option<Failover>,
    /// Options given by flag or variable; the others are from the file.
    explicit: BTreeSet<&'static str>,
}

impl BootstrapArgs {
    /// Returns the given value of a setting.
    pub(crate) fn get(&self, setting: Setting) -> Option<u64> {
        self.said.get(&setting).copied()
    }

    /// Returns the given profile of time-outs.
    pub(crate) const fn failover(&self) -> Option<Failover> {
        self.failover
    }

    /// Returns true if a flag or variable gave this option, and not the file.
    pub(crate) fn is_explicit(&self, option: &str) -> bool {
        self.explicit.contains(option)
    }
}

/// The flag, key and identifier of the profile of time-outs.
pub(crate) const FAILOVER: &str = "failover";

fn failover_flag() -> Arg {
    let said = |profile: Failover| {
        let timing = profile.timing();
        format!("{}, {}, {} ms", timing.heartbeat_ms, timing.lease_ms, timing.failure_timeout_ms)
    };
    let help = format!(
        "Profile that sets --heartbeat-ms, --lease-ms and --failure-timeout-ms together: `standard` ({}) or `fast` ({}). `fast` fails \
         over sooner, doubles the number of heartbeats, and is refused on a machine whose timers are more than {} ms late; \
         default: standard",
        said(Failover::Standard),
        said(Failover::Fast),
        Failover::Fast.timing().stall_ms_trusted()
    );
    Arg::new(FAILOVER)
        .long(FAILOVER)
        .env("ARCHON_FAILOVER")
        .hide_env_values(true)
        .value_name("PROFILE")
        .value_parser(failover)
        .help(help)
}

/// Parses a profile of time-outs.
pub(super) fn failover(text: &str) -> Result<Failover, String> {
    text.parse().map_err(|error: UnknownWord| error.to_string())
}

/// Returns the flag of a setting, without the leading dashes.
pub(crate) fn flag_of(setting: Setting) -> String {
    setting.as_str().replace('_', "-")
}

/// Returns the variable of a setting.
pub(crate) fn variable_of(setting: Setting) -> String {
    format!("ARCHON_{}", setting.as_str().to_uppercase())
}

/// Describes the default of a setting.
fn otherwise(setting: Setting) -> String {
    match setting {
        Setting::Replication => "3, or --min-nodes if that is less".to_owned(),
        Setting::MinNodes => "the replication".to_owned(),
        other => other.default_value().to_string(),
    }
}

fn flag(setting: Setting) -> Arg {
    let (range, milliseconds) = (setting.range(), setting.unit() == SettingUnit::Milliseconds);
    let unit = if milliseconds { " ms" } else { "" };
    let meaning = setting.meaning().trim_end_matches('.');
    let help = format!("{meaning}; {} to {}{unit}; default: {}", range.start(), range.end(), otherwise(setting));
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
            command.next_help_heading("Settings of the cluster (used only when it is created; see `archon config`)");
        Setting::ALL.iter().fold(command.arg(failover_flag()), |command, setting| command.arg(flag(*setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for BootstrapArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let said = |setting: &Setting| Some((*setting, *matches.get_one::<u64>(setting.as_str())?));
        let failover = matches.get_one::<Failover>(FAILOVER).copied();
        let is_explicit = |option: &&'static str| {
            matches!(matches.value_source(option), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
        };
        let options = Setting::ALL.iter().map(|setting| setting.as_str()).chain([FAILOVER]);
        let explicit = options.filter(is_explicit).collect();
        Ok(Self { said: Setting::ALL.iter().filter_map(said).collect(), failover, explicit })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let more = Self::from_arg_matches(matches)?;
        self.said.extend(more.said);
        self.failover = more.failover.or(self.failover);
        self.explicit.extend(more.explicit);
        Ok(())
    }
}
