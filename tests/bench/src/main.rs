//! The command behind `cargo bench-host`.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    bench::compare::run().await
}
