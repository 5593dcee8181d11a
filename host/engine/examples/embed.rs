//! The engine in a program of one's own: runs one plugin file against the current kubeconfig until Ctrl-C.
//!
//! `cargo run --package host-engine --example embed -- hello.wasm`

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use host_engine::{Clock, Engine, InProcess, Parts, Settings, Sources};
use host_kube::ConnectOptions;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let plugin = std::env::args_os().nth(1).map(PathBuf::from);
    let plugin = plugin.context("name a plugin file: embed PLUGIN.wasm")?;
    let parts = Parts {
        client: host_kube::connect(ConnectOptions::default()).await?,
        sources: Sources::File { plugin, settings: None },
        // One's own plugin: no need for the child that protects a host from strangers'.
        compilation: Arc::new(InProcess),
        keys: host_engine::signature::Keys::default(),
        registries: host_engine::registry::Registries::default(),
        clock: Clock::system(),
        meter: Arc::new(()),
    };
    let engine = Engine::new(parts, Settings::new("embedded", std::process::id().into()))?;
    let interrupted = async {
        // Without a handler there is nothing to wait for.
        let _ = tokio::signal::ctrl_c().await;
    };
    Ok(engine.run(interrupted).await?)
}
