//! `--watch`: repeats an answer whenever it has changed, until Ctrl-C.

use crate::exit::{Exit, Failure};
use crate::output::Output;
use std::time::Duration;

/// Polling interval.
const EVERY: Duration = Duration::from_secs(1);
/// Control sequence that clears a terminal's screen; scrolled-off lines belong to the reader and stay.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";
/// Separator of two answers without redrawing: answers have many lines.
const BETWEEN: &str = "---";

/// Prints the result of `render`: once, or with `watch` again whenever it differs. A terminal is redrawn; otherwise,
/// and with `-o json` (then one object per line), new answers follow old ones.
///
/// # Errors
/// Any failure of `render`. While watching, an unreachable quorum is waited for, once it has been reached.
pub(crate) async fn show(
    watch: bool,
    output: &Output,
    mut render: impl AsyncFnMut(&Output) -> Result<String, Failure>,
) -> Result<Exit, Failure> {
    if !watch {
        print(output, &render(output).await?)?;
        return Ok(Exit::Done);
    }
    let output = Output { watching: true, ..*output };
    let mut last = render(&output).await?;
    draw(&output, &last)?;
    let mut trouble = String::new();
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let look = async {
            tokio::time::sleep(EVERY).await;
            render(&output).await
        };
        let found = tokio::select! {
            _ = &mut interrupted => return Ok(Exit::Done),
            found = look => found,
        };
        match found {
            Ok(text) => {
                trouble.clear();
                // A terminal shows the passing time; elsewhere that is no change.
                let news = if redraws(&output) { text != last } else { timeless(&text) != timeless(&last) };
                if news {
                    if !output.is_json() && !redraws(&output) {
                        output.line(BETWEEN)?;
                    }
                    draw(&output, &text)?;
                    last = text;
                }
            }
            Err(failure) if matches!(failure.exit, Exit::Unreachable | Exit::TimedOut) => {
                if trouble.is_empty() {
                    trouble = failure.to_string();
                    output.talk(format!("still watching: {}", failure.message));
                }
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn print(output: &Output, text: &str) -> Result<(), Failure> {
    // An empty list was already reported on standard error.
    if text.is_empty() { Ok(()) } else { output.line(text) }
}

fn redraws(output: &Output) -> bool {
    output.terminal && output.redraw
}

/// Returns the text without values that only time changes: ages in a text (`12s`, `38ms`), and durations (`…_for_ms`)
/// in a document.
fn timeless(text: &str) -> String {
    if let Ok(mut document) = serde_json::from_str::<serde_json::Value>(text) {
        forget_durations(&mut document);
        return document.to_string();
    }
    let is_age = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
        unit.len() < word.len() && ["ms", "s", "m", "h", "d"].contains(&unit)
    };
    text.lines().flat_map(|line| line.split_whitespace().filter(|word| !is_age(word)).chain(["\n"])).collect()
}

fn forget_durations(document: &mut serde_json::Value) {
    match document {
        serde_json::Value::Object(fields) => {
            fields.retain(|name, _| !name.ends_with("_for_ms"));
            fields.values_mut().for_each(forget_durations);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(forget_durations),
        _ => {}
    }
}

fn draw(output: &Output, text: &str) -> Result<(), Failure> {
    if output.is_json() || !redraws(output) {
        return print(output, text);
    }
    let note = output.dim("watching; Ctrl-C ends it");
    output.line(format!("{CLEAR}{text}\n\n{note}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    /// `ESC[3J` deletes the terminal's whole scrollback, including that of earlier programs.
    #[test]
    fn watching_keeps_the_terminals_scrollback() {
        assert!(CLEAR.ends_with("[2J") && !CLEAR.contains("[3J"));
    }

    #[test]
    fn passing_time_is_no_change() {
        let status =
            |age: &str| format!("waiting  NodeFailed: delos (node delos, for {age})\n         start delos again");
        assert_eq!(timeless(&status("9s")), timeless(&status("10s")));
        assert_eq!(timeless("delos  HEARD\n  38ms"), timeless("delos HEARD\n   101ms"));
        assert_ne!(timeless("3 alive"), timeless("2 alive"));
        let node = |silent: u64, copies: u64| format!(r#"[{{"silent_for_ms":{silent},"copies_held":{copies}}}]"#);
        assert_eq!(timeless(&node(1, 3)), timeless(&node(2, 3)));
        assert_ne!(timeless(&node(1, 3)), timeless(&node(1, 4)));
    }

    #[tokio::test]
    async fn failed_first_poll_ends_watching() {
        let output = Output::plain(Format::Table);
        let mut looks = 0;
        let outcome = show(true, &output, async |_: &Output| {
            looks += 1;
            Err(Failure::new(Exit::Unreachable, "nobody"))
        });
        assert_eq!(outcome.await.unwrap_err().exit, Exit::Unreachable);
        assert_eq!(looks, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn unreachable_quorum_is_waited_for_a_refusal_is_not() {
        let output = Output::plain(Format::Json);
        let mut looks = 0;
        let outcome = show(true, &output, async |output: &Output| {
            assert!(output.watching, "one object per line");
            looks += 1;
            match looks {
                1 => Ok("{}".to_owned()),
                2..5 => Err(Failure::new(Exit::Unreachable, "nobody")),
                _ => Err(Failure::new(Exit::NotFound, "gone")),
            }
        });
        assert_eq!(outcome.await.unwrap_err().exit, Exit::NotFound);
        assert_eq!(looks, 5);
    }
}
