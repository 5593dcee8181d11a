//! What this process uses, from the kernel.

use std::fs;

/// Clock ticks a second in `/proc`: fixed at 100 for user space on Linux (man 5 proc).
const TICKS: f64 = 100.0;

/// Seconds of processor time so far, and resident bytes; zero where there is no `/proc`.
pub(super) fn usage() -> (f64, u64) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    (cpu(&stat).unwrap_or(0.0), resident(&status).unwrap_or(0))
}

/// utime and stime: fields 14 and 15, counted behind the name, which may hold spaces and brackets.
fn cpu(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((f64::from(user) + f64::from(system)) / TICKS)
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_processor_time_behind_an_odd_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 94 0 0 0 150 50 0 0 20 0 1 0 99 100 5";
        assert_eq!(cpu(stat), Some(2.0));
        assert_eq!(cpu("nonsense"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(usage().1 > 100_000);
    }
}
