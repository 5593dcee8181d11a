//! Against servers that are absent, silent, foreign, endless or malicious.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::ask::{act, class, key, look, probe, request, with_secret};
use host_redis::{Resolved, limits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that answers whatever it is asked with `reply`, over and over, until the connection ends.
async fn endless(reply: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut asked = [0; 1024];
            if socket.read(&mut asked).await.is_ok() {
                while socket.write_all(&reply).await.is_ok() {}
            }
        }
    });
    address
}

/// A server that answers the first command with `reply` and closes.
async fn once(reply: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut asked = [0; 1024];
            if socket.read(&mut asked).await.is_ok() {
                let _ = socket.write_all(&reply).await;
                let _ = socket.shutdown().await;
            }
        }
    });
    address
}

#[tokio::test]
async fn a_closed_port_is_refused() {
    let address = SocketAddr::from((crate::server::free_ip(), 6379));
    let reply = look(address, json!([["PING"]])).await;
    assert_eq!(class(&reply), "refused", "{reply}");
    let problem = act(&request(json!([["BGSAVE"]])), &Resolved::at(address)).await.unwrap_err();
    assert_eq!(problem.reason, "RedisRefused");
}

#[tokio::test]
async fn a_silent_server_costs_the_timeout_and_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut silent = request(json!([["PING"]]));
    silent["timeoutMs"] = json!(150);
    let resolved = Resolved::at(listener.local_addr().unwrap());
    let start = Instant::now();
    let reply = probe(&silent, &resolved).await;
    let took = start.elapsed();
    assert_eq!(class(&reply), "timeout", "{reply}");
    assert!(took >= Duration::from_millis(150) && took < Duration::from_secs(1), "{took:?}");
    let problem = act(&silent, &resolved).await.unwrap_err();
    assert_eq!(problem.reason, "RedisTimeout");
}

#[tokio::test]
async fn what_is_not_redis_is_named_so() {
    for garbage in ["HTTP/1.1 400 Bad Request\r\n\r\n", "\0\0\0\0", "$abc\r\n", "*1\r\n?\r\n"] {
        let reply = look(once(garbage.into()).await, json!([["PING"]])).await;
        assert_eq!(class(&reply), "protocol", "{garbage:?}: {reply}");
    }
    let resp3 = look(once(b"%1\r\n+a\r\n+b\r\n".to_vec()).await, json!([["PING"]])).await;
    assert_eq!(class(&resp3), "protocol", "{resp3}");
}

#[tokio::test]
async fn a_connection_cut_within_a_reply_is_unreachable() {
    for half in ["", "+PO", "$100\r\nabc", "*2\r\n+a\r\n"] {
        let reply = look(once(half.into()).await, json!([["PING"]])).await;
        assert_eq!(class(&reply), "unreachable", "{half:?}: {reply}");
    }
}

#[tokio::test]
async fn an_endless_reply_is_cut_at_the_bound() {
    let line = vec![b'x'; 64 * 1024];
    let announced = [b"$2000000000\r\n".to_vec(), line.clone()].concat();
    let values = b"*1000000000\r\n".repeat(1000);
    let many = [b"*1000000000\r\n".to_vec(), b":1\r\n".repeat(10_000)].concat();
    for (name, reply) in
        [("line", [b"+".to_vec(), line].concat()), ("bulk", announced), ("many", many)]
    {
        let reply = look(endless(reply).await, json!([["PING"]])).await;
        assert_eq!(class(&reply), "tooLarge", "{name}: {reply}");
    }
    let nested = look(endless(values).await, json!([["PING"]])).await;
    assert_eq!(class(&nested), "protocol", "{nested}");
}

#[tokio::test]
async fn a_small_reply_that_grows_large_is_refused() {
    let nested = [b"*1\r\n".repeat(limits::REPLY_DEPTH_MAX + 1), b":1\r\n".to_vec()].concat();
    let reply = look(once(nested).await, json!([["PING"]])).await;
    assert_eq!(class(&reply), "tooLarge", "{reply}");
    // Each byte becomes six in JSON.
    let size = 500_000;
    let escaped = [format!("${size}\r\n").into_bytes(), vec![1; size], b"\r\n".to_vec()].concat();
    let reply = look(once(escaped).await, json!([["PING"]])).await;
    assert_eq!(class(&reply), "tooLarge", "{}", reply["error"]);
}

#[tokio::test]
async fn a_server_that_echoes_the_password_does_not_get_it_shown() {
    let password = "s3cret-and-long";
    for echo in [format!("-ERR you said {password}\r\n"), format!("-{password}\r\n")] {
        let mut login = request(json!([["PING"]]));
        login["auth"] = json!({"passwordSecret": {"name": "auth", "key": "password"}});
        let address = once(echo.into_bytes()).await;
        let resolved = with_secret(Resolved::at(address), key("auth", "password"), password);
        let reply = probe(&login, &resolved).await;
        assert_eq!(class(&reply), "auth");
        assert!(!reply.to_string().contains(password), "{reply}");
        let problem = act(&login, &resolved).await.unwrap_err();
        assert!(!problem.message.contains(password), "{problem:?}");
    }
}

#[tokio::test]
async fn no_reply_whatsoever_makes_it_panic() {
    // Sizes that overflow, run negative or promise more than there is, alone and within a list.
    let sizes = [
        "-1",
        "-9223372036854775808",
        "9223372036854775807",
        "18446744073709551616",
        "",
        "0x10",
        "1e3",
        "-",
    ];
    for kind in ['+', '-', ':', '$', '*', '%', '|', '~', '>', '=', '!', ',', '#', '(', '_'] {
        for size in sizes {
            for reply in [format!("{kind}{size}\r\n"), format!("*1\r\n{kind}{size}\r\n:1\r\n")] {
                let answer = look(once(reply.clone().into_bytes()).await, json!([["PING"]])).await;
                assert!(answer["reachable"].is_boolean(), "{reply:?}: {answer}");
            }
        }
    }
}
