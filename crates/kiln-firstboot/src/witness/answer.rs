//! The answer to a report: HTTP/1.1, of which only the status, `Retry-After` and the first words count.

use std::time::Duration;

/// How many bytes of an answer are read.
pub const LONGEST_ANSWER: usize = 16 * 1024;
/// How much of its body is told.
const LONGEST_WORDS: usize = 512;
const MOST_HEADERS: usize = 64;
/// Whoever says "come back tomorrow" is heard as "later".
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What the hub said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// 204 when it took the report.
    pub status: u16,
    /// When it may be asked again.
    pub retry_after: Option<Duration>,
    /// The beginning of the body, printable.
    pub said: String,
    /// Whether the body is here as far as its length was told.
    pub is_whole: bool,
}

/// Reads an answer as far as it has come: none until its head is complete.
pub fn parse_answer(bytes: &[u8]) -> Result<Option<Answer>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) =
        response.parse(bytes.get(..LONGEST_ANSWER.min(bytes.len())).unwrap_or(bytes))?
    else {
        return Ok(None);
    };
    let status = response.code.unwrap_or(0);
    let number = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok()?.trim().parse::<u64>().ok()
    };
    let body = bytes.get(head..).unwrap_or_default();
    let is_whole = status == 204 || number("content-length").is_some_and(|length| body.len() as u64 >= length);
    let words = String::from_utf8_lossy(&body[..body.len().min(LONGEST_WORDS)]);
    let said = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned();
    let retry_after = number("retry-after").map(Duration::from_secs).map(|wait| wait.min(LONGEST_WAIT));
    Ok(Some(Answer { status, retry_after, said, is_whole }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_far_as_they_have_come() {
        let busy = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\ncontent-length: 9\r\n\r\nlater\x1b[2J";
        let read = parse_answer(busy).unwrap().unwrap();
        assert_eq!(
            (read.status, read.retry_after, read.said.as_str(), read.is_whole),
            (503, Some(Duration::from_secs(7)), "later [2J", true)
        );
        for end in 0..busy.len() {
            let part = parse_answer(&busy[..end]).unwrap();
            assert!(part.is_none_or(|answer| !answer.is_whole && answer.status == 503), "{end}");
        }
        let taken = parse_answer(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap();
        assert_eq!((taken.status, taken.is_whole), (204, true));
        assert!(parse_answer(b"SSH-2.0-OpenSSH\r\n").is_err());
        let never = parse_answer(b"HTTP/1.1 429 x\r\nRetry-After: 99999999999\r\n\r\n").unwrap().unwrap();
        assert_eq!(never.retry_after, Some(LONGEST_WAIT));
    }
}
