//! The roles of pods.

/// What a pod's role label says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Starting, catching up, or taken out of service. In no role Service.
    Joining,
    /// It can be read from.
    Replica,
    /// It can be written to.
    Master,
}

impl Role {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Replica => "replica",
            Self::Master => "master",
        }
    }

    /// From the label's value.
    pub fn from_label(text: &str) -> Option<Self> {
        [Self::Joining, Self::Replica, Self::Master].into_iter().find(|role| role.as_str() == text)
    }
}
