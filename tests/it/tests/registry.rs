//! Plugins from a real OCI registry, and plugins that have to be signed, on a real API server.

#![cfg(test)]

use std::path::Path;
use std::process::Command;

use it::api::{Api, path};
use it::host_process::{HostOptions, HostProcess};
use it::registry::{PASSWORD, Registry, USER};
use it::rig::Staged;
use it::{HOST, condition, host_binary, plugin, root};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// Never dropped: the kernel ends the cluster with this process.
static STAGED: OnceCell<Staged> = OnceCell::const_new();

async fn staged() -> &'static Staged {
    STAGED.get_or_init(|| async { Staged::with_plugin_kind().await.unwrap() }).await
}

fn at(namespace: &str) -> String {
    format!("/apis/plugins.operator-host.dev/v1alpha1/namespaces/{namespace}/plugins/hello")
}

fn digest(wasm: &Path) -> String {
    let inspected = Command::new(host_binary().unwrap())
        .args(["plugin", "inspect", "--json"])
        .arg(wasm)
        .output()
        .unwrap();
    let inspected: Value = serde_json::from_slice(&inspected.stdout).unwrap();
    inspected["digest"].as_str().unwrap().to_owned()
}

/// `operator-host plugin push`; gives the reference by digest.
fn push(registry: &Registry, wasm: &Path, reference: &str) -> String {
    let pushed = Command::new(host_binary().unwrap())
        .args(["plugin", "push"])
        .arg(wasm)
        .arg(reference)
        .arg("--registry-ca")
        .arg(registry.authority())
        .env("DOCKER_CONFIG", registry.docker_config())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&pushed.stderr).into_owned();
    assert!(pushed.status.success(), "{error}");
    String::from_utf8(pushed.stdout).unwrap().trim().to_owned()
}

/// Waits until a `Plugin` satisfies a condition and has seen its spec; gives it.
async fn told(api: &Api, namespace: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let holds = |plugin: &Value| {
        plugin["status"]["observedGeneration"] == plugin["metadata"]["generation"] && holds(plugin)
    };
    api.until(what, &at(namespace), holds).await.unwrap()
}

/// Replaces the spec of the `Plugin` hello.
async fn set(api: &Api, namespace: &str, source: Value) {
    let spec = json!({
        "source": source, "rollout": {"policy": "Always"},
        "grants": {"owns": [{"apiVersion": "v1", "kind": "ConfigMap"}]},
    });
    let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]);
    api.json_patch(&at(namespace), &patch).await.unwrap();
}

async fn greets(api: &Api, namespace: &str, greeted: &str) {
    api.greeting(namespace, "g", greeted).await.unwrap();
    let text = format!("Hello, {greeted}!");
    let child = path("configmaps", namespace, "g");
    api.until(&text, &child, |child| child["data"]["text"] == text.as_str()).await.unwrap();
}

/// What is told of a pull that did not go through; what was active keeps running.
async fn not_pulled(api: &Api, because: &str) -> String {
    let plugin = told(api, HOST, "a pull that fails", |plugin| {
        let candidate = &plugin["status"]["candidate"];
        candidate["reason"] == "PluginNotPulled"
            && candidate["message"].as_str().unwrap().contains(because)
    });
    let plugin = plugin.await;
    assert_eq!(condition(&plugin, "Ready", "status"), "True");
    assert_eq!(condition(&plugin, "Loaded", "status"), "False");
    plugin["status"]["candidate"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_from_a_registry_follows_its_tag_and_outlives_the_registry() {
    let registry = Registry::start().await.unwrap();
    let (staged, authority) = (staged().await, registry.authority());
    let arguments = ["--registry-ca", authority.to_str().unwrap()];
    let mut rig = staged.rig_with(&["pulled"], &arguments, &[]).await.unwrap();
    let reference = format!("{}/team/hello:1", registry.address());
    let old = plugin("hello", None).unwrap();
    let pushed = push(&registry, &old, &reference);
    assert_eq!(push(&registry, &old, &reference), pushed, "the same bytes make another manifest");

    // Neither the right to read the Secret, nor the Secret, nor the right password; nothing tells the wrong one.
    greets(&rig.api, "pulled", "before").await;
    let oci = json!({"oci": {
        "reference": reference, "pullSecretName": "registry-credentials", "intervalSeconds": 10,
    }});
    set(&rig.api, HOST, oci).await;
    not_pulled(&rig.api, "pullSecretName").await;
    let rbac = root().unwrap().join("deploy/registry");
    staged.cluster.kubectl(&["apply", "-k", rbac.to_str().unwrap()]).await.unwrap();
    not_pulled(&rig.api, "registry-credentials").await;
    let secret = async |password: &str| {
        let auths =
            json!({"auths": {registry.address(): {"username": USER, "password": password}}});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry-credentials"},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": auths.to_string()},
        });
        rig.api.apply(&path("secrets", HOST, "registry-credentials"), &secret).await.unwrap();
    };
    secret("wr0ng-password").await;
    let refused = not_pulled(&rig.api, "ot authorized").await;
    assert!(!refused.contains("wr0ng") && !rig.host.log().contains("wr0ng"), "{refused}");
    greets(&rig.api, "pulled", "meanwhile").await;
    secret(PASSWORD).await;
    let acts = |digest: String| {
        move |plugin: &Value| {
            plugin["status"]["active"]["digest"] == digest.as_str()
                && condition(plugin, "Promoted", "status") == "True"
        }
    };
    told(&rig.api, HOST, "the pulled plugin to act", acts(digest(&old))).await;

    // The tag moves.
    let new = plugin("hello", Some("pushed")).unwrap();
    assert_ne!(digest(&new), digest(&old));
    push(&registry, &new, &reference);
    told(&rig.api, HOST, "what the tag is now to act", acts(digest(&new))).await;
    greets(&rig.api, "pulled", "after").await;

    // By digest, whatever the tag says.
    let fixed = json!({"oci": {"reference": pushed, "pullSecretName": "registry-credentials"}});
    set(&rig.api, HOST, fixed).await;
    told(&rig.api, HOST, "the digest to act", acts(digest(&old))).await;

    // What there is not, and a host that starts without its registry: the last good revision acts.
    let missing = format!("{}/team/hello:none", registry.address());
    let missing = json!({"oci": {"reference": missing, "pullSecretName": "registry-credentials"}});
    set(&rig.api, HOST, missing).await;
    not_pulled(&rig.api, "team/hello:none").await;
    registry.stop();
    rig.restart_host().await.unwrap();
    not_pulled(&rig.api, "team/hello:none").await;
    greets(&rig.api, "pulled", "alone").await;
    assert_eq!(
        told(&rig.api, HOST, "the same to act", |_| true).await["status"]["active"]["digest"],
        digest(&old).as_str()
    );
    // For whoever comes next: what the ConfigMap has.
    set(&rig.api, HOST, json!({})).await;
    told(&rig.api, HOST, "the ConfigMap's to act", acts(digest(&old))).await;
}

/// A plugin file, packaged for a namespace with a host of its own, which does the Greetings of one more namespace.
struct Workshop {
    api: Api,
    namespace: &'static str,
    greetings: &'static str,
    folder: TempDir,
    wasm: String,
}

impl Workshop {
    async fn new(namespace: &'static str, greetings: &'static str, wasm: &Path) -> Self {
        let api = Api::new(&staged().await.cluster).unwrap();
        for namespace in [namespace, greetings] {
            api.namespace(namespace).await.unwrap();
        }
        let (folder, wasm) = (tempfile::tempdir().unwrap(), wasm.display().to_string());
        Self { api, namespace, greetings, folder, wasm }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Makes somebody's keys with OpenSSL, as a user would, and signs the plugin; gives the file of the public key.
    fn sign(&self, who: &str) -> String {
        devcluster::ensure_programs(&[("openssl", "openssl")], true).unwrap();
        let at = |suffix: &str| self.file(&format!("{who}.{suffix}"));
        let (key, public, signature) = (at("key"), at("pem"), at("sig"));
        openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
        openssl(&["ec", "-in", &key, "-pubout", "-out", &public]);
        openssl(&["dgst", "-sha256", "-sign", &key, "-out", &signature, &self.wasm]);
        public
    }

    /// Applies ConfigMaps and `Plugin`, as `operator-host plugin package` prints them, with somebody's signature.
    async fn apply(&self, signed_by: Option<&str>) {
        let mut command = Command::new(host_binary().unwrap());
        command.args(["plugin", "package", &self.wasm, "--namespace", self.namespace]);
        if let Some(who) = signed_by {
            command.args(["--signature", &self.file(&format!("{who}.sig"))]);
        }
        let packaged = command.output().unwrap();
        assert!(packaged.status.success(), "{}", String::from_utf8_lossy(&packaged.stderr));
        let packaged = String::from_utf8(packaged.stdout).unwrap();
        // The other test's host needs its own roles.
        let of_namespace = |one: &&str| !one.contains("kind: ClusterRole");
        let packaged =
            packaged.split("---\n").filter(of_namespace).collect::<Vec<_>>().join("---\n");
        let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        staged().await.cluster.kubectl_stdin(&arguments, &packaged).await.unwrap();
    }

    async fn host(&self, arguments: &[&str]) -> HostProcess {
        let options = HostOptions {
            kubeconfig: staged().await.cluster.kubeconfig().to_owned(),
            cache: self.folder.path().join("cache"),
            namespaces: vec![self.greetings.to_owned()],
            arguments: [&["--namespace", self.namespace], arguments]
                .concat()
                .iter()
                .map(ToString::to_string)
                .collect(),
            environment: Vec::new(),
        };
        HostProcess::start(&options, &self.folder.path().join("host.log")).unwrap()
    }

    /// Waits until the packaged plugin acts; gives its revision.
    async fn acts(&self) -> String {
        let plugin = told(&self.api, self.namespace, "the packaged plugin to act", |plugin| {
            condition(plugin, "Promoted", "status") == "True"
        });
        plugin.await["status"]["active"]["revision"].as_str().unwrap().to_owned()
    }

    async fn greets(&self, greeted: &str) {
        greets(&self.api, self.greetings, greeted).await;
    }

    async fn delete_config_map(&self, name: &str) {
        self.api.delete(&path("configmaps", self.namespace, name), "Background").await.unwrap();
    }
}

fn openssl(arguments: &[&str]) {
    let done = Command::new("openssl").args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

async fn not_signed(workshop: &Workshop, because: &str) {
    told(&workshop.api, workshop.namespace, because, |plugin| {
        let candidate = &plugin["status"]["candidate"];
        candidate["reason"] == "PluginNotSigned"
            && candidate["message"].as_str().unwrap().contains(because)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_keys_runs_what_they_have_signed_and_nothing_else() {
    let wasm = plugin("hello", Some("signed")).unwrap();
    let workshop = Workshop::new("signed", "greeted", &wasm).await;
    let keys = workshop.sign("ours");
    workshop.sign("theirs");
    let arguments = ["--plugin-keys", &keys];
    let host = workshop.host(&arguments).await;
    workshop.apply(None).await;
    not_signed(&workshop, "it is not signed").await;
    workshop.apply(Some("theirs")).await;
    not_signed(&workshop, "none of the host's keys").await;
    // The same revision, and now it may.
    workshop.apply(Some("ours")).await;
    let revision = workshop.acts().await;
    workshop.greets("signed").await;

    // What was kept is signed too, so a start with a bad source still has it.
    drop(host);
    workshop.delete_config_map("hello-plugin").await;
    let host = workshop.host(&arguments).await;
    host.loaded(1).await.unwrap();
    workshop.greets("kept").await;

    // What somebody has put in its place is not.
    drop(host);
    let name = format!("hello-{revision}");
    let kept = path("configmaps", "signed", &name);
    let mut forged = workshop.api.get(&kept).await.unwrap();
    workshop.delete_config_map(&name).await;
    forged["data"].as_object_mut().unwrap().remove("plugin.wasm.sig").unwrap();
    forged["metadata"] = json!({"name": name, "labels": forged["metadata"]["labels"]});
    workshop.api.apply(&kept, &forged).await.unwrap();
    let host = workshop.host(&arguments).await;
    told(&workshop.api, "signed", "nothing to act", |plugin| {
        condition(plugin, "Ready", "status") == "False"
    })
    .await;
    assert!(host.log().contains("it is not signed"), "{}", host.log());
}

/// A component with a custom section that cannot be packed.
fn fattened(wasm: &Path, bytes: usize) -> Vec<u8> {
    let mut component = std::fs::read(wasm).unwrap();
    let mut state = 1_u32;
    let noise = (0..bytes).map(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    });
    let section: Vec<u8> = b"\x05noise".iter().copied().chain(noise).collect();
    component.push(0);
    // Its length, in LEB128.
    let mut rest = section.len();
    while rest > 0x7f {
        component.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    component.push(u8::try_from(rest).unwrap());
    component.extend(section);
    component
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_larger_than_a_config_map_is_split_and_kept_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let wasm = folder.path().join("hello.wasm");
    std::fs::write(&wasm, fattened(&plugin("hello", None).unwrap(), 1_500_000)).unwrap();
    let workshop = Workshop::new("large", "enlarged", &wasm).await;
    let host = workshop.host(&[]).await;
    workshop.apply(None).await;
    let revision = workshop.acts().await;
    workshop.greets("in parts").await;
    drop(host);

    // One part of what was kept is lost as well, and made again; then a start without the source.
    workshop.delete_config_map(&format!("hello-{revision}-2")).await;
    let host = workshop.host(&[]).await;
    let kept = path("configmaps", "large", &format!("hello-{revision}-2"));
    workshop.api.until("the part to be kept again", &kept, |kept| !kept.is_null()).await.unwrap();
    drop(host);
    for part in ["hello-plugin-1", "hello-plugin-2"] {
        workshop.delete_config_map(part).await;
    }
    let host = workshop.host(&[]).await;
    host.loaded(1).await.unwrap();
    workshop.greets("from what was kept").await;
}
