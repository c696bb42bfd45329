//! `headwater bench layer` on a GPU: the results of the CPU, and every kernel with its times.

use headwater::cuda::Gpu;
use serde_json::Value;

use crate::program::succeeds;

fn cases(more: &[&str]) -> Vec<Value> {
    let small = ["bench", "layer", "--scale", "0.001", "--width", "8", "--rounds", "1", "--layers", "2", "--json"];
    let printed = succeeds(&[&small[..], more].concat());
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn layers_are_measured_kernel_by_kernel_and_compute_what_the_cpu_does() {
    if Gpu::open(0).is_err() {
        return;
    }
    let asked = ["--like", "hub", "--model", "rgcn,gat", "--heads", "2", "--direction", "both"];
    let found = cases(&[&asked[..], &["--device", "cuda", "--precision", "f32"]].concat());
    let wanted = cases(&[&asked[..], &["--device", "cpu"]].concat());
    assert_eq!((found.len(), wanted.len()), (4, 4));
    for (found, wanted) in found.iter().zip(&wanted) {
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
        let (one, other) = (number(found, "out_mean"), number(wanted, "out_mean"));
        assert!((one - other).abs() < 1e-3 * other, "{one} and {other}: {found}");
        assert!(number(found, "peak_bytes") > number(found, "graph_bytes"), "{found}");
        let kernels = found["kernels"].as_array().unwrap();
        let launches: usize = kernels.iter().map(|kernel| kernel["launches"].as_array().unwrap().len()).sum();
        assert_eq!(number(found, "launches"), 2.0 * launches as f64, "{found}");
        let bytes: f64 = kernels.iter().map(|kernel| number(kernel, "bytes")).sum();
        assert_eq!(bytes, number(found, "moved_bytes"), "{found}");
        for kernel in kernels {
            assert!(number(kernel, "ms") > 0.0 && number(kernel, "gb_per_s") > 0.0, "{kernel}");
            let launches = kernel["launches"].as_array().unwrap();
            let is_known = |launch: &Value| launch["bytes"].is_f64() && launch["tflop_per_s"].is_f64();
            assert!(launches.iter().all(|launch| is_known(launch) == (launches.len() == 1)), "{kernel}");
        }
    }
}

#[test]
fn schedules_that_are_chosen_otherwise_compute_the_same_and_are_told() {
    if Gpu::open(0).is_err() {
        return;
    }
    let asked = ["--like", "hub", "--model", "rgcn", "--device", "cuda", "--precision", "f32", "--tune"];
    // Constants that are measured take long on the emulator; tests of the Python package ask for them.
    let found = ["fixed", "lanes=4,ahead=2,chunks=3"].map(|tune| cases(&[&asked[..], &[tune]].concat()).remove(0));
    let schedules = |case: &Value| -> Vec<String> {
        let kernels = case["kernels"].as_array().unwrap().iter();
        kernels.map(|kernel| kernel["schedule"].as_str().unwrap().to_owned()).collect()
    };
    for case in &found {
        let (one, other) = (case["out_mean"].as_f64().unwrap(), found[0]["out_mean"].as_f64().unwrap());
        assert!((one - other).abs() < 1e-4 * other, "{one} and {other}: {case}");
        assert_eq!(schedules(case).len(), schedules(&found[0]).len());
    }
    let by_hand = schedules(&found[1]);
    assert!(
        by_hand.iter().any(|own| own == "lanes=4,ahead=2") && by_hand.iter().any(|own| own == "chunks=3"),
        "{by_hand:?}"
    );
    let is_its_own = |own: &String| own.ends_with(",ahead=2") || own == "chunks=3" || own == "-";
    assert!(by_hand.iter().all(is_its_own), "{by_hand:?}");
    assert_eq!(found[1]["tune"], "lanes=4,ahead=2,chunks=3");
}

#[test]
fn kernels_have_classes_and_the_tables_of_suites_show_them() {
    if Gpu::open(0).is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, picture) = (path("cases.jsonl"), path("classes.svg"));
    let asked = ["--like", "mag", "--model", "rgcn", "--scale", "0.00005", "--rounds", "1", "--device", "cuda"];
    succeeds(&[&["bench", "layer"], &asked[..], &["--out", &out]].concat());
    let shown =
        |suite: &str, more: &[&str]| succeeds(&[&["bench", "layer", "--suite", suite, "--from", &out], more].concat());
    let text = shown("breakdown", &["--plot", &picture]);
    let row = text.lines().find(|line| line.starts_with("| mag RGCN training |")).unwrap();
    let cells: Vec<&str> = row.split(" | ").collect();
    assert_eq!(cells.len(), 9, "{text}");
    // Walks, products and outer products take time; RGCN multiplies no weights with each other.
    assert!(cells[1..4].iter().all(|cell| cell.ends_with("%)")) && cells[5] == "-", "{text}");
    assert!(std::fs::read_to_string(picture).unwrap().contains("outer products"));
    let text = shown("kernels", &[]);
    assert!(text.contains("## mag RGCN training") && text.contains("| forward | walks over edges |"), "{text}");
}
