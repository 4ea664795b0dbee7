//! One connection shared by many tasks: concurrent requests leave in one write, and answers come in the order of
//! requests. This is how a pipelining client library of Redis or ZooKeeper works, and how Archon's own client
//! coalesces.

use archon_load::Failure;
use bytes::{Bytes, BytesMut};
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

/// A request that ends each write of a pipe. The answers to the requests of that write count once it is answered.
#[derive(Debug)]
pub(crate) struct Barrier<R> {
    /// The encoded request.
    pub(crate) request: Bytes,
    /// Returns true if its answer confirms the write.
    pub(crate) confirms: fn(&R) -> bool,
}

#[derive(Debug)]
struct State<R> {
    out: RefCell<BytesMut>,
    /// Requests without an answer, in order; `None` is a barrier.
    waiting: RefCell<VecDeque<Option<oneshot::Sender<R>>>>,
    barrier: Option<Barrier<R>>,
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
    pub(crate) fn new<F: Frames<Reply = R>>(stream: TcpStream, frames: F, barrier: Option<Barrier<R>>) -> Self {
        let (reader, writer) = stream.into_split();
        let state = Rc::new(State {
            out: RefCell::new(BytesMut::with_capacity(64 * 1024)),
            waiting: RefCell::default(),
            barrier,
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
        self.state.waiting.borrow_mut().push_back(Some(sender));
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
            let mut chunk = state.out.borrow_mut().split();
            if chunk.is_empty() {
                break;
            }
            if let Some(barrier) = &state.barrier {
                chunk.extend_from_slice(&barrier.request);
                state.waiting.borrow_mut().push_back(None);
            }
            if writer.write_all(&chunk).await.is_err() {
                return state.breaks("the server no longer accepts requests");
            }
        }
    }
}

async fn read<F: Frames>(state: Rc<State<F::Reply>>, mut reader: OwnedReadHalf, mut frames: F) {
    let mut arrived = BytesMut::with_capacity(64 * 1024);
    let mut held = Vec::new();
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
                        return state.breaks("the server sent an answer without a request");
                    };
                    match (waiting, &state.barrier) {
                        (Some(waiting), Some(_)) => held.push((waiting, reply)),
                        (Some(waiting), None) => drop(waiting.send(reply)),
                        (None, Some(barrier)) if (barrier.confirms)(&reply) => {
                            held.drain(..).for_each(|(waiting, reply)| drop(waiting.send(reply)));
                        }
                        (None, _) => return state.breaks("the server did not confirm a write"),
                    }
                }
                Ok(None) => break,
                Err(_) => return state.breaks("an answer could not be read"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{self, Reply, Resp};
    use tokio::net::TcpListener;

    fn pair_is_synced(reply: &Reply) -> bool {
        *reply == Reply::Array(vec![Reply::Number(1), Reply::Number(1)])
    }

    /// Returns the answers to two requests of one write, from a server that answers with `answers`.
    async fn call_twice(answers: &'static [u8]) -> [Result<Reply, Failure>; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (client, server) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let mut server = server.unwrap().0;
        let barrier = Barrier { request: Bytes::from_static(b"*1\r\n$4\r\nSYNC\r\n"), confirms: pair_is_synced };
        let pipe = Pipe::new(client.unwrap(), Resp, Some(barrier));
        let call = || pipe.call(|out| resp::command(out, &[b"SET"]));
        let serve = async {
            let mut asked = [0; 2 * 13 + 14];
            server.read_exact(&mut asked).await.unwrap();
            assert_eq!(&asked[..], b"*1\r\n$3\r\nSET\r\n*1\r\n$3\r\nSET\r\n*1\r\n$4\r\nSYNC\r\n");
            server.write_all(answers).await.unwrap();
        };
        let (first, second, ()) = tokio::join!(call(), call(), serve);
        [first, second]
    }

    #[tokio::test]
    async fn answers_of_a_write_count_once_its_barrier_confirms() {
        let local = tokio::task::LocalSet::new();
        let answers = local.run_until(call_twice(b"+A\r\n+B\r\n*2\r\n:1\r\n:1\r\n")).await;
        let [a, b] = answers.map(Result::unwrap);
        assert_eq!((a, b), (Reply::Simple(Bytes::from_static(b"A")), Reply::Simple(Bytes::from_static(b"B"))));
        let answers = local.run_until(call_twice(b"+A\r\n+B\r\n*2\r\n:1\r\n:0\r\n")).await;
        assert!(answers.iter().all(Result::is_err), "{answers:?}");
    }
}
