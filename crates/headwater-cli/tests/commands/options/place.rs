//! A folder with a file of every kind that a command may be given, and fresh copies of it.

use std::path::Path;

use tempfile::TempDir;

use super::watch::watch;

/// Made once a test: every run has a copy, so that none sees what another wrote.
pub struct Place {
    template: TempDir,
}

const LAYER: &str = r#"@layer
def plain(g, x: node[d_in], W: matrix[d_in, d_out]):
    for n in g.dst_nodes():
        n["out"] = linear(n.x, W)
"#;

impl Place {
    pub fn new() -> Self {
        let template = tempfile::tempdir().unwrap();
        let folder = template.path();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let edges = (0..60).map(|edge| format!("{},{},{},{}\n", edge % 20, (edge * 7 + 1) % 20, edge % 3, edge));
        write("graph.csv", &format!("from,to,weight,when\n{}", edges.collect::<String>()));
        write("ids.txt", "3\n1\n2\n");
        write("layer.py", LAYER);
        write("run.toml", "hidden = 4\nseed = 9\n");
        for words in [
            "generate planted --nodes 200 --edges-per-node 4 --classes 4 --features 96 -o data",
            "generate planted --nodes 200 --edges-per-node 4 --classes 4 --features 96 -o other --seed 2",
            "train flipped -o run --device cpu --hidden 8 --epochs 5 --rate 0.3 --seed 2 --batch 32",
            "bench gather --table-gib 0.001 --width 256 --gathered-mib 1 --least-ms 1 --json",
        ] {
            if words.starts_with("train") {
                flip(folder);
            }
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let seen = watch(&words, folder);
            assert_eq!(seen.code, Some(0), "{words:?}: {}", seen.stderr);
            if words[0] == "bench" {
                write("rows.jsonl", &seen.stdout);
            }
        }
        std::fs::write(folder.join("order.npy"), npy(&(0..200).rev().collect::<Vec<i64>>())).unwrap();
        Self { template }
    }

    /// A copy.
    pub fn fresh(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        copy(self.template.path(), folder.path());
        folder
    }
}

/// A dataset with another number among its features than its checksum is of. Files of this size are not read to be opened.
fn flip(folder: &Path) {
    let flipped = folder.join("flipped");
    std::fs::create_dir(&flipped).unwrap();
    copy(&folder.join("data"), &flipped);
    let features = flipped.join("node.features.npy");
    let mut bytes = std::fs::read(&features).unwrap();
    let sign = bytes.len() - 1;
    bytes[sign] ^= 0x80;
    std::fs::write(&features, bytes).unwrap();
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// Whole numbers as NumPy keeps them.
fn npy(values: &[i64]) -> Vec<u8> {
    let header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({},), }}", values.len());
    let header = format!("{header:<117}\n");
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    let values = values.iter().flat_map(|value| value.to_le_bytes());
    b"\x93NUMPY\x01\x00".iter().copied().chain(length).chain(header.bytes()).chain(values).collect()
}
