//! The command line. Every flag can also be given as an environment variable, so that a Deployment sets it either way.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use host_core::limits;
use host_core::plugin::Revision;

/// Runs Kubernetes reconcile logic that is a WebAssembly component.
#[derive(Debug, Parser)]
#[command(name = "operator-host", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the host: load plugins, watch, reconcile
    Run(Box<RunArgs>),
    /// One thing, and then it ends.
    #[command(flatten)]
    Tool(ToolCommand),
    /// Compile a component from standard input to standard output, under limits (the host starts this itself)
    #[command(hide = true)]
    Compile {
        /// Seconds of processor time, MiB of address space
        limits: Vec<String>,
    },
}

/// What people do beside a running host, or before there is one.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// Print CRDs as YAML for `kubectl apply --server-side -f -`: the host's own, or those that plugins carry
    Crds {
        /// Plugin files: components, plain, gzip or zstd. None: the host's own kind, Plugin
        files: Vec<PathBuf>,
    },
    /// Ask a running host why a parent last ran, what it read and wrote, what it waits for
    Explain(ExplainArgs),
    /// Look at plugins, and at how their revisions come to act
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Print a completion script: `operator-host completions bash > /etc/bash_completion.d/operator-host`
    Completions {
        /// For which shell
        shell: Shell,
    },
}

/// What to do with a plugin.
#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Say which revision acts, how far the newest one is, and why
    Status(PluginArgs),
    /// Say what the newest revision would do to every parent; exits with 2 if it would delete or recreate something
    Plan(PlanArgs),
    /// Let a held revision act, whatever its plan says
    Approve {
        #[command(flatten)]
        plugin: PluginArgs,
        /// The revision; default: the one that is held
        revision: Option<Revision>,
    },
    /// Go back to a revision that has acted before, and stay there until `resume`
    Rollback {
        #[command(flatten)]
        plugin: PluginArgs,
        /// The revision; default: the one that acted before this one
        #[arg(long, value_name = "REVISION")]
        to: Option<Revision>,
    },
    /// Load and plan new revisions, but let none act
    Pause(PluginArgs),
    /// End a pause or a rollback: follow the source again
    Resume(PluginArgs),
    /// List the revisions that have acted, and why they ended
    History(PluginArgs),
    /// Take what a parent's last runs saw and decided from a running host, for `replay` and `check`
    Record(RecordArgs),
    /// Run a recording with a plugin file and show where it decides otherwise; exits with 1 if it does
    Replay(ReplayArgs),
    /// Check a plugin file: contract, imports, size, and determinism on recorded snapshots; exits with 1 if it fails
    Check(CheckArgs),
    /// Push a plugin file to an OCI registry and print its reference by digest
    Push(PushArgs),
    /// Print what a cluster needs to run a plugin file: ConfigMap, Plugin with grants, RBAC, CRDs
    Package(PackageArgs),
    /// Say what a plugin file is: contract, parent kind, what it needs, imports, size, digest
    Inspect {
        /// The component, plain, gzip or zstd
        file: PathBuf,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
}

/// Which cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig; default: in-cluster configuration, else `KUBECONFIG`, else ~/.kube/config
    #[arg(long, env = "OPERATOR_HOST_KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context; default: its current one
    #[arg(long, env = "OPERATOR_HOST_CONTEXT", value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// Which plugin of a cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct PluginArgs {
    /// The plugin's name, as `kubectl -n operator-host get plugins` shows it
    pub(crate) name: String,
    /// The host's namespace
    #[arg(short, long, env = "OPERATOR_HOST_NAMESPACE", default_value = "operator-host")]
    pub(crate) namespace: String,
    /// Which cluster
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Which host to ask.
#[derive(Clone, Debug, Args)]
pub(crate) struct HostArgs {
    /// Where the host serves /metrics; the default fits `kubectl exec deploy/operator-host -- operator-host …`
    #[arg(
        long,
        env = "OPERATOR_HOST_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    pub(crate) host: SocketAddr,
}

/// Which plan to show, and how.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// The plugin's name
    pub(crate) name: String,
    /// Which host to ask
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Print the whole plan as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the whole plan to a file, as JSON
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Which parent a host is asked about.
#[derive(Debug, Args)]
pub(crate) struct ParentArgs {
    /// The parent's kind, for example `RedisCluster`
    pub(crate) kind: String,
    /// Its name
    pub(crate) name: String,
    /// Its namespace; empty for a cluster-scoped parent
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// Which host to ask
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// Whose runs to take.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Which parent's
    #[command(flatten)]
    pub(crate) parent: ParentArgs,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What to run again, and with what.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A recording, as `plugin record` writes it
    pub(crate) recording: PathBuf,
    /// The plugin file
    #[arg(long, value_name = "PLUGIN")]
    pub(crate) with: PathBuf,
}

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The plugin file
    pub(crate) file: PathBuf,
    /// Recordings whose snapshots are used
    pub(crate) recordings: Vec<PathBuf>,
}

/// What to package.
#[derive(Debug, Args)]
pub(crate) struct PackageArgs {
    /// The plugin file
    pub(crate) file: PathBuf,
    /// The host's namespace
    #[arg(short, long, default_value = "operator-host")]
    pub(crate) namespace: String,
    /// The host's service account
    #[arg(long, default_value = "operator-host")]
    pub(crate) service_account: String,
    /// The component's signature, DER or base64
    #[arg(long, value_name = "FILE", conflicts_with = "oci")]
    pub(crate) signature: Option<PathBuf>,
    /// Take the component from a registry instead of a ConfigMap: what `plugin push` prints
    #[arg(long, value_name = "REFERENCE")]
    pub(crate) oci: Option<String>,
}

/// What to push, and where.
#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// The plugin file, plain, gzip or zstd
    pub(crate) file: PathBuf,
    /// Registry, repository and tag: registry.example.com/team/plugin:1.0.0. Credentials are those of `docker login`
    pub(crate) reference: String,
    /// The component's signature, DER or base64
    #[arg(long, value_name = "FILE")]
    pub(crate) signature: Option<PathBuf>,
    /// Trust these certificate authorities too (PEM)
    #[arg(long, env = "OPERATOR_HOST_REGISTRY_CA", value_name = "FILE")]
    pub(crate) registry_ca: Option<PathBuf>,
}

/// Which parent is to be explained.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Which parent
    #[command(flatten)]
    pub(crate) parent: ParentArgs,
    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Which cluster
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The namespace whose labelled `ConfigMaps` are plugins
    #[arg(long, env = "OPERATOR_HOST_NAMESPACE", default_value = "operator-host")]
    pub(crate) namespace: String,
    /// Watch and reconcile only in these namespaces; default: all. Repeat, or separate by commas
    #[arg(
        long,
        env = "OPERATOR_HOST_WATCH_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE"
    )]
    pub(crate) watch_namespace: Vec<String>,
    /// For development: run this plugin file with what it asks for, and load it again when it changes
    #[arg(long, env = "OPERATOR_HOST_PLUGIN", value_name = "FILE")]
    pub(crate) plugin: Option<PathBuf>,
    /// For development: settings for --plugin, as in the plugin.yaml of a `ConfigMap`
    #[arg(long, env = "OPERATOR_HOST_PLUGIN_SETTINGS", value_name = "FILE", requires = "plugin")]
    pub(crate) plugin_settings: Option<PathBuf>,
    /// Where /metrics, /healthz and /readyz are served
    #[arg(
        long,
        env = "OPERATOR_HOST_LISTEN",
        default_value = "0.0.0.0:8080",
        value_name = "ADDRESS"
    )]
    pub(crate) listen: SocketAddr,
    /// Keep compiled plugins here, so that a restart does not compile again
    #[arg(long, env = "OPERATOR_HOST_CACHE_DIR", value_name = "DIRECTORY")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Run only plugins that are signed by a key of this PEM file (ECDSA P-256; `openssl` and `cosign` sign)
    #[arg(long, env = "OPERATOR_HOST_PLUGIN_KEYS", value_name = "FILE")]
    pub(crate) plugin_keys: Option<PathBuf>,
    /// Trust these certificate authorities for OCI registries too (PEM)
    #[arg(long, env = "OPERATOR_HOST_REGISTRY_CA", value_name = "FILE")]
    pub(crate) registry_ca: Option<PathBuf>,
    /// Run every parent at least this often, for example 10h or 30m
    #[arg(long, env = "OPERATOR_HOST_RESYNC", default_value = "10h", value_parser = duration)]
    pub(crate) resync: Duration,
    /// Reconciles that all plugins together have in progress at once; each plugin has a limit of its own besides
    #[arg(
        long,
        env = "OPERATOR_HOST_MAX_CONCURRENT_RECONCILES",
        default_value_t = limits::RUNS_AT_ONCE,
        value_name = "COUNT"
    )]
    pub(crate) max_concurrent_reconciles: usize,
    /// Act only while holding the Lease `operator-host` in --namespace; needed for more than one replica
    #[arg(long, env = "OPERATOR_HOST_LEADER_ELECT")]
    pub(crate) leader_elect: bool,
    /// How long running reconciles may take to end on shutdown
    #[arg(long, env = "OPERATOR_HOST_DRAIN", default_value = "20s", value_parser = duration)]
    pub(crate) drain: Duration,
    /// Send a trace of every reconcile to this OpenTelemetry collector (OTLP over HTTP), for example `http://otel:4318`
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
    /// Log filter, for example `info` or `host_engine=debug,host_kube=debug`
    #[arg(long, env = "OPERATOR_HOST_LOG", default_value = "info")]
    pub(crate) log: String,
    /// How log lines look
    #[arg(long, env = "OPERATOR_HOST_LOG_FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `300ms`, `5s`, `30m`, `10h`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 =
        number.parse().map_err(|_| format!("{text:?} is not a duration such as 30s, 5m or 10h"))?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("{text:?} needs one of the units ms, s, m, h")),
    };
    number
        .checked_mul(milliseconds)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is too long"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("10h"), Ok(Duration::from_hours(10)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert!(duration("10").is_err());
        assert!(duration("ten").is_err());
    }
}
