//! The command behind `cargo bench-swap`.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    bench::swap::run().await
}
