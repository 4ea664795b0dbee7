//! One connection shared by many tasks: concurrent requests leave in one write, and answers come in the order of
//! requests. This is how a pipelining client library of Redis or ZooKeeper works, and how Archon's own client
//! coalesces.

use archon_load::Failure;
use bytes::BytesMut;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Framing of a protocol's answers.
pub(crate) trait Frames: 'static {
    /// One answer.
    type Reply: 'static;

    /// Takes the next complete answer out of the received bytes.
    fn next(&mut self, arrived: &mut BytesMut) -> Result<Option<Self::Reply>, Failure>;
}

#[derive(Debug)]
struct State<R> {
    out: RefCell<BytesMut>,
    waiting: RefCell<VecDeque<oneshot::Sender<R>>>,
    wake: Notify,
    broken: Cell<Option<&'static str>>,
}

/// A shared connection; its two tasks end with it.
#[derive(Debug)]
pub(crate) struct Pipe<R> {
    state: Rc<State<R>>,
    tasks: [JoinHandle<()>; 2],
}

impl<R: 'static> Pipe<R> {
    /// Shares `stream`. Must run inside a `LocalSet`.
    pub(crate) fn new<F: Frames<Reply = R>>(stream: TcpStream, frames: F) -> Self {
        let (reader, writer) = stream.into_split();
        let state = Rc::new(State {
            out: RefCell::new(BytesMut::with_capacity(64 * 1024)),
            waiting: RefCell::default(),
            wake: Notify::new(),
            broken: Cell::new(None),
        });
        let tasks = [
            tokio::task::spawn_local(write(Rc::clone(&state), writer)),
            tokio::task::spawn_local(read(Rc::clone(&state), reader, frames)),
        ];
        Self { state, tasks }
    }

    /// Sends the request written by `encode`, and waits for its answer.
    pub(crate) async fn call(&self, encode: impl FnOnce(&mut BytesMut)) -> Result<R, Failure> {
        if let Some(why) = self.state.broken.get() {
            return Err(Failure::new("Broken", why));
        }
        let (sender, receiver) = oneshot::channel();
        encode(&mut self.state.out.borrow_mut());
        self.state.waiting.borrow_mut().push_back(sender);
        self.state.wake.notify_one();
        let gone = |_| Failure::new("Broken", self.state.broken.get().unwrap_or("the connection ended"));
        receiver.await.map_err(gone)
    }
}

impl<R> Drop for Pipe<R> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl<R> State<R> {
    fn breaks(&self, why: &'static str) {
        self.broken.set(Some(why));
        self.waiting.borrow_mut().clear();
    }
}

async fn write<R>(state: Rc<State<R>>, mut writer: OwnedWriteHalf) {
    loop {
        state.wake.notified().await;
        loop {
            let chunk = state.out.borrow_mut().split();
            if chunk.is_empty() {
                break;
            }
            if writer.write_all(&chunk).await.is_err() {
                return state.breaks("the server takes nothing any more");
            }
        }
    }
}

async fn read<F: Frames>(state: Rc<State<F::Reply>>, mut reader: OwnedReadHalf, mut frames: F) {
    let mut arrived = BytesMut::with_capacity(64 * 1024);
    loop {
        match reader.read_buf(&mut arrived).await {
            Ok(0) => return state.breaks("the server closed the connection"),
            Err(_) => return state.breaks("the connection broke"),
            Ok(_) => {}
        }
        loop {
            match frames.next(&mut arrived) {
                Ok(Some(reply)) => {
                    let Some(waiting) = state.waiting.borrow_mut().pop_front() else {
                        return state.breaks("the server answered what nobody asked");
                    };
                    let _ = waiting.send(reply);
                }
                Ok(None) => break,
                Err(_) => return state.breaks("an answer could not be read"),
            }
        }
    }
}
