//! Key presses, read by a separate thread: reading a terminal blocks, and a terminal that is gone must block only this
//! reader.

use super::key::Key;
use crate::exit::Failure;
use ratatui::crossterm::event;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Maximum time for which the thread outlives its receiver.
const LOOK_UP: Duration = Duration::from_millis(100);
/// Maximum number of queued keys; the reader waits with the next one, and the terminal keeps the rest.
const KEYS_MAX: usize = 64;

/// Key presses. Dropping it ends the thread within a tenth of a second, unless the process ends before.
pub(super) struct Keyboard(Receiver<std::io::Result<Key>>);

impl Keyboard {
    /// Starts to listen.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn listen() -> Result<Self, Failure> {
        let (sender, receiver) = mpsc::channel(KEYS_MAX);
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || read(&sender))
            .map_err(|error| Failure::failed(format!("starting the thread that reads keys: {error}")))?;
        Ok(Self(receiver))
    }

    /// Returns the next key.
    ///
    /// # Errors
    /// The terminal is no longer readable.
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
