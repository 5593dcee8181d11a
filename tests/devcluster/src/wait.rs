//! Waiting for a condition, with a deadline and an error that says what was waited for.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const POLL_EVERY: Duration = Duration::from_millis(100);

/// Polls `probe` until it gives a value.
///
/// An error of `probe` does not end the wait (the API may be away for a moment); the last one is
/// part of the error at the deadline.
pub async fn wait_for<T, F>(
    what: &str,
    deadline: Duration,
    mut probe: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let started = Instant::now();
    let mut last_error = None;
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => last_error = None,
            Ok(Err(error)) => last_error = Some(error),
            Err(_) => {}
        }
        if started.elapsed() >= deadline {
            match last_error {
                Some(error) => bail!("waited {deadline:?} for {what}; last error: {error:#}"),
                None => bail!("waited {deadline:?} for {what}"),
            }
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
