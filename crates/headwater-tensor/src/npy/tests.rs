//! Headers as NumPy writes them, headers nobody should write, and files that are too short.

use proptest::prelude::*;

use super::*;

fn v1(text: &str) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(text.len()).unwrap().to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

fn error_of(text: &str) -> NpyError {
    parse_header(&v1(text)).unwrap_err()
}

#[test]
fn numpys_own_headers() {
    // The bytes of `numpy.save` of a (3, 4) float32 array.
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
    let header = parse_header(&v1(&format!("{text:117}\n"))).unwrap();
    assert_eq!(header.kind, NpyType::Tensor(DType::F32));
    assert_eq!((&header.shape[..], header.order, header.data_offset), (&[3, 4][..], Order::C, 128));
    assert_eq!(header_bytes(DType::F32.into(), &[3, 4]), v1(&format!("{text:117}\n")));
}

#[test]
fn versions_two_and_three_have_a_wide_length() {
    let text = "{\"shape\": (5L,), \"fortran_order\": True, \"descr\": \"|u1\"}";
    for major in [2, 3] {
        let mut bytes = vec![0x93, b'N', b'U', b'M', b'P', b'Y', major, 0];
        bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        bytes.extend(text.as_bytes());
        let header = parse_header(&bytes).unwrap();
        assert_eq!((header.kind, header.order), (NpyType::Tensor(DType::U8), Order::Fortran));
        assert_eq!(header.data_offset, bytes.len());
    }
}

#[test]
fn every_type_reads_back() {
    let others = [NpyType::I16, NpyType::U16, NpyType::U32, NpyType::U64];
    for kind in DType::ALL.into_iter().map(NpyType::from).chain(others) {
        for shape in [&[][..], &[0], &[7], &[2, 3, 4], &[1, 1, 1, 1, 1, 1, 1, 1]] {
            let bytes = header_bytes(kind, shape);
            assert_eq!(bytes.len() % 64, 0);
            let header = parse_header(&bytes).unwrap();
            assert_eq!((header.kind, &header.shape[..]), (kind, shape));
            assert_eq!(header.data_offset, bytes.len());
        }
    }
}

#[test]
fn fortran_order_becomes_strides() {
    let header = parse_header(&v1("{'descr': '<i8', 'fortran_order': True, 'shape': (2, 3, 4)}")).unwrap();
    assert_eq!(header.layout().unwrap().strides(), [1, 2, 6]);
}

#[test]
fn types_that_are_refused() {
    let of = |descr: &str| error_of(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}"));
    assert!(matches!(of("'|O'"), NpyError::Objects { .. }));
    assert!(matches!(of("'O'"), NpyError::Objects { .. }));
    assert!(matches!(of("'>f4'"), NpyError::BigEndian { .. }));
    assert!(matches!(of("'<c8'"), NpyError::UnknownType { .. }));
    assert!(matches!(of("[('a', '<f4')]"), NpyError::UnknownType { .. }));
    assert!(matches!(of(&format!("'{}'", "x".repeat(5000))), NpyError::UnknownType { descr } if descr.len() == 24));
    assert!(NpyType::U32.dtype().is_err());
}

#[test]
fn headers_that_are_refused() {
    assert_eq!(parse_header(b"PK\x03\x04"), Err(NpyError::NotNpy));
    assert_eq!(parse_header(b"\x93NUMPY\x04\x00\x00\x00"), Err(NpyError::Version { major: 4, minor: 0 }));
    assert_eq!(parse_header(b"\x93NUMPY\x01\x00\x50\x00{}"), Err(NpyError::HeaderCut { expected: 90, found: 12 }));
    let huge = parse_header(b"\x93NUMPY\x02\x00\xff\xff\xff\xff");
    assert_eq!(huge, Err(NpyError::HeaderTooLong { bytes: 0xffff_ffff }));
    assert_eq!(error_of("{}"), NpyError::MissingKey { key: "shape" });
    for text in [
        "",
        "{",
        "{'descr'",
        "{'descr': '<f4}",
        "{'descr': '<f4' 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'extra': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
    ] {
        assert!(matches!(error_of(text), NpyError::Syntax { .. }), "{text}");
    }
    for shape in ["(1,1,1,1,1,1,1,1,1)", "(4294967296, 4294967296)", "(4611686018427387904,)"] {
        let error = error_of(&format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}"));
        assert!(matches!(error, NpyError::Shape { .. }), "{shape}");
    }
}

#[test]
fn files_have_the_length_their_shape_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let mut bytes = Vec::new();
    write_array(&mut bytes, DType::F32.into(), &[2, 3], &[7; 24]).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(&NpyFile::open(&path).unwrap().header.shape[..], [2, 3]);
    for wrong in [bytes.len() - 1, bytes.len() + 1] {
        let mut other = bytes.clone();
        other.resize(wrong, 0);
        std::fs::write(&path, &other).unwrap();
        let text = NpyFile::open(&path).unwrap_err().to_string();
        assert!(text.contains("x.npy: the file should have 152 bytes and has"), "{text}");
    }
    std::fs::write(&path, b"\x93NUMPY\x01\x00").unwrap();
    assert!(matches!(NpyFile::open(&path).unwrap_err(), Error::NpyFile { .. }));
    assert!(matches!(NpyFile::open(&folder.path().join("none")).unwrap_err(), Error::Io { .. }));
    assert!(write_array(Vec::new(), DType::F32.into(), &[2, 3], &[7; 23]).is_err());
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_header(&bytes);
        let mut with_magic = b"\x93NUMPY\x01\x00".to_vec();
        with_magic.extend(&bytes);
        let _ = parse_header(&with_magic);
    }

    #[test]
    fn no_text_panics(
        text in "[{}():,'\"a-z0-9 TFL<|_]{0,120}",
        start in prop::sample::select(vec!["", "{'descr': ", "{'shape': (", "{'shape': (18446744073709551615, "]),
    ) {
        if let Ok(header) = parse_header(&v1(&format!("{start}{text}"))) {
            let _ = header.layout();
            let _ = header.check_length(0);
        }
    }

    #[test]
    fn damaged_headers_do_not_panic(at in 0usize..128, value in any::<u8>(), keep in 0usize..=128) {
        let mut bytes = header_bytes(DType::BF16.into(), &[1 << 20, 1 << 12]);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        bytes.truncate(keep);
        if let Ok(header) = parse_header(&bytes) {
            let _ = header.layout();
            let _ = header.check_length(u64::MAX);
        }
    }
}
