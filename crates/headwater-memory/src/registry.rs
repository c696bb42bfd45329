//! Registration of host memory with the GPU, whoever owns it.
//!
//! The driver refuses to register a page twice, but two arrays may share a page, and a user may hand over the same array
//! twice. So the process keeps one table of registered chunks. A request counts up the chunks it overlaps and registers
//! only the gaps, in pieces small enough to succeed on their own; when the last holder of a chunk is gone the chunk is
//! unregistered. A chunk also holds the owner of the memory it was registered for, because a neighbour that shares it
//! may keep it registered for longer, and pages must not be unmapped under a registration. Owners that move their bytes
//! unmap them all the same: a GPU goes on reading the old pages, also when something else has come to lie at their
//! addresses. So a chunk whose holders have all moved is registered anew for the next who asks. Memory that its owner has pinned
//! needs no registration, and the driver refuses one.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_cuda::{Allocation, Gpu, RegisteredParts, Registration, Span, is_pinned};

use crate::error::{Error, Result};
use crate::foreign::Moved;
use crate::tier::{host_bytes_available, lockable_bytes};

const PAGE_BYTES: usize = 4096;
/// Large enough to be rare, small enough that one refusal does not lose everything done before it.
const CHUNK_BYTES: usize = 4 << 30;

/// A registered range. Holding it keeps the range registered.
#[derive(Debug)]
pub struct Registered {
    number: u64,
    chunks: Vec<usize>,
}

/// What is registered in this process now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryUse {
    /// Ranges the driver knows.
    pub chunks: usize,
    /// Their bytes.
    pub bytes: usize,
}

struct Chunk {
    registration: Registration,
    keeper: Keeper,
    holders: Vec<Holder>,
}

/// Whoever keeps a chunk registered, by the number of its `Registered`.
struct Holder {
    number: u64,
    moved: Option<Moved>,
}

impl Holder {
    fn has_moved(&self) -> bool {
        self.moved.as_ref().is_some_and(Moved::is_set)
    }
}

type Keeper = Arc<dyn Any + Send + Sync>;

static TABLE: Mutex<BTreeMap<usize, Chunk>> = Mutex::new(BTreeMap::new());
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl Registered {
    /// Registers every page that `start..start + bytes` touches. Overlapping and repeated requests are fine, and so is memory
    /// that is pinned already.
    ///
    /// # Safety
    /// The range stays mapped as long as `keeper` is held, and pinned if it is.
    pub unsafe fn new(gpu: &Gpu, start: NonNull<u8>, bytes: usize, keeper: Keeper) -> Result<Self> {
        // SAFETY: passed on.
        unsafe { Self::in_chunks(gpu, start, bytes, (&keeper, None), CHUNK_BYTES) }
    }

    /// # Safety
    /// As [`Registered::new`].
    unsafe fn in_chunks(
        gpu: &Gpu,
        start: NonNull<u8>,
        bytes: usize,
        (keeper, moved): (&Keeper, Option<Moved>),
        chunk_bytes: usize,
    ) -> Result<Self> {
        let pages = whole_pages(start.addr().get(), bytes)?;
        // Owners go after the lock: dropping one may drop another registration.
        let mut gone = Vec::new();
        let mut table = table();
        forget_moved(gpu, &mut table, &pages, &mut gone)?;
        let known: Vec<Range<usize>> = overlapping(&table, &pages).collect();
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        if known.is_empty() && is_pinned(gpu, start, bytes)? {
            return Ok(Self { number, chunks: Vec::new() });
        }
        let holder = || Holder { number, moved: moved.clone() };
        let mut held = Self { number, chunks: known.iter().map(|range| range.start).collect() };
        for start in &held.chunks {
            if let Some(chunk) = table.get_mut(start) {
                chunk.holders.push(holder());
            }
        }
        for gap in gaps(&pages, &known).into_iter().flat_map(|gap| pieces(gap, chunk_bytes)) {
            // SAFETY: the caller's promise covers these pages.
            match unsafe { register(gpu, &gap, bytes) } {
                Ok(registration) => {
                    table.insert(gap.start, Chunk { registration, keeper: keeper.clone(), holders: vec![holder()] });
                    held.chunks.push(gap.start);
                }
                Err(error) => {
                    // Dropping `held` takes the table's lock.
                    drop(table);
                    return Err(error);
                }
            }
        }
        Ok(held)
    }

    /// How `start..start + bytes` is registered: where its chunks meet, and whether the GPU may write all of it.
    fn parts(&self, start: NonNull<u8>, bytes: usize) -> RegisteredParts {
        let table = table();
        let offsets = self.chunks.iter().filter_map(|chunk| chunk.checked_sub(start.addr().get()));
        let is_read_only = |chunk: &Chunk| chunk.registration.is_read_only();
        RegisteredParts {
            seams: offsets.filter(|offset| (1..bytes).contains(offset)).collect(),
            read_only: self.chunks.iter().filter_map(|start| table.get(start)).any(is_read_only),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Owners go after the lock: dropping one may drop another registration.
        let mut gone = Vec::new();
        let mut table = table();
        for start in &self.chunks {
            let last = table.get_mut(start).is_some_and(|chunk| {
                let before = chunk.holders.len();
                chunk.holders.retain(|holder| holder.number != self.number);
                // Another chunk may have come to stand here.
                before > 0 && chunk.holders.is_empty()
            });
            if last && let Some(Chunk { registration, keeper, .. }) = table.remove(start) {
                drop(registration);
                gone.push(keeper);
            }
        }
        drop(table);
    }
}

/// A GPU-visible span over memory somebody else owns, without a copy. `keeper` owns the memory and is held by the span.
///
/// # Safety
/// `start..start + bytes` stays mapped, pinned if it is, and is not reused for anything else, as long as `keeper` is held.
pub unsafe fn lay_over(gpu: &Gpu, start: NonNull<u8>, bytes: usize, keeper: Keeper) -> Result<Span> {
    // SAFETY: the caller's promise.
    unsafe { lay_over_in_chunks(gpu, start, bytes, (keeper, None), CHUNK_BYTES, Access::All) }
}

/// The same over memory that others read meanwhile, so that work that would write there is refused, and that may move, which
/// `moved` then says.
///
/// # Safety
/// As [`lay_over`], until `moved` is set.
pub(crate) unsafe fn lay_over_to_read(
    gpu: &Gpu,
    start: NonNull<u8>,
    bytes: usize,
    keeper: Keeper,
    moved: Option<Moved>,
) -> Result<Span> {
    // SAFETY: the caller's promise.
    unsafe { lay_over_in_chunks(gpu, start, bytes, (keeper, moved), CHUNK_BYTES, Access::Reading) }
}

/// What a GPU may do with memory of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    All,
    Reading,
}

/// # Safety
/// As [`lay_over`].
unsafe fn lay_over_in_chunks(
    gpu: &Gpu,
    start: NonNull<u8>,
    bytes: usize,
    (keeper, moved): (Keeper, Option<Moved>),
    chunk_bytes: usize,
    access: Access,
) -> Result<Span> {
    // SAFETY: the caller's promise.
    let registered = unsafe { Registered::in_chunks(gpu, start, bytes, (&keeper, moved), chunk_bytes) }?;
    let mut parts = registered.parts(start, bytes);
    parts.read_only |= access == Access::Reading;
    // The tuple drops the registration before the keeper.
    let both: Keeper = Arc::new((registered, keeper));
    // SAFETY: registered just above and kept so by `both`.
    Ok(Span::whole(unsafe { Allocation::borrowed(gpu, start, bytes, parts, both) }?))
}

/// What this process has registered.
#[must_use]
pub fn registry_use() -> RegistryUse {
    let table = table();
    RegistryUse { chunks: table.len(), bytes: table.values().map(|chunk| chunk.registration.bytes()).sum() }
}

fn table() -> MutexGuard<'static, BTreeMap<usize, Chunk>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes chunks out of the table that were registered for memory which is not there any more.
fn forget_moved(
    gpu: &Gpu,
    table: &mut BTreeMap<usize, Chunk>,
    pages: &Range<usize>,
    gone: &mut Vec<Keeper>,
) -> Result<()> {
    let known: Vec<Range<usize>> = overlapping(table, pages).collect();
    for range in known {
        let holders = table.get(&range.start).map_or(&[][..], |chunk| &chunk.holders);
        let moved = holders.iter().filter(|holder| holder.has_moved()).count();
        if moved == 0 {
            continue;
        }
        if moved < holders.len() {
            let why = "a page of it is registered together with memory that its owner has moved, which is still held; let \
                       go of what was made of that memory";
            return Err(refused(&range, pages.len(), why.into()));
        }
        // Whoever holds the chunk may have work queued that reads it.
        gpu.synchronize()?;
        if let Some(Chunk { registration, keeper, .. }) = table.remove(&range.start) {
            drop(registration);
            gone.push(keeper);
        }
    }
    Ok(())
}

fn refused(range: &Range<usize>, asked_bytes: usize, why: String) -> Error {
    Error::Register {
        address: range.start,
        asked_bytes,
        free_bytes: host_bytes_available(),
        limit: lockable_bytes().map_or("no limit on locked memory".into(), |bytes| {
            format!("the limit on locked memory (ulimit -l) is {bytes} bytes")
        }),
        why,
    }
}

/// # Safety
/// As [`Registered::new`].
unsafe fn register(gpu: &Gpu, range: &Range<usize>, asked_bytes: usize) -> Result<Registration> {
    let refused = |why: String| refused(range, asked_bytes, why);
    let start = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(range.start))
        .ok_or_else(|| refused("the range starts at address zero".into()))?;
    // SAFETY: passed on.
    unsafe { Registration::new(gpu, start, range.len()) }.map_err(|error| refused(error.to_string()))
}

fn whole_pages(start: usize, bytes: usize) -> Result<Range<usize>> {
    let end = start.checked_add(bytes.max(1)).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES));
    let end = end.ok_or(Error::TooLarge { elements: bytes, element_bytes: 1 })?;
    Ok(start / PAGE_BYTES * PAGE_BYTES..end)
}

fn overlapping(table: &BTreeMap<usize, Chunk>, wanted: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let ranges = table.range(..wanted.end).map(|(start, chunk)| *start..start + chunk.registration.bytes());
    let mut found: Vec<Range<usize>> = ranges.rev().take_while(|range| range.end > wanted.start).collect();
    found.reverse();
    found.into_iter()
}

/// The parts of `wanted` that `known` (in order, not overlapping) leaves open.
fn gaps(wanted: &Range<usize>, known: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut open = Vec::new();
    let mut at = wanted.start;
    for range in known {
        if range.start > at {
            open.push(at..range.start);
        }
        at = at.max(range.end);
    }
    if at < wanted.end {
        open.push(at..wanted.end);
    }
    open
}

fn pieces(range: Range<usize>, chunk_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(chunk_bytes).map(move |start| start..end.min(start.saturating_add(chunk_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests of one program share the table.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn pages_cover_the_bytes() {
        assert_eq!(whole_pages(4096, 4096).unwrap(), 4096..8192);
        assert_eq!(whole_pages(5000, 1).unwrap(), 4096..8192);
        assert_eq!(whole_pages(4095, 2).unwrap(), 0..8192);
        assert!(whole_pages(usize::MAX - 10, 100).is_err());
    }

    #[test]
    fn gaps_are_what_is_not_known() {
        assert_eq!(gaps(&(0..10), &[]), vec![0..10]);
        assert_eq!(gaps(&(0..10), &[2..4, 6..12]), vec![0..2, 4..6]);
        let one = |range| std::iter::once(range).collect::<Vec<_>>();
        assert_eq!(gaps(&(5..10), &one(0..6)), one(6..10));
        assert_eq!(gaps(&(5..10), &one(0..20)), Vec::<Range<usize>>::new());
    }

    #[test]
    fn large_ranges_are_cut_and_nothing_is_lost() {
        let range = 4096..4096 + CHUNK_BYTES * 2 + 8192;
        let cut: Vec<Range<usize>> = pieces(range.clone(), CHUNK_BYTES).collect();
        assert_eq!(cut.len(), 3);
        assert_eq!(cut.first().map(|piece| piece.start), Some(range.start));
        assert_eq!(cut.last().map(|piece| piece.end), Some(range.end));
        assert!(cut.windows(2).all(|pair| pair[0].end == pair[1].start));
    }

    /// A real arena is cut every few gibibytes; small chunks show that copies pass the seams.
    #[test]
    fn device_copies_cross_the_seams_of_small_chunks() {
        let _alone = ALONE.lock();
        let Ok(gpu) = Gpu::open(0) else { return eprintln!("no GPU: skipped") };
        let bytes = 5 * PAGE_BYTES + 100;
        let mapping = Arc::new(crate::mapping::Mapping::anonymous(bytes).unwrap());
        // SAFETY: the mapping is held as the keeper.
        let lay_over = |access| unsafe {
            lay_over_in_chunks(&gpu, mapping.start(), bytes, (mapping.clone(), None), 2 * PAGE_BYTES, access)
        };
        let host = lay_over(Access::All).unwrap();
        assert_eq!(registry_use(), RegistryUse { chunks: 3, bytes: 6 * PAGE_BYTES });
        let stream = headwater_cuda::Stream::new(&gpu).unwrap();
        let pattern: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let near = Span::whole(Allocation::on_stream(&stream, bytes).unwrap());
        let mut back = vec![0; bytes];
        stream.upload(&pattern, &host).unwrap();
        stream.copy(&host, &near).unwrap();
        stream.download(&near, &mut back).unwrap();
        assert_eq!(back, pattern);
        stream.fill(&host.part(1, bytes - 2).unwrap(), 7).unwrap();
        stream.download(&host, &mut back).unwrap();
        assert!(back[1..bytes - 1].iter().all(|byte| *byte == 7));
        assert_eq!((back[0], back[bytes - 1]), (pattern[0], pattern[bytes - 1]));
        let lent = lay_over(Access::Reading).unwrap();
        assert!(stream.fill(&lent, 1).is_err() && stream.copy(&near, &lent).is_err());
        stream.copy(&lent, &near).unwrap();
        drop((host, lent));
        assert_eq!(registry_use(), RegistryUse { chunks: 0, bytes: 0 });
    }

    #[test]
    fn device_memory_that_is_pinned_already_is_taken_as_it_is() {
        let _alone = ALONE.lock();
        let Ok(gpu) = Gpu::open(0) else { return eprintln!("no GPU: skipped") };
        let stream = headwater_cuda::Stream::new(&gpu).unwrap();
        let bytes = 3 * PAGE_BYTES;
        let pinned = Allocation::pinned(&gpu, bytes).unwrap();
        let start = Span::whole(pinned.clone()).host_pointer().unwrap();
        let lay = |start, bytes| {
            // SAFETY: the allocation is held as the keeper.
            unsafe { lay_over(&gpu, start, bytes, pinned.clone()) }
        };
        // SAFETY: inside the allocation.
        let later = unsafe { start.add(100) };
        for (start, bytes) in [(start, bytes), (later, 5000), (later, bytes - 100)] {
            let host = lay(start, bytes).unwrap();
            assert_eq!(registry_use(), RegistryUse { chunks: 0, bytes: 0 });
            let mut back = vec![0; bytes];
            stream.fill(&host, 7).unwrap();
            stream.download(&host, &mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == 7));
        }
        // What reaches beyond it is not all pinned, and cannot be registered.
        assert!(lay(later, bytes).unwrap_err().to_string().contains("cuMemHostRegister failed"));
        let managed = Allocation::managed(&gpu, bytes).unwrap();
        let start = Span::whole(managed.clone()).host_pointer().unwrap();
        // SAFETY: the allocation is held as the keeper.
        assert!(unsafe { lay_over(&gpu, start, bytes, managed) }.is_err());
    }

    fn holders_at(start: NonNull<u8>) -> usize {
        table().get(&start.addr().get()).map_or(0, |chunk| chunk.holders.len())
    }

    #[test]
    fn device_registrations_of_memory_that_moved_are_not_used_again() {
        let _alone = ALONE.lock();
        let Ok(gpu) = Gpu::open(0) else { return eprintln!("no GPU: skipped") };
        let bytes = 3 * PAGE_BYTES;
        let mapping = Arc::new(crate::mapping::Mapping::anonymous(bytes).unwrap());
        let moved = Moved::default();
        let lay = |moved: Option<&Moved>| {
            // SAFETY: the mapping is held as the keeper.
            unsafe { lay_over_to_read(&gpu, mapping.start(), bytes, mapping.clone(), moved.cloned()) }
        };
        let first = lay(Some(&moved)).unwrap();
        let second = lay(Some(&moved)).unwrap();
        assert_eq!(holders_at(mapping.start()), 2);
        moved.set();
        let third = lay(None).unwrap();
        assert_eq!(holders_at(mapping.start()), 1);
        drop((first, second));
        assert_eq!(holders_at(mapping.start()), 1);
        drop(third);
        assert_eq!(holders_at(mapping.start()), 0);
        let (moved, stays) = (Moved::default(), Moved::default());
        let both = [lay(Some(&moved)).unwrap(), lay(Some(&stays)).unwrap()];
        moved.set();
        assert!(lay(None).unwrap_err().to_string().contains("its owner has moved"));
        drop(both);
    }
}
