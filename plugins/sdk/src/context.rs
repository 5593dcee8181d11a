//! The snapshot as a plugin reads it.

use serde::de::DeserializeOwned;

use crate::json_path::describe_error;
use crate::{
    Failure, Kind, Object, ObjectMeta, ObjectQuery, Outcome, ProbeQuery, Query, Reply, Snapshot,
    Stop, Time,
};

/// Everything a decision may depend on. `P` is the plugin's [`Parent`](crate::Plugin::Parent).
#[derive(Clone, Debug)]
pub struct Context<P> {
    /// The parent.
    pub parent: P,
    meta: ObjectMeta,
    now: Time,
    snapshot: Snapshot,
}

#[derive(serde::Deserialize)]
struct HasMeta {
    metadata: ObjectMeta,
}

impl<P: DeserializeOwned> Context<P> {
    /// Reads a snapshot. A parent that does not have the expected shape is a terminal failure `InvalidParent`
    /// that names the field.
    pub fn read(snapshot: Snapshot) -> Result<Self, Stop> {
        let parent = parse("InvalidParent", &snapshot.parent)?;
        let HasMeta { metadata: meta } = parse("InvalidParent", &snapshot.parent)?;
        let now = snapshot.now.parse().map_err(|error| {
            Failure::terminal("InvalidSnapshot", format!("now is {:?}: {error}", snapshot.now))
        })?;
        Ok(Self { parent, meta, now, snapshot })
    }
}

impl<P> Context<P> {
    /// The parent's metadata.
    pub fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    /// Whether the parent is being deleted. Only seen by plugins with a finalizer.
    pub fn deleting(&self) -> bool {
        self.meta.deleting()
    }

    /// The time of this run; the same in all its rounds.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The parent's live owned objects of one kind, by namespace and name.
    pub fn children<T: DeserializeOwned>(&self, kind: Kind) -> Result<Vec<T>, Stop> {
        self.children_of(kind).map(|object| parse("InvalidObject", object)).collect()
    }

    /// One live owned object, in the parent's namespace unless the parent is cluster-scoped.
    pub fn child<T: DeserializeOwned>(&self, kind: Kind, name: &str) -> Result<Option<T>, Stop> {
        self.children_of(kind)
            .find(|object| object.name == name)
            .map(|object| parse("InvalidObject", object))
            .transpose()
    }

    fn children_of(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        self.snapshot.children.iter().filter(move |object| {
            object.api_version == kind.api_version && object.kind == kind.kind
        })
    }

    /// The objects that match a query, by namespace and name. [`Stop::Ask`] while it is not answered.
    pub fn objects<T: DeserializeOwned>(&self, query: &ObjectQuery) -> Result<Vec<T>, Stop> {
        let answer =
            self.snapshot.answers.iter().find_map(|answer| match (&answer.query, &answer.reply) {
                (Query::Objects(asked), Reply::Objects(objects)) if asked == query => Some(objects),
                _ => None,
            });
        match answer {
            Some(objects) => objects.iter().map(|object| parse("InvalidObject", object)).collect(),
            None => Err(Stop::Ask(vec![Query::Objects(query.clone())])),
        }
    }

    /// The replies to several probes, in the same order. [`Stop::Ask`] for all that are not answered, at once.
    pub fn probes(&self, probes: &[ProbeQuery]) -> Result<Vec<&str>, Stop> {
        let replies: Vec<Option<&str>> =
            probes.iter().map(|probe| self.probe_reply(probe)).collect();
        if replies.contains(&None) {
            self.ask_all(probes.iter().cloned())?;
        }
        Ok(replies.into_iter().flatten().collect())
    }

    fn probe_reply(&self, probe: &ProbeQuery) -> Option<&str> {
        self.snapshot.answers.iter().find_map(|answer| match (&answer.query, &answer.reply) {
            (Query::Probe(asked), Reply::Probe(reply)) if asked == probe => Some(reply.as_str()),
            _ => None,
        })
    }

    /// [`Stop::Ask`] for those of the queries that are not answered yet, all in one round.
    /// Call it before reading several independent answers; there are five rounds in a run.
    pub fn ask_all<Q: Into<Query>>(
        &self,
        queries: impl IntoIterator<Item = Q>,
    ) -> Result<(), Stop> {
        let mut missing: Vec<Query> = Vec::new();
        for query in queries {
            let query = query.into();
            let answered = self.snapshot.answers.iter().any(|answer| answer.query == query);
            if !answered && !missing.contains(&query) {
                missing.push(query);
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Stop::Ask(missing)) }
    }

    /// What became of the previous decision. None on the first run after the host or the plugin was started.
    pub fn previous(&self) -> Option<&Outcome> {
        self.snapshot.previous.as_ref()
    }

    /// One value of the plugin's configuration.
    pub fn config(&self, key: &str) -> Option<&str> {
        self.snapshot.config.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The snapshot itself.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

fn parse<T: DeserializeOwned>(reason: &str, object: &Object) -> Result<T, Stop> {
    serde_json::from_str(&object.body).map_err(|error| {
        let message =
            format!("{} {}: {}", object.kind, object.name, describe_error(&object.body, &error));
        Failure::terminal(reason, message).into()
    })
}
