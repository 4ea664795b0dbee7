//! Changes of clap's errors: corrections for habits from other programs, values from the environment, valid numbers.

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

/// Global options that may come from the environment, as the usage line shows them.
const GLOBAL_VALUES: &[&str] = &[" --coordinators <H:P,…>", " --timeout <TIME>", " --tls-dir <DIR>", " --insecure"];

/// Adds hints to an error.
pub(super) fn added(mut error: clap::Error, args: &[OsString], command: &clap::Command) -> clap::Error {
    let no_text = args.iter().enumerate().find(|(_, arg)| arg.to_str().is_none());
    if let Some((place, arg)) = no_text.filter(|_| error.kind() == ErrorKind::InvalidUtf8) {
        let message = format!(
            "argument {place}, {arg:?}, is not UTF-8, as arguments must be; give a binary key in hexadecimal digits with \
             --hex, and a binary value on standard input: archon kv put --hex ff00 -\n"
        );
        return clap::Error::raw(ErrorKind::InvalidUtf8, message).with_cmd(command);
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
    // A typo must not lead to plaintext connections.
    if let (Some(ContextValue::String(given)), Some(ContextValue::String(similar))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::SuggestedArg))
        && similar == "--insecure"
        && !given.starts_with("--ins")
    {
        error.remove(ContextKind::SuggestedArg);
    }
    // The usage line names every option that has a value, even from the environment, where it need not be given.
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        let whole = usage.to_string();
        let short = GLOBAL_VALUES.iter().fold(whole.clone(), |usage, option| usage.replace(option, ""));
        if short != whole {
            error.insert(ContextKind::Usage, ContextValue::StyledStr(StyledStr::from(short)));
        }
    }
    with_valid_numbers(error, command)
}

/// Replaces Rust's description of an invalid number, such as `0 is not in 1..=16384`, by the valid numbers.
fn with_valid_numbers(error: clap::Error, command: &clap::Command) -> clap::Error {
    let refused = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let (argument, value) = (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue));
    let is_negative = value.is_some_and(|value| value.to_string().parse::<i128>().is_ok_and(|value| value < 0));
    match (argument, value, valid_numbers(&refused, is_negative)) {
        (Some(argument), Some(value), Some(valid)) => {
            let message =
                format!("invalid value '{value}' for '{argument}': {valid}\n\nFor more information, try '--help'.\n");
            clap::Error::raw(error.kind(), message).with_cmd(command)
        }
        _ => error,
    }
}

/// Returns the valid numbers, given the text of a number parser of Rust or clap, and whether the value is negative;
/// `None` for another text.
fn valid_numbers(refused: &str, is_negative: bool) -> Option<String> {
    if let Some((given, range)) = refused.split_once(" is not in ") {
        let (least, most) = range.split_once("..")?;
        let [given, least, most] = [given, least, most.trim_start_matches('=')].map(|text| text.parse::<i128>().ok());
        let (given, least, most) = (given?, least?, most?);
        // The upper bound of an open range is that of the type.
        let is_open = given < least && most >= i128::from(u32::MAX);
        return Some(match is_open {
            true => format!("write a number of at least {least}"),
            false => format!("write a number from {least} to {most}"),
        });
    }
    let fault = match refused {
        "invalid digit found in string" if is_negative => "write a number of at least 0",
        "invalid digit found in string" | "cannot parse integer from empty string" => "write a whole number",
        "number too large to fit in target type" => "the number is too large",
        "number too small to fit in target type" => "the number is too small",
        "out of range integral type conversion attempted" => "the number is out of range",
        _ => return None,
    };
    Some(fault.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::args::read::parse_line;

    fn refusal(line: &str) -> String {
        let args = line.split(' ').map(std::ffi::OsString::from);
        parse_line(args).expect_err(line).to_string()
    }

    #[test]
    fn invalid_number_names_the_valid_ones() {
        for (line, valid) in [
            (
                "archon table create t --partitions 0",
                "'--partitions <N>': 0 is out of range; write a number from 1 to 16384",
            ),
            ("archon quorum promote 0", "'<ID>': write a number of at least 1"),
            ("archon quorum promote x", "'<ID>': write a whole number"),
            (
                "archon participant --partitions-max 0",
                "'--partitions-max <N>': 0 is out of range; write a number of at least 1",
            ),
            ("archon participant --partitions-max 5000000000", "write a number from 1 to 4294967295"),
            ("archon kv cas k v --revision 99999999999999999999", "'--revision <N>': the number is too large"),
            ("archon kv cas k v --revision=-1", "'--revision <N>': write a number of at least 0"),
            ("archon kv incr k 1.5", "'[N]': write a whole number"),
        ] {
            let refusal = refusal(line);
            assert!(refusal.contains(valid) && refusal.contains("try '--help'"), "{line}: {refusal}");
        }
    }

    #[test]
    fn typo_does_not_suggest_plaintext() {
        let refusal_of_since = refusal("archon events --since 1h");
        assert!(!refusal_of_since.contains("--insecure"), "{refusal_of_since}");
        assert!(refusal("archon status --insecur").contains("--insecure"));
    }
}
