//! Finds the processes at the other ends of connections on this machine.
//!
//! One thread answers all questions. It asks the kernel for the sockets of those that wait, and then reads the open files
//! of the members once for all of them: a burst of connections makes the batches larger, and no backlog of work.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use tokio::sync::oneshot;

use super::socket_inodes::SocketInodes;

/// Questions that may wait; further connections are taken for the clients'.
const WAITING_MAX: usize = 4_096;

/// Names of processes by process id.
pub(super) type Processes = BTreeMap<u32, String>;

/// A question for the process that holds the connection from `local` to `remote`.
struct Question {
    local: SocketAddr,
    remote: SocketAddr,
    processes: Processes,
    answer: oneshot::Sender<Option<String>>,
}

/// A handle of the thread, which ends with the last handle.
#[derive(Clone, Debug)]
pub(super) struct Callers {
    questions: SyncSender<Question>,
}

impl Callers {
    /// Starts the thread.
    ///
    /// # Panics
    /// If the kernel answers no such question, or no thread can be started.
    pub(super) fn new() -> Self {
        // Opened here: without it no caller would be found, and each would be taken for a client.
        let inodes = SocketInodes::open().expect("the kernel's socket for diagnosis of sockets");
        let (questions, waiting) = sync_channel(WAITING_MAX);
        let started = thread::Builder::new().name("callers".to_owned()).spawn(move || answer_all(&inodes, &waiting));
        started.expect("a thread that finds callers");
        Self { questions }
    }

    /// Returns the name of the process among `processes` that holds the connection from `local` to `remote`.
    pub(super) async fn find(&self, local: SocketAddr, remote: SocketAddr, processes: Processes) -> Option<String> {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send(Question { local, remote, processes, answer }).ok()?;
        answered.await.ok().flatten()
    }
}

fn answer_all(inodes: &SocketInodes, waiting: &Receiver<Question>) {
    while let Ok(first) = waiting.recv() {
        let questions: Vec<Question> = [first].into_iter().chain(waiting.try_iter()).collect();
        let asked: Vec<_> = questions.iter().map(|question| inodes.find(question.local, question.remote)).collect();
        // A connection is older than the question for it, so these lists of files hold it.
        let mut files = BTreeMap::<u32, Vec<u64>>::new();
        for (question, inode) in questions.into_iter().zip(asked) {
            let name = inode.and_then(|inode| {
                let mut processes = question.processes.iter();
                let holder =
                    processes.find(|(pid, _)| files.entry(**pid).or_insert_with(|| sockets_of(**pid)).contains(&inode));
                holder.map(|(_, name)| name.clone())
            });
            // Fails only if the connection has ended meanwhile.
            let _ = question.answer.send(name);
        }
    }
}

/// Returns the inodes of the sockets that a process holds.
fn sockets_of(pid: u32) -> Vec<u64> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn connection_is_traced_to_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (local, remote) = (stream.local_addr().expect("bound"), stream.peer_addr().expect("connected"));
        let callers = Callers::new();
        let me = Processes::from([(1, "init".to_owned()), (std::process::id(), "me".to_owned())]);
        assert_eq!(callers.find(local, remote, me.clone()).await, Some("me".to_owned()));
        assert_eq!(callers.find(local, remote, Processes::new()).await, None);
        assert_eq!(callers.find(local, SocketAddr::from(([127, 0, 0, 1], 9)), me).await, None);
    }

    #[tokio::test]
    async fn burst_of_connections_is_traced_whole() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let streams: Vec<_> = (0..100).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        let callers = Callers::new();
        let me = Processes::from([(std::process::id(), "me".to_owned())]);
        let found = streams.iter().map(|stream| callers.find(stream.local_addr().expect("bound"), address, me.clone()));
        let found = futures::future::join_all(found).await;
        assert_eq!(found, vec![Some("me".to_owned()); 100]);
    }
}
