//! Just enough of the Redis protocol to ask a server something.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(5);

/// One connection.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects to port 6379 of `ip`.
    pub(crate) fn open(ip: &str) -> std::io::Result<Self> {
        let address: SocketAddr = format!("{ip}:6379").parse().map_err(std::io::Error::other)?;
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// One command, and the reply in the provider's form.
    pub(crate) fn call(&mut self, words: &[&str]) -> std::io::Result<Value> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            // Writing to a String does not fail.
            let _ = write!(request, "${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(request.as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> std::io::Result<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let (kind, rest) =
            line.trim_end().split_at_checked(1).ok_or_else(|| std::io::Error::other("no reply"))?;
        let number = || rest.parse::<i64>().map_err(std::io::Error::other);
        Ok(match kind {
            "+" => json!({"text": rest}),
            "-" => {
                let (code, message) = rest.split_once(' ').unwrap_or((rest, ""));
                json!({"error": {"code": code, "message": message}})
            }
            ":" => json!({"integer": number()?}),
            "$" => match usize::try_from(number()?) {
                Err(_) => json!({"nil": true}),
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.0.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    json!({"text": String::from_utf8_lossy(&bytes)})
                }
            },
            "*" => {
                let count = number()?;
                json!({"list": (0..count).map(|_| self.reply()).collect::<Result<Vec<_>, _>>()?})
            }
            _ => return Err(std::io::Error::other(format!("not a reply: {line:?}"))),
        })
    }
}
