//! How wasmtime is configured: what the compiling child and the running host must agree on, and the host's own part.
//!
//! **Invariant:** everything that machine code depends on is in [`base`], so the two can never differ.

use wasmtime::{Config, Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

use crate::limits;

/// What both sides share.
pub(crate) fn base() -> Config {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        // Deadlines: every loop and function looks at the epoch.
        .epoch_interruption(true)
        // Determinism: one bit pattern for NaN on every processor, no instruction with a choice of results.
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        // A 64-bit memory would escape the pool's bound on addresses.
        .wasm_memory64(false)
        .concurrency_support(false)
        // Frames are named by function; where in it they are, in the component, would take a sixth of the code.
        .generate_address_map(false)
        .max_wasm_stack(limits::STACK_BYTES)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(limits::BACKTRACE_FRAMES));
    config
}

/// What the host adds: slots for `calls` calls at once, made ready beforehand.
pub(crate) fn pooled(calls: u16) -> Config {
    let calls = u32::from(calls);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(calls)
        .total_core_instances(calls * limits::CORE_INSTANCES_MAX)
        .max_core_instances_per_component(limits::CORE_INSTANCES_MAX)
        .total_memories(calls * limits::MEMORIES_MAX)
        .max_memories_per_component(limits::MEMORIES_MAX)
        .total_tables(calls * limits::TABLES_MAX)
        .max_tables_per_component(limits::TABLES_MAX)
        .max_tables_per_module(limits::TABLES_MAX)
        .table_elements(limits::TABLE_ELEMENTS_MAX as usize)
        .max_memory_size(limits::MEMORY_MIB_MAX as usize * 1024 * 1024)
        .pagemap_scan(Enabled::Auto)
        .linear_memory_keep_resident(keep_resident())
        .table_keep_resident(64 * 1024);
    let mut config = base();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// How much of a memory that a call has dirtied is cleared by hand instead of being given back to the kernel.
///
/// A kernel that tells which pages are dirty (6.7 and later) makes clearing all of them the cheapest: the median call
/// took 48 µs instead of 66 µs, with a fifth of the page faults and no work for other processors. Elsewhere the first
/// 64 KiB measured best.
fn keep_resident() -> usize {
    if PoolingAllocationConfig::is_pagemap_scan_available() { 2 * 1024 * 1024 } else { 64 * 1024 }
}
