//! Rows that move between tiers, and what was observed before.

use std::sync::Arc;

use headwater_memory::io::{Choice, Direct, Engine, EngineConfig, FileOptions};
use headwater_memory::{Buffer, Device};
use headwater_tensor::gather::IdType;

use super::{expected, features, gather, source, stream, table};
use crate::rows::{RowFormat, Stored, encode};
use crate::table::{HostHome, IdMap, Layout, Placement, Source};
use crate::{DiskOptions, DiskRows, Error, Result, RowFile};

/// Ids that read some rows often, more so the later ones.
fn ids() -> Vec<u64> {
    (0..900u64).map(|at| if at % 3 == 0 { at * 7 % 90 } else { 89 - at % 10 }).collect()
}

#[test]
fn the_rows_that_were_read_move_up() -> Result<()> {
    let Some(stream) = stream() else { return Ok(()) };
    let reversed: Vec<u64> = (0..90).rev().collect();
    for stored in [Stored::F32, Stored::I8] {
        let format = RowFormat::packed(12, stored);
        let encoded = encode(&features(90, 12), &format);
        for map in [None, Some(&reversed)] {
            let layout = Layout::new(90, 4, 12, 3)?;
            let mut table = table(&stream, &source(&encoded, format), layout)?;
            if let Some(map) = map {
                table = table.with_id_map(IdMap::of(map, 90))?;
            }
            let row = |id: u64| map.map_or(id, |map| map[usize::try_from(id).unwrap()]);
            let rows: Vec<u64> = ids().into_iter().map(row).collect();
            let wanted = expected(&encoded, &format, &rows, Stored::F32);
            assert!(matches!(table.observed(&stream), Err(Error::Table { .. })));
            table.observe(&stream)?;
            let mut reads = vec![0u64; 90];
            rows.iter().for_each(|row| reads[usize::try_from(*row).unwrap()] += 1);
            // The second move begins with rows that have moved.
            for round in 0..3 {
                let before = table.served(&stream)?;
                assert!(gather(&stream, &table, &ids(), Stored::F32)? == wanted, "{stored:?} round {round}");
                let served = table.served(&stream)?.since(&before);
                let is_best = served[2].rows == coldest(&reads, 12);
                assert_eq!(is_best, round > 0, "round {round}: {served:?}");
                let observed = table.observed(&stream)?;
                assert_eq!(observed, reads, "round {round}");
                let moved = table.retier(&stream, &observed)?;
                assert_eq!((moved.copied_rows, moved.new_rows > 0), (12, round == 0));
            }
            assert!(matches!(table.retier(&stream, &[0; 89]), Err(Error::Bytes { found: 89, expected: 90, .. })));
        }
    }
    Ok(())
}

/// Reads of all but the rows that are read most.
fn coldest(reads: &[u64], hot: usize) -> u64 {
    let mut sorted = reads.to_vec();
    sorted.sort_unstable();
    sorted[..reads.len() - hot].iter().sum()
}

#[test]
fn rows_of_a_file_move_too() -> Result<()> {
    let Some(stream) = stream() else { return Ok(()) };
    let format = RowFormat::packed(12, Stored::F32);
    let encoded = encode(&features(90, 12), &format);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.bin");
    std::fs::write(&path, &encoded.bytes).unwrap();
    let options = FileOptions { direct: Direct::Never, ..FileOptions::default() };
    let file = Arc::new(headwater_memory::io::IoFile::open(&path, &options)?);
    let engine = Arc::new(Engine::new(EngineConfig { choice: Choice::Threads, ..EngineConfig::default() })?);
    let rows = RowFile { file, data_offset: 0, row_bytes: 48, rows: 90, sums: None };
    let cached = DiskOptions { cache_bytes: 4096, ..DiskOptions::default() };
    let disk = Arc::new(DiskRows::open(rows, &engine, &cached)?);
    let source = Source::file(disk, Stored::F32)?;
    let mut table = table(&stream, &source, Layout::new(90, 5, 5, 3)?.with_disk_from(20)?)?;
    let wanted = expected(&encoded, &format, &ids(), Stored::F32);
    table.observe(&stream)?;
    for round in 0..3 {
        assert!(gather(&stream, &table, &ids(), Stored::F32)? == wanted, "round {round}");
        let observed = table.observed(&stream)?;
        assert_eq!(observed.iter().sum::<u64>(), 900);
        assert_eq!(table.retier(&stream, &observed)?.copied_rows, 20);
    }
    // Ids that are mapped, of rows that have moved, asked for ahead.
    let mut table = table.with_id_map(IdMap::of(&(0..90).rev().collect::<Vec<_>>(), 90))?;
    let rows: Vec<u64> = ids().iter().map(|id| 89 - id).collect();
    assert!(table.prefetch(&ids()));
    let mapped = expected(&encoded, &format, &rows, Stored::F32);
    assert!(gather(&stream, &table, &ids(), Stored::F32)? == mapped);
    // The file is cut while rows move: the table says that it is torn, until they are moved again.
    let whole = std::fs::read(&path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let cold_first: Vec<u64> = (0..90).collect();
    assert!(table.retier(&stream, &cold_first).is_err());
    assert!(matches!(gather(&stream, &table, &[1], Stored::F32), Err(Error::Table { .. })));
    std::fs::write(&path, &whole).unwrap();
    table.retier(&stream, &cold_first)?;
    assert!(gather(&stream, &table, &ids(), Stored::F32)? == mapped);
    Ok(())
}

#[test]
fn a_bad_id_does_not_tear_the_table() -> Result<()> {
    let Some(stream) = stream() else { return Ok(()) };
    let format = RowFormat::packed(12, Stored::F32);
    let encoded = encode(&features(40, 12), &format);
    // A source that is longer than the table.
    let mut table = table(&stream, &source(&encoded, format), Layout::new(30, 3, 9, 3)?)?;
    let ids = Buffer::<u64, Device>::from_slice(&stream, &[2, 30])?;
    let out = Buffer::<u8, Device>::on_stream(&stream, 96)?;
    table.gather(&stream, ids.whole(), IdType::U64, Stored::F32, out.whole())?;
    assert!(table.retier(&stream, &[1; 30]).is_err(), "the bad id comes out here");
    let all: Vec<u64> = (0..30).collect();
    for _ in 0..2 {
        assert!(gather(&stream, &table, &all, Stored::F32)? == expected(&encoded, &format, &all, Stored::F32));
        assert_eq!(table.source_rows(), 30);
        table.retier(&stream, &[1; 30])?;
    }
    assert!(gather(&stream, &table, &[30], Stored::F32).is_err(), "it is no row of the table");
    Ok(())
}

#[test]
fn tables_of_others_stay() -> Result<()> {
    let Some(stream) = stream() else { return Ok(()) };
    let format = RowFormat::packed(12, Stored::F32);
    let encoded = encode(&features(30, 12), &format);
    let source = source(&encoded, format);
    let shared = Placement { host: HostHome::Shared, ..Layout::new(30, 3, 3, 3)?.into() };
    let ids: Vec<u64> = (0..30).rev().collect();
    for placement in [shared, Layout::in_stretches(30, &[4, 2, 1])?.into()] {
        let mut table = table(&stream, &source, placement)?;
        assert!(gather(&stream, &table, &ids, Stored::F32)? == expected(&encoded, &format, &ids, Stored::F32));
        assert!(matches!(table.retier(&stream, &[1; 30]), Err(Error::Table { .. })));
        assert!(gather(&stream, &table, &ids, Stored::F32)? == expected(&encoded, &format, &ids, Stored::F32));
    }
    Ok(())
}
