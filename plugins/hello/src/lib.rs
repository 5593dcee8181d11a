//! Each `Greeting` becomes a `ConfigMap` with a text.

use operator_host_sdk::{Condition, Context, Decision, Descriptor, Desired, Kind, Plugin, Stop};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

const GREETING: Kind = Kind::new("example.operator-host.dev/v1alpha1", "Greeting");
const CONFIG_MAP: Kind = Kind::new("v1", "ConfigMap");

#[derive(Deserialize)]
struct Greeting {
    spec: GreetingSpec,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct GreetingSpec {
    /// Who is greeted.
    #[cfg_attr(test, schemars(length(min = 1, max = 63)))]
    name: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct GreetingStatus {
    /// What is said.
    text: String,
    conditions: Vec<Condition>,
}

struct Hello;

impl Plugin for Hello {
    type Parent = Greeting;

    fn describe() -> Descriptor {
        Descriptor::new("hello", env!("CARGO_PKG_VERSION"), GREETING).owns([CONFIG_MAP])
    }

    fn reconcile(ctx: &Context<Greeting>) -> Result<Decision, Stop> {
        let name = &ctx.meta().name;
        let text = format!("Hello, {}!", ctx.parent.spec.name);
        let config_map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name}, "data": {"text": text},
        });
        let ready = match ctx.child::<Value>(CONFIG_MAP, name)? {
            Some(_) => Condition::new("Ready", true, "Greeted", "The ConfigMap is there"),
            None => Condition::new("Ready", false, "Greeting", "The ConfigMap is being written"),
        };
        let status = GreetingStatus { text, conditions: vec![ready] };
        Decision::new().object(Desired::owned(&config_map)?).status(&status)
    }
}

operator_host_sdk::export!(Hello);
