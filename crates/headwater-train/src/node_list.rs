//! Which nodes to predict, as a file says: an array of integers, or a line of text an id.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use headwater_graph::dataset::Array;

use crate::error::{Error, Result};

/// Reads ids of nodes, of which there are so many. A file that ends in `.npy` is an array.
pub fn read(path: &Path, count: u64) -> Result<Vec<u64>> {
    let about = fs::metadata(path).map_err(Error::io("read", path))?;
    if !about.is_file() {
        // Opening a pipe would wait for somebody to write to it.
        return Err(Error::NodeList { path: path.to_owned(), place: 0, why: "it is not a file".to_owned() });
    }
    if path.extension().is_some_and(|ending| ending == "npy") { array(path, count) } else { lines(path, count) }
}

fn array(path: &Path, count: u64) -> Result<Vec<u64>> {
    let wrong = |place: u64, why: String| Error::NodeList { path: path.to_owned(), place, why };
    let array = Array::map(path)?;
    if array.shape().len() != 1 {
        return Err(wrong(0, format!("it has {} dimensions; expected a list", array.shape().len())));
    }
    let ids: Vec<u64> = array.ids()?.iter().collect();
    match (1..).zip(&ids).find(|(_, id)| **id >= count) {
        Some((place, id)) => Err(wrong(place, out_of_range(*id, count))),
        None => Ok(ids),
    }
}

fn lines(path: &Path, count: u64) -> Result<Vec<u64>> {
    let file = BufReader::new(File::open(path).map_err(Error::io("read", path))?);
    let mut ids = Vec::new();
    for (place, line) in (1..).zip(file.lines()) {
        let line = line.map_err(Error::io("read", path))?;
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        let wrong = |why: String| Error::NodeList { path: path.to_owned(), place, why };
        let shown: String = text.chars().take(40).collect();
        let id = text.parse().map_err(|_| wrong(format!("{shown:?} is no id; expected a whole number")))?;
        if id >= count {
            return Err(wrong(out_of_range(id, count)));
        }
        ids.push(id);
    }
    Ok(ids)
}

fn out_of_range(id: u64, count: u64) -> String {
    format!("there is no node {id}; ids are below {count}")
}

#[cfg(test)]
mod tests {
    use headwater_tensor::npy::{NpyType, write_array};

    use super::*;

    fn found(name: &str, content: &[u8]) -> Result<Vec<u64>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        read(&path, 10).map_err(|why| why.to_string())
    }

    fn npy(kind: NpyType, shape: &[usize], data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_array(&mut bytes, kind, shape, data).unwrap();
        bytes
    }

    #[test]
    fn lists_are_read_and_what_is_none_is_named() {
        assert_eq!(found("a.txt", b"3\n\n 9 \r\n3\n"), Ok(vec![3, 9, 3]));
        assert_eq!(found("a.txt", b""), Ok(vec![]));
        assert_eq!(found("a.npy", &npy(NpyType::U32, &[2], &[3, 0, 0, 0, 9, 0, 0, 0])), Ok(vec![3, 9]));
        for (name, content, words) in [
            ("a.txt", &b"1\n10\n"[..], "2: there is no node 10; ids are below 10"),
            ("a.txt", b"1\n2\n-3\n", "3: \"-3\" is no id"),
            ("a.txt", b"1.5", "1: \"1.5\" is no id"),
            ("a.txt", b"\xff\xfe", "cannot read"),
            ("a.npy", &npy(NpyType::U32, &[2], &[3, 0, 0, 0, 11, 0, 0, 0]), "2: there is no node 11"),
            ("a.npy", &npy(NpyType::U32, &[1, 1], &[3, 0, 0, 0]), "2 dimensions"),
            ("a.npy", &npy(NpyType::U16, &[1], &[3, 0]), "uint16"),
            ("a.npy", b"nonsense", "a.npy"),
        ] {
            let said = found(name, content).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
        assert!(read(Path::new("/nowhere"), 1).unwrap_err().to_string().contains("/nowhere"));
        assert!(read(Path::new("/dev"), 1).unwrap_err().to_string().contains("not a file"));
    }
}
