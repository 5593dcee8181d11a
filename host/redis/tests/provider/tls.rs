//! TLS against a real redis-server, with certificates made for the test.

use crate::ask::{class, key, probe, request, with_secret};
use crate::server::Server;
use host_redis::Resolved;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

const NAME: &str = "cart-redis-0.cart-redis.shop.svc";

/// A certificate authority and what it signed, PEM.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        // OpenSSL takes a certificate whose subject is its issuer for self-signed.
        params.distinguished_name.push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    fn sign(&self, name: &str) -> (String, String) {
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&pair, &self.issuer).unwrap().pem(), pair.serialize_pem())
    }
}

fn start(authority: &Authority, clients: &str) -> Server {
    let state = tempfile::tempdir().unwrap();
    let (certificate, private) = authority.sign(NAME);
    for (file, content) in
        [("ca.crt", authority.issuer.pem()), ("tls.crt", certificate), ("tls.key", private)]
    {
        std::fs::write(state.path().join(file), content).unwrap();
    }
    let settings = [
        ("port", "0"),
        ("tls-port", "6379"),
        ("tls-ca-cert-file", "ca.crt"),
        ("tls-cert-file", "tls.crt"),
        ("tls-key-file", "tls.key"),
        ("tls-auth-clients", clients),
    ];
    Server::start_in(state, 6379, &settings)
}

fn ping(tls: Value) -> Value {
    let mut ping = request(json!([["PING"]]));
    ping["tls"] = tls;
    ping
}

fn trusting(server: &Server, authority: &Authority) -> Resolved {
    with_secret(Resolved::at(server.address), key("cart-tls", "ca.crt"), &authority.issuer.pem())
}

#[tokio::test]
async fn trusts_the_named_server_of_the_named_authority_only() {
    let authority = Authority::new();
    let server = start(&authority, "no");
    let ca = json!({"name": "cart-tls", "key": "ca.crt"});
    let named = ping(json!({"caSecret": ca, "serverName": NAME}));
    let reply = probe(&named, &trusting(&server, &authority)).await;
    assert_eq!(reply["replies"][0]["text"], "PONG", "{reply}");

    let foreign = probe(&named, &trusting(&server, &Authority::new())).await;
    assert_eq!(class(&foreign), "tls", "{foreign}");
    let other = ping(json!({"caSecret": ca, "serverName": "other.svc"}));
    assert_eq!(class(&probe(&other, &trusting(&server, &authority)).await), "tls");
    let unnamed = ping(json!({"caSecret": ca}));
    let reply = probe(&unnamed, &trusting(&server, &authority)).await;
    assert_eq!(class(&reply), "tls", "the address is not in the certificate: {reply}");
    let absent = probe(&named, &Resolved::at(server.address)).await;
    assert_eq!(class(&absent), "noSecret");
    let broken =
        with_secret(Resolved::at(server.address), key("cart-tls", "ca.crt"), "not a certificate");
    assert_eq!(class(&probe(&named, &broken).await), "tls");
}

#[tokio::test]
async fn shows_a_client_certificate_where_one_is_asked_for() {
    let authority = Authority::new();
    let server = start(&authority, "yes");
    let ca = json!({"name": "cart-tls", "key": "ca.crt"});
    let anonymous = ping(json!({"caSecret": ca, "serverName": NAME}));
    let reply = probe(&anonymous, &trusting(&server, &authority)).await;
    assert_eq!(class(&reply), "tls", "{reply}");

    let known =
        ping(json!({"caSecret": ca, "serverName": NAME, "clientCertSecret": {"name": "client"}}));
    let (certificate, private) = authority.sign("client");
    let resolved =
        with_secret(trusting(&server, &authority), key("client", "tls.crt"), &certificate);
    let resolved = with_secret(resolved, key("client", "tls.key"), &private);
    let reply = probe(&known, &resolved).await;
    assert_eq!(reply["replies"][0]["text"], "PONG", "{reply}");

    let (_, other) = authority.sign("other");
    let mismatched = with_secret(resolved, key("client", "tls.key"), &other);
    let reply = probe(&known, &mismatched).await;
    assert_eq!(class(&reply), "tls", "{reply}");
    assert!(!reply.to_string().contains("PRIVATE"), "{reply}");
}

#[tokio::test]
async fn plain_and_encrypted_do_not_understand_each_other() {
    let authority = Authority::new();
    let encrypted = start(&authority, "no");
    let reply = probe(&request(json!([["PING"]])), &Resolved::at(encrypted.address)).await;
    assert!(["unreachable", "protocol"].contains(&class(&reply)), "{reply}");
    let plain = Server::start(&[]);
    let named =
        ping(json!({"caSecret": {"name": "cart-tls", "key": "ca.crt"}, "serverName": NAME}));
    let reply = probe(&named, &trusting(&plain, &authority)).await;
    // Redis waits for the end of a line that a TLS greeting does not have.
    assert!(["tls", "timeout"].contains(&class(&reply)), "{reply}");
}
