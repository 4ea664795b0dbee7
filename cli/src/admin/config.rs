//! `archon config show | set`.

use super::watch;
use crate::args::{ConfigVerb, SetArgs, WatchArgs};
#[cfg(test)]
use crate::documents::contract;
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::{Admin, SettingSummary, SettingsChanged, Version};

/// Documents of the verbs.
#[cfg(test)]
pub(crate) const DOCUMENTS: contract::Documents = &[
    ("config show", contract::one::<archon_client::SettingsSummary>),
    ("config set", contract::one::<SettingsChanged>),
];

/// Runs a verb.
pub(crate) async fn run(verb: &ConfigVerb, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    match verb {
        ConfigVerb::Show(args) => show(args, admin, output).await,
        ConfigVerb::Set(args) => set(args, admin, output).await,
    }
}

/// Shows every setting.
pub(crate) async fn show(args: &WatchArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch, output, async |output: &Output| {
        let found = admin.settings().await?;
        if output.is_json() { output.json_text(&found) } else { Ok(rows(&found.settings, output)) }
    })
    .await
}

fn rows(settings: &[SettingSummary], output: &Output) -> String {
    let columns = [
        Column::text("SETTING"),
        Column::number("VALUE"),
        Column::number("DEFAULT"),
        Column::text("RANGE"),
        Column::text("UNIT"),
        Column::text("CHANGE"),
        Column::text("MEANING"),
    ];
    let rows = settings.iter().map(|setting| {
        let current = setting.current.to_string();
        vec![
            setting.setting.as_str().to_owned(),
            if setting.current == setting.default { current } else { output.bold(&current) },
            setting.default.to_string(),
            format!("{}..{}", setting.lowest, setting.highest),
            setting.unit.as_str().to_owned(),
            if setting.changeable { "any time" } else { "fixed" }.to_owned(),
            setting.meaning.trim_end_matches('.').to_owned(),
        ]
    });
    output.rows_text(&columns, rows.collect(), "the coordinators report no settings")
}

/// Changes settings, or predicts the change.
pub(crate) async fn set(args: &SetArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let if_version = args.if_version.map(Version::new);
    let changed = match args.dry_run {
        true => admin.check_configure(&args.changes, if_version).await?,
        false => admin.configure(&args.changes, if_version).await?,
    };
    if output.is_json() {
        output.json(&changed)?;
        return Ok(Exit::Done);
    }
    output.line(text(&changed, args.dry_run))?;
    if args.dry_run && !changed.changes.is_empty() {
        output.talk("nothing was changed; to apply it, repeat the command without --dry-run");
    }
    Ok(Exit::Done)
}

fn text(changed: &SettingsChanged, dry_run: bool) -> String {
    if changed.changes.is_empty() {
        return format!(
            "nothing to change: the values are already set (settings of version {})",
            changed.settings_version
        );
    }
    let verb = if dry_run { "would change" } else { "changed" };
    let lines = changed
        .changes
        .iter()
        .map(|step| format!("{verb} {} from {} to {}", step.setting.as_str(), step.before, step.after));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::{OpenEnum, Setting, SettingChanged};

    #[test]
    fn change_shows_old_and_new_value() {
        let step = SettingChanged { setting: OpenEnum::Known(Setting::ReplaceAfterMs), before: 300_000, after: 60_000 };
        let changed = SettingsChanged { settings_version: 7, changes: vec![step] };
        assert_eq!(text(&changed, false), "changed replace_after_ms from 300000 to 60000");
        assert_eq!(text(&changed, true), "would change replace_after_ms from 300000 to 60000");
        let nothing = SettingsChanged { changes: vec![], ..changed };
        assert_eq!(text(&nothing, false), "nothing to change: the values are already set (settings of version 7)");
    }
}
