//! Who is let in.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backstitch_trace::{Recorder, Recording, Trace};
use backstitch_trace_page::{Answers, Server};

/// A server of a trace with nothing in it: its port and its token.
fn server() -> (u16, String) {
    patient_server(Duration::from_secs(10))
}

fn patient_server(patience: Duration) -> (u16, String) {
    let recorder = Arc::new(Recorder::in_memory(&Recording::default(), 1 << 20));
    // It serves as long as the test's process lives.
    let bytes: &'static [u8] = recorder.finish().leak();
    let answers = Answers::new("t.trace".to_owned(), Trace::new(bytes).unwrap());
    let server = Server::bind(0).unwrap().with_patience(patience);
    let address = server.address();
    std::thread::spawn(move || server.run(&answers));
    let rest = address.strip_prefix("http://127.0.0.1:").unwrap();
    let (port, token) = rest.split_once('/').unwrap();
    let token = token.trim_end_matches('/').to_owned();
    assert_eq!(token.len(), 32, "{address}");
    (port.parse().unwrap(), token)
}

/// What comes back for these bytes, until the connection is closed.
fn say(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // It may have had enough of it before the end.
    let _ = stream.write_all(request.as_bytes());
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8(reply).unwrap()
}

fn status(port: u16, request: &str) -> u16 {
    let reply = say(port, request);
    let word = reply
        .split(' ')
        .nth(1)
        .unwrap_or_else(|| panic!("{request:?}: {reply:?}"));
    word.parse().unwrap()
}

fn get(port: u16, path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n")
}

#[test]
fn who_has_the_address_gets_the_page_and_nothing_may_keep_or_extend_it() {
    let (port, token) = server();
    let reply = say(port, &get(port, &format!("/{token}/"), ""));
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    for line in [
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin",
        "Content-Security-Policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'",
    ] {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert!(
        !head.contains("unsafe") && !head.contains("Access-Control"),
        "{head}"
    );
    // The word that lets its script in is another one each time.
    let nonce = head
        .split("'nonce-")
        .nth(1)
        .and_then(|rest| rest.split('\'').next())
        .unwrap();
    assert_eq!(body.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    assert!(!body.contains("{{nonce}}"));
    let again = say(port, &get(port, &format!("/{token}/"), ""));
    assert!(!again.contains(nonce));
    for place in ["http:", "https:", "src=", "@import", "url(h"] {
        let body = body.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !body.contains(place),
            "nothing is fetched from elsewhere: {place}"
        );
    }
    let about = say(port, &get(port, &format!("/{token}/about"), ""));
    assert!(
        about.contains("application/json") && about.contains("t.trace"),
        "{about}"
    );
}

#[test]
fn a_page_of_somebody_else_is_refused() {
    let (port, token) = server();
    let path = format!("/{token}/about");
    let own = format!("Origin: http://127.0.0.1:{port}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(status(port, &get(port, &path, &own)), 200);
    for foreign in [
        "Origin: http://example.com\r\n".to_owned(),
        "Origin: null\r\n".to_owned(),
        format!("Origin: https://127.0.0.1:{port}\r\n"),
        format!("Origin: http://127.0.0.1:{}\r\n", port ^ 1),
        format!("Origin: http://127.0.0.1:{port}.example.com\r\n"),
        "Sec-Fetch-Site: cross-site\r\n".to_owned(),
        "Sec-Fetch-Site: same-site\r\n".to_owned(),
    ] {
        assert_eq!(status(port, &get(port, &path, &foreign)), 403, "{foreign}");
    }
    let twice = format!("{own}Origin: http://example.com\r\n");
    assert_eq!(status(port, &get(port, &path, &twice)), 400);
}

#[test]
fn a_name_that_leads_here_is_not_enough() {
    let (port, token) = server();
    let asks = |hosts: &str| status(port, &format!("GET /{token}/about HTTP/1.1\r\n{hosts}\r\n"));
    assert_eq!(asks(&format!("Host: localhost:{port}\r\n")), 200);
    for foreign in [
        format!("Host: example.com:{port}\r\n"),
        "Host: 127.0.0.1\r\n".to_owned(),
        format!("Host: 127.0.0.1:{}\r\n", port ^ 1),
        String::new(),
    ] {
        assert_eq!(asks(&foreign), 421, "{foreign}");
    }
    let twice = format!("Host: 127.0.0.1:{port}\r\nHost: example.com\r\n");
    assert_eq!(asks(&twice), 400);
}

#[test]
fn without_the_token_there_is_nothing() {
    let (port, token) = server();
    let mut almost = token.clone().into_bytes();
    almost[31] = if almost[31] == b'0' { b'1' } else { b'0' };
    let almost = String::from_utf8(almost).unwrap();
    let paths = [
        "/".to_owned(),
        "/about".to_owned(),
        format!("/{almost}/about"),
        format!("/{}/about", &token[..31]),
        format!("/{token}0/about"),
        format!("/{token}"),
        format!("//{token}/about"),
        format!("/{token}/nothing"),
        format!("/{token}/../about"),
    ];
    for path in paths {
        assert_eq!(status(port, &get(port, &path, "")), 404, "{path}");
    }
}

#[test]
fn what_is_no_short_question_is_refused() {
    let (port, token) = server();
    let path = format!("/{token}/about");
    for method in ["POST", "HEAD", "PUT", "OPTIONS", "DELETE", "CONNECT"] {
        let request = get(port, &path, "").replacen("GET", method, 1);
        assert_eq!(status(port, &request), 405, "{method}");
    }
    assert_eq!(
        status(port, &get(port, &path, "Content-Length: 5\r\n")),
        413
    );
    assert_eq!(
        status(port, &get(port, &path, "Transfer-Encoding: chunked\r\n")),
        413
    );
    let long = format!("X: {}\r\n", "x".repeat(20_000));
    assert_eq!(status(port, &get(port, &path, &long)), 431);
    let endless = format!("GET /{}", "x".repeat(20_000));
    assert_eq!(status(port, &endless), 431);
    let many = "X: y\r\n".repeat(200);
    assert_eq!(status(port, &get(port, &path, &many)), 431);
    for nonsense in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        assert_eq!(status(port, nonsense), 400, "{nonsense:?}");
    }
    // Who says half of something, and goes, does no harm.
    assert_eq!(say(port, "GET / HTT"), "");
    assert_eq!(status(port, &get(port, &path, "")), 200);
}

#[test]
fn one_connection_answers_many_questions() {
    let (port, token) = server();
    let request = get(port, &format!("/{token}/about"), "");
    let reply = say(port, &request.repeat(3));
    assert_eq!(reply.matches("HTTP/1.1 200 ").count(), 3);
}

/// A connection that fails rather than waits for long.
fn connected(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let most = Some(Duration::from_secs(5));
    stream.set_read_timeout(most).unwrap();
    stream
}

/// What comes back although the connection is left open from here.
fn say_and_stay(port: u16, request: &str) -> String {
    let mut stream = connected(port);
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    let ended = stream.read_to_string(&mut reply);
    assert!(ended.is_ok(), "{request:?} is kept open after {reply:?}");
    reply
}

#[test]
fn what_is_refused_is_closed_and_so_is_what_asks_for_it() {
    let (port, token) = server();
    let path = format!("/{token}/about");
    let post = get(port, &path, "").replacen("GET", "POST", 1);
    for (refused, status) in [
        (get(port, "/about", ""), 404),
        (get(port, &path, "Origin: http://example.com\r\n"), 403),
        (
            format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n"),
            421,
        ),
        (post, 405),
        (get(port, &path, "Connection: keep-alive, Close\r\n"), 200),
        (get(port, &path, "").replacen("/1.1", "/1.0", 1), 200),
    ] {
        let reply = say_and_stay(port, &refused);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Connection: close"), "{head}");
        let document: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(document["error"].is_string(), status != 200, "{body}");
    }
    let head = say_and_stay(port, &get(port, &path, "").replacen("GET", "HEAD", 1));
    assert!(head.ends_with("\r\n\r\n"), "a body: {head}");
}

#[test]
fn strangers_keep_nobody_out() {
    let (port, token) = server();
    let request = get(port, &format!("/{token}/about"), "");
    let mut own = connected(port);
    let mut ask_again = |what: &str| {
        own.write_all(request.as_bytes()).unwrap();
        let mut piece = [0; 4096];
        let count = own.read(&mut piece).unwrap();
        assert!(piece[..count].starts_with(b"HTTP/1.1 200 "), "{what}");
    };
    ask_again("at first");
    let strangers: Vec<TcpStream> = (0..100).map(|_| connected(port)).collect();
    assert_eq!(status(port, &request), 200);
    ask_again("beside a hundred strangers");
    drop(strangers);
}

#[test]
fn whoever_is_slow_is_not_waited_for() {
    let (port, token) = patient_server(Duration::from_millis(300));
    let mut stream = connected(port);
    let began = Instant::now();
    let request = get(port, &format!("/{token}/about"), &"X: y\r\n".repeat(30));
    // It takes ten seconds to say all of it, and never as long as the patience between two bytes.
    for byte in request.bytes() {
        if stream.write_all(&[byte]).is_err() || began.elapsed() > Duration::from_secs(5) {
            break;
        }
        std::thread::sleep(Duration::from_millis(40));
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(reply.is_empty());
}
