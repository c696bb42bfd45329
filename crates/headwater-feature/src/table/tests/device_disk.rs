//! Tables with rows in a file.

use std::sync::Arc;

use headwater_cuda::Stream;
use headwater_memory::io::ram::{Fault, FaultPlan, RamOptions};
use headwater_memory::io::{Choice, Direct, Engine, EngineConfig, FileOptions, IoFile};

use super::{expected, features, gather, stream, table};
use crate::rows::{Encoded, RowFormat, Stored, encode};
use crate::table::{IdMap, Layout, Source};
use crate::{DiskOptions, DiskRows, Error, Result, RowFile};

const ROWS: usize = 2000;
const ELEMENTS: usize = 12;
const FORMAT: RowFormat = RowFormat { elements: ELEMENTS, stored: Stored::F32, stride_bytes: 4 * ELEMENTS };

/// The rows in a file in memory, read through a cache of a tenth, with faults.
fn on_disk(encoded: &Encoded, plan: FaultPlan) -> Source {
    let contents = encoded.bytes.clone();
    let options = RamOptions { contents, alignment_bytes: 512, ..RamOptions::default() };
    let file = Arc::new(IoFile::ram("rows.npy", &options).unwrap());
    let (row_bytes, rows) = (FORMAT.row_bytes(), ROWS as u64);
    let engine = Arc::new(Engine::new(EngineConfig { choice: Choice::Ram(plan), ..EngineConfig::default() }).unwrap());
    let cached = DiskOptions { cache_bytes: 4 * 4096, ..DiskOptions::default() };
    let disk = DiskRows::open(RowFile { file, data_offset: 0, row_bytes, rows, sums: None }, &engine, &cached).unwrap();
    Source::file(Arc::new(disk), Stored::F32).unwrap()
}

fn setup(plan: FaultPlan) -> Option<(Stream, Encoded, Source, Vec<u64>)> {
    let stream = stream()?;
    let encoded = encode(&features(ROWS, ELEMENTS), &FORMAT);
    let source = on_disk(&encoded, plan);
    let ids = (0..600u64).map(|at| (at * at * 31 + at) % ROWS as u64).collect();
    Some((stream, encoded, source, ids))
}

#[test]
fn every_boundary_of_the_disk() -> Result<()> {
    let Some((stream, encoded, source, ids)) = setup(FaultPlan::default()) else { return Ok(()) };
    for (replicated, interleaved, host_end) in
        [(0, 0, 0), (0, 0, 2000), (10, 40, 40), (10, 40, 1000), (0, 0, 1999), (2000, 2000, 2000), (0, 500, 1500)]
    {
        let layout = Layout::new(2000, replicated, interleaved, 3)?.with_disk_from(host_end)?;
        let table = table(&stream, &source, layout)?;
        for out in [Stored::F32, Stored::F16] {
            let found = gather(&stream, &table, &ids, out)?;
            assert!(found == expected(&encoded, &FORMAT, &ids, out), "{layout:?} {out:?}");
        }
        let below = |end: u64| 2 * ids.iter().filter(|id| **id < end).count() as u64;
        let counted = [below(replicated), below(interleaved) - below(replicated), below(host_end) - below(interleaved)];
        let [replicated, interleaved, host, disk] = table.served(&stream)?.tiers().map(|tier| tier.rows);
        assert_eq!([replicated, interleaved, host], counted, "{layout:?}");
        assert_eq!(disk, 1200 - below(host_end), "{layout:?}");
    }
    Ok(())
}

#[test]
fn what_is_asked_for_ahead_is_there() -> Result<()> {
    let Some((stream, encoded, source, _)) = setup(FaultPlan::default()) else { return Ok(()) };
    let rows_of_ids: Vec<u64> = (0..2000).rev().collect();
    let layout = Layout::new(2000, 10, 10, 3)?.with_disk_from(500)?;
    let table = table(&stream, &source, layout)?.with_id_map(IdMap::of(&rows_of_ids, 2000))?;
    let ids = [1999, 99, 98, 97];
    assert!(table.prefetch(&ids));
    let disk = source.disk().unwrap();
    let begun = std::time::Instant::now();
    while disk.counts().prefetched.misses == 0 && begun.elapsed().as_secs() < 20 {
        std::thread::yield_now();
    }
    let before = disk.counts().fetched;
    let found = gather(&stream, &table, &ids, Stored::F32)?;
    assert!(found == expected(&encoded, &FORMAT, &[0, 1900, 1901, 1902], Stored::F32));
    let after = disk.counts().fetched;
    assert_eq!(after.misses, before.misses, "what was asked for ahead is not read again");
    assert!(after.hits + after.joined > before.hits + before.joined);
    Ok(())
}

#[test]
fn a_read_that_fails_is_an_error_of_its_call() -> Result<()> {
    // Where a sector begins, in row 1600.
    let bad = Fault::DeviceAtOffset { offset: 150 * 512 };
    let Some((stream, encoded, source, _)) = setup(FaultPlan { faults: vec![bad], ..FaultPlan::default() }) else {
        return Ok(());
    };
    let layout = Layout::new(2000, 10, 20, 3)?.with_disk_from(500)?;
    let table = table(&stream, &source, layout)?;
    let why = gather(&stream, &table, &[5, 1600, 700], Stored::F32).unwrap_err();
    assert!(matches!(why, Error::Io(_)), "{why}");
    let good = gather(&stream, &table, &[5, 15, 50, 700, 1900], Stored::F32)?;
    assert!(good == expected(&encoded, &FORMAT, &[5, 15, 50, 700, 1900], Stored::F32), "the table stays usable");
    let why = gather(&stream, &table, &[5, 2000], Stored::F32).unwrap_err();
    assert!(why.to_string().contains("2000"), "{why}");
    // A table that cannot be filled is an error too.
    let filled = Layout::new(2000, 1700, 1700, 3)?.with_disk_from(1700)?;
    assert!(matches!(super::table(&stream, &source, filled), Err(Error::Io(_))));
    Ok(())
}

#[test]
fn rows_without_a_gpu() -> Result<()> {
    let encoded = encode(&features(ROWS, ELEMENTS), &FORMAT);
    let source = on_disk(&encoded, FaultPlan::default());
    let ids: Vec<u64> = (0..300u64).map(|at| at * 17 % 2000).collect();
    for out_type in [Stored::F32, Stored::Bf16] {
        let mut out = vec![0u8; ids.len() * ELEMENTS * out_type.bytes()];
        source.gather(&ids, out_type, &mut out)?;
        assert!(out == expected(&encoded, &FORMAT, &ids, out_type));
        assert!(source.gather(&[2000], out_type, &mut out[..ELEMENTS * out_type.bytes()]).is_err());
    }
    Ok(())
}

#[test]
fn what_there_is_no_room_for_is_refused_before_anything_is_filled() -> Result<()> {
    let Some(stream) = stream() else { return Ok(()) };
    // Four terabytes of nothing.
    let (folder, rows) = (tempfile::tempdir().unwrap(), 1u64 << 30);
    let path = folder.path().join("rows.bin");
    std::fs::File::create(&path).unwrap().set_len(rows * 4096).unwrap();
    let file = Arc::new(IoFile::open(&path, &FileOptions { direct: Direct::Never, ..FileOptions::default() })?);
    let engine = Arc::new(Engine::new(EngineConfig { choice: Choice::Threads, ..EngineConfig::default() })?);
    let cached = DiskOptions { cache_bytes: 1 << 20, ..DiskOptions::default() };
    let disk = DiskRows::open(RowFile { file, data_offset: 0, row_bytes: 4096, rows, sums: None }, &engine, &cached)?;
    let source = Source::file(Arc::new(disk), Stored::F32)?;
    for (replicated, interleaved, host_end, memory) in
        [(rows, rows, rows, "GPU memory"), (0, rows, rows, "GPU memory"), (0, 0, rows, "host memory")]
    {
        let layout = Layout::new(rows, replicated, interleaved, 3)?.with_disk_from(host_end)?;
        let why = table(&stream, &source, layout).unwrap_err();
        let Error::Budget { memory: found, asked_bytes, .. } = why else { panic!("{why}") };
        assert_eq!((found, asked_bytes >> 42), (memory, 1));
    }
    Ok(())
}
