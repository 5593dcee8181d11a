//! What a process has used, as the kernel counts it.

use anyhow::Context as _;

/// CPU time of one process and of the children it has waited for (the host compiles plugins in one), and its memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// User and system time since the start, seconds.
    pub(crate) cpu_s: f64,
    /// The resident set now, bytes.
    pub(crate) rss_bytes: u64,
    /// The largest resident set so far, bytes.
    pub(crate) rss_peak_bytes: u64,
}

/// Reads `/proc`.
pub(crate) fn of(pid: u32) -> anyhow::Result<Usage> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    };
    let ticks = ticks(&read("stat")?).context("/proc/PID/stat has another form")?;
    let status = read("status")?;
    let bytes = |field: &str| {
        let kib = kib(&status, field).with_context(|| format!("/proc/PID/status has no {field}"));
        kib.map(|kib| kib * 1024)
    };
    #[expect(clippy::cast_precision_loss, reason = "a benchmark's ticks fit 52 bits")]
    let cpu_s = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Ok(Usage { cpu_s, rss_bytes: bytes("VmRSS:")?, rss_peak_bytes: bytes("VmHWM:")? })
}

/// The largest resident set so far, bytes, of those children of a process whose command line begins with any program and
/// this argument.
pub(crate) fn child_peak_bytes(pid: u32, argument: &str) -> Option<u64> {
    // Each thread has the children that it has started.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let lists = threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let peak = |child: &str| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{child}/{file}")).ok();
        // Before it runs its program, a child has the command line and the memory of its parent.
        if read("cmdline")?.split('\0').nth(1) != Some(argument) {
            return None;
        }
        // One that has ended has no memory.
        Some(kib(&read("status")?, "VmHWM:")? * 1024)
    };
    lists.filter_map(|list| list.split_whitespace().filter_map(peak).max()).max()
}

/// `utime`, `stime`, `cutime`, `cstime`: fields 14 to 17, counted behind the command's closing parenthesis, which may itself hold spaces.
fn ticks(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let fields = behind.split_whitespace().skip(11).take(4);
    fields.map(|field| field.parse::<u64>().ok()).sum()
}

fn kib(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 9 9 20 0 4 0 100 0 0";
        assert_eq!(ticks(stat), Some(218));
        let status = "Name:\tx\nVmHWM:\t  5120 kB\nVmRSS:\t 1 kB\n";
        assert_eq!((kib(status, "VmHWM:"), kib(status, "VmRSS:")), (Some(5120), Some(1)));
        let usage = of(std::process::id()).unwrap();
        assert!(usage.rss_peak_bytes >= usage.rss_bytes && usage.rss_bytes > 0);
    }

    #[test]
    fn finds_a_child_by_its_argument() {
        let mut child = std::process::Command::new("sleep").arg("123").spawn().unwrap();
        // Its command line is there a moment after it has begun.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let own = loop {
            let found = child_peak_bytes(std::process::id(), "123");
            if found.is_some() || std::time::Instant::now() > deadline {
                break found;
            }
        };
        let other = child_peak_bytes(std::process::id(), "124");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(own.is_some_and(|bytes| bytes > 0));
        assert_eq!(other, None);
    }
}
