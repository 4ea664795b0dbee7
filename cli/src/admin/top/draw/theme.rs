//! Colours, if enabled. Their meaning is also shown in words.

use crate::output::Output;
use ratatui::style::{Color, Modifier, Style};

/// Colours of the screen, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Theme {
    color: bool,
}

impl Theme {
    /// Creates the theme for an output.
    pub(super) const fn new(output: &Output) -> Self {
        Self { color: output.color }
    }

    /// Default style.
    pub(super) const fn plain(self) -> Style {
        Style::new()
    }

    /// Style of headings.
    pub(super) fn heading(self) -> Style {
        self.wanted(Style::new().add_modifier(Modifier::BOLD))
    }

    /// Style of healthy states.
    pub(super) fn good(self) -> Style {
        self.wanted(Style::new().fg(Color::Green))
    }

    /// Style of states that need attention.
    pub(super) fn bad(self) -> Style {
        self.wanted(Style::new().fg(Color::Red))
    }

    /// Style of temporary states that are neither: drained, in maintenance.
    pub(super) fn notable(self) -> Style {
        self.wanted(Style::new().fg(Color::Yellow))
    }

    /// Style of less important text.
    pub(super) fn dim(self) -> Style {
        self.wanted(Style::new().add_modifier(Modifier::DIM))
    }

    const fn wanted(self, style: Style) -> Style {
        if self.color { style } else { Style::new() }
    }
}
