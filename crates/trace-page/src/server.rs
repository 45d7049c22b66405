//! Hands out the page and what it asks for.
//!
//! It listens on the loopback address only. Whoever knows the address with its token may read; a page
//! of somebody else in the same browser must not. So each request is held to three things: the token
//! in its path, `Host` (a name that leads here is not enough), and `Origin` and `Sec-Fetch-Site` where
//! the browser says them.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::answers::{Answering, Reply, reason};
use crate::connections::Connections;

/// Bytes of a request's head.
const MOST_HEAD_BYTES: usize = 8 << 10;
const MOST_HEADERS: usize = 64;
/// How long a connection may wait with its next request.
const MOST_IDLE: Duration = Duration::from_secs(30);
/// How long a request's head may take, from its first byte on, and so a reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often in a row no connection could be had, and how long it is waited each time.
const MOST_FAILURES: u32 = 200;
/// See `MOST_FAILURES`.
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes of the token and the nonces, from the system's random numbers.
const RANDOM_BYTES: usize = 16;

/// A server of one trace.
pub struct Server {
    listener: TcpListener,
    port: u16,
    token: String,
    patience: Duration,
}

impl Server {
    /// Listens on a port of the loopback address; 0 is one that is free.
    ///
    /// # Errors
    /// Where it cannot be listened on.
    pub fn bind(port: u16) -> io::Result<Server> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        Ok(Server {
            port: listener.local_addr()?.port(),
            token: random()?,
            listener,
            patience: PATIENCE,
        })
    }

    /// The same server, which has no more patience than this with whoever sends a request, or takes a
    /// reply, slowly.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Server {
        Server { patience, ..self }
    }

    /// Where the page is.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// Answers requests, for ever.
    ///
    /// # Errors
    /// Where for a long time there are no more connections.
    pub fn run(&self, answers: &impl Answering) -> io::Result<()> {
        let (connections, mut failures) = (Connections::default(), 0);
        std::thread::scope(|scope| {
            loop {
                let stream = match self.listener.accept() {
                    Ok((stream, _)) => Arc::new(stream),
                    Err(error) if is_of_one(&error) => continue,
                    // There is no room for one more: that passes.
                    Err(error) if failures == MOST_FAILURES => return Err(error),
                    Err(_) => {
                        failures += 1;
                        std::thread::sleep(PAUSE);
                        continue;
                    }
                };
                failures = 0;
                let open = connections.open(&stream);
                let attend = move || {
                    // A connection that breaks off concerns nobody else.
                    let _ = self.attend(answers, &stream, || open.is_known());
                    drop(open);
                };
                // Where there is no room for a thread, the connection is closed.
                let _ = std::thread::Builder::new().spawn_scoped(scope, attend);
            }
        })
    }

    /// Answers one request of a connection after the other; `known` is told of each that is let in.
    fn attend(
        &self,
        answers: &impl Answering,
        stream: &TcpStream,
        known: impl Fn(),
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut bytes = Vec::new();
        loop {
            match self.read(stream, &mut bytes)? {
                Asked::Nothing => return Ok(()),
                Asked::For {
                    head_bytes,
                    rest,
                    goes_on,
                } => {
                    known();
                    let reply = answers.answer(&rest, &random()?);
                    self.send(stream, &reply, goes_on, true)?;
                    if !goes_on {
                        return Ok(());
                    }
                    drop(bytes.drain(..head_bytes));
                }
                Asked::Refused { status, is_head } => {
                    return self.send(stream, &Reply::refused(status), false, !is_head);
                }
            }
        }
    }

    /// Reads until there is the head of a request.
    fn read(&self, mut stream: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<Asked> {
        let (mut piece, mut ends) = ([0; 2048], None);
        loop {
            if !bytes.is_empty()
                && let Some(asked) = self.parse(bytes)
            {
                return Ok(asked);
            }
            if bytes.len() > MOST_HEAD_BYTES {
                return Ok(Asked::refused(431));
            }
            if !bytes.is_empty() && ends.is_none() {
                ends = Some(Instant::now() + self.patience);
            }
            stream.set_read_timeout(Some(match ends {
                Some(ends) => left_until(ends)?,
                None => MOST_IDLE,
            }))?;
            match stream.read(&mut piece)? {
                0 => return Ok(Asked::Nothing),
                count => bytes.extend_from_slice(&piece[..count]),
            }
        }
    }

    fn send(
        &self,
        mut stream: &TcpStream,
        reply: &Reply,
        goes_on: bool,
        with_body: bool,
    ) -> io::Result<()> {
        let mut all = head(reply, goes_on).into_bytes();
        if with_body {
            all.extend_from_slice(&reply.body);
        }
        let (mut rest, ends) = (&all[..], Instant::now() + self.patience);
        while !rest.is_empty() {
            stream.set_write_timeout(Some(left_until(ends)?))?;
            match stream.write(rest)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => rest = &rest[count..],
            }
        }
        Ok(())
    }

    /// What is asked for; nothing where the head is not there in whole.
    fn parse(&self, bytes: &[u8]) -> Option<Asked> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let head_bytes = match request.parse(bytes) {
            Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
            Ok(httparse::Status::Partial) => return None,
            Err(httparse::Error::TooManyHeaders) => return Some(Asked::refused(431)),
            Err(_) => return Some(Asked::refused(400)),
        };
        if head_bytes > MOST_HEAD_BYTES {
            return Some(Asked::refused(431));
        }
        let has_body = |header: &httparse::Header<'_>| {
            let is_empty = header.value == b"0";
            (header.name.eq_ignore_ascii_case("content-length") && !is_empty)
                || header.name.eq_ignore_ascii_case("transfer-encoding")
        };
        let has_body = request.headers.iter().any(has_body);
        let goes_on = request.version == Some(1) && !request.headers.iter().any(is_close);
        Some(match self.admit(&request) {
            // What would follow is not read, so the connection ends.
            Ok(_) if has_body => Asked::refused(413),
            Ok(rest) => Asked::For {
                head_bytes,
                rest: rest.to_owned(),
                goes_on,
            },
            Err(status) => Asked::Refused {
                status,
                is_head: request.method == Some("HEAD"),
            },
        })
    }

    /// What of the server a request asks for, if it may.
    fn admit<'r>(&self, request: &httparse::Request<'_, 'r>) -> Result<&'r str, u16> {
        // A header that is there twice, or is no text, is nobody's.
        let header = |name: &str| -> Result<Option<&str>, u16> {
            let mut found = request.headers.iter();
            let mut found = found
                .by_ref()
                .filter(|of| of.name.eq_ignore_ascii_case(name));
            match (found.next(), found.next()) {
                (None, _) => Ok(None),
                (Some(one), None) => std::str::from_utf8(one.value).map(Some).map_err(|_| 400),
                (Some(_), Some(_)) => Err(400),
            }
        };
        let names = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port));
        if !header("Host")?.is_some_and(|host| names.iter().any(|name| name == host)) {
            return Err(421);
        }
        let is_own = |origin: &str| names.iter().any(|name| origin == format!("http://{name}"));
        let is_near = |site: &str| matches!(site, "same-origin" | "none");
        if !header("Origin")?.is_none_or(is_own) || !header("Sec-Fetch-Site")?.is_none_or(is_near) {
            return Err(403);
        }
        if request.method != Some("GET") {
            return Err(405);
        }
        let path = request.path.and_then(|path| path.strip_prefix('/'));
        match path.and_then(|path| path.split_once('/')) {
            Some((token, rest)) if is_equal(token, &self.token) => Ok(rest),
            _ => Err(404),
        }
    }
}

/// What came over a connection.
enum Asked {
    /// It has ended.
    Nothing,
    /// A request: the length of its head, what is behind the token, and whether others may follow.
    For {
        head_bytes: usize,
        rest: String,
        goes_on: bool,
    },
    /// What is not answered, with what of HTTP's statuses; the connection ends with that. What asks
    /// for a head gets no body.
    Refused { status: u16, is_head: bool },
}

impl Asked {
    fn refused(status: u16) -> Asked {
        Asked::Refused {
            status,
            is_head: false,
        }
    }
}

/// Whether a header says that no other request follows.
fn is_close(header: &httparse::Header<'_>) -> bool {
    let mut words = header.value.split(|byte| *byte == b',');
    header.name.eq_ignore_ascii_case("connection")
        && words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// The time until a moment, which fails where that has passed.
fn left_until(ends: Instant) -> io::Result<Duration> {
    let left = ends.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// Errors of one connection that was to be.
fn is_of_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
    )
}

/// Compares in a time that does not tell how much is right.
fn is_equal(a: &str, b: &str) -> bool {
    let pairs = a.bytes().zip(b.bytes());
    let differs = pairs.fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b)));
    a.len() == b.len() && differs == 0
}

fn random() -> io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn head(reply: &Reply, goes_on: bool) -> String {
    let connection = if goes_on { "keep-alive" } else { "close" };
    let allow = if reply.status == 405 {
        "Allow: GET\r\n"
    } else {
        ""
    };
    format!(
        "HTTP/1.1 {} {}\r\n\
         Content-Type: {}\r\n\
         Content-Length: {}\r\n\
         Content-Security-Policy: {}\r\n\
         X-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n\
         Cross-Origin-Opener-Policy: same-origin\r\n\
         Cache-Control: no-store\r\n\
         {allow}Connection: {connection}\r\n\r\n",
        reply.status,
        reason(reply.status),
        reply.kind,
        reply.body.len(),
        reply.policy,
    )
}
