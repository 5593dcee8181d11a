//! `/metrics`, `/healthz`, `/readyz`, and what `operator-host` asks a running host: `/debug/…`.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use host_engine::Monitor;
use host_engine::explain::Question;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::telemetry::Metrics;

/// Binds the address; the error says what to do when it is taken.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} (is it in use? choose another address with --listen)")
    })
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, monitor: Monitor, metrics: Arc<Metrics>) {
    let here = listener.local_addr().map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip());
    let router =
        Router::new()
            .route("/metrics", get(move |monitor| async move { scrape(&metrics, monitor) }))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/debug/explain", get(explain))
            .route("/debug/plan", get(plan))
            .route(
                "/debug/recordings",
                get(move |peer, monitor, question| async move {
                    recordings(here, peer, monitor, question)
                }),
            )
            .with_state(monitor);
    let router = router.into_make_service_with_connect_info::<SocketAddr>();
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "serving metrics and health has ended");
    }
}

fn scrape(metrics: &Metrics, State(monitor): State<Monitor>) -> impl IntoResponse + use<> {
    let kind =
        [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    match metrics.render(&monitor.gauges()) {
        Ok(text) => (StatusCode::OK, kind, text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, kind, format!("{error}\n")),
    }
}

/// Ready once the plugins' source has been read: a bad plugin does not make the host unready, an
/// unreachable API server does.
async fn ready(State(monitor): State<Monitor>) -> (StatusCode, String) {
    match monitor.readiness() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

async fn explain(
    State(monitor): State<Monitor>,
    Query(question): Query<Question>,
) -> impl IntoResponse {
    json(monitor.explain(&question))
}

/// Whole objects, so only for who is here already: in the host's pod, or on its machine outside a cluster.
fn recordings(
    here: IpAddr,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    State(monitor): State<Monitor>,
    Query(question): Query<Question>,
) -> impl IntoResponse {
    let peer = peer.ip().to_canonical();
    if !peer.is_loopback() && peer != here {
        let why =
            "recordings are given to programs in the host's own pod alone: use `kubectl exec`";
        return Err((StatusCode::FORBIDDEN, format!("{why}\n")));
    }
    Ok(json(monitor.recorded(&question)))
}

/// Whose plan is asked for.
#[derive(Debug, Deserialize)]
struct PlanQuestion {
    plugin: String,
}

async fn plan(
    State(monitor): State<Monitor>,
    Query(question): Query<PlanQuestion>,
) -> impl IntoResponse {
    let plan = monitor.planned(&question.plugin);
    json(plan.as_deref().cloned().ok_or_else(|| {
        format!(
            "plugin {} has no candidate with a plan on this host: its newest revision acts, cannot run, or is still being tried (`operator-host plugin status {}`)",
            question.plugin, question.plugin
        )
    }))
}

fn json<T: Serialize>(answer: Result<T, impl Display>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let answer = answer.map_err(|unknown| (StatusCode::NOT_FOUND, unknown.to_string()));
    let text = answer.and_then(|answer| {
        serde_json::to_string(&answer)
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    });
    match text {
        Ok(text) => (StatusCode::OK, kind, text),
        Err((status, why)) => (status, kind, format!("{why}\n")),
    }
}
