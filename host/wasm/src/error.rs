//! Why a plugin was not loaded: one type per stage, joined by [`LoadError`].
//!
//! A fault of a plugin that is loaded is a [`CallFault`](crate::CallFault).

use std::io;

use host_core::ident::PluginId;

use crate::contract::{IMPORT_ALLOWED, SUPPORTED};
use crate::fault::CallFault;

/// Why a plugin was not loaded, with the plugin.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its bytes could not be taken.
    #[error("capturing plugin {name}")]
    Capture {
        /// The source's name.
        name: String,
        /// Why.
        source: CaptureError,
    },
    /// It is not a plugin for this host.
    #[error("verifying {plugin}")]
    Verify {
        /// Which plugin.
        plugin: PluginId,
        /// Why.
        source: VerifyError,
    },
    /// It could not be compiled.
    #[error("compiling {plugin}")]
    Compile {
        /// Which plugin.
        plugin: PluginId,
        /// Why.
        source: CompileError,
    },
    /// Its types are not those of the contract, or it needs more than the sandbox has.
    #[error("linking {plugin}: {problem}")]
    Link {
        /// Which plugin.
        plugin: PluginId,
        /// What wasmtime says.
        problem: String,
    },
    /// A configured limit makes no sense.
    #[error("limits of {plugin}: {field} is {value}, but must be from {min} to {max}")]
    Limits {
        /// Which plugin.
        plugin: PluginId,
        /// Which limit.
        field: &'static str,
        /// What it was set to.
        value: u32,
        /// The smallest that makes sense.
        min: u32,
        /// The largest that is allowed.
        max: u32,
    },
    /// It failed when asked to describe itself.
    #[error("asking the plugin to describe itself")]
    Describe(#[from] CallFault),
}

impl LoadError {
    /// A `CamelCase` reason for conditions and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Capture { .. } => "PluginUnreadable",
            Self::Verify { source: VerifyError::OtherContract { .. }, .. } => "PluginContract",
            Self::Verify { source: VerifyError::Imports { .. }, .. } => "PluginImports",
            Self::Verify { source: VerifyError::Limit { .. }, .. } => "PluginTooLarge",
            Self::Verify { .. } => "PluginInvalid",
            Self::Compile { .. } => "PluginCompile",
            Self::Link { .. } => "PluginLink",
            Self::Limits { .. } => "PluginSettings",
            Self::Describe(fault) => fault.reason(),
        }
    }
}

/// Why a plugin's bytes could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// More bytes than a component may have.
    #[error("it has {bytes} bytes, at most {max} are allowed")]
    TooLarge {
        /// How many.
        bytes: usize,
        /// How many there may be.
        max: usize,
    },
    /// It would unpack to more bytes than a component may have.
    #[error("its {packing} payload unpacks to more than {max} bytes")]
    UnpacksTooLarge {
        /// `gzip` or `zstd`.
        packing: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// The packing is broken.
    #[error("unpacking its {packing} payload")]
    Unpack {
        /// `gzip` or `zstd`.
        packing: &'static str,
        /// What the decoder says.
        source: io::Error,
    },
}

/// Why bytes are not a plugin for this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Not a component at all.
    #[error("it {found}: {fix}")]
    NotAComponent {
        /// What it is instead.
        found: String,
        /// What to do.
        fix: &'static str,
    },
    /// Not well-formed.
    #[error("it is damaged or cut off at byte {offset}: {problem}")]
    Malformed {
        /// Where.
        offset: u64,
        /// What the parser says.
        problem: String,
    },
    /// A component of another world.
    #[error(
        "it exports {exports}, but not {SUPPORTED}: build it for the world operator-host:plugin/plugin"
    )]
    WrongWorld {
        /// What it exports instead; `nothing` when that is nothing.
        exports: String,
    },
    /// A plugin of another major version of the contract.
    #[error(
        "it was built for {found}, but this host supports {SUPPORTED}: use a plugin or a host of the other's version"
    )]
    OtherContract {
        /// The export's full name.
        found: String,
    },
    /// It imports what a plugin cannot have.
    #[error("it imports {}, but a plugin may import {IMPORT_ALLOWED} alone{}", names.join(", "), hint(names))]
    Imports {
        /// Every import that is not allowed.
        names: Vec<String>,
    },
    /// Larger or more complicated than a plugin may be.
    #[error("it has {found} {what}, at most {max} are allowed")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How many.
        found: u64,
        /// How many there may be.
        max: u64,
    },
    /// One of the host's own custom sections is wrong.
    #[error("its custom section {name} {problem}")]
    Section {
        /// Which.
        name: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
}

fn hint(names: &[String]) -> &'static str {
    if names.iter().any(|name| name.starts_with("wasi:")) {
        "; build it for wasm32-unknown-unknown, which needs no WASI"
    } else {
        ""
    }
}

/// Why a verified plugin could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The compiler refused it.
    #[error("it is not valid: {problem}")]
    Invalid {
        /// What the compiler says.
        problem: String,
    },
    /// It needs too much processor time.
    #[error(
        "compiling it needs more than {seconds} s of processor time: make its functions smaller"
    )]
    Cpu {
        /// The limit, in seconds.
        seconds: u32,
    },
    /// It needs too much memory.
    #[error("compiling it needs more than {mib} MiB of memory: make its functions smaller")]
    Memory {
        /// The limit, in MiB.
        mib: u32,
    },
    /// The compiler was killed from outside, most likely for the memory of the machine or the container.
    #[error("the compiler was killed; the machine or the container is short of memory")]
    Killed,
    /// It needs too long.
    #[error("compiling it takes longer than {ms} ms")]
    WallClock {
        /// The limit, in milliseconds.
        ms: u64,
    },
    /// The machine code is too large.
    #[error("its machine code has more than {max} bytes")]
    CodeTooLarge {
        /// The limit.
        max: usize,
    },
    /// The compiler crashed.
    #[error("the compiler crashed ({status}): {message}")]
    Crashed {
        /// How it ended.
        status: String,
        /// What it said.
        message: String,
    },
    /// The compiler could not be run.
    #[error("{doing}: {problem}")]
    Unavailable {
        /// What was being done.
        doing: String,
        /// What the system says.
        problem: String,
    },
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The pool could not be made.
    #[error(
        "reserving addresses for {calls} plugin calls at once: {problem}; \
         lift the limit on virtual memory (ulimit -v) or allow fewer calls"
    )]
    Pool {
        /// How many calls at once.
        calls: u16,
        /// What wasmtime says.
        problem: String,
    },
    /// The ticker could not be started.
    #[error("starting the thread that enforces deadlines")]
    Ticker(#[source] io::Error),
    /// The compiler's settings do not fit this machine.
    #[error("setting up the compiler: {0}")]
    Compiler(String),
    /// The log could not be linked.
    #[error("linking the contract's log: {0}")]
    Link(String),
}
