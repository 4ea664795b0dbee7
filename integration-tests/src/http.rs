//! Plain HTTP client on a connection of its own, to test how a metrics server answers arbitrary input.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Time-out for an answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An HTTP answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Status, zero if there was no answer.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// Body.
    pub body: String,
}

/// Sends `request` unchanged and reads until the answer or the connection ends.
///
/// # Errors
/// If the connection to `address` fails.
pub fn send(address: &str, request: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // An early refusal may have closed the connection.
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
/// If the connection to `address` fails.
pub fn get(address: &str, path: &str) -> std::io::Result<Answer> {
    send(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n"))
}

/// Returns true once an answer with a length is complete: not every server closes the connection then.
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
