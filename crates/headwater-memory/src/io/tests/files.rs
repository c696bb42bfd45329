//! Opening, reserving and sizing files.

use super::*;

#[test]
fn files_say_whether_they_are_direct_and_what_they_ask() {
    for folder in folders() {
        let options = FileOptions { access: Access::CreateNew, ..FileOptions::default() };
        let file = IoFile::open(fresh_path(folder.path()), &options).unwrap();
        let Alignment { memory_bytes, offset_bytes } = file.alignment();
        println!("{}: direct {}, {:?}", folder.path().display(), file.is_direct(), file.alignment());
        assert!(memory_bytes.is_power_of_two() && offset_bytes.is_power_of_two());
        assert_eq!(file.is_direct(), file.buffered_reason().is_none());

        let options = FileOptions { direct: Direct::Never, ..options };
        let file = IoFile::open(fresh_path(folder.path()), &options).unwrap();
        assert!(!file.is_direct() && file.buffered_reason().is_some());
        assert_eq!(file.alignment(), Alignment { memory_bytes: 1, offset_bytes: 1 });
    }
}

#[test]
fn requiring_direct_where_there_is_none_fails() {
    let options = FileOptions { access: Access::ReadWrite, direct: Direct::Require, preallocate_bytes: 0 };
    let error = IoFile::open("/dev/null", &options).unwrap_err();
    assert!(error.to_string().contains("direct I/O"), "{error}");
    let options = FileOptions { direct: Direct::Prefer, ..options };
    assert!(IoFile::open("/dev/null", &options).unwrap().buffered_reason().is_some());
}

#[test]
fn preallocation_makes_the_file_long_and_keeps_what_is_there() {
    for folder in folders() {
        let path = fresh_path(folder.path());
        fs::write(&path, b"kept").unwrap();
        let options = FileOptions { access: Access::Create, preallocate_bytes: 1 << 20, ..FileOptions::default() };
        let file = IoFile::open(&path, &options).unwrap();
        println!("{}: reserved {}", folder.path().display(), file.is_reserved());
        assert_eq!(file.len_bytes().unwrap(), 1 << 20);
        assert_eq!(&fs::read(&path).unwrap()[..4], b"kept");
        file.set_len(4).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"kept");
    }
}

#[test]
fn temporary_files_have_no_name() {
    let engine = engine(Choice::Auto);
    for folder in folders() {
        let options = FileOptions { preallocate_bytes: 4 * BLOCK as u64, ..FileOptions::default() };
        let file = Arc::new(IoFile::temporary(folder.path(), &options).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        engine.write_all_at(&file, 0, filled(BLOCK, 9)).unwrap().into_result().unwrap();
        let (bytes, _) = engine.read_exact_at(&file, 0, buffer(BLOCK)).unwrap().into_result().unwrap();
        assert!(*bytes == *pattern(BLOCK, 9));
    }
}

#[test]
fn access_is_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, access| IoFile::open(path, &FileOptions { access, ..FileOptions::default() });
    let path = fresh_path(folder.path());
    for access in [Access::Read, Access::ReadWrite] {
        let error = open(&path, access).unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
    open(&path, Access::CreateNew).unwrap().set_len(10).unwrap();
    assert!(open(&path, Access::CreateNew).is_err());
    assert_eq!(open(&path, Access::Create).unwrap().len_bytes().unwrap(), 10);
    assert_eq!(open(&path, Access::Truncate).unwrap().len_bytes().unwrap(), 0);
}

#[test]
fn files_in_memory_check_their_options() {
    let options = RamOptions { alignment_bytes: 3, ..RamOptions::default() };
    assert!(matches!(IoFile::ram("odd", &options), Err(Error::Config { field: "alignment", .. })));
    let file = ram_file(RamOptions { capacity_bytes: 10, ..RamOptions::default() });
    assert!(file.set_len(11).is_err());
    file.set_len(10).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 10);
}
