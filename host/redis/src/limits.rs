//! Every bound of a request to a Redis server, with its arithmetic.

use std::time::Duration;

/// Bytes of a request. `CLUSTER ADDSLOTS` of all 16,384 slots takes 8 bytes each (`"16383",`): 128 KiB; twice that.
pub const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// Commands in one request. A probe needs about five; `CLUSTER SETSLOT` in bulk is split over requests.
pub const COMMANDS_MAX: usize = 64;

/// Words of one command. `ADDSLOTSRANGE` in the worst fragmentation: 8,192 ranges of two words and the command's own.
pub const WORDS_MAX: usize = 8_192 * 2 + 2;

/// Bytes a server may send in one request, all replies together. `INFO` is about 6 KiB, `CLUSTER NODES` of 1,000 nodes
/// about 150 KiB (150 bytes a line), so four times what the largest probe needs.
pub const REPLY_BYTES_MAX: usize = 1024 * 1024;

/// Carriage returns a server may send in one request. Each RESP value ends with one, so this bounds the values:
/// `CLUSTER SLOTS` of 1,000 nodes is about 15,000. At 56 bytes a parsed value and a doubling list: 7 MiB.
pub const REPLY_LINES_MAX: usize = 64 * 1024;

/// Lists within lists. `CLUSTER SHARDS` has four.
pub const REPLY_DEPTH_MAX: usize = 8;

/// Bytes of a reply as JSON. Quotes and escapes add little to what Redis sends, so twice the wire;
/// a server that makes them add more (a control character becomes six bytes) is cut off.
pub const REPLY_JSON_BYTES_MAX: usize = 2 * REPLY_BYTES_MAX;

/// Bytes of a server's error message in a problem.
pub const PROBLEM_BYTES_MAX: usize = host_core::limits::CONDITION_MESSAGE_BYTES_MAX;

/// How long a connection may take. Within a cluster a round trip takes under 2 ms; an address nobody has
/// answers never, and must not hold up a run of many probes.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a probe may take if it does not say.
pub const PROBE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);

/// How long a probe may take at most: one reconcile of a hundred pods stays within half a minute at 16 at once.
pub const PROBE_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// How long an action may take if it does not say.
pub const ACTION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// How long an action may take at most: `MIGRATE` of 100 keys has its own timeout, by convention 5 s; twice that.
pub const ACTION_TIMEOUT_MAX: Duration = Duration::from_secs(10);
