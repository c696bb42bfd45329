//! `headwater train` where there is no GPU, one that is too old, or no service for two processes: it says so and goes on, or
//! says what would go.

use std::process::Command;

use headwater::cuda::Gpu;

use crate::program::{made, program};

/// Whether a small run in a changed environment succeeds, and what it says beside its result.
fn train(data: &str, out: &str, more: &[&str], change: (&str, &str)) -> (bool, String) {
    let small = ["train", data, "-o", out, "--hidden", "8", "--epochs", "1", "--fanout", "4,4", "--json"];
    let output = Command::new(program()).args(small).args(more).env(change.0, change.1).output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

/// That a run says in one line that it is on the CPU, and that one which insists on a GPU is told why not and what else.
fn steps_down_to_the_cpu(change: (&str, &str), why: &str) {
    let (folder, data) = made("16");
    let out = folder.path().join("run");
    let out = out.to_str().unwrap();
    let (is_done, said) = train(&data, out, &["--device", "cuda"], change);
    let refusal = format!("device is cuda; expected auto or cpu, because this GPU cannot be had: {why}");
    assert!(!is_done && said.contains(&refusal), "{said}");
    let (is_done, said) = train(&data, out, &["--device", "auto"], change);
    assert!(is_done && said.lines().any(|line| line.starts_with(&format!("on the CPU: {why}"))), "{said}");
}

#[test]
fn no_gpu() {
    let why = "the CUDA driver (libcuda) was not found. Set HEADWATER_LIBCUDA to its file, or install it.";
    steps_down_to_the_cpu(("HEADWATER_LIBCUDA", "/nonexistent/libcuda.so"), why);
}

fn is_emulated() -> bool {
    Gpu::open(0).is_ok_and(|gpu| gpu.facts().name.contains("emulated"))
}

#[test]
fn a_gpu_that_is_too_old() {
    if !is_emulated() {
        return;
    }
    let why = "Headwater emulated device has compute capability 7.5; training needs 8.0 or newer";
    steps_down_to_the_cpu(("HWEMU_CAPABILITY", "75"), why);
}

#[test]
fn no_service_for_two_processes() {
    if !is_emulated() {
        return;
    }
    let (folder, data) = made("16");
    let (out, pipes) = (folder.path().join("run"), folder.path().to_str().unwrap());
    let more = ["--device", "cuda", "--producer", "process", "--batch", "256"];
    let (is_done, said) = train(&data, out.to_str().unwrap(), &more, ("CUDA_MPS_PIPE_DIRECTORY", pipes));
    let why = "batches are made in the trainer's process: the producer failed: no MPS daemon has its control pipe in";
    assert!(is_done && said.contains(why) && !said.contains("batches from a process of their own"), "{said}");
}
