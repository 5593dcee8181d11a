//! Carries out a request: connect, log in, one command after the other.
//!
//! A connection is opened for each request and closed after it: no state is kept that a failover,
//! a new password or a new address could make wrong.

use host_core::limits::cut;
use host_core::snapshot::Problem;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, RedisConnectionInfo, RedisError};

use crate::capped::{Capped, Fault};
use crate::command::secret;
use crate::request::{ActionRequest, Auth, ProbeRequest, Request};
use crate::resolved::Resolved;
use crate::unreachable::{Class, Unreachable};
use crate::{connection, error_reply, limits, reply, reply::Reply};

/// Looks at a server. Never fails: that it cannot be reached is a reply, with the reason inside.
/// Takes at most the request's timeout.
pub async fn probe(request: &ProbeRequest, resolved: &Resolved) -> String {
    let replies = run(request, resolved, false).await;
    let json = replies.and_then(|replies| reply::to_json(&replies, resolved));
    json.unwrap_or_else(|unreachable| unreachable.reply())
}

/// Commands a server. The first error reply ends the list and is the problem; commands before it were carried out.
/// Takes at most the request's timeout; whether a command that was cut off took effect is for the next probe to see.
pub async fn act(request: &ActionRequest, resolved: &Resolved) -> Result<String, Problem> {
    let replies =
        run(request, resolved, true).await.map_err(|unreachable| unreachable.problem())?;
    if let (Some(Reply::Error { code, message }), Some(command)) =
        (replies.last(), request.commands.get(replies.len().saturating_sub(1)))
    {
        let message = format!("{}: {code} {message}", command.name());
        return Err(Problem {
            reason: error_reply::reason(code, &message).to_owned(),
            message: cut(&message, limits::PROBLEM_BYTES_MAX),
        });
    }
    reply::to_json(&replies, resolved).map_err(|unreachable| unreachable.problem())
}

/// A connection in use.
struct Session<'a> {
    connection: MultiplexedConnection,
    fault: Fault,
    resolved: &'a Resolved,
}

async fn run(
    request: &Request,
    resolved: &Resolved,
    stop_at_error: bool,
) -> Result<Vec<Reply>, Unreachable> {
    let packed = request.commands.iter().map(|command| command.packed(resolved));
    let packed = packed.collect::<Result<Vec<_>, _>>()?;
    let login = request.auth.as_ref().map(|auth| login(auth, resolved)).transpose()?;
    let talk = async {
        let (capped, fault) = Capped::new(connection::open(request.tls.as_ref(), resolved).await?);
        // Nothing is sent but what the request says: a user may be allowed nothing else.
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(&info, capped, config).await;
        let (connection, driver) = opened.map_err(|error| broken(&error, &fault))?;
        let exchange = async {
            let mut session = Session { connection, fault, resolved };
            if let Some(login) = &login {
                session.log_in(login).await?;
            }
            session.send_all(&packed, stop_at_error).await
        };
        tokio::pin!(exchange);
        // The driver moves the bytes. When it ends first, the exchange learns so from its own next step.
        tokio::select! {
            biased;
            replies = &mut exchange => return replies,
            () = driver => {}
        }
        exchange.await
    };
    tokio::time::timeout(request.timeout, talk).await.unwrap_or_else(|_| {
        let message = format!("no answer within {} ms", request.timeout.as_millis());
        Err(Unreachable::new(Class::Timeout, message))
    })
}

impl Session<'_> {
    async fn log_in(&mut self, login: &Cmd) -> Result<(), Unreachable> {
        match self.ask(login).await? {
            Reply::Error { code, message } => Err(Unreachable::new(
                Class::Auth,
                format!("the server refused the login: {code} {message}"),
            )),
            Reply::Text(_) | Reply::Integer(_) | Reply::List(_) | Reply::Nil(_) => Ok(()),
        }
    }

    async fn send_all(
        &mut self,
        commands: &[Cmd],
        stop_at_error: bool,
    ) -> Result<Vec<Reply>, Unreachable> {
        let mut replies = Vec::with_capacity(commands.len());
        for command in commands {
            let reply = self.ask(command).await?;
            let stop = stop_at_error && matches!(reply, Reply::Error { .. });
            replies.push(reply);
            if stop {
                break;
            }
        }
        Ok(replies)
    }

    async fn ask(&mut self, command: &Cmd) -> Result<Reply, Unreachable> {
        let value = self.connection.send_packed_command(command).await;
        Reply::from_value(value.map_err(|error| broken(&error, &self.fault))?, self.resolved)
    }
}

/// Why an exchange broke. The socket knows best; the library's own text is left out, for it may quote what was sent.
fn broken(error: &RedisError, fault: &Fault) -> Unreachable {
    let blurred = || {
        if error.kind() == ErrorKind::Parse {
            Unreachable::new(Class::Protocol, "what answers on this port does not speak Redis")
        } else {
            Unreachable::new(Class::Unreachable, "the connection was closed")
        }
    };
    fault.get().cloned().unwrap_or_else(blurred)
}

fn login(auth: &Auth, resolved: &Resolved) -> Result<Cmd, Unreachable> {
    let mut command = redis::cmd("AUTH");
    if let Some(username) = &auth.username {
        command.arg(username);
    }
    command.arg(secret(&auth.password, resolved)?);
    Ok(command)
}
