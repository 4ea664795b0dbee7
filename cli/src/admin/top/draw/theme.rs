//! Colours, where they are wanted. What they tell stands there in words too.

use crate::output::Output;
use ratatui::style::{Color, Modifier, Style};

/// The colours of the page, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Theme {
    color: bool,
}

impl Theme {
    /// As the output may look.
    pub(super) const fn new(output: &Output) -> Self {
        Self { color: output.color }
    }

    /// Nothing special.
    pub(super) const fn plain(self) -> Style {
        Style::new()
    }

    /// Headings.
    pub(super) fn heading(self) -> Style {
        self.wanted(Style::new().add_modifier(Modifier::BOLD))
    }

    /// All is well.
    pub(super) fn good(self) -> Style {
        self.wanted(Style::new().fg(Color::Green))
    }

    /// Somebody should look.
    pub(super) fn bad(self) -> Style {
        self.wanted(Style::new().fg(Color::Red))
    }

    /// Neither well nor bad, and not for ever: drained, in maintenance.
    pub(super) fn notable(self) -> Style {
        self.wanted(Style::new().fg(Color::Yellow))
    }

    /// What is of less interest.
    pub(super) fn dim(self) -> Style {
        self.wanted(Style::new().add_modifier(Modifier::DIM))
    }

    const fn wanted(self, style: Style) -> Style {
        if self.color { style } else { Style::new() }
    }
}
