//! Keys of the screen.

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

/// Meaning of a key, or of another event of the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    /// Ends it.
    Quit,
    /// Sorts the nodes by the next column.
    Sort,
    /// One node up.
    Up,
    /// One node down.
    Down,
    /// One page up.
    PageUp,
    /// One page down.
    PageDown,
    /// To the first node.
    First,
    /// To the last node.
    Last,
    /// Shows or hides the help.
    Help,
    /// No action except a redraw: the terminal has another size, or the key has no meaning.
    Other,
}

impl From<Event> for Key {
    fn from(event: Event) -> Self {
        let Event::Key(key) = event else { return Self::Other };
        if key.kind == KeyEventKind::Release {
            return Self::Other;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Self::Quit } else { Self::Other };
        }
        match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => Self::Quit,
            KeyCode::Char('s') => Self::Sort,
            KeyCode::Char('?' | 'h') => Self::Help,
            KeyCode::Up | KeyCode::Char('k') => Self::Up,
            KeyCode::Down | KeyCode::Char('j') => Self::Down,
            KeyCode::PageUp => Self::PageUp,
            KeyCode::PageDown | KeyCode::Char(' ') => Self::PageDown,
            KeyCode::Home | KeyCode::Char('g') => Self::First,
            KeyCode::End | KeyCode::Char('G') => Self::Last,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn control_c_quits_in_raw_mode() {
        let key = |code, modifiers| Key::from(Event::Key(KeyEvent::new(code, modifiers)));
        let plain = KeyModifiers::NONE;
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Key::Quit);
        assert_eq!(key(KeyCode::Char('c'), plain), Key::Other);
        assert_eq!(key(KeyCode::Char('q'), plain), Key::Quit);
        assert_eq!(key(KeyCode::Esc, plain), Key::Quit);
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::CONTROL), Key::Other);
        assert_eq!(key(KeyCode::Char('?'), KeyModifiers::SHIFT), Key::Help);
        assert_eq!(Key::from(Event::Resize(10, 3)), Key::Other);
    }

    #[test]
    fn key_press_and_release_count_once() {
        let up = KeyEvent { kind: KeyEventKind::Release, ..KeyEvent::new(KeyCode::Down, KeyModifiers::NONE) };
        assert_eq!(Key::from(Event::Key(up)), Key::Other);
    }
}
