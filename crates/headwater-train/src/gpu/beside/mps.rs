//! Whether CUDA's Multi-Process Service runs, seen by the pipe of its daemon. Without it kernels of two processes take turns on
//! a GPU and never run together, so two processes would be slower than one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names the folder of the daemon's pipes.
pub const PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Says which part of the SMs a process may use, in percent.
pub const PERCENT: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
/// Where pipes are unless somebody says otherwise.
const USUAL: &str = "/tmp/nvidia-mps";

/// The folder of the service's pipes, or why there is none.
pub fn look() -> Result<PathBuf, String> {
    look_in(std::env::var_os(PIPES))
}

fn look_in(said: Option<OsString>) -> Result<PathBuf, String> {
    let folder = said.filter(|said| !said.is_empty()).map_or_else(|| Path::new(USUAL).to_owned(), PathBuf::from);
    if folder.join("control").exists() {
        return Ok(folder);
    }
    Err(format!("no MPS daemon has its control pipe in {}; {PIPES} would name another folder", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_is_seen_by_its_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let said = Some(folder.path().as_os_str().to_owned());
        let why = look_in(said.clone()).unwrap_err();
        assert!(why.contains(folder.path().to_str().unwrap()), "{why}");
        std::fs::write(folder.path().join("control"), "").unwrap();
        assert_eq!(look_in(said).unwrap(), folder.path());
    }
}
