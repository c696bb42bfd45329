//! What tensors and their operators share on one machine: pools of pinned memory a GPU, and CPU threads.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use headwater_cuda::Gpu;
use headwater_memory::{Pool, PoolConfig, Tier, host_bytes_available};

use crate::error::Result;

/// Pinned memory for rows on their way to the GPU; what is in use is a few MiB a thread.
const STAGING_BYTES: usize = 1 << 30;

struct Pools {
    unified: Pool,
    staging: Pool,
}

thread_local! {
    static CURRENT_GPU: Cell<usize> = const { Cell::new(0) };
}

/// The GPU this thread means where no operand names one; 0 until chosen.
#[must_use]
pub fn current_gpu() -> usize {
    CURRENT_GPU.get()
}

/// Chooses the GPU this thread means where no operand names one. Nothing is opened yet.
pub fn set_current_gpu(ordinal: usize) {
    CURRENT_GPU.set(ordinal);
}

/// The pool unified tensors of `gpu` are allocated from: the papers' recycling allocator.
pub fn unified_pool(gpu: &Gpu) -> Result<Pool> {
    pools(gpu, |pools| pools.unified.clone())
}

/// The pool CPU threads gather into.
pub fn staging_pool(gpu: &Gpu) -> Result<Pool> {
    pools(gpu, |pools| pools.staging.clone())
}

fn pools(gpu: &Gpu, pick: impl FnOnce(&Pools) -> Pool) -> Result<Pool> {
    static POOLS: OnceLock<Mutex<HashMap<usize, Pools>>> = OnceLock::new();
    let mut all = POOLS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let pools = all.entry(gpu.ordinal()).or_insert_with(|| Pools {
        unified: Pool::new(
            gpu,
            PoolConfig {
                name: "unified tensors",
                tier: Tier::Pinned,
                // Pinned memory cannot be swapped; a tenth is left for everything else.
                limit_bytes: host_bytes_available() / 10 * 9,
                patience: Duration::from_millis(100),
            },
        ),
        staging: Pool::new(
            gpu,
            PoolConfig {
                name: "staging",
                tier: Tier::Pinned,
                limit_bytes: STAGING_BYTES,
                patience: Duration::from_secs(30),
            },
        ),
    });
    Ok(pick(pools))
}

/// Runs `work` on a pool of `threads` threads, or on the process's own when zero.
pub fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    match thread_pool(threads) {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// Thread pools are kept: starting threads costs as much as a small gather.
fn thread_pool(threads: usize) -> Option<Arc<rayon::ThreadPool>> {
    static POOLS: OnceLock<Mutex<HashMap<usize, Arc<rayon::ThreadPool>>>> = OnceLock::new();
    if threads == 0 {
        return None;
    }
    let mut pools = POOLS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&threads) {
        return Some(pool.clone());
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().ok().map(Arc::new)?;
    pools.insert(threads, pool.clone());
    Some(pool)
}

/// GPU `ordinal`, or the reason there is none.
pub fn gpu(ordinal: usize) -> Result<Gpu> {
    Ok(Gpu::open(ordinal)?)
}
