//! From the contract's two functions to [`Plugin`]. [`export!`](crate::export) calls this, and so do native tests.

use crate::{Context, Descriptor, Failure, Plugin, Snapshot, Stop, Verdict};

/// `describe` of the contract.
pub fn describe<P: Plugin>() -> Descriptor {
    report_panics();
    P::describe()
}

/// `reconcile` of the contract.
pub fn reconcile<P: Plugin>(snapshot: Snapshot) -> Result<Verdict, Failure> {
    report_panics();
    match Context::read(snapshot).and_then(|ctx| P::reconcile(&ctx)) {
        Ok(decision) => Ok(Verdict::Decide(decision)),
        Err(Stop::Ask(queries)) => Ok(Verdict::Ask(queries)),
        Err(Stop::Fail(failure)) => Err(failure),
    }
}

/// Sends a panic's text to the host's log: without it the host sees a bare `unreachable`.
fn report_panics() {
    #[cfg(target_family = "wasm")]
    std::panic::set_hook(Box::new(|panic| crate::log::error(&panic.to_string(), &[])));
}

/// Makes a type that implements [`Plugin`] the component's plugin. Use it once, in a crate of type `cdylib`.
///
/// Outside of wasm it only checks the type, so that a plugin's crate can also be a library for its tests.
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        const _: fn() -> $crate::Descriptor = <$plugin as $crate::Plugin>::describe;

        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            impl $crate::bindings::contract::Guest for Component {
                fn describe() -> $crate::Descriptor {
                    $crate::guest::describe::<$plugin>()
                }

                fn reconcile(
                    snapshot: $crate::Snapshot,
                ) -> ::core::result::Result<$crate::Verdict, $crate::Failure> {
                    $crate::guest::reconcile::<$plugin>(snapshot)
                }
            }

    $crate::__export_component!(Component with_types_in $crate::bindings);
        };
    };
}
