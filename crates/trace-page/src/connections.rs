//! The connections that are open, of which there is a bound.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections at a time: a browser has six to one server.
const MOST: usize = 32;

struct One {
    stream: Arc<TcpStream>,
    /// It has shown the token.
    is_known: bool,
}

/// The open connections. Where there is one too many, one that has not shown the token has to go, and
/// of those the one that was opened first: whoever may not read keeps nobody out who may.
#[derive(Default)]
pub(crate) struct Connections {
    /// In the order in which they were opened, or last asked for something.
    all: Mutex<Vec<One>>,
}

/// An open connection; it counts as long as this lives.
pub(crate) struct Open<'c> {
    connections: &'c Connections,
    stream: Arc<TcpStream>,
}

impl Connections {
    fn all(&self) -> MutexGuard<'_, Vec<One>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(&self, stream: &Arc<TcpStream>) -> Open<'_> {
        let mut all = self.all();
        if all.len() >= MOST {
            let first = all.iter().position(|one| !one.is_known).unwrap_or(0);
            // Its thread sees that it has ended.
            let _ = all.remove(first).stream.shutdown(Shutdown::Both);
        }
        all.push(One {
            stream: stream.clone(),
            is_known: false,
        });
        Open {
            connections: self,
            stream: stream.clone(),
        }
    }
}

impl Open<'_> {
    fn take(&self, all: &mut Vec<One>) -> Option<One> {
        let is_this = |one: &One| Arc::ptr_eq(&one.stream, &self.stream);
        all.iter().position(is_this).map(|place| all.remove(place))
    }

    /// It has shown the token.
    pub(crate) fn is_known(&self) {
        let mut all = self.connections.all();
        if let Some(mut one) = self.take(&mut all) {
            one.is_known = true;
            all.push(one);
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.take(&mut self.connections.all());
    }
}
