//! Arrays of every type, whole and damaged.

use proptest::prelude::*;

use super::super::testing::{ZipStyle, npy, zip};
use super::*;
use crate::progress::Silent;

const PACKED: ZipStyle = ZipStyle { deflate: true, wide: false };

fn archive(folder: &Path, members: &[(&str, Vec<u8>)]) -> Arrays {
    let path = folder.join("a.npz");
    std::fs::write(&path, zip(members, PACKED)).unwrap();
    Arrays::open(&path).unwrap()
}

#[test]
fn integers_of_every_width_become_ids() {
    let folder = tempfile::tempdir().unwrap();
    let members = [
        ("i64.npy", npy(DType::I64, &[3], &[0i64, 5, 1 << 40])),
        ("i32.npy", npy(DType::I32, &[2], &[0i32, 5])),
        ("i16.npy", npy(NpyType::I16, &[2], &[0i16, 5])),
        ("u16.npy", npy(NpyType::U16, &[2], &[0u16, 65535])),
        ("u32.npy", npy(NpyType::U32, &[2], &[0u32, u32::MAX])),
        ("u8.npy", npy(DType::U8, &[2], &[0u8, 255])),
        ("bool.npy", npy(DType::Bool, &[2], &[0u8, 1])),
    ];
    let arrays = archive(folder.path(), &members);
    let ids = |name: &str| arrays.array(name).unwrap().ids().unwrap();
    assert_eq!(ids("i64"), GrowingIds::U64(vec![0, 5, 1 << 40]));
    for (name, last) in [("i32", 5), ("i16", 5), ("u16", 65535), ("u32", u32::MAX), ("u8", 255), ("bool", 1)] {
        assert_eq!(ids(name), GrowingIds::U32(vec![0, last]), "{name}");
    }
}

#[test]
fn floats_labels_and_rows() {
    let folder = tempfile::tempdir().unwrap();
    let members = [
        ("f64.npy", npy(DType::F64, &[2], &[0.5f64, 2.0])),
        ("f16.npy", npy(DType::F16, &[2], &[f16::from_f32(0.5), f16::from_f32(2.0)])),
        ("y.npy", npy(DType::F32, &[3, 1], &[1.0f32, f32::NAN, 7.0])),
        ("bad.npy", npy(DType::F32, &[2], &[1.0f32, 1.5])),
        ("x.npy", npy(DType::F32, &[2, 3], &[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0])),
    ];
    let arrays = archive(folder.path(), &members);
    assert_eq!(arrays.array("f64").unwrap().floats().unwrap(), [0.5, 2.0]);
    assert_eq!(arrays.array("f16").unwrap().floats().unwrap(), [0.5, 2.0]);
    let Numbers::Real(labels) = arrays.array("y").unwrap().numbers().unwrap() else { panic!("floats stay floats") };
    assert!(labels[0] == 1.0 && labels[1].is_nan() && labels[2] == 7.0);
    assert_eq!(arrays.array("bad").unwrap().numbers().unwrap(), Numbers::Real(vec![1.0, 1.5]));
    let mut bytes = Vec::new();
    let take = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    arrays.array("x").unwrap().for_each_piece(&Silent, take).unwrap();
    assert_eq!(bytes, bytemuck::cast_slice::<f32, u8>(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
}

#[test]
fn faults_name_file_array_and_element() {
    let folder = tempfile::tempdir().unwrap();
    let object = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n";
    let pickle = [b"\x93NUMPY\x01\0", &[u8::try_from(object.len()).unwrap(), 0][..], object, b"\x80\x04N."].concat();
    let mut short = npy(DType::I64, &[3], &[1i64, 2, 3]);
    short.truncate(short.len() - 1);
    let members = [
        ("negative.npy", npy(DType::I64, &[2], &[3i64, -2])),
        ("large.npy", npy(NpyType::U64, &[2], &[3u64, u64::MAX])),
        ("float.npy", npy(DType::F32, &[1], &[1.0f32])),
        ("pickle.npy", pickle),
        ("short.npy", short),
        ("text.npy", b"hello".to_vec()),
    ];
    let arrays = archive(folder.path(), &members);
    for (name, words) in [
        ("negative", "a.npz: negative[1]: -2 is not an id"),
        ("large", "large[1]"),
        ("float", "a.npz: float: has type <f4; integers are wanted"),
        ("pickle", "pickled Python objects"),
        ("short", "should have"),
        ("text", "not a .npy file"),
        ("none", "there is no array \"none\"; there is: negative, large"),
    ] {
        let said = arrays.array(name).and_then(Array::ids).unwrap_err().to_string();
        assert!(said.contains(words), "{name}: {said}");
    }
}

#[test]
fn folders_and_single_files_are_sets_too() {
    let folder = tempfile::tempdir().unwrap();
    let single = folder.path().join("edges.npy");
    std::fs::write(&single, npy(DType::I64, &[2, 1], &[0i64, 1])).unwrap();
    std::fs::write(folder.path().join("y.npy"), npy(DType::I64, &[2], &[0i64, 1])).unwrap();
    std::fs::write(folder.path().join("notes.txt"), "x").unwrap();
    assert_eq!(Arrays::open(folder.path()).unwrap().names(), ["edges", "y"]);
    assert_eq!(Arrays::open(&single).unwrap().array("edge_index").unwrap().shape(), [2, 1]);
}

proptest! {
    #[test]
    fn damaged_archives_do_not_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
        deflate in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let member = ("a.npy", npy(DType::I64, &[40], &(0..40i64).collect::<Vec<_>>()));
        let mut bytes = zip(&[member], ZipStyle { deflate, wide: true });
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        let path = folder.path().join("a.npz");
        std::fs::write(&path, bytes).unwrap();
        if let Ok(ids) = Arrays::open(&path).and_then(|arrays| arrays.array("a")?.integers()) {
            prop_assert_eq!(ids, (0..40i64).collect::<Vec<_>>());
        }
    }
}
