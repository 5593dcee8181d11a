//! Watches that never end.

use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher;

/// A watch that failed is tried again after this.
const WATCH_RETRY: Duration = Duration::from_millis(300);

/// A watch of all objects of a kind that never ends: errors are retried.
pub(crate) fn watch_all<K>(api: kube::Api<K>) -> impl Stream<Item = watcher::Event<K>> + Send
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watcher(api, watcher::Config::default()).filter_map(|event| async {
        if let Ok(event) = event {
            return Some(event);
        }
        tokio::time::sleep(WATCH_RETRY).await;
        None
    })
}
