//! The terminal in drawing mode: taken at the beginning, restored at the end, also after errors and panics.

use super::draw;
use super::model::Model;
use crate::exit::Failure;
use ratatui::DefaultTerminal;
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use ratatui::layout::Size;
use std::time::Duration;

/// The terminal in raw mode, on its alternate screen: the previous content returns afterwards.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    closed: bool,
}

impl Screen {
    /// Takes over the terminal. From now on a panic restores it before it is reported.
    ///
    /// # Errors
    /// The terminal is not available.
    pub(super) fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init().map_err(|error| {
            // Undoes a partial initialization.
            let _ = ratatui::try_restore();
            Failure::failed(format!("preparing the terminal: {error}"))
        })?;
        Ok(Self { terminal, closed: false })
    }

    /// Returns its present size.
    ///
    /// # Errors
    /// The terminal does not report it.
    pub(super) fn size(&self) -> Result<Size, Failure> {
        self.terminal.size().map_err(lost)
    }

    /// Draws the model as of `now`. Writes only differences, in one update on terminals that support it.
    ///
    /// # Errors
    /// The terminal is not writable.
    pub(super) fn draw(&mut self, model: &Model, now: Duration) -> Result<(), Failure> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate).map_err(lost)?;
        let render = |frame: &mut ratatui::Frame<'_>| draw::draw(model, now, frame.area(), frame.buffer_mut());
        self.terminal.draw(render).map_err(lost)?;
        queue!(self.terminal.backend_mut(), EndSynchronizedUpdate).map_err(lost)?;
        ratatui::backend::Backend::flush(self.terminal.backend_mut()).map_err(lost)
    }

    /// Restores the terminal.
    ///
    /// # Errors
    /// The terminal is not writable.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        self.give_back().map_err(lost)
    }

    fn give_back(&mut self) -> std::io::Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        // Each is tried even if the other fails.
        let shown = self.terminal.show_cursor();
        ratatui::try_restore().and(shown)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The hook has handled a panic: another restore would overwrite its message.
        if !std::thread::panicking() {
            let _ = self.give_back();
        }
    }
}

fn lost(error: std::io::Error) -> Failure {
    Failure::failed(format!("drawing on the terminal: {error}"))
}
