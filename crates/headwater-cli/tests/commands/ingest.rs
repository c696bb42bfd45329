//! `headwater ingest` as a user types it, and what a killed one leaves.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{fails_with, headwater, program};

fn succeeds(arguments: &[&str]) -> (String, String) {
    let output = headwater(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    (String::from_utf8(output.stdout).unwrap(), said)
}

#[test]
fn an_edge_list_becomes_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("edges.csv"), folder.path().join("out"));
    std::fs::write(&source, "from,to,w\nann,bob,1\nbob,eve,0.5\n").unwrap();
    let (source, out) = (source.to_str().unwrap(), out.to_str().unwrap());
    let (printed, said) = succeeds(&["ingest", source, "-o", out, "--weight-column", "w", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((summary["nodes"].as_u64(), summary["edges"].as_u64()), (Some(3), Some(2)));
    assert_eq!(summary["format"], "edge-list");
    assert!(summary["predicted_peak_bytes"].as_u64().unwrap() > 0 && said.contains("will take up to"), "{said}");
    assert!(Path::new(out).join("headwater.json").is_file());
    fails_with(&["ingest", source, "-o", out], out);
}

#[test]
fn relations_are_given_by_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).display().to_string()
    };
    let writes = format!("author:writes:paper={}", file("w.csv", "0,0\n1,0\n"));
    let cites = format!("paper:cites:paper={}", file("c.tsv", "0\t1\n"));
    let out = folder.path().join("out").display().to_string();
    let (printed, _) = succeeds(&["ingest", "-o", &out, "--edges", &writes, "--edges", &cites, "--reverse"]);
    assert!(printed.contains("4 nodes of 2 types, 6 edges of 3 relations"), "{printed}");
}

#[test]
fn refusals_are_clear() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let out = path("out");
    std::fs::write(path("bad.csv"), "0,1\n2,x\n").unwrap();
    std::fs::write(path("graph.pt"), "PK").unwrap();
    fails_with(&["ingest", &path("bad.csv"), "-o", &out, "--ids", "dense"], "bad.csv: line 2: column 1: \"x\"");
    fails_with(&["ingest", &path("graph.pt"), "-o", &out], "is a pickle");
    fails_with(&["ingest", &path("none.csv"), "-o", &out], "none.csv");
    fails_with(&["ingest", &path("bad.csv"), "-o", &out, "--delimiter", "ab"], "--delimiter");
    fails_with(&["ingest", "-o", &out, "--edges", "a:b=c"], "SOURCE:RELATION:TARGET=FILE");
    fails_with(&["ingest", "-o", &out], "SOURCE");
    assert!(!Path::new(&out).exists());
    assert!(succeeds(&["ingest", "--help"]).0.contains("Examples:"));
}

/// What awkward texts give: the edges there are and what is said of it, or only what is said.
#[test]
fn awkward_edge_lists_are_understood_told_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("edges"), folder.path().join("out"));
    let names =
        "is not an id: a whole number from 0 on; most ids are numbers (--ids string takes all of them for names)";
    for (text, flags, edges, words) in [
        (&b"0,1\n1,x\n2,3\n"[..], &[][..], None, &format!("edges: line 2: column 1: \"x\" {names}")[..]),
        (b"0,1\n-1,2\n2,3\n", &[], None, "edges: line 2: column 0: \"-1\" is not"),
        (b"0,1\n1,x\n2,3\n", &["--ids", "string"], Some(3), ""),
        (
            b"0,1\nann,bob\nbob,eve\n",
            &[],
            Some(3),
            "line 2: ids are names, also those that are numbers, because \"ann\"",
        ),
        (b"user,item\nann,book\nbob,pen\n", &[], Some(2), "line 1 is taken for the names of columns (user, item)"),
        (b"user,item\nann,book\nbob,pen\n", &["--no-header"], Some(3), ""),
        (b"Wer,Wen\nann,book\nbob,pen\n", &["--header"], Some(2), ""),
        (b"a,b,w\n0,1,5\n1,2,6\n", &[], Some(2), "nothing is taken from column \"w\"; --weight-column"),
        (b"0,1,\n1,2,\n", &[], Some(2), ""),
        (b"\xef\xbb\xbf# c\r\n0,1\r\n\r\n1,0\r\n0,1\r\n", &[], Some(3), ""),
        (b"ann,j\xf6rg\nbob,ann\n", &[], None, "line 1: column 1: \"j\u{fffd}rg\" is not an id: some text in UTF-8"),
        (b"ann,\nbob,ann\n", &[], None, "line 1: column 1: \"\" is not an id"),
        (
            b"#a,#b\n#b,#c\nx,y\n",
            &[],
            Some(1),
            "2 lines that begin with # or % are taken for comments, the first in line 1",
        ),
        (b"0 1\r2 3\r", &[], None, "carriage return"),
        (b"%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 0.5\n", &[], None, "Matrix Market"),
        (b"\xff\xfe0\0,\x001\0\n\0", &[], None, "UTF-16"),
        (b"", &[], None, "edges: is empty"),
        (b"\n# only\n", &[], None, "nothing but comments"),
        (b"src,dst\n", &[], None, "there is no edge"),
        (b"0,1\n", &["--nodes", "paper=7"], None, "7 nodes of \"paper\" are said; node types are: node"),
        (b"ann,bob\n", &["--nodes", "7"], None, "the number of nodes can be said where ids are whole numbers"),
        (b"0,1\n", &["--source-column", "1", "--target-column", "1"], None, "column 1 is asked for twice"),
        (b"0,1\n", &["--labels", "values"], None, "a kind of labels can be said of sources with labels only"),
        (b"0,1\n", &["--ids", "integer", "--nodes", "3"], None, "--ids dense"),
    ] {
        std::fs::write(&source, text).unwrap();
        let shown = String::from_utf8_lossy(text);
        let plain = ["ingest", source.to_str().unwrap(), "-o", out.to_str().unwrap(), "--json"];
        let output = headwater(&[&plain[..], flags].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), edges.is_some(), "{shown:?}: {said}");
        assert!(
            said.contains(words) && said.contains("warning:") == (edges.is_some() && !words.is_empty()),
            "{shown:?}: {said}"
        );
        if let Some(edges) = edges {
            let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(summary["edges"], serde_json::json!(edges), "{shown:?}");
            std::fs::remove_dir_all(&out).unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{shown:?} left something");
    }
}

#[test]
fn a_pipe_is_refused_and_a_folder_may_have_any_name() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let out = folder.path().join("out").display().to_string();
    let pipe = pipe.to_str().unwrap();
    for arguments in [&["ingest", pipe, "-o", &out][..], &["ingest", pipe, "-o", &out, "--format", "arrays"]] {
        fails_with(arguments, "pipe: is no regular file");
    }
    let source = folder.path().join("edges.csv");
    std::fs::write(&source, "0,1\n").unwrap();
    let odd = folder.path().join(std::ffi::OsStr::from_bytes(b"j\xf6rg"));
    let status = Command::new(program()).arg("ingest").arg(&source).arg("-o").arg(&odd).output().unwrap().status;
    assert!(status.success() && odd.join("headwater.json").is_file());
}

#[test]
fn statements_to_predict_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("kg");
    std::fs::create_dir(&source).unwrap();
    for (name, numbers) in [("head", [0i64, 1, 2]), ("rel", [0, 0, 1]), ("tail", [1, 2, 0]), ("split", [0, 1, 2])] {
        let header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }}{}\n", " ".repeat(58));
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        std::fs::write(source.join(format!("{name}.npy")), bytes).unwrap();
    }
    let out = folder.path().join("out").display().to_string();
    let (printed, _) = succeeds(&["ingest", source.to_str().unwrap(), "-o", &out]);
    let words =
        "edges to predict are kept beside the graph: 1 to train on, which are its edges, 1 to validate and 1 to test";
    assert!(printed.contains(words), "{printed}");
}

fn large_list(path: &Path) {
    let mut text = String::new();
    for i in 0..400_000u64 {
        writeln!(text, "n{},n{}", i * i % 100_003, i).unwrap();
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn an_ingest_that_is_told_to_stop_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("edges.csv");
    large_list(&source);
    let out = folder.path().join("out");
    let left = || std::fs::read_dir(folder.path()).unwrap().count();
    for (signal, delay_ms) in [("-INT", 0), ("-TERM", 20), ("-INT", 150)] {
        let arguments = ["ingest", source.to_str().unwrap(), "-o", out.to_str().unwrap()];
        let child =
            Command::new(program()).args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let limit = Instant::now() + Duration::from_secs(10);
        while left() == 1 && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(delay_ms));
        let told = Command::new("kill").args([signal, &child.id().to_string()]).status();
        let output = child.wait_with_output().unwrap();
        // It may have been faster.
        if !(told.unwrap().success() && output.status.success()) {
            let said = String::from_utf8_lossy(&output.stderr);
            let code = if signal == "-INT" { 130 } else { 143 };
            assert_eq!((output.status.code(), left()), (Some(code), 1), "{signal} after {delay_ms} ms: {said}");
            assert!(said.contains("stopped; nothing is left of it") && !said.contains("error"), "{said}");
        } else {
            std::fs::remove_dir_all(&out).unwrap();
        }
    }
}

#[test]
fn a_killed_ingest_leaves_nothing_that_looks_finished() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("edges.csv");
    large_list(&source);
    let out = folder.path().join("out");
    let arguments = ["ingest", source.to_str().unwrap(), "-o", out.to_str().unwrap()];
    for delay_ms in [0, 5, 40, 120] {
        let mut child =
            Command::new(program()).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Wait until it has begun to write, then a little longer.
        let begun = || std::fs::read_dir(folder.path()).unwrap().count() > 1;
        let limit = Instant::now() + Duration::from_secs(10);
        while !begun() && Instant::now() < limit && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(delay_ms));
        let _ = child.kill();
        let finished = child.wait().unwrap().success();
        assert_eq!(out.join("headwater.json").is_file(), finished, "after {delay_ms} ms");
        if finished {
            std::fs::remove_dir_all(&out).unwrap();
        }
    }
    let (printed, _) = succeeds(&[&arguments[..], &["--json"]].concat());
    let summary: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(summary["edges"].as_u64(), Some(400_000));
}
