//! The terminal while it is drawn on: taken at the beginning, given back as it was at the end, on errors and panics too.

use super::draw;
use super::model::Model;
use crate::exit::Failure;
use ratatui::DefaultTerminal;
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use ratatui::layout::Size;
use std::time::Duration;

/// The terminal in raw mode, on its other screen: what stood there before comes back.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    closed: bool,
}

impl Screen {
    /// Takes the terminal. From now on a panic gives it back before it is told of.
    ///
    /// # Errors
    /// If it cannot be had.
    pub(super) fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init().map_err(|error| {
            // What was done of it is undone.
            let _ = ratatui::try_restore();
            Failure::failed(format!("preparing the terminal: {error}"))
        })?;
        Ok(Self { terminal, closed: false })
    }

    /// How large it is now.
    ///
    /// # Errors
    /// If it does not say.
    pub(super) fn size(&self) -> Result<Size, Failure> {
        self.terminal.size().map_err(lost)
    }

    /// Draws the model as of `now`. Only what differs is written, and terminals that can show it all at once.
    ///
    /// # Errors
    /// If the terminal cannot be written.
    pub(super) fn draw(&mut self, model: &Model, now: Duration) -> Result<(), Failure> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate).map_err(lost)?;
        let render = |frame: &mut ratatui::Frame<'_>| draw::draw(model, now, frame.area(), frame.buffer_mut());
        self.terminal.draw(render).map_err(lost)?;
        queue!(self.terminal.backend_mut(), EndSynchronizedUpdate).map_err(lost)?;
        ratatui::backend::Backend::flush(self.terminal.backend_mut()).map_err(lost)
    }

    /// Gives the terminal back.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        self.give_back().map_err(lost)
    }

    fn give_back(&mut self) -> std::io::Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        // One failing does not spare the other.
        let shown = self.terminal.show_cursor();
        ratatui::try_restore().and(shown)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Of a panic the hook has taken care: once more would write over its message.
        if !std::thread::panicking() {
            let _ = self.give_back();
        }
    }
}

fn lost(error: std::io::Error) -> Failure {
    Failure::failed(format!("drawing on the terminal: {error}"))
}
