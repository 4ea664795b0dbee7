//! `archon top`: the cluster live on a terminal. Content is decided in [`model`], drawn in [`draw`]; this is the shell
//! around them: it polls the coordinators, receives keys and signals, and owns the terminal.

mod cluster_view;
mod draw;
mod history;
mod key;
mod keyboard;
mod model;
mod order;
mod screen;
mod share;
#[cfg(test)]
mod testing;

use crate::args::TopArgs;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_client::Admin;
use cluster_view::ClusterView;
use keyboard::Keyboard;
use model::{Flow, Model};
use screen::Screen;
use std::pin::pin;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// Interval of redraws of ages and silences.
const TICK: Duration = Duration::from_secs(1);

/// Shows the cluster until the user quits.
///
/// # Errors
/// There is no terminal, or the first poll is not answered: a wrong address should not end in an empty screen.
pub(crate) async fn run(args: &TopArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    check_terminal(output)?;
    let begun = Instant::now();
    let first = cluster_view::take(admin, 0).await?;
    let model = Model::new(first, begun.elapsed(), args.every, *output);
    let signals = Signals::install()?;
    let mut screen = Screen::open()?;
    // The terminal is restored before anything is printed, for any end.
    let ended = watch(model, begun, admin, signals, &mut screen).await;
    screen.close()?;
    ended
}

/// Checks that the output is a terminal that can be drawn on, and not JSON.
fn check_terminal(output: &Output) -> Result<(), Failure> {
    let instead = "use `archon status`, or `archon status --watch`, also with `-o json`";
    if output.is_json() {
        return Err(Failure::usage("`archon top` draws for people and has no JSON document", instead));
    }
    if !output.redraw {
        let message = "`archon top` needs a terminal as standard output, with a TERM that can move the cursor";
        return Err(Failure::usage(message, instead));
    }
    Ok(())
}

async fn watch(
    mut model: Model,
    begun: Instant,
    admin: &Admin,
    mut signals: Signals,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let mut keyboard = Keyboard::listen()?;
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let every = model.every();
    let mut look_at = begun + every;
    let mut look = pin!(look_later(look_at, admin, model.moves_after()));
    loop {
        model.resized(screen.size()?);
        screen.draw(&model, begun.elapsed())?;
        tokio::select! {
            key = keyboard.next() => if model.press(key?) == Flow::Quit {
                return Ok(Exit::Done);
            },
            looked = &mut look => {
                match looked {
                    Ok(look) => model.looked(look, begun.elapsed()),
                    Err(failure) => model.unanswered(failure.message),
                }
                // From the beginning of one to that of the next, and never two at once.
                look_at = Instant::now().max(look_at + every);
                look.set(look_later(look_at, admin, model.moves_after()));
            },
            _ = tick.tick() => {},
            () = signals.next() => return Ok(Exit::Done),
        }
    }
}

async fn look_later(at: Instant, admin: &Admin, moves_after: u64) -> Result<ClusterView, Failure> {
    sleep_until(at).await;
    cluster_view::take(admin, moves_after).await
}

/// Signals that end the process: the terminal is restored first.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn install() -> Result<Self, Failure> {
        let install =
            |kind| signal(kind).map_err(|error| Failure::failed(format!("installing a signal handler: {error}")));
        Ok(Self {
            interrupt: install(SignalKind::interrupt())?,
            terminate: install(SignalKind::terminate())?,
            hangup: install(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    #[test]
    fn error_without_a_terminal_names_alternatives() {
        for output in [
            Output::plain(Format::Table),
            Output { terminal: true, redraw: true, ..Output::plain(Format::Json) },
            Output { terminal: true, redraw: false, ..Output::plain(Format::Table) },
        ] {
            let failure = check_terminal(&output).unwrap_err();
            assert!(failure.exit == Exit::Usage && failure.to_string().contains("`archon status`"), "{failure}");
        }
        assert_eq!(check_terminal(&Output { terminal: true, redraw: true, ..Output::plain(Format::Table) }), Ok(()));
    }
}
