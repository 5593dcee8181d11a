//! A real redis-server for one test: its own loopback address, its own directory, gone when dropped.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A running redis-server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
    // Removed after the process is gone.
    _state: tempfile::TempDir,
}

/// A loopback address that no other test of this process or of a concurrent one uses: 127.(64..127).x.y.
pub(crate) fn free_ip() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(count < 1 << 10, "too many addresses for one run");
    let bits = (std::process::id() << 10 | count) & 0x3f_ffff;
    Ipv4Addr::from(0x7f40_0000 | bits)
}

impl Server {
    /// Starts one with settings added, `("requirepass", "x")`, and waits until it listens.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), 6379, settings)
    }

    /// The same on a given port and in a directory that may hold a data set or certificates.
    pub(crate) fn start_in(state: tempfile::TempDir, port: u16, settings: &[(&str, &str)]) -> Self {
        let ip = free_ip();
        let mut command = Command::new("redis-server");
        command.current_dir(state.path());
        command.args(["--bind", &ip.to_string(), "--bind-source-addr", &ip.to_string()]);
        command.args(["--save", "", "--protected-mode", "no", "--repl-diskless-sync-delay", "0"]);
        if !settings.iter().any(|(name, _)| *name == "tls-port") {
            command.args(["--port", &port.to_string()]);
        }
        for (name, value) in settings {
            command.arg(format!("--{name}")).arg(value);
        }
        let log = state.path().join("log");
        command.stdin(Stdio::null()).stdout(std::fs::File::create(&log).unwrap());
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("redis-server does not start ({error}); these tests need it:\napt-get install redis-server")
        });
        let mut server =
            Self { address: SocketAddr::new(IpAddr::V4(ip), port), child, _state: state };
        server.wait_until_listening(&log);
        server
    }

    /// The log tells, not the port: another server could be on it.
    fn wait_until_listening(&mut self, log: &Path) {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            if text.contains("Server initialized") {
                return;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "redis-server ended: {text}");
            assert!(Instant::now() < deadline, "redis-server does not start: {text}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
