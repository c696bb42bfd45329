//! Tests in processes of their own: the driver is loaded once a process, and peers are other processes.

use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const VARIABLE: &str = "HEADWATER_TEST_CHILD";

/// A test that asks for more than the GPU has may take all of it for a moment, and a child that starts then finds none.
static GPU_MEMORY: RwLock<()> = RwLock::new(());

/// Held while more memory is asked for than there is.
pub fn no_children() -> RwLockWriteGuard<'static, ()> {
    GPU_MEMORY.write().unwrap_or_else(PoisonError::into_inner)
}

fn memory_stays_free() -> RwLockReadGuard<'static, ()> {
    GPU_MEMORY.read().unwrap_or_else(PoisonError::into_inner)
}

/// What this process was started for, when a test started it.
pub fn role() -> Option<String> {
    std::env::var(VARIABLE).ok()
}

/// This program, to run the named test only, which finds `role` as its role.
pub fn command(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(VARIABLE, role);
    command
}

/// Runs `body` in a child process with a changed environment. Called from the test named `test`.
pub fn in_child(test: &str, changes: &[(&str, &str)], body: fn()) {
    if role().is_some() {
        return body();
    }
    let _free = memory_stays_free();
    let output = command(test, "body").envs(changes.iter().copied()).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).join("\n");
    assert!(output.status.success(), "the child failed:\n{text}");
    assert!(text.contains("1 passed"), "the child ran nothing; is `{test}` the test's name?\n{text}");
}

/// Kills the child when the test ends, however it ends.
pub struct Killed(pub Child, #[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>);

impl Killed {
    pub fn start(command: &mut Command) -> Self {
        let free = memory_stays_free();
        Self(command.spawn().unwrap(), free)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
