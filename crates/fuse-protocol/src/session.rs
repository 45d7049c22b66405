//! Negotiating with the kernel, and serving.

use crate::abi::{
    FUSE_ASYNC_READ, FUSE_BIG_WRITES, FUSE_INIT_EXT, FUSE_KERNEL_VERSION, FUSE_MAX_PAGES,
    fuse_in_header, fuse_init_in, fuse_init_out,
};
use crate::device::{self, Device};
use crate::filesystem::{Filesystem, Offer};
use crate::notify::Notifier;
use crate::request::{INIT, Parts};
use crate::ring::{self, Leftovers, Plan, Prepared, Server};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use zerocopy::{FromBytes, IntoBytes};

/// The minor version of the protocol that we speak: that of Linux 6.14, where io_uring came.
const MINOR_VERSION: u32 = 42;
/// The least that we speak with: that of Linux 5.4, which takes all our mount options.
const LEAST_MINOR_VERSION: u32 = 31;
/// The kernel takes no smaller payload.
const LEAST_PAYLOAD_BYTES: usize = 8192;

/// Whether requests are to come by io_uring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// Where the kernel offers it.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Where the kernel does not offer it, [`Session::new`] fails.
    Required,
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By `/dev/fuse`.
    Device,
    /// By io_uring.
    IoUring {
        /// Queues of the kernel: one for each processor that there may be.
        queues: usize,
        /// Requests that can be under way at once, each in a thread of its own.
        requests: usize,
        /// Memory for the contents of those requests, in bytes. It is touched only where requests
        /// use it.
        buffers_bytes: u64,
    },
}

/// How to serve.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// The largest write that the kernel may send in one request, in bytes.
    pub max_write_bytes: u32,
    /// How many requests nobody waits for (read-ahead, write-back) may be under way at once.
    pub max_background: u16,
    /// The most bytes that the kernel may read ahead.
    pub max_read_ahead_bytes: u32,
    /// Threads that read `/dev/fuse`.
    pub threads: usize,
    /// Threads that serve all processors together, where requests come by io_uring; a processor has at
    /// least eight of them and at most sixteen.
    pub ring_threads: usize,
    /// Whether requests may come by io_uring.
    pub io_uring: IoUring,
}

impl SessionOptions {
    /// All that the system has to grant before the kernel is told that requests are to come by io_uring.
    fn rings(&self) -> io::Result<Rings> {
        let plan = Plan::new(self.ring_threads)?;
        let prepared = ring::prepare(&plan, self.payload_bytes())?;
        Ok(Rings { plan, prepared })
    }

    /// What a request, or its reply, takes at most in a ring besides its headers.
    fn payload_bytes(&self) -> usize {
        let bytes = pages(self.max_write_bytes) * rustix::param::page_size();
        bytes.max(LEAST_PAYLOAD_BYTES)
    }
}

/// A connection that has been negotiated.
#[derive(Debug)]
pub struct Session<F> {
    files: F,
    device: Arc<Device>,
    options: SessionOptions,
    /// What serves them, where requests come by io_uring.
    rings: Option<Rings>,
}

/// What serves requests that come by io_uring.
#[derive(Debug)]
struct Rings {
    plan: Plan,
    /// One for each thread of the plan.
    prepared: Vec<Prepared>,
}

/// A connection that is being served.
#[derive(Debug)]
pub struct Started {
    /// What tells the kernel of changes that did not pass through it.
    pub notifier: Notifier,
    /// How requests come.
    pub transport: Transport,
}

impl<F: Filesystem> Session<F> {
    /// Negotiates over a connection that [`mount`](crate::mount()) gave.
    ///
    /// # Errors
    ///
    /// The system's; `Unsupported` for a kernel that is too old, or that offers no io_uring where
    /// that is required.
    pub fn new(files: F, connection: OwnedFd, options: SessionOptions) -> io::Result<Session<F>> {
        let mut session = Session {
            files,
            device: Arc::new(Device::new(connection)),
            options,
            rings: None,
        };
        session.negotiate()?;
        Ok(session)
    }

    fn negotiate(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; device::request_bytes(self.options.max_write_bytes)];
        loop {
            let Some(bytes) = self.device.receive(&mut buffer)? else {
                return Err(io::Error::other("the mount went away at once"));
            };
            let parts = Parts::of(bytes).filter(|parts| parts.header.opcode == INIT);
            let Some(parts) = parts else {
                return Err(io::Error::other("the kernel's first request is not INIT"));
            };
            let offer = offer_of(&parts);
            if offer.major > FUSE_KERNEL_VERSION {
                // It then says once more what it offers, in the version that we speak.
                let version = [FUSE_KERNEL_VERSION, MINOR_VERSION];
                self.answer(&parts.header, 0, version.as_bytes())?;
                continue;
            }
            let answer = self.choose(&offer);
            return match answer {
                Ok(init) => self.answer(&parts.header, 0, init.as_bytes()),
                Err(error) => {
                    let errno = rustix::io::Errno::PROTO.raw_os_error();
                    self.answer(&parts.header, -errno, &[])?;
                    Err(error)
                }
            };
        }
    }

    fn answer(&self, header: &fuse_in_header, error: i32, bytes: &[u8]) -> io::Result<()> {
        self.device.reply(header.unique, error, [bytes, &[]])
    }

    fn choose(&mut self, offer: &fuse_init_in) -> io::Result<fuse_init_out> {
        let unsupported = |what: String| Err(io::Error::new(io::ErrorKind::Unsupported, what));
        if offer.major < FUSE_KERNEL_VERSION || offer.minor < LEAST_MINOR_VERSION {
            let (major, minor) = (offer.major, offer.minor);
            return unsupported(format!(
                "the kernel speaks version {major}.{minor} of FUSE; it takes Linux 5.4 or later"
            ));
        }
        let offered = u64::from(offer.flags) | u64::from(offer.flags2) << 32;
        let own = u64::from(FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_INIT_EXT);
        let is_offered = offered & ring::CAPABILITY != 0;
        let is_wanted = self.options.io_uring != IoUring::Off;
        if is_offered && is_wanted {
            self.rings = match self.options.rings() {
                Err(error) if self.options.io_uring == IoUring::Required => {
                    let what = format!("there is no io_uring here: {error}");
                    return Err(io::Error::new(error.kind(), what));
                }
                rings => rings
                    .inspect_err(|error| tracing::debug!(%error, "there is no io_uring"))
                    .ok(),
            };
        }
        let over_io_uring = self.rings.is_some();
        let chosen = self.files.negotiate(&Offer {
            flags: offered,
            over_io_uring,
        });
        let mut wanted = offered & (chosen | own);
        if over_io_uring {
            wanted |= ring::CAPABILITY;
        } else if self.options.io_uring == IoUring::Required {
            return unsupported(
                "the kernel offers no FUSE over io_uring (Linux 6.14 and later do, after \"echo Y > \
                 /sys/module/fuse/parameters/enable_uring\" as root)"
                    .into(),
            );
        }
        let options = &self.options;
        let mut max_background = options.max_background;
        if let Some(Rings { plan, .. }) = &self.rings {
            // All of them may come to one queue, and a part of its threads are left to requests that
            // somebody waits for.
            let most = u16::try_from(plan.at_once() * 3 / 4).unwrap_or(u16::MAX);
            max_background = max_background.min(most.max(1));
        }
        Ok(fuse_init_out {
            major: FUSE_KERNEL_VERSION,
            minor: MINOR_VERSION,
            max_readahead: offer.max_readahead.min(options.max_read_ahead_bytes),
            flags: wanted as u32,
            flags2: (wanted >> 32) as u32,
            max_background,
            congestion_threshold: (u32::from(max_background) * 3 / 4).max(1) as u16,
            max_write: options.max_write_bytes,
            time_gran: 1,
            max_pages: pages(options.max_write_bytes) as u16,
            ..Default::default()
        })
    }

    /// Serves in threads of its own. When this returns, the mount answers.
    ///
    /// # Errors
    ///
    /// The system's: no threads, no further descriptors, or io_uring does not work although the
    /// kernel offers it.
    pub fn start(self) -> io::Result<Started> {
        let files = Arc::new(self.files);
        let notifier = Notifier::new(self.device.clone());
        let mut threads = Vec::new();
        let transport = match self.rings {
            Some(rings) => start_rings(&files, &self.device, rings, &self.options, &mut threads)?,
            None => start_readers(&files, &self.device, &self.options, &mut threads)?,
        };
        Builder::new().name("fuse-end".into()).spawn(move || {
            for thread in threads {
                // One that panicked has answered with an error, and the others have gone on.
                let _ = thread.join();
            }
            files.ended();
        })?;
        Ok(Started {
            notifier,
            transport,
        })
    }
}

/// The pages of this system that so many bytes take.
fn pages(bytes: u32) -> usize {
    (bytes as usize).div_ceil(rustix::param::page_size())
}

/// `INIT` as the kernel sends it; older ones send less of it.
fn offer_of(parts: &Parts<'_>) -> fuse_init_in {
    let mut bytes = [0; size_of::<fuse_init_in>()];
    let len = parts.structure.len().min(bytes.len());
    bytes[..len].copy_from_slice(&parts.structure[..len]);
    fuse_init_in::read_from_bytes(&bytes).unwrap_or_default()
}

/// Starts the threads that read the device.
fn start_readers<F: Filesystem>(
    files: &Arc<F>,
    device: &Arc<Device>,
    options: &SessionOptions,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<Transport> {
    for number in 0..options.threads.max(1) {
        let device = match number {
            0 => device.clone(),
            _ => Arc::new(device.another()?),
        };
        let (files, most) = (files.clone(), options.max_write_bytes);
        let name = format!("fuse-{number}");
        let serve = move || device::serve(&*files, &device, most);
        threads.push(Builder::new().name(name).spawn(serve)?);
    }
    Ok(Transport::Device)
}

/// Starts the threads of the rings, and waits until the kernel has taken the slots of all.
fn start_rings<F: Filesystem>(
    files: &Arc<F>,
    device: &Arc<Device>,
    rings: Rings,
    options: &SessionOptions,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<Transport> {
    let Rings { plan, prepared } = rings;
    let leftovers = Leftovers::new(device.clone(), options.max_write_bytes)?;
    let leftovers = Arc::new(leftovers);
    let (told, registered) = channel::<io::Result<()>>();
    let serve = |told: Sender<io::Result<()>>, prepared| {
        let (files, leftovers) = (files.clone(), leftovers.clone());
        move || match Server::new(leftovers, prepared) {
            Ok(server) => {
                // Nobody listens any more where another thread has failed.
                let _ = told.send(Ok(()));
                drop(told);
                server.serve(&*files);
            }
            Err(error) => {
                let _ = told.send(Err(error));
            }
        }
    };
    for (number, prepared) in prepared.into_iter().enumerate() {
        let name = format!("fuse-{}-{number}", prepared.queue());
        let serve = serve(told.clone(), prepared);
        threads.push(Builder::new().name(name).spawn(serve)?);
    }
    drop(told);
    let all = registered.iter().collect::<io::Result<()>>();
    all.map_err(|error| {
        let what = format!("io_uring: {error}; io_uring=off does without");
        io::Error::new(error.kind(), what)
    })?;
    let files = files.clone();
    let serve = move || leftovers.serve(&*files);
    threads.push(Builder::new().name("fuse-leftovers".into()).spawn(serve)?);
    let requests = plan.queues().len();
    Ok(Transport::IoUring {
        queues: plan
            .queues()
            .iter()
            .max()
            .map_or(0, |last| usize::from(*last) + 1),
        requests,
        buffers_bytes: requests as u64 * options.payload_bytes() as u64,
    })
}
