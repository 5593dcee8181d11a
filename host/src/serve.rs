//! `/metrics`, `/healthz`, `/readyz`, `/debug/explain`.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::explain::Question;
use crate::run::Host;

/// Binds the address; the error says what to do when it is taken.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} (is it in use? choose another address with --listen)")
    })
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, host: Arc<Host>) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/debug/explain", get(explain))
        .with_state(host);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "serving metrics and health has ended");
    }
}

async fn metrics(State(host): State<Arc<Host>>) -> impl IntoResponse {
    let kind =
        [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    match host.metrics.render(&host) {
        Ok(text) => (StatusCode::OK, kind, text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, kind, format!("{error}\n")),
    }
}

/// Ready once the plugins' source has been read: a bad plugin does not make the host unready, an
/// unreachable API server does.
async fn ready(State(host): State<Arc<Host>>) -> (StatusCode, String) {
    match host.rollout.readiness() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

async fn explain(
    State(host): State<Arc<Host>>,
    Query(question): Query<Question>,
) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    match crate::explain::explain(&host, &question) {
        Ok(explanation) => match serde_json::to_string(&explanation) {
            Ok(text) => (StatusCode::OK, kind, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, kind, format!("{error}\n")),
        },
        Err(unknown) => (StatusCode::NOT_FOUND, kind, format!("{unknown}\n")),
    }
}
