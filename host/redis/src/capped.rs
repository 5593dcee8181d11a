//! A connection that stops reading at a bound, and remembers why it failed.
//!
//! **Invariant:** what is above it never sees more than the bound, whatever the server sends.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use redis::aio::AsyncStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::rustls;

use crate::limits;
use crate::unreachable::{Class, Unreachable};

/// Plain or encrypted.
pub(crate) type Stream = Box<dyn AsyncStream + Send + Unpin>;

/// The first thing that went wrong below the protocol, kept because the protocol's errors blur it.
pub(crate) type Fault = Arc<OnceLock<Unreachable>>;

/// Reads at most the bounds of one request.
pub(crate) struct Capped {
    inner: Stream,
    bytes_left: usize,
    lines_left: usize,
    fault: Fault,
}

impl Capped {
    /// With the bounds of one request. The fault is shared with the caller.
    pub(crate) fn new(inner: Stream) -> (Self, Fault) {
        let fault = Fault::default();
        let (bytes_left, lines_left) = (limits::REPLY_BYTES_MAX, limits::REPLY_LINES_MAX);
        (Self { inner, bytes_left, lines_left, fault: fault.clone() }, fault)
    }

    fn failed<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            self.fault.get_or_init(|| from_io(error));
        })
    }

    #[allow(clippy::naive_bytecount, reason = "a read is 8 KiB at most: not worth a dependency")]
    fn count(&mut self, read: &[u8]) -> io::Result<()> {
        let lines = read.iter().filter(|byte| **byte == b'\r').count();
        let left = self.bytes_left.checked_sub(read.len()).zip(self.lines_left.checked_sub(lines));
        let Some((bytes_left, lines_left)) = left else {
            let message = format!(
                "the reply is larger than {} bytes or {} values",
                limits::REPLY_BYTES_MAX,
                limits::REPLY_LINES_MAX
            );
            self.fault.get_or_init(|| Unreachable::new(Class::TooLarge, message));
            return Err(io::Error::other("reply bound reached"));
        };
        (self.bytes_left, self.lines_left) = (bytes_left, lines_left);
        Ok(())
    }
}

/// Names an error of a socket or of TLS.
pub(crate) fn from_io(error: &io::Error) -> Unreachable {
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return Unreachable::new(Class::Tls, tls.to_string());
    }
    let named = [
        (io::ErrorKind::ConnectionRefused, Class::Refused),
        (io::ErrorKind::TimedOut, Class::Timeout),
    ];
    let class = named.iter().find(|(kind, _)| *kind == error.kind());
    Unreachable::new(class.map_or(Class::Unreachable, |(_, class)| *class), error.to_string())
}

impl AsyncRead for Capped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        self.failed(result)?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if read.is_empty() {
            self.fault.get_or_init(|| {
                Unreachable::new(Class::Unreachable, "the server closed the connection")
            });
        }
        Poll::Ready(self.count(read))
    }
}

impl AsyncWrite for Capped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write(context, bytes));
        Poll::Ready(self.failed(result))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_flush(context));
        Poll::Ready(self.failed(result))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
