//! Hands out the page and what it asks for.
//!
//! It listens on the loopback address only. Whoever knows the address with its token may read; a page
//! of somebody else in the same browser must not. So each request is held to three things: the token
//! in its path, `Host` (a name that leads here is not enough), and `Origin` and `Sec-Fetch-Site` where
//! the browser says them.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::answers::{Answers, Reply};

/// Connections at a time: a browser has six to one server.
const MOST_CONNECTIONS: usize = 16;
/// Bytes of a request's head.
const MOST_HEAD_BYTES: usize = 8 << 10;
const MOST_HEADERS: usize = 64;
/// How long a connection may say nothing, or take nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the token and the nonces, from the system's random numbers.
const RANDOM_BYTES: usize = 16;

/// A server of one trace.
pub struct Server {
    listener: TcpListener,
    port: u16,
    token: String,
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
        })
    }

    /// Where the page is.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// Answers requests, for ever.
    ///
    /// # Errors
    /// Where there are no more connections.
    pub fn run(&self, answers: &Answers<'_>) -> io::Result<()> {
        let open = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            loop {
                let stream = match self.listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if is_passing(&error) => continue,
                    Err(error) => return Err(error),
                };
                // One too many is closed, which the browser takes as a reason to come again.
                if open.load(Relaxed) >= MOST_CONNECTIONS {
                    continue;
                }
                open.fetch_add(1, Relaxed);
                let open = Open(&open);
                scope.spawn(move || {
                    // A connection that breaks off concerns nobody else.
                    let _ = self.attend(answers, stream);
                    drop(open);
                });
            }
        })
    }

    fn attend(&self, answers: &Answers<'_>, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut bytes = Vec::new();
        loop {
            let (head_bytes, reply) = match self.read(&mut stream, &mut bytes)? {
                Asked::Nothing => return Ok(()),
                Asked::For(head_bytes, rest) => {
                    (Some(head_bytes), answers.answer(&rest, &random()?))
                }
                Asked::Refused(head_bytes, status) => (head_bytes, Reply::refused(status)),
            };
            send(&mut stream, &reply, head_bytes.is_some())?;
            match head_bytes {
                Some(head_bytes) => drop(bytes.drain(..head_bytes)),
                None => return Ok(()),
            }
        }
    }

    /// Reads until there is the head of a request.
    fn read(&self, stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<Asked> {
        let mut piece = [0; 2048];
        loop {
            if !bytes.is_empty()
                && let Some(asked) = self.parse(bytes)
            {
                return Ok(asked);
            }
            if bytes.len() > MOST_HEAD_BYTES {
                return Ok(Asked::Refused(None, 431));
            }
            match stream.read(&mut piece)? {
                0 => return Ok(Asked::Nothing),
                count => bytes.extend_from_slice(&piece[..count]),
            }
        }
    }

    /// What is asked for; nothing where the head is not there in whole.
    fn parse(&self, bytes: &[u8]) -> Option<Asked> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let head_bytes = match request.parse(bytes) {
            Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
            Ok(httparse::Status::Partial) => return None,
            Err(httparse::Error::TooManyHeaders) => return Some(Asked::Refused(None, 431)),
            Err(_) => return Some(Asked::Refused(None, 400)),
        };
        if head_bytes > MOST_HEAD_BYTES {
            return Some(Asked::Refused(None, 431));
        }
        let has_body = |header: &httparse::Header<'_>| {
            let is_empty = header.value == b"0";
            (header.name.eq_ignore_ascii_case("content-length") && !is_empty)
                || header.name.eq_ignore_ascii_case("transfer-encoding")
        };
        // What would follow is not read, so the connection ends with the answer.
        let stays = (!request.headers.iter().any(has_body)).then_some(head_bytes);
        Some(match self.admit(&request) {
            Ok(rest) if stays.is_some() => Asked::For(head_bytes, rest.to_owned()),
            Ok(_) => Asked::Refused(None, 413),
            Err(status) => Asked::Refused(stays, status),
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

/// A connection that is open: it counts as long as this lives.
struct Open<'o>(&'o AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What came over a connection.
enum Asked {
    /// It has ended.
    Nothing,
    /// A request, with the length of its head and what is behind the token.
    For(usize, String),
    /// What is not answered, with what of HTTP's statuses; the length of its head where the
    /// connection goes on.
    Refused(Option<usize>, u16),
}

/// Errors of one connection, or of a moment in which there is no room for more.
fn is_passing(error: &io::Error) -> bool {
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

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        _ => "Bad Request",
    }
}

fn send(stream: &mut TcpStream, reply: &Reply, goes_on: bool) -> io::Result<()> {
    let connection = if goes_on { "keep-alive" } else { "close" };
    let allow = if reply.status == 405 {
        "Allow: GET\r\n"
    } else {
        ""
    };
    let head = format!(
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
    );
    let mut all = head.into_bytes();
    all.extend_from_slice(&reply.body);
    stream.write_all(&all)
}
