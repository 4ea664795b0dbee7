//! Plain HTTP over a connection of its own: what a member's metrics server says to whatever it is sent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status, zero if there was no answer.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// What follows them.
    pub body: String,
}

/// Sends `request` as it is and reads until the answer or the connection ends.
///
/// # Errors
/// If nobody listens at `address`.
pub fn send(address: &str, request: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // Whoever is refused early may find the connection gone.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let mut part = [0; 16 * 1024];
    while !is_whole(&answer)
        && let Ok(read @ 1..) = stream.read(&mut part)
    {
        answer.extend(&part[..read]);
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

/// Gets a path.
///
/// # Errors
/// If nobody listens at `address`.
pub fn get(address: &str, path: &str) -> std::io::Result<Answer> {
    send(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n"))
}

/// Whether an answer that says how long it is has come: not everybody closes the connection then.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, length)| length.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= head.len() + 4 + length)
}
