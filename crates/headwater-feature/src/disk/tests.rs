//! Tables over files in memory with faults, and over real files.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use headwater_memory::io::ram::{Fault, FaultPlan, Order, RamOptions};
use headwater_memory::io::{Choice, Direct, Engine, EngineConfig, Error as IoError, FileOptions, IoFile};
use headwater_tensor::npy::{NpyType, header_bytes_aligned};
use proptest::prelude::*;

use super::*;
use crate::error::Error;

const ROW_BYTES: usize = 520;
const ROWS: u64 = 2000;
const DATA_OFFSET: usize = 64;
/// Where a sector begins in the middle of row 1000.
const BAD_SECTOR: u64 = 1016 * 512;

/// A file whose bytes tell where they are.
fn contents(rows: u64, row_bytes: usize) -> Vec<u8> {
    let bytes = DATA_OFFSET + usize::try_from(rows).unwrap() * row_bytes;
    (0..bytes).map(|at| u8::try_from(at * 31 % 65521 % 251).unwrap()).collect()
}

fn engine(plan: FaultPlan) -> Arc<Engine> {
    Arc::new(Engine::new(EngineConfig { choice: Choice::Ram(plan), ..EngineConfig::default() }).unwrap())
}

fn ram_file(rows: u64, row_bytes: usize) -> RowFile {
    let options = RamOptions { contents: contents(rows, row_bytes), alignment_bytes: 512, ..RamOptions::default() };
    let file = Arc::new(IoFile::ram("rows.npy", &options).unwrap());
    RowFile { file, data_offset: DATA_OFFSET as u64, row_bytes, rows, sums: None }
}

/// Small reads and few of them, so that a few rows make many requests.
fn options(units: u64) -> DiskOptions {
    DiskOptions { cache_bytes: units * 4096, read_bytes: 16 << 10, in_flight_bytes: 64 << 10, ..DiskOptions::default() }
}

fn table(plan: FaultPlan, options: &DiskOptions) -> DiskRows {
    DiskRows::open(ram_file(ROWS, ROW_BYTES), &engine(plan), options).unwrap()
}

/// Fetches rows and compares them with the file.
fn check(table: &DiskRows, rows: &[u64]) -> crate::Result<()> {
    let row_bytes = table.row_bytes();
    let mut out = vec![0xee; rows.len() * row_bytes];
    table.fetch(rows, &mut out)?;
    let file = contents(table.rows(), row_bytes);
    for (row, out) in rows.iter().zip(out.chunks(row_bytes)) {
        let start = DATA_OFFSET + usize::try_from(*row).unwrap() * row_bytes;
        assert!(out == &file[start..start + row_bytes], "row {row}");
    }
    Ok(())
}

/// Some rows, not in order, some twice.
fn scattered(count: u64, seed: u64) -> Vec<u64> {
    (0..count).map(|at| (at.wrapping_mul(at + seed) * 7919 + seed * 31) % ROWS).collect()
}

/// Waits for something the prefetcher does.
fn eventually(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < Duration::from_secs(20), "it does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn rows_are_those_of_the_file(
        row_bytes in prop_oneof![1usize..40, Just(512), Just(4096), 4000usize..9000],
        units in 1u64..40,
        batches in proptest::collection::vec(proptest::collection::vec(0u64..60, 0..80), 1..5),
        seed in any::<u64>(),
    ) {
        let plan = FaultPlan {
            faults: vec![Fault::Short { bytes: 5000 }, Fault::Interrupted { period: 3 }],
            order: Order::Shuffled { seed },
            ..FaultPlan::default()
        };
        let table = DiskRows::open(ram_file(60, row_bytes), &engine(plan), &options(units)).unwrap();
        for rows in &batches {
            check(&table, rows).unwrap();
        }
    }
}

#[test]
fn what_is_asked_for_again_is_not_read_again() {
    let table = table(FaultPlan::default(), &options(400));
    let rows = scattered(300, 1);
    check(&table, &rows).unwrap();
    let first = table.counts();
    assert!(first.read_bytes > 0 && first.fetched.hits == 0 && first.fetched.misses > 0);
    let sizes = table.read_sizes();
    assert_eq!(sizes.iter().sum::<u64>(), first.reads);
    let units: u64 = sizes.iter().enumerate().map(|(units, count)| units as u64 * count).sum();
    // The last unit of the file is not full.
    assert!((first.read_bytes..first.read_bytes + 4096).contains(&(units * 4096)), "{sizes:?}");
    check(&table, &rows).unwrap();
    let second = table.counts();
    assert_eq!(second.read_bytes, first.read_bytes);
    assert_eq!(second.fetched.hits, first.fetched.misses);
    assert_eq!((second.rows, second.row_bytes), (600, 600 * ROW_BYTES as u64));
    assert!((second.fetched.hit_rate() - 0.5).abs() < 1e-9);
}

#[test]
fn a_cache_smaller_than_a_batch_works() {
    for units in [1, 2, 3, 50] {
        let table = table(FaultPlan::default(), &options(units));
        for seed in 0..3 {
            check(&table, &scattered(500, seed)).unwrap();
        }
        check(&table, &[]).unwrap();
    }
}

#[test]
fn neighbours_are_read_together() {
    let table = table(FaultPlan::default(), &options(400));
    check(&table, &(0..ROWS).collect::<Vec<_>>()).unwrap();
    let counts = table.counts();
    // Four units a request, and each byte once.
    assert_eq!(counts.reads, counts.fetched.misses.div_ceil(4));
    assert_eq!(counts.read_bytes, contents(ROWS, ROW_BYTES).len() as u64);
}

#[test]
fn several_callers_read_each_unit_once() {
    let plan = FaultPlan { latency: Duration::from_micros(200), ..FaultPlan::default() };
    let table = table(plan, &options(400));
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                check(&table, &scattered(400, 5)).unwrap();
            });
        }
    });
    let counts = table.counts().fetched;
    let mut units = std::collections::BTreeSet::new();
    for row in scattered(400, 5) {
        let first = DATA_OFFSET as u64 + row * ROW_BYTES as u64;
        units.extend([first / 4096, (first + ROW_BYTES as u64 - 1) / 4096]);
    }
    assert_eq!(counts.misses, units.len() as u64);
    assert_eq!(counts.hits + counts.joined, 3 * units.len() as u64);
}

#[test]
fn callers_share_few_slots_and_few_buffers() {
    for units in [1, 5] {
        let options = DiskOptions { in_flight_bytes: 16 << 10, ..options(units) };
        let table = table(FaultPlan::default(), &options);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let table = &table;
                scope.spawn(move || (0..4).for_each(|round| check(table, &scattered(150, seed + round)).unwrap()));
            }
        });
    }
}

#[test]
fn a_read_error_fails_its_call_and_no_other() {
    let bad = BAD_SECTOR;
    let plan = FaultPlan { faults: vec![Fault::DeviceAtOffset { offset: bad }], ..FaultPlan::default() };
    let table = table(plan, &options(400));
    let rows: Vec<u64> = (900..1100).collect();
    for _ in 0..3 {
        let error = check(&table, &rows).unwrap_err();
        let Error::Io(IoError::Device { at, .. }) = &error else { panic!("{error}") };
        assert!((at.offset..at.offset + at.asked_bytes as u64).contains(&bad), "{error}");
        assert!(error.to_string().contains("rows.npy"), "{error}");
    }
    check(&table, &(0..900).collect::<Vec<_>>()).unwrap();
    check(&table, &(1100..ROWS).collect::<Vec<_>>()).unwrap();
    assert!(matches!(check(&table, &[1000]), Err(Error::Io(IoError::Device { .. }))));
}

#[test]
fn one_failed_read_is_made_again_by_the_next_call() {
    for step in 0..6 {
        let plan = FaultPlan { faults: vec![Fault::DeviceAtStep { step }], ..FaultPlan::default() };
        let table = table(plan, &options(400));
        let rows = scattered(300, 2);
        assert!(matches!(check(&table, &rows), Err(Error::Io(IoError::Device { .. }))), "step {step}");
        check(&table, &rows).unwrap();
    }
}

#[test]
fn callers_that_wait_for_a_failed_read_meet_the_error_themselves() {
    let plan = FaultPlan {
        faults: vec![Fault::DeviceAtOffset { offset: BAD_SECTOR }],
        latency: Duration::from_micros(300),
        ..FaultPlan::default()
    };
    let table = table(plan, &options(8));
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..4).map(|_| scope.spawn(|| check(&table, &(980..1020).collect::<Vec<_>>()).is_err())).collect();
        assert!(calls.into_iter().all(|call| call.join().unwrap()));
    });
    check(&table, &(0..300).collect::<Vec<_>>()).unwrap();
}

#[test]
fn a_dead_engine_is_an_error() {
    let table = table(FaultPlan { dies_at_step: Some(3), ..FaultPlan::default() }, &options(400));
    for _ in 0..3 {
        assert!(matches!(check(&table, &scattered(300, 3)), Err(Error::Io(IoError::Closed { .. }))));
    }
}

#[test]
fn prefetched_rows_are_hits() {
    let table = table(FaultPlan::default(), &options(400));
    let rows: Vec<u64> = (100..200).collect();
    // Rows that are not there are passed over.
    assert!(table.prefetch(&[&rows[..], &[ROWS, u64::MAX]].concat()));
    eventually(|| table.counts().prefetched.misses >= 13);
    check(&table, &rows).unwrap();
    let counts = table.counts();
    assert_eq!(counts.fetched.misses, 0);
    assert_eq!(counts.fetched.hits + counts.fetched.joined, counts.prefetched.misses);
}

#[test]
fn prefetches_are_bounded_and_their_errors_are_dropped() {
    let faults = (0..4).map(|step| Fault::DeviceAtStep { step }).collect();
    let plan = FaultPlan { faults, latency: Duration::from_millis(2), ..FaultPlan::default() };
    let table = table(plan, &options(400));
    let taken = (0..50).filter(|seed| table.prefetch(&scattered(200, *seed))).count();
    assert!(taken < 50, "all were taken");
    eventually(|| table.counts().read_bytes > 0);
    check(&table, &scattered(100, 9)).unwrap();
}

#[test]
fn bad_calls_and_bad_options_are_refused() {
    let table = table(FaultPlan::default(), &options(4));
    assert!(matches!(check(&table, &[3, ROWS]), Err(Error::Row { row: ROWS, rows: ROWS })));
    assert!(matches!(table.fetch(&[1, 2], &mut [0; ROW_BYTES]), Err(Error::OutputBytes { rows: 2, .. })));
    let open = |rows: RowFile, options: DiskOptions| DiskRows::open(rows, &engine(FaultPlan::default()), &options);
    let good = || ram_file(ROWS, ROW_BYTES);
    let Err(Error::SmallCache { cache_bytes: 4095, unit_bytes: 4096 }) =
        open(good(), DiskOptions { cache_bytes: 4095, ..options(1) })
    else {
        panic!("a cache of less than a unit")
    };
    for wrong in [
        DiskOptions { unit_bytes: 2048, ..options(4) },
        DiskOptions { unit_bytes: 12288, ..options(4) },
        DiskOptions { read_bytes: 4095, ..options(4) },
        DiskOptions { in_flight_bytes: 4096, ..options(4) },
    ] {
        assert!(matches!(open(good(), wrong), Err(Error::Parameter { .. })), "{wrong:?}");
    }
    assert!(matches!(open(RowFile { row_bytes: 0, ..good() }, options(4)), Err(Error::Parameter { .. })));
    for rows in [ROWS + 1, u64::MAX] {
        assert!(matches!(open(RowFile { rows, ..good() }, options(4)), Err(Error::ShortFile { .. })));
    }
    let empty = open(RowFile { rows: 0, ..good() }, options(4)).unwrap();
    empty.fetch(&[], &mut []).unwrap();
    assert!(matches!(empty.fetch(&[0], &mut [0; ROW_BYTES]), Err(Error::Row { row: 0, rows: 0 })));
}

/// A `.npy` file of 300 rows of 100 numbers on a page of its own, and each number its place.
fn npy_file(folder: &std::path::Path) -> (std::path::PathBuf, Vec<u8>) {
    let data: Vec<u8> = (0..30_000u32).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let path = folder.join("feat.npy");
    let kind = NpyType::Tensor(headwater_tensor::DType::F32);
    std::fs::write(&path, [header_bytes_aligned(kind, &[300, 100], 4096), data.clone()].concat()).unwrap();
    (path, data)
}

#[test]
fn real_files_are_read_by_every_engine() {
    let folder = tempfile::tempdir().unwrap();
    let (path, data) = npy_file(folder.path());
    for choice in [Choice::Auto, Choice::Threads] {
        for direct in [Direct::Prefer, Direct::Never] {
            let config = EngineConfig { choice: choice.clone(), ..EngineConfig::default() };
            let engine = Arc::new(Engine::new(config).unwrap());
            let file = RowFile::npy(&path, &FileOptions { direct, ..FileOptions::default() }).unwrap();
            assert_eq!((file.rows, file.row_bytes, file.data_offset), (300, 400, 4096));
            let table = DiskRows::open(file, &engine, &options(7)).unwrap();
            let rows: Vec<u64> = (0..600).map(|at| at * 7 % 300).collect();
            let mut out = vec![0; rows.len() * 400];
            table.fetch(&rows, &mut out).unwrap();
            let rows = rows.iter().map(|&row| usize::try_from(row).unwrap() * 400);
            assert!(rows.zip(out.chunks(400)).all(|(start, out)| out == &data[start..start + 400]));
        }
    }
}

#[test]
fn a_file_that_changes_its_length_is_an_error_only_where_units_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = npy_file(folder.path());
    let engine = Arc::new(Engine::new(EngineConfig::default()).unwrap());
    let rows = RowFile::npy(&path, &FileOptions::default()).unwrap();
    let table = DiskRows::open(rows, &engine, &options(1)).unwrap();
    let mut out = [0; 400];
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(4096 + 100 * 400 + 50).unwrap();
    table.fetch(&[91], &mut out).unwrap();
    for missing in [100, 200, 299] {
        let error = table.fetch(&[missing], &mut out).unwrap_err();
        let Error::ShortFile { need_bytes, bytes, .. } = error else { panic!("{error}") };
        assert!(need_bytes > bytes && error.to_string().contains("feat.npy"), "{error}");
    }
    table.fetch(&[0], &mut out).unwrap();
    file.set_len(1 << 20).unwrap();
    table.fetch(&[299], &mut out).unwrap();
}

#[test]
fn other_npy_files_say_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = npy_file(folder.path());
    let bytes = std::fs::read(&path).unwrap();
    let text = String::from_utf8_lossy(&bytes[..4096]).replace("'fortran_order': False,", "'fortran_order': True, ");
    let mut columns = bytes.clone();
    columns[10..100].copy_from_slice(&text.as_bytes()[text.len() - 4096 + 10..][..90]);
    for (name, bytes) in [("columns.npy", columns), ("short.npy", bytes[..5000].to_vec()), ("text.npy", vec![7; 5000])]
    {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = RowFile::npy(&path, &FileOptions::default()).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(matches!(error, Error::RowOrder { .. }), name == "columns.npy", "{error}");
    }
    assert!(RowFile::npy(&folder.path().join("absent.npy"), &FileOptions::default()).is_err());
}

#[test]
fn pages_that_changed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    let mut bytes = header_bytes_aligned(NpyType::U32, &[500, 30], 64);
    let data_offset = bytes.len();
    bytes.extend(contents(500, 120).into_iter().take(500 * 120));
    std::fs::write(&path, &bytes).unwrap();
    assert!(PageSums::load(&path).is_err());
    PageSums::of_file(&path).unwrap().save(&path).unwrap();
    assert_eq!(PageSums::load(&path).unwrap(), PageSums::of_file(&path).unwrap());
    let engine = Arc::new(Engine::new(EngineConfig { choice: Choice::Threads, ..EngineConfig::default() }).unwrap());
    let open = || {
        let file = RowFile::npy(&path, &FileOptions { direct: Direct::Never, ..FileOptions::default() }).unwrap();
        DiskRows::open(file, &engine, &options(4)).unwrap()
    };
    let mut out = vec![0; 500 * 120];
    let all: Vec<u64> = (0..500).collect();
    open().fetch(&all, &mut out).unwrap();
    assert!(out == bytes[data_offset..]);
    // One bit of row 200, and the last byte of all, in a page that is not full.
    for at in [data_offset + 200 * 120 + 7, bytes.len() - 1] {
        let mut bad = bytes.clone();
        bad[at] ^= 4;
        std::fs::write(&path, &bad).unwrap();
        let table = open();
        let why = table.fetch(&all, &mut out).unwrap_err();
        assert!(matches!(why, Error::BadPage { offset, .. } if offset == (at / 4096 * 4096) as u64), "{why}");
        table.fetch(&[0, 1], &mut out[..240]).unwrap();
        assert!(out[..240] == bytes[data_offset..data_offset + 240], "other pages are still served");
    }
    std::fs::write(&path, &bytes[..bytes.len() - 9000]).unwrap();
    assert!(matches!(PageSums::load(&path), Err(Error::PageSums { .. })));
}
