//! What can be seen of a run of the program: what it says, what it writes, and what it takes.
//!
//! All of it becomes a map from places to values, so that two runs are compared place by place and what differs between
//! two runs of the same words is known to be noise. What only repeats the words of the command line is left out.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::program::program;

/// Values that are times, rates or what else the machine has a say in.
const NOISE: [&str; 12] =
    ["seconds", "_s", "_ms", "_us", "rss", "per_s", "resident", "available", "joules", "of_copy", "free", "elapsed"];
/// The run's own description repeats every option.
const ECHO: &str = "config.toml";

/// What was seen.
#[derive(Debug, Clone)]
pub struct Seen {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub leaves: BTreeMap<String, String>,
    /// The most threads that were there at once.
    pub threads: usize,
    /// Processor time in hundredths of a second.
    pub ticks: u64,
}

/// Runs the program in a folder, and looks.
pub fn watch(words: &[String], folder: &Path) -> Seen {
    let mut command = Command::new(program());
    command.args(words).current_dir(folder).env_remove("HEADWATER_LIBCUDA").env("CUDA_VISIBLE_DEVICES", "");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = drain(child.stdout.take().unwrap());
    let stderr = drain(child.stderr.take().unwrap());
    let (code, threads, ticks) = attend(&mut child);
    let home = folder.canonicalize().unwrap().to_string_lossy().into_owned();
    let clean = |text: String| text.replace(&home, "<here>").replace(&*folder.to_string_lossy(), "<here>");
    let (stdout, stderr) = (clean(stdout.join().unwrap()), clean(stderr.join().unwrap()));
    let mut leaves = BTreeMap::new();
    leaves.insert("exit".to_owned(), format!("{code:?}"));
    text(&mut leaves, "stdout", &stdout);
    text(&mut leaves, "stderr", &stderr);
    files(&mut leaves, folder, folder, &home);
    Seen { code, stdout, stderr, leaves, threads, ticks }
}

fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = from.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    })
}

/// Waits for the end, and counts threads and processor time meanwhile.
fn attend(child: &mut Child) -> (Option<i32>, usize, u64) {
    let (mut threads, mut ticks) = (0, 0);
    let process = Path::new("/proc").join(child.id().to_string());
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (status.code(), threads, ticks);
        }
        let tasks = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
        threads = threads.max(tasks);
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let spent: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        ticks = ticks.max(spent);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Lines, each of which may be JSON.
fn text(leaves: &mut BTreeMap<String, String>, place: &str, all: &str) {
    for (number, line) in all.lines().enumerate() {
        match serde_json::from_str::<Value>(line) {
            Ok(value) if value.is_object() => flatten(leaves, &format!("{place}[{number}]"), &value),
            _ => {
                leaves.insert(format!("{place}[{number}]"), line.to_owned());
            }
        }
    }
}

fn flatten(leaves: &mut BTreeMap<String, String>, place: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| flatten(leaves, &format!("{place}.{name}"), value));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(number, value)| flatten(leaves, &format!("{place}[{number}]"), value));
        }
        leaf => {
            leaves.insert(place.to_owned(), leaf.to_string());
        }
    }
}

fn files(leaves: &mut BTreeMap<String, String>, folder: &Path, root: &Path, home: &str) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(leaves, &path, root, home);
            continue;
        }
        let place = format!("file:{}", path.strip_prefix(root).unwrap().display());
        let bytes = std::fs::read(&path).unwrap_or_default();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match path.extension().and_then(|ending| ending.to_str()) {
            _ if name == ECHO => drop(leaves.insert(place, "there".to_owned())),
            Some("json") => match serde_json::from_slice::<Value>(&bytes) {
                Ok(value) => flatten(leaves, &place, &value),
                Err(_) => drop(leaves.insert(place, "no JSON".to_owned())),
            },
            Some("jsonl") => text(leaves, &place, &String::from_utf8_lossy(&bytes).replace(home, "<here>")),
            Some("safetensors") => drop(leaves.insert(place, digest(without_metadata(&bytes)))),
            _ => drop(leaves.insert(place, digest(bytes))),
        }
    }
}

/// A file of tensors without what is said about the run.
fn without_metadata(bytes: &[u8]) -> Vec<u8> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else { return bytes.to_vec() };
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap().min(rest.len());
    let mut header: Value = serde_json::from_slice(&rest[..length]).unwrap_or_default();
    if let Some(header) = header.as_object_mut() {
        header.remove("__metadata__");
    }
    [header.to_string().as_bytes(), &rest[length..]].concat()
}

fn digest(bytes: Vec<u8>) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{} bytes, {:x}", bytes.len(), hasher.finish())
}

/// Whether the machine has a say in the value at a place.
pub fn is_noise(place: &str) -> bool {
    let name = named(place);
    NOISE.iter().any(|word| if word.starts_with('_') { name.ends_with(word) } else { name.contains(word) })
}

/// Whether a place is where an option of that name would be repeated.
pub fn is_echo(place: &str, option: &str) -> bool {
    named(place) == option
}

/// The last name of a place, without numbers.
fn named(place: &str) -> &str {
    let name = place.rsplit_once('.').map_or("", |(_, name)| name);
    name.split('[').next().unwrap_or(name)
}
