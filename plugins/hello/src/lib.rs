//! Greets: each `Greeting` becomes a ConfigMap with a text.

use operator_host_sdk::{Condition, Context, Decision, Descriptor, Desired, Kind, Plugin, Stop};
use serde::{Deserialize, Serialize};
use serde_json::json;

const GREETING: Kind = Kind::new("example.operator-host.dev/v1alpha1", "Greeting");
const CONFIG_MAP: Kind = Kind::new("v1", "ConfigMap");

/// A greeting, as the plugin reads it.
#[derive(Deserialize)]
pub struct Greeting {
    spec: GreetingSpec,
}

/// Who is greeted.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GreetingSpec {
    /// Name of who is greeted.
    #[cfg_attr(test, schemars(length(min = 1, max = 63)))]
    name: String,
}

/// What became of it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GreetingStatus {
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
        let text = format!("Hello, {}!", ctx.parent.spec.name);
        let config_map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": ctx.meta().name},
            "data": {"text": text},
        });
        let written = ctx
            .child::<serde_json::Value>(CONFIG_MAP, &ctx.meta().name)?
            .is_some();
        let ready = Condition::new(
            "Ready",
            written,
            if written { "Greeted" } else { "Writing" },
            "",
        );
        let status = GreetingStatus {
            text,
            conditions: vec![ready],
        };
        Decision::new()
            .object(Desired::owned(&config_map)?)
            .status(&status)
    }
}

operator_host_sdk::export!(Hello);
