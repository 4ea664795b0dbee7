//! `--watch`: the same answer again whenever it has changed, until Ctrl-C.

use crate::exit::{Exit, Failure};
use crate::output::Output;
use std::time::Duration;

/// How often a watched answer is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// What takes a terminal's screen back to empty; what has scrolled off it is the reader's and stays.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";
/// What stands between two answers where nothing is redrawn: answers have many lines.
const BETWEEN: &str = "---";

/// Prints what `render` says: once, or with `watch` again whenever it differs. A terminal is redrawn; elsewhere, and
/// with `-o json` (then one object per line), what is new follows what was.
///
/// # Errors
/// Whatever `render` fails with. While watching, a quorum that cannot be reached is waited for, once it has been.
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
                if text != last {
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
    // Nothing to list has been said on standard error already.
    if text.is_empty() { Ok(()) } else { output.line(text) }
}

fn redraws(output: &Output) -> bool {
    output.terminal && output.redraw
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

    /// `ESC[3J` throws away everything that the terminal has scrolled, of whatever ran before.
    #[test]
    fn watching_leaves_the_terminals_scrollback_alone() {
        assert!(CLEAR.ends_with("[2J") && !CLEAR.contains("[3J"));
    }

    #[tokio::test]
    async fn a_first_look_that_fails_ends_it() {
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
    async fn an_unreachable_quorum_is_waited_for_and_a_refusal_is_not() {
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
