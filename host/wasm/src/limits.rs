//! Every bound of loading and calling, with its arithmetic.
//!
//! The structural bounds are some three to ten times what honest guests were seen to need (Rust: 1,074 functions,
//! 85 KB in the largest body, 453 locals; QuickJS: 2,430 functions) and far below what makes Cranelift suffer
//! (40,000 locals in one function: minutes and 10 GB). They are a cheap first filter: the child's limits are the wall.

use std::time::Duration;

/// Bytes of a component, unpacked. A Rust plugin has 0.1 to 0.2 MB, Go 3 MB; a ConfigMap carries 1 MiB, packed or not.
pub const COMPONENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Functions in all core modules of a component together.
pub(crate) const FUNCTIONS_MAX: usize = 20_000;

/// Bytes of one function's body.
pub(crate) const BODY_BYTES_MAX: usize = 128 * 1024;

/// Locals of one function, parameters not counted.
pub(crate) const LOCALS_MAX: u64 = 1_000;

/// Core modules, nested ones included. wit-component makes 1 to 3, componentize-py 38.
pub(crate) const CORE_MODULES_MAX: usize = 64;

/// Components within components, at any depth.
pub(crate) const NESTED_COMPONENTS_MAX: usize = 32;

/// Memories that a component's modules define. One each is the rule; two leave room for a composed component.
/// Each takes an address range of 4 GiB for every slot of the pool.
pub(crate) const MEMORIES_MAX: u32 = 2;

/// Tables that a component's modules define: one of the program, one of wit-component's shim, times two and room.
pub(crate) const TABLES_MAX: u32 = 8;

/// Elements of one table. Go and QuickJS have up to 20,000, CPython 60,000. 8 bytes each for every slot: 480 KB of addresses.
pub(crate) const TABLE_ELEMENTS_MAX: u32 = 60_000;

/// Pages of 64 KiB that one memory starts with or grows to: 64 MiB.
pub(crate) const MEMORY_PAGES_MAX: u64 = 1_024;

/// MiB of all memories of one call together; the contract's default and its ceiling.
pub(crate) const MEMORY_MIB_MAX: u32 = 64;

/// Core instances of one component. wit-component makes 2 to 4, componentize-py 21.
pub(crate) const CORE_INSTANCES_MAX: u32 = 32;

/// The longest deadline that can be configured. Longer calls would hold a core that other parents need.
pub(crate) const CALL_DEADLINE_MS_MAX: u32 = 60_000;

/// How often the epoch moves. A call is stopped between its deadline and two ticks later.
pub(crate) const TICK: Duration = Duration::from_millis(TICK_MS);
/// Ticks without a call before the ticker rests: a second, so that a busy host does not wake it for every call.
pub(crate) const TICKS_IDLE_MAX: u32 = 100;

/// [`TICK`] in milliseconds.
pub(crate) const TICK_MS: u64 = 10;

/// Stack of a call.
pub(crate) const STACK_BYTES: usize = 512 * 1024;

/// Frames of a recorded backtrace.
pub(crate) const BACKTRACE_FRAMES: usize = 20;

/// How often one function must be among [`BACKTRACE_FRAMES`] for an access out of bounds to count as a stack overflow:
/// Rust guests keep their stack at the bottom of memory, so a runaway recursion leaves memory first.
pub(crate) const RECURSION_FRAMES: usize = 5;

/// Bytes a guest may hand over in one crossing. wasmtime's own default, 128 MiB, would let a guest
/// with 2 MiB of memory make the host allocate 64 times that, by handing over one buffer many times.
/// A decision of 1,000 pods has some 2 MB.
pub(crate) const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of a descriptor: dozens of kinds at 100 bytes each, and hints.
pub(crate) const DESCRIPTOR_BYTES_MAX: usize = 64 * 1024;

/// Bytes of log messages and fields in one call.
pub(crate) const LOG_BYTES_MAX: usize = 64 * 1024;

/// What a log line costs beyond its text, so that empty lines are not free: 64 KiB / 64 = 1,024 lines.
pub(crate) const LOG_LINE_BYTES: usize = 64;

/// What a log field costs beyond its text.
pub(crate) const LOG_FIELD_BYTES: usize = 16;

/// Bytes of a guest's own text in a fault.
pub(crate) const FAULT_TEXT_BYTES_MAX: usize = 1_024;

/// Bytes of machine code. Seen: 0.4 MB for a Rust plugin, 7 MB for Go, 37 MB for SpiderMonkey.
pub(crate) const CODE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes in the cache; the oldest files go first. 900 Rust plugins at half a megabyte. With one more of the largest size,
/// which is written before the oldest go, 512 MiB: what `deploy/base` gives the volume.
pub(crate) const CACHE_BYTES_MAX: u64 = 448 * 1024 * 1024;

/// Bytes of what a compiling child says on its way out.
pub(crate) const CHILD_MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// Digests remembered as impossible to compile.
pub(crate) const REFUSED_DIGESTS_MAX: usize = 256;
