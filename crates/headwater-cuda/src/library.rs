//! Where NVIDIA's shared libraries are found on a machine we know nothing about.
//!
//! One search serves driver, NVRTC, cuBLAS, NVML and cuFile: an environment variable, what the process has already loaded (torch
//! loads its own), `CUDA_HOME`, `/usr/local/cuda*`, the `nvidia-*` wheels beside torch, then the system's loader. Every
//! place is remembered, so that a failure can say where it looked.

use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

/// A library we may need, by the file names it goes under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// What a person calls it.
    pub title: &'static str,
    /// The environment variable that names its file and overrides the search.
    pub variable: &'static str,
    /// File names, the preferred one first.
    pub files: &'static [&'static str],
    /// Folders below `site-packages/nvidia` that hold it.
    pub wheel_folders: &'static [&'static str],
}

/// The driver's library, installed with the driver itself.
pub const DRIVER: Wanted = Wanted {
    title: "the CUDA driver (libcuda)",
    variable: "HEADWATER_LIBCUDA",
    files: &["libcuda.so.1", "libcuda.so"],
    wheel_folders: &[],
};
/// The run-time compiler.
pub const NVRTC: Wanted = Wanted {
    title: "NVRTC, CUDA's run-time compiler (libnvrtc)",
    variable: "HEADWATER_LIBNVRTC",
    files: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    wheel_folders: &["cuda_nvrtc/lib", "cu13/lib"],
};
/// Dense matrix products.
pub const CUBLAS: Wanted = Wanted {
    title: "cuBLAS (libcublas)",
    variable: "HEADWATER_LIBCUBLAS",
    files: &["libcublas.so.13", "libcublas.so.12", "libcublas.so"],
    wheel_folders: &["cublas/lib", "cu13/lib"],
};
/// Power and memory readings.
pub const NVML: Wanted = Wanted {
    title: "NVML (libnvidia-ml)",
    variable: "HEADWATER_LIBNVML",
    files: &["libnvidia-ml.so.1", "libnvidia-ml.so"],
    wheel_folders: &[],
};

/// Files to and from GPU memory.
pub const CUFILE: Wanted = Wanted {
    title: "cuFile (libcufile)",
    variable: "HEADWATER_LIBCUFILE",
    files: &["libcufile.so.0", "libcufile.so"],
    wheel_folders: &["cufile/lib", "cu13/lib"],
};

/// A library that was searched for and not found, with every place that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What was wanted.
    pub title: &'static str,
    /// The variable that would have named it.
    pub variable: &'static str,
    /// Each place and why it did not serve.
    pub looked: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was not found. Set {} to its file, or install it.\nLooked in:", self.title, self.variable)?;
        self.looked.iter().try_for_each(|place| write!(f, "\n  {place}"))
    }
}

impl std::error::Error for Missing {}

/// A loaded library and the path it came from.
#[derive(Debug)]
pub(crate) struct Library {
    pub handle: Handle,
    pub path: PathBuf,
}

impl Wanted {
    /// Finds the library without keeping it, for reports.
    pub fn locate(&self) -> Result<PathBuf, Missing> {
        self.load().map(|library| library.path)
    }

    /// Loads the first candidate that the system's loader accepts.
    pub(crate) fn load(&self) -> Result<Library, Missing> {
        let mut looked = Vec::new();
        for candidate in self.candidates(&mut looked) {
            match open(&candidate) {
                Ok(handle) => return Ok(Library { handle, path: candidate }),
                Err(why) => looked.push(format!("{}: {why}", candidate.display())),
            }
        }
        Err(Missing { title: self.title, variable: self.variable, looked })
    }

    /// Files to try, in order. Folders without the file go straight into `looked`.
    fn candidates(&self, looked: &mut Vec<String>) -> Vec<PathBuf> {
        if let Some(path) = std::env::var_os(self.variable) {
            // An explicit choice is final: falling back silently would hide a typing error.
            looked.push(format!("{} (the search stops here because it is set)", self.variable));
            return vec![PathBuf::from(path)];
        }
        looked.push(format!("{} (not set)", self.variable));
        let mut found = self.already_loaded();
        for folder in toolkit_folders().into_iter().chain(self.wheel_paths()) {
            let before = found.len();
            found.extend(self.files.iter().map(|file| folder.join(file)).filter(|path| path.exists()));
            if found.len() == before {
                looked.push(format!("{}: no {}", folder.display(), self.files.join(" or ")));
            }
        }
        found.extend(self.files.iter().map(PathBuf::from));
        found
    }

    /// The copy this process already uses, which must win: two copies of one CUDA library do not share state.
    fn already_loaded(&self) -> Vec<PathBuf> {
        let stem = self.files[self.files.len() - 1];
        mapped_files().filter(|path| file_name(path).starts_with(stem)).take(1).collect()
    }

    fn wheel_paths(&self) -> Vec<PathBuf> {
        let sites = site_packages();
        let below = |site: &PathBuf| self.wheel_folders.iter().map(|folder| site.join("nvidia").join(folder)).collect();
        sites.iter().flat_map(|site: &PathBuf| -> Vec<PathBuf> { below(site) }).filter(|p| p.is_dir()).collect()
    }
}

fn open(path: &Path) -> Result<Handle, libloading::Error> {
    // SAFETY: loading runs the library's initialisers. These are NVIDIA's own libraries (or the file the user named),
    // which are made to be loaded into any process at any time.
    unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
}

fn toolkit_folders() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from).collect();
    let mut installed: Vec<PathBuf> = std::fs::read_dir("/usr/local")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    installed.retain(|path| file_name(path).starts_with("cuda"));
    installed.sort();
    roots.extend(installed.into_iter().rev());
    roots.iter().map(|root| root.join("lib64")).filter(|path| path.is_dir()).collect()
}

/// Python package folders that may hold NVIDIA's wheels.
fn site_packages() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os).map(PathBuf::from).collect();
    if let Some(home) = std::env::var_os("HOME") {
        prefixes.push(PathBuf::from(home).join(".local"));
    }
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut sites: Vec<PathBuf> = mapped_files().filter_map(|path| enclosing_site(&path)).take(1).collect();
    for lib in prefixes.iter().map(|prefix| prefix.join("lib")) {
        let Ok(entries) = std::fs::read_dir(lib) else { continue };
        let pythons = entries.flatten().map(|entry| entry.path()).filter(|path| file_name(path).starts_with("python3"));
        sites.extend(pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|leaf| python.join(leaf))));
    }
    sites.retain(|site| site.is_dir());
    sites
}

/// The `site-packages` folder a loaded extension module lies in, which is where its torch lies too.
fn enclosing_site(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|folder| file_name(folder) == "site-packages").map(Path::to_path_buf)
}

fn mapped_files() -> impl Iterator<Item = PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut paths: Vec<PathBuf> =
        maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..]))).collect();
    paths.dedup();
    paths.into_iter()
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_says_where_it_was_looked_for() {
        let wanted = Wanted {
            title: "nothing",
            variable: "HEADWATER_TEST_NOT_SET",
            files: &["libheadwater-not-there.so"],
            wheel_folders: &["none/lib"],
        };
        let missing = wanted.load().unwrap_err();
        let text = missing.to_string();
        assert!(text.contains("HEADWATER_TEST_NOT_SET (not set)"), "{text}");
        assert!(text.contains("libheadwater-not-there.so"), "{text}");
    }

    #[test]
    fn a_library_that_is_loaded_is_found_in_the_process() {
        let libc =
            Wanted { title: "libc", variable: "HEADWATER_TEST_NOT_SET", files: &["libc.so"], wheel_folders: &[] };
        let found = libc.already_loaded();
        assert!(found.iter().all(|path| path.is_absolute() && path.exists()));
    }

    #[test]
    fn a_module_knows_its_site_packages() {
        let module = Path::new("/opt/env/lib/python3.12/site-packages/torch/lib/libtorch.so");
        assert_eq!(enclosing_site(module), Some(PathBuf::from("/opt/env/lib/python3.12/site-packages")));
        assert_eq!(enclosing_site(Path::new("/usr/lib/libc.so")), None);
    }
}
