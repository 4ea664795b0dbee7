//! Keys as they are pressed, from a thread of their own: reading a terminal blocks, and one that has gone away must hold
//! up nobody but its reader.

use super::key::Key;
use crate::exit::Failure;
use ratatui::crossterm::event;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// How long the thread outlives whoever listened.
const LOOK_UP: Duration = Duration::from_millis(100);
/// Keys that wait to be taken; the reader waits with the next one, and the terminal keeps the rest.
const KEYS_MAX: usize = 64;

/// What is pressed. Dropping it ends the thread within a tenth of a second, or the process does before.
pub(super) struct Keyboard(Receiver<std::io::Result<Key>>);

impl Keyboard {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn listen() -> Result<Self, Failure> {
        let (sender, receiver) = mpsc::channel(KEYS_MAX);
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || read(&sender))
            .map_err(|error| Failure::failed(format!("starting the thread that reads keys: {error}")))?;
        Ok(Self(receiver))
    }

    /// The next key.
    ///
    /// # Errors
    /// If the terminal cannot be read any more.
    pub(super) async fn next(&mut self) -> Result<Key, Failure> {
        match self.0.recv().await {
            Some(Ok(key)) => Ok(key),
            Some(Err(error)) => Err(Failure::failed(format!("reading the terminal: {error}"))),
            None => Err(Failure::failed("reading the terminal ended early")),
        }
    }
}

fn read(keys: &Sender<std::io::Result<Key>>) {
    while !keys.is_closed() {
        let read = match event::poll(LOOK_UP) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let ended = read.is_err();
        if keys.blocking_send(read.map(Key::from)).is_err() || ended {
            return;
        }
    }
}
