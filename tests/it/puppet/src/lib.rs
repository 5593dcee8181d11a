//! Returns what its parent's spec says, and breaks every rule on request: the engine's rules are tested with it.

#![allow(clippy::indexing_slicing, reason = "a JSON value answers null for what is not there")]

use operator_host_sdk::{
    Condition, Context, Decision, Descriptor, Desired, Failure, Kind, ObjectQuery, OnImmutable,
    Plugin, Stop,
};
use serde::Deserialize;
use serde_json::{Value, json};

const PUPPET: Kind = Kind::new("it.operator-host.dev/v1", "Puppet");
const CONFIG_MAP: Kind = Kind::new("v1", "ConfigMap");
const SERVICE_ACCOUNT: Kind = Kind::new("v1", "ServiceAccount");

/// The parent.
#[derive(Debug, Deserialize)]
pub struct Puppet {
    spec: Strings,
}

/// What to do.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Strings {
    /// Names of ConfigMaps to own; each gets `data.text`.
    own: Vec<String>,
    /// What is written into them.
    text: String,
    /// Whether they are immutable, and what to do about it: `report` or `recreate`.
    immutable: Option<String>,
    /// `ServiceAccounts` that get the label `puppet`.
    label: Vec<String>,
    /// Names of ConfigMaps to read.
    read: Vec<String>,
    /// Writes one more than the number it has read: two such puppets that read each other never end.
    count: bool,
    /// `panic`, `spin`, `transient`, `terminal`, `ungranted`; `trap`, `recurse`, `grow`; `garbage`, `large`, `huge`;
    /// `empty`: forgets everything it owns.
    fault: Option<String>,
    /// During deletion, finished once the ConfigMap of this name is gone.
    wait_for_gone: Option<String>,
}

impl Strings {
    /// With what the plugin's configuration says for all puppets: other logic without other bytes.
    fn with(self, ctx: &Context<Puppet>) -> Self {
        let set = |key: &str| ctx.config(key).map(str::to_owned);
        let text =
            set("suffix").map_or_else(|| self.text.clone(), |more| self.text.clone() + &more);
        // A fault that shows only where it is too late for a plan: not before the child has this text.
        let fault = set("fault").filter(|_| match ctx.config("faultOnceTextIs") {
            None => true,
            Some(text) => ctx
                .children::<Value>(CONFIG_MAP)
                .is_ok_and(|children| children.iter().any(|child| child["data"]["text"] == text)),
        });
        Self { text, fault: fault.or(self.fault.clone()), ..self }
    }
}

struct PuppetPlugin;

impl Plugin for PuppetPlugin {
    type Parent = Puppet;

    fn describe() -> Descriptor {
        Descriptor::new("puppet", env!("CARGO_PKG_VERSION"), PUPPET)
            .owns([CONFIG_MAP])
            .patches([SERVICE_ACCOUNT])
            .finalizer()
    }

    fn reconcile(ctx: &Context<Puppet>) -> Result<Decision, Stop> {
        let strings = &ctx.parent.spec.clone().with(ctx);
        let mut read = Vec::new();
        for name in &strings.read {
            let found: Vec<Value> = ctx.objects(&ObjectQuery::of(CONFIG_MAP).name(name))?;
            read.extend(
                found
                    .into_iter()
                    .filter_map(|object| object["data"]["text"].as_str().map(str::to_owned)),
            );
        }
        fault(strings.fault.as_deref())?;
        if ctx.deleting() {
            return leave(ctx, strings);
        }
        let counted = Strings { text: one_more(&read), ..strings.clone() };
        let strings = if strings.count { &counted } else { strings };
        let mut decision = Decision::new();
        let forgetful = strings.fault.as_deref() == Some("empty");
        for name in strings.own.iter().filter(|_| !forgetful) {
            decision = decision.object(config_map(name, strings)?);
        }
        for name in &strings.label {
            let body = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": name, "labels": {"puppet": ctx.meta().name}}});
            decision = decision.object(Desired::partial(&body)?);
        }
        if strings.fault.as_deref() == Some("ungranted") {
            let body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "mine"}});
            decision = decision.object(Desired::owned(&body)?);
        }
        if strings.fault.as_deref() == Some("garbage") {
            decision =
                decision.object(Desired::owned(&json!({"apiVersion": "v1", "metadata": 7}))?);
        }
        if let Some(bytes) = excess(strings.fault.as_deref()) {
            return decision.status(&json!({"excess": "x".repeat(bytes)}));
        }
        if ctx.config("order").is_some() {
            // What no plugin should do: its answer hangs on the order in which it is told things.
            let children: Vec<Value> = ctx.children(CONFIG_MAP)?;
            read.extend(
                children.iter().filter_map(|it| it["metadata"]["name"].as_str().map(str::to_owned)),
            );
        }
        let ready = Condition::new("Ready", true, "Pulled", read.join(","));
        decision.status(&json!({"conditions": [ready]}))
    }
}

fn one_more(read: &[String]) -> String {
    let number = read.first().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    (number + 1).to_string()
}

fn config_map(name: &str, strings: &Strings) -> Result<Desired, Stop> {
    let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name}, "data": {"text": strings.text}});
    if strings.immutable.is_some() {
        body["immutable"] = json!(true);
    }
    let object = Desired::owned(&body)?;
    Ok(match strings.immutable.as_deref() {
        Some("recreate") => object.on_immutable(OnImmutable::Recreate),
        Some(_) | None => object.on_immutable(OnImmutable::Report),
    })
}

fn fault(fault: Option<&str>) -> Result<(), Stop> {
    match fault {
        #[expect(clippy::panic, reason = "this plugin panics on request")]
        Some("panic") => panic!("pulled the wrong string"),
        Some("spin") => loop {
            std::hint::black_box(0);
        },
        // What a miscompiled program does: no panic, no word.
        #[cfg(target_family = "wasm")]
        Some("trap") => core::arch::wasm32::unreachable(),
        Some("recurse") if deep(0) == 0 => Ok(()),
        Some("grow") => grow(),
        Some("transient") => Err(Failure::transient("StringTangled", "try again").into()),
        Some("terminal") => Err(Failure::terminal("StringCut", "nothing helps").into()),
        Some(_) | None => Ok(()),
    }
}

/// How much too much to return: over the bound of an answer, and over that of memory.
fn excess(fault: Option<&str>) -> Option<usize> {
    match fault {
        // Twice that again is taken by writing it as JSON, and has to fit into memory.
        Some("large") => Some((8 << 20) + 1),
        Some("huge") => Some(100 << 20),
        Some(_) | None => None,
    }
}

fn grow() -> ! {
    let mut hoard: Vec<Vec<u8>> = Vec::new();
    loop {
        hoard.push(std::hint::black_box(vec![1; 1 << 20]));
    }
}

#[inline(never)]
fn deep(n: u64) -> u64 {
    if std::hint::black_box(n) == u64::MAX { n } else { deep(n + 1).rotate_left(3) ^ n }
}

/// Takes its leave: keeps its children until what it waits for is gone.
fn leave(ctx: &Context<Puppet>, strings: &Strings) -> Result<Decision, Stop> {
    let mut decision = Decision::new();
    for name in &strings.own {
        decision = decision.object(config_map(name, strings)?);
    }
    let gone = match &strings.wait_for_gone {
        Some(name) => ctx.objects::<Value>(&ObjectQuery::of(CONFIG_MAP).name(name))?.is_empty(),
        None => true,
    };
    Ok(if gone { decision.finished() } else { decision })
}

operator_host_sdk::export!(PuppetPlugin);
