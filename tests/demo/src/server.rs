//! Talks to one Redis server, as an application would.

use std::time::Duration;

use anyhow::Context as _;
use redis::Connection;

/// A server that does not answer within this is not there.
const TIMEOUT: Duration = Duration::from_millis(250);

fn connect(address: &str) -> anyhow::Result<Connection> {
    let client =
        redis::Client::open(format!("redis://{address}:6379")).context("not an address")?;
    let connection = client.get_connection_with_timeout(TIMEOUT)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    Ok(connection)
}

/// Writes `count` keys.
pub(crate) fn fill(address: &str, count: u32) -> anyhow::Result<()> {
    let mut connection = connect(address)?;
    let mut pipe = redis::pipe();
    for key in 0..count {
        pipe.cmd("SET").arg(format!("demo:{key}")).arg(key).ignore();
    }
    pipe.query::<()>(&mut connection).context("cannot write the demo's keys")
}

/// Waits until `replicas` replicas have everything; gives how many have.
pub(crate) fn wait_for_replicas(address: &str, replicas: u32) -> anyhow::Result<u32> {
    let mut connection = connect(address)?;
    connection.set_read_timeout(Some(Duration::from_secs(11)))?;
    redis::cmd("WAIT").arg(replicas).arg(10_000).query(&mut connection).context("WAIT has failed")
}

/// How many keys there are.
pub(crate) fn keys(address: &str) -> anyhow::Result<u64> {
    redis::cmd("DBSIZE").query(&mut connect(address)?).context("DBSIZE has failed")
}

/// Whether the server takes a write.
pub(crate) fn is_writable(address: &str) -> bool {
    let write = || -> anyhow::Result<()> {
        let mut connection = connect(address)?;
        redis::cmd("SET").arg("demo:0").arg(0).query::<()>(&mut connection)?;
        Ok(())
    };
    write().is_ok()
}
