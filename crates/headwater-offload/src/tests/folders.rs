//! Which folders are taken.

use std::os::unix::fs::PermissionsExt;

use headwater_memory::io::Op;

use super::*;
use crate::disk::folder::unfit;
use crate::disk::{Disk, Job, Piece, Unit};

fn refused(config: DiskConfig) -> Error {
    let config = OffloaderConfig {
        host_bytes: 4 * SLOT,
        slot_bytes: SLOT,
        disk: Some(config),
        policy: EVERYTHING,
        window_bytes: WINDOW,
    };
    match Offloader::new(Fake::default(), &config) {
        Ok(_) => panic!("it should be refused"),
        Err(why) => why,
    }
}

fn refusal(config: DiskConfig) -> String {
    refused(config).to_string()
}

#[test]
fn folders_that_others_reach_or_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refusal(disk(&open, 1 << 20, Choice::Auto)).contains("others may write there (mode 777)"));
    // As the system's folder for temporary files: nobody removes what is another's.
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
    offloader(4, Some(disk(&open, 1 << 20, Choice::Auto)));
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(refusal(disk(&file, 1 << 20, Choice::Auto)).contains("not a folder"));
    assert!(refusal(disk(&folder.path().join("none"), 1 << 20, Choice::Auto)).contains("No such file"));
    assert!(refusal(DiskConfig::new(Vec::new(), 1 << 20)).contains("at least one"));
    if Path::new("/dev/shm").is_dir() {
        assert!(refusal(disk(Path::new("/dev/shm"), 1 << 20, Choice::Auto)).contains("host memory"));
    }
}

/// By their numbers: tests can mount none of them.
#[test]
fn file_systems_of_other_machines() {
    const EXT4: i64 = 0xef53;
    for (number, name) in [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB"), (0x0102_1997, "9P")] {
        assert_eq!(unfit(number, false).unwrap(), format!("{name} is a file system of another machine"));
        assert_eq!(unfit(number, true), None);
    }
    assert_eq!((unfit(EXT4, false), unfit(EXT4, true)), (None, None));
    assert!(unfit(0x0102_1994, true).unwrap().contains("host memory"));
}

#[test]
fn a_disk_without_room_says_so_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = DiskConfig { is_reserved: true, ..disk(folder.path(), 1 << 60, Choice::Auto) };
    let why = refused(config);
    let Error::DiskFull { needed, free, .. } = &why else { panic!("{why}") };
    assert!(*needed == 1 << 60 && (1..1 << 60).contains(free), "{why}");
    let said = why.to_string();
    for words in [needed.to_string(), free.to_string(), folder.path().display().to_string()] {
        assert!(said.contains(&words), "{said}");
    }
}

#[test]
fn blocks_are_spread_over_folders() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let paths: Vec<_> = folders.iter().map(|folder| folder.path().to_owned()).collect();
    let config = DiskConfig { folders: paths, ..disk(folders[0].path(), 1 << 20, Choice::Auto) };
    let (offloader, lane) = offloader(2, Some(config));
    let blocks = store_all(&offloader, &lane, &[2 * SLOT; 10]);
    for (seed, block) in blocks.iter().enumerate() {
        assert_eq!(loaded(&offloader, *block, 2 * SLOT).unwrap(), content(seed, 2 * SLOT), "in any order");
    }
    // Nothing has a name, so nothing is left when the process goes.
    for folder in &folders {
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn files_stop_growing_at_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let (offloader, lane) = offloader(4, Some(disk(folder.path(), 3 * SLOT as u64, Choice::Auto)));
    let mut kept = Vec::new();
    for seed in 0..12 {
        kept.push((seed, stored(&offloader, content(seed, SLOT))));
        lane.pass_all();
        offloader.drained().unwrap();
    }
    let mut left = 0;
    for (seed, block) in kept.iter().rev() {
        match loaded(&offloader, *block, SLOT) {
            Ok(bytes) => {
                assert_eq!(bytes, content(*seed, SLOT));
                left += 1;
            }
            Err(Error::NotLeft { .. }) => {}
            Err(why) => panic!("{why}"),
        }
    }
    assert!(left <= 7, "four in host memory and three on disk");
    assert!(offloader.counts().unwrap().disk_most <= 3 * SLOT as u64);
}

/// Files are as long as their disks are fast, as far as that was measured.
#[test]
fn a_slower_disk_has_less() {
    const MIB: usize = 1 << 20;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let paths = folders.iter().map(|folder| folder.path().to_owned()).collect();
    let config = DiskConfig { folders: paths, ..disk(folders[0].path(), 1 << 30, Choice::Auto) };
    let (disk, mut units) = Disk::open(&Fake::default(), &config, MIB).unwrap();
    let shares = |units: &[Unit]| [0, 1].map(|file| units.iter().filter(|unit| unit.file == file).count());
    let taken = units.take(160).unwrap().unwrap();
    assert_eq!((shares(&taken), disk.rates().len()), ([80, 80], 0), "nothing is known of either");
    let piece = |unit: &Unit| Piece { slot: AlignedBuffer::new(MIB).ok(), bytes: MIB, unit: *unit, sum: 0 };
    disk.submit(Job { block: 0, op: Op::Write, pieces: taken.iter().map(piece).collect() });
    while disk.done().is_empty() {
        disk.wait(std::time::Duration::from_millis(5));
    }
    assert!(disk.rates().len() == 2 && disk.rates().iter().all(|rate| rate.unwrap() > 0.0), "{:?}", disk.rates());
    units.give(taken);
    units.rate(&[Some(3e9), Some(1e9)]);
    assert_eq!(shares(&units.take(160).unwrap().unwrap()), [120, 40]);
}
