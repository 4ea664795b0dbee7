//! Additions to clap's errors: corrections for habits from other programs, and values from the environment.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Verbs of other programs, with their names here.
const CALLED: &[(&str, &str)] = &[
    ("health", "archon status"),
    ("info", "archon status"),
    ("members", "archon status` and `archon node list"),
    ("settings", "archon config show"),
    ("nodes", "archon node list"),
    ("tables", "archon table list"),
    ("partitions", "archon partition list"),
    ("put", "archon kv put KEY VALUE"),
    ("set", "archon kv put KEY VALUE"),
    ("get", "archon kv get KEY"),
    ("del", "archon kv del KEY"),
    ("scan", "archon kv scan PREFIX"),
    ("ls", "archon kv scan PREFIX"),
    ("drain", "archon node drain NAME"),
    ("log", "archon events"),
];

/// Verbs of one noun in other programs, with the alternative here.
const INSTEAD: &[(&str, &str, &str)] = &[
    ("quorum", "add", "archon coordinator --id N --listen IP:PORT --join H:P --data-dir DIR"),
    ("quorum", "join", "archon coordinator --id N --listen IP:PORT --join H:P --data-dir DIR"),
];

/// Prefixes of the options that exist only for a table by ranges.
const OF_RANGES: &[&str] = &["--split-at", "--split-above", "--merge-below"];

/// Adds hints to an error.
pub(super) fn added(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let no_text = args.iter().enumerate().find(|(_, arg)| arg.to_str().is_none());
    if let Some((place, arg)) = no_text.filter(|_| error.kind() == ErrorKind::InvalidUtf8) {
        let message = format!(
            "argument {place}, {arg:?}, is not UTF-8, as arguments must be; give a binary key in hexadecimal digits with \
             --hex, and a binary value on standard input: archon kv put --hex ff00 -\n"
        );
        return clap::Error::raw(ErrorKind::InvalidUtf8, message);
    }
    // A command line with split options means --range, so the other distribution of keys among partitions is not
    // offered.
    let of_ranges =
        |arg: &OsString| arg.to_str().is_some_and(|arg| OF_RANGES.iter().any(|option| arg.starts_with(option)));
    if let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::MissingRequiredArgument
        && missing.iter().any(|argument| argument.contains("--range"))
        && args.iter().any(of_ranges)
    {
        let is = |argument: &String| if argument.contains("--range") { "--range".to_owned() } else { argument.clone() };
        let missing = missing.iter().map(is).collect();
        error.insert(ContextKind::InvalidArg, ContextValue::Strings(missing));
    }
    if let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand)
        && let Some((_, here)) = CALLED.iter().find(|(called, _)| called == verb)
    {
        let tip = StyledStr::from(format!("the command is `{here}`"));
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    if let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand)
        && let Some((.., instead)) =
            INSTEAD.iter().find(|(noun, called, _)| called == verb && args.iter().any(|arg| arg == noun))
    {
        let tip = StyledStr::from(format!("start the new coordinator; it joins by itself: `{instead}`"));
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    // The usage line names every option that has a value, even from the environment, where it need not be given.
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        let whole = usage.to_string();
        let short = whole.replace(" --coordinators <H:P,…>", "");
        if short != whole {
            error.insert(ContextKind::Usage, ContextValue::StyledStr(StyledStr::from(short)));
        }
    }
    error
}
