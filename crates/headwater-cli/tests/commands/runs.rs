//! Runs on disk: who may write there, what goes on from there, and how a run ends that is stopped or finds no room.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{fails_with, made, program, succeeds};

const SMALL: [&str; 10] =
    ["--hidden", "8", "--batch", "64", "--fanout", "4,4", "--evaluate-every", "0", "--device", "cpu"];

fn train(data: &str, run: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["train", data, "-o"]).arg(run).args(SMALL).args(more).stderr(Stdio::piped());
    command
}

fn ends(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten().map(|entry| entry.path());
    found.filter(|path| path.extension().is_some_and(|ending| ending == "safetensors")).collect()
}

/// A run that goes on until somebody stops it, and has written a checkpoint.
fn endless(data: &str, run: &Path) -> Child {
    let child = train(data, run, &["--epochs", "1000000", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    until("a checkpoint", || !checkpoints(run).is_empty());
    child
}

fn summary(run: &Path) -> Value {
    serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap()
}

fn journal(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_folder_that_is_being_written_is_nobody_elses() {
    let (folder, data) = made("16");
    let run = folder.path().join("run");
    let mut first = endless(&data, &run);
    let words = format!("is in use by process {} on ", first.id());
    for command in [&mut train(&data, &run, &[]), Command::new(program()).args(["train", "--resume"]).arg(&run)] {
        let (code, said) = ends(command);
        assert!(code == Some(1) && said.contains(&words), "{said}");
    }
    first.kill().unwrap();
    first.wait().unwrap();
    // The lock died with it, and the journal is its alone.
    let done = journal(&run).len() as u64;
    let epochs = (done + 2).to_string();
    succeeds(&["train", "--resume", run.to_str().unwrap(), "--epochs", &epochs]);
    let epochs: Vec<u64> = journal(&run).iter().map(|line| line["epoch"].as_u64().unwrap()).collect();
    assert!(epochs.iter().copied().eq(1..=done + 2), "{epochs:?}");
}

#[test]
fn runs_that_start_together_have_a_folder_each() {
    let (folder, data) = made("16");
    let start = || {
        let mut command = Command::new(program());
        let command = command.args(["train", &data, "--epochs", "1"]).args(SMALL).current_dir(folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut all = [start(), start(), start()];
    assert!(all.iter_mut().all(|one| one.wait().unwrap().success()));
    for number in 1..=3 {
        assert_eq!(journal(&folder.path().join(format!("runs/rmat-sage-{number}"))).len(), 1);
    }
    assert!(!folder.path().join("runs/rmat-sage-4").exists());
    // One that fails before it begins leaves no folder behind.
    let mut wrong = Command::new(program());
    let wrong = wrong.args(["train", "--model", "missing.py", &data]).current_dir(folder.path()).output().unwrap();
    assert!(wrong.status.code() == Some(1) && !folder.path().join("runs/rmat-missing.py-1").exists());
}

#[test]
fn a_run_goes_on_with_its_own_dataset_wherever_that_is() {
    let (folder, data) = made("16");
    let at = |name: &str| folder.path().join(name);
    let (home, away) = (at("home"), at("away"));
    fs::create_dir(&home).unwrap();
    fs::rename(&data, home.join("data")).unwrap();
    let begun = Command::new(program())
        .args(["train", "data", "-o", "run", "--epochs", "1"])
        .args(SMALL)
        .current_dir(&home)
        .output();
    assert!(begun.unwrap().status.success());
    // From another current folder, where another dataset has the same name.
    let resume = |run: &Path, epochs: &str, more: &[&str]| {
        let mut command = Command::new(program());
        let command = command.arg("train").args(more).arg("--resume").arg(run).args(["--epochs", epochs]);
        ends(command.current_dir(folder.path()))
    };
    let other =
        ["generate", "rmat", "--nodes-log2", "10", "--edges-per-node", "8", "--classes", "4", "--features", "16"];
    succeeds(&[&other[..], &["--seed", "9", "-o", at("data").to_str().unwrap()]].concat());
    assert_eq!(resume(&home.join("run"), "2", &[]), (Some(0), resume(&home.join("run"), "2", &[]).1));
    fs::rename(&home, &away).unwrap();
    let (code, said) = resume(&away.join("run"), "3", &[]);
    assert!(code == Some(0) && journal(&away.join("run")).len() == 3, "moved together: {said}");
    fs::rename(away.join("data"), at("elsewhere")).unwrap();
    assert_eq!(resume(&away.join("run"), "4", &[]).0, Some(1), "nobody knows where it is");
    assert_eq!(resume(&away.join("run"), "4", &["elsewhere"]).0, Some(0));
    // Another one of the same shape in its place.
    fs::rename(at("data"), at("elsewhere-new")).unwrap();
    fs::remove_dir_all(at("elsewhere")).unwrap();
    fs::rename(at("elsewhere-new"), at("elsewhere")).unwrap();
    for more in [&[][..], &["elsewhere"]] {
        let (code, said) = resume(&away.join("run"), "5", more);
        assert!(code == Some(1) && said.contains("elsewhere is not the dataset of the run"), "{said}");
    }
    assert_eq!(journal(&away.join("run")).len(), 4);
}

#[test]
fn a_run_that_goes_on_stays_the_run_it_was() {
    let (folder, data) = made("16");
    let run = folder.path().join("run");
    let path = run.to_str().unwrap();
    assert_eq!(ends(&mut train(&data, &run, &["--epochs", "2"])).0, Some(0));
    let refuses = |more: &[&str], words: &str| fails_with(&[&["train", "--resume", path][..], more].concat(), words);
    refuses(&["--rate", "0.5"], "rate cannot change in a run: it is 0.003, not 0.5; what can change is epochs,");
    refuses(&["--hidden", "9", "--epochs", "3"], "hidden cannot change");
    refuses(&["--epochs", "1"], "epochs is 1; expected at least 2, which are done");
    let allowed = ["--epochs", "3", "--threads", "1", "--keep", "5", "--patience", "9", "--evaluate-every", "1"];
    succeeds(&[&["train", "--resume", path, "--hidden", "8"][..], &allowed].concat());
    let kept: String = fs::read_to_string(run.join("config.toml")).unwrap();
    for line in ["epochs = 3", "threads = 1", "keep = 5", "patience = 9", "hidden = 8"] {
        assert!(kept.lines().any(|kept| kept == line), "{line}: {kept}");
    }
    assert_eq!(journal(&run).len(), 3);
    // A damaged checkpoint gives way to the one before.
    let newest = checkpoints(&run).into_iter().max().unwrap();
    fs::write(&newest, b"").unwrap();
    let (code, said) = ends(Command::new(program()).args(["train", "--resume", path]));
    assert!(code == Some(0) && said.contains("damaged checkpoint") && said.contains("used instead"), "{said}");
    assert_eq!(journal(&run).len(), 3);
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    refuses(&[], "has no checkpoint, though 3 epochs were trained");
    assert_eq!(journal(&run).len(), 3, "its history stays");
}

#[test]
fn signals_stop_a_run_that_has_then_saved() {
    let (folder, data) = made("16");
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    for (signal, number) in [("HUP", 1), ("INT", 2), ("TERM", 15)] {
        if ignored & (1 << (number - 1)) != 0 {
            eprintln!("SIG{signal} is ignored here, and by what is started from here");
            continue;
        }
        let run = folder.path().join(signal);
        let child = endless(&data, &run);
        assert!(
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap().success()
        );
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.code() == Some(128 + number) && status.signal().is_none(), "{status}: {said}");
        assert!(said.contains("stopped; go on with: headwater train --resume"), "{said}");
        let last: Value = serde_json::from_str(String::from_utf8(stdout).unwrap().lines().last().unwrap()).unwrap();
        assert_eq!((&last["ending"], &summary(&run)["ending"]), (&"stopped".into(), &"stopped".into()));
        let epochs = (journal(&run).len() + 1).to_string();
        succeeds(&["train", "--resume", run.to_str().unwrap(), "--epochs", &epochs]);
        assert_eq!(summary(&run)["ending"], "done");
    }
}

/// Printing is not what a run is for.
#[test]
fn output_that_cannot_be_written_does_not_stop_a_run() {
    let (folder, data) = made("16");
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for (name, output, code) in [("full", full(), 1), ("closed", Stdio::from(closed), 0)] {
        let run = folder.path().join(name);
        let mut child = train(&data, &run, &["--epochs", "3", "--json"]).stdout(output).spawn().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
        assert_eq!((journal(&run).len(), &summary(&run)["ending"]), (3, &"done".into()));
        assert!(!checkpoints(&run).is_empty());
    }
    let inspected = Command::new(program()).args(["inspect", &data]).stdout(full()).status().unwrap();
    assert_eq!(inspected.code(), Some(1), "what was asked for is not there");
    // Nobody who can be told is no reason to fail either.
    let mute = Command::new(program()).args(["inspect", &data]).stdout(Stdio::null()).stderr(full()).status().unwrap();
    assert_eq!(mute.code(), Some(0));
}

/// Runs the program where no file may be longer than so many blocks of 512 bytes.
fn with_little_disk(blocks: u32, arguments: &[&str]) -> Output {
    let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
    Command::new("sh").args(["-c", &script]).arg(program()).args(arguments).output().unwrap()
}

#[test]
fn pictures_are_whole_or_not_there() {
    let (folder, data) = made("16");
    for name in ["degrees.svg", "degrees.png"] {
        let path = folder.path().join(name);
        let asked = ["inspect", &data, "--no-verify", "--plot", path.to_str().unwrap()];
        let refused = with_little_disk(2, &asked);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains(name) && said.contains("cannot write"), "{said}");
        assert!(!path.exists());
        succeeds(&asked);
        let drawn = fs::read(&path).unwrap();
        assert!(drawn.starts_with(b"\x89PNG\r\n") || drawn.trim_ascii_end().ends_with(b"</svg>"), "{name}");
    }
    assert!(
        fs::read_dir(folder.path())
            .unwrap()
            .flatten()
            .all(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
    );
}

#[test]
fn a_run_whose_files_may_not_grow_says_so() {
    let (folder, data) = made("16");
    let run = folder.path().join("run");
    let asked = [&["train", &data, "--epochs", "1", "-o", run.to_str().unwrap()][..], &SMALL].concat();
    let refused = with_little_disk(8, &asked);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("File too large"), "{}: {said}", refused.status);
}

/// A file system of its own, as small as it is said to be; gone when it is dropped.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(path: &Path, size: &str) -> Option<Self> {
        fs::create_dir(path).unwrap();
        let options = format!("size={size}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).output();
        mount.is_ok_and(|done| done.status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_run_whose_results_find_no_room_has_failed() {
    let (folder, data) = made("16");
    let Some(tiny) = Tiny::mount(&folder.path().join("tiny"), "20k") else {
        eprintln!("no file system can be mounted here");
        return;
    };
    let run = tiny.0.join("run");
    let (code, said) = ends(&mut train(&data, &run, &["--epochs", "2"]));
    assert!(code == Some(1) && said.contains("results of the run could not be written: cannot write"), "{said}");
    assert!(said.contains("No space left"), "{said}");
    assert!(checkpoints(&run).is_empty());
}

#[test]
fn threads_are_as_many_as_a_machine_bears() {
    let (folder, data) = made("16");
    let run = folder.path().join("run");
    let (code, said) = ends(&mut train(&data, &run, &["--epochs", "1", "--threads", "4096"]));
    assert!(code == Some(0) && said.contains("4096 threads were asked for; there will be"), "{said}");
    let begun = Instant::now();
    let (code, said) = ends(Command::new(program()).args(["infer", "--threads", "99999"]).arg(&run));
    assert!(code == Some(0) && said.contains("99999 threads were asked for"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    // Too little memory for their stacks: a reason, not a panic or an abort.
    for arguments in [&["infer", "--threads", "4096", run.to_str().unwrap()][..], &["inspect", &data]] {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -v 60000; exec \"$0\" \"$@\""]).arg(program()).args(arguments);
        let (code, said) = ends(limited.env("RAYON_NUM_THREADS", "64"));
        assert!(code == Some(1) && said.contains("could not be started"), "{code:?}: {said}");
    }
}

#[test]
fn what_cannot_be_honoured_is_refused_at_the_start() {
    let (folder, data) = made("16");
    let run = folder.path().join("run");
    for (more, words) in [
        (&["--device", "cuda", "--features", "memory"][..], "features is memory; expected auto, dma"),
        (&["--device", "cuda", "--features", "disk"], "features is disk; expected auto, dma"),
        (&["--device", "cpu", "--producer", "process"], "producer is process; expected thread"),
        (&["--device", "cpu", "--gather-sms", "4"], "gather_sms is 4; expected 0"),
        (&["--device", "cpu", "--hot-share", "0.5"], "hot_share is 0.5; expected 0.2 where features is not tiered"),
        (&["--device", "cpu", "--trace", "t.json"], "--trace shows when the stages of batches ran on a GPU"),
        (&["--deterministic"], "unexpected argument '--deterministic'"),
    ] {
        fails_with(&[&["train", &data, "-o", run.to_str().unwrap()][..], more].concat(), words);
        assert!(!run.exists(), "{words}");
    }
    let bare = folder.path().join("bare").to_str().unwrap().to_owned();
    succeeds(&["generate", "rmat", "--nodes-log2", "6", "--features", "4", "-o", &bare]);
    fails_with(&["train", &bare, "-o", run.to_str().unwrap()], "the dataset has no labels");
    fails_with(&["train", &bare, "-o", run.to_str().unwrap()], "made-up shapes have them: products,");
    let shape = ["bench", "train", "--like", "mag240m", "--scale", "0.0001"];
    fails_with(&shape, "mag240m has several node types or relations, and bench train is for one of each: products,");
    assert!(!run.exists());
}
