//! What a person reads while the demo runs, and the one line for programs at its end.

use std::io::Write as _;

use devcluster::DevCluster;

use crate::figures::Figures;

/// A new step of the story.
#[expect(clippy::print_stderr, reason = "progress for a person at a terminal")]
pub(crate) fn step(text: &str) {
    eprintln!("\n==> {text}");
}

/// Something that happened in a step.
#[expect(clippy::print_stderr, reason = "progress for a person at a terminal")]
pub(crate) fn fact(text: &str) {
    for line in text.trim_end().lines() {
        eprintln!("    {line}");
    }
}

/// How to go on by hand.
pub(crate) fn stay(cluster: &DevCluster, figures: &Figures) {
    let path = std::env::var("PATH").unwrap_or_default();
    let kubectl = if path.split(':').any(|dir| std::path::Path::new(dir).join("kubectl").exists()) {
        String::new()
    } else {
        devcluster::ControlPlane::ensure_built(true)
            .map(|built| format!("alias kubectl={}\n", built.kubectl.display()))
            .unwrap_or_default()
    };
    step("The cluster stays up. In another terminal:");
    fact(&format!(
        "export KUBECONFIG={}\n{kubectl}kubectl apply -f deploy/samples/rediscluster.yaml\nkubectl get rdc,pods,services --watch\nkubectl -n operator-host get events",
        cluster.kubeconfig().display()
    ));
    fact(&format!("So far: {}", serde_json::to_string(figures).unwrap_or_default()));
    step("Ctrl-C stops everything");
}

/// The last line on standard output.
pub(crate) fn figures(figures: &Figures) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(figures)?)?;
    Ok(())
}
