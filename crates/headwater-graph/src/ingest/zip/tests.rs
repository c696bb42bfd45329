//! Archives, whole and damaged.

use proptest::prelude::*;

use super::super::testing::{ZipStyle, zip};
use super::*;

const STYLES: [ZipStyle; 4] = [
    ZipStyle { deflate: false, wide: false },
    ZipStyle { deflate: false, wide: true },
    ZipStyle { deflate: true, wide: false },
    ZipStyle { deflate: true, wide: true },
];

fn members() -> Vec<(&'static str, Vec<u8>)> {
    let long = (0..5000u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
    vec![("first.npy", long), ("empty", vec![]), ("last", b"words".to_vec())]
}

fn read_all(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut file = tempfile::tempfile().map_err(|error| error.to_string())?;
    io::Write::write_all(&mut file, archive).map_err(|error| error.to_string())?;
    let file = Arc::new(file);
    let found = entries(&*file, archive.len() as u64).map_err(|fault| fault.to_string())?;
    let read = |entry: &Entry| {
        let mut bytes = Vec::new();
        let done = Member::new(file.clone(), entry).read_to_end(&mut bytes);
        done.map(|_| (entry.name.clone(), bytes)).map_err(|error| error.to_string())
    };
    found.iter().map(read).collect()
}

#[test]
fn members_are_read_in_every_style() {
    let expected: Vec<(String, Vec<u8>)> =
        members().into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    for style in STYLES {
        assert_eq!(read_all(&zip(&members(), style)).unwrap(), expected);
    }
    assert_eq!(read_all(&zip(&[], STYLES[0])).unwrap(), []);
}

#[test]
fn lies_are_named() {
    let archive = zip(&members(), STYLES[0]);
    let directory = archive.windows(4).position(|mark| mark == b"PK\x01\x02").unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = archive.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        entries(&changed[..], changed.len() as u64).unwrap_err().to_string()
    };
    let second = directory + 1 + archive[directory + 1..].windows(4).position(|mark| mark == b"PK\x01\x02").unwrap();
    let end = archive.len() - END_BYTES - 5;
    for (at, bytes, words) in [
        // Sizes, packed and not: more than is there.
        (directory + 20, &[0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f][..], "reaches from byte"),
        (directory + 24, &[0xff, 0xff, 0xff, 0x7f], "claims 2147483647 bytes from 20000"),
        (directory + 8, &[1, 0], "is encrypted"),
        (directory + 10, &[12, 0], "other than deflate"),
        (directory + 42, &[0xf0, 0xff, 0, 0], "first.npy reaches"),
        (directory + 42, &[1, 0, 0, 0], "no local header"),
        // The second member where the first is.
        (second + 42, &[0, 0, 0, 0], "overlap"),
        (directory, b"PK\x01\x03", "no member of the directory"),
        (end + 10, &[9, 0], "as many members"),
        (end + 12, &[0xff, 0xff, 0xff, 0], "the directory reaches"),
        (end + 12, &[0xff, 0xff, 0xff, 0xf0], "the directory claims"),
        (end + 16, &[0xff, 0xff, 0xff, 0xff], "locator"),
        (end, b"PK\x05\x07", "no end record"),
    ] {
        let said = with(at, bytes);
        assert!(said.contains(words), "{words}: {said}");
    }
    let twice = zip(&[("a", vec![1]), ("a", vec![2])], STYLES[0]);
    assert_eq!(entries(&twice[..], twice.len() as u64), Err(ZipFault::Twice("a".into())));
}

#[test]
fn a_small_archive_cannot_claim_a_large_member() {
    let archive = zip(&[("x", vec![0; 100])], STYLES[3]);
    let directory = archive.windows(4).position(|mark| mark == b"PK\x01\x02").unwrap();
    // The unpacked size is the first number of the 64-bit field, after name, other field and its own head.
    let at = directory + 46 + 1 + 6 + 4;
    let mut changed = archive;
    changed[at..at + 8].copy_from_slice(&(1u64 << 50).to_le_bytes());
    assert!(matches!(entries(&changed[..], changed.len() as u64), Err(ZipFault::Claim { .. })));
}

#[test]
fn changed_data_is_found() {
    for style in STYLES {
        let mut archive = zip(&members(), style);
        archive[500] ^= 1;
        assert!(read_all(&archive).is_err());
    }
}

proptest! {
    #[test]
    fn damage_is_an_error_or_does_not_matter(
        style in prop::sample::select(STYLES.to_vec()),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 0..4),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let small = [("a.npy", vec![7; 300]), ("b.npy", vec![1, 2, 3])];
        let mut archive = zip(&small, style);
        for (at, flip) in flips {
            let at = at.index(archive.len());
            archive[at] ^= flip;
        }
        if cut {
            archive.truncate(keep.index(archive.len()));
        }
        if let Ok(read) = read_all(&archive) {
            // Whatever was accepted is what was written: names may differ, data may not.
            prop_assert!(read.iter().all(|(_, bytes)| small.iter().any(|(_, of)| of == bytes) || bytes.is_empty()));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut with_end = bytes.clone();
        with_end.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0\x2e\0\0\0\0\0\0\0\0\0");
        let _ = entries(&bytes[..], bytes.len() as u64);
        let _ = entries(&with_end[..], with_end.len() as u64);
    }
}
