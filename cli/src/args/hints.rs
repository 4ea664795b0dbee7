//! What clap's errors do not know: what hands type that know other programs, and what the environment says already.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

/// Verbs of other programs, and what they are called here.
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

/// The error with what helps.
pub(super) fn added(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand)
        && let Some((_, here)) = CALLED.iter().find(|(called, _)| called == verb)
    {
        let tip = StyledStr::from(format!("that is `{here}` here"));
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    // The usage line names every option that has a value, also from the environment, which nobody has to give.
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        let whole = usage.to_string();
        let short = whole.replace(" --coordinators <H:P,…>", "");
        if short != whole {
            error.insert(ContextKind::Usage, ContextValue::StyledStr(StyledStr::from(short)));
        }
    }
    error
}
