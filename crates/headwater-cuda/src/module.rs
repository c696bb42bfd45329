//! From kernel text to a function on the device: compiled once, kept in memory, kept on disk.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, Mutex};

use crate::cache;
use crate::error::{Error, LaunchProblem, Result};
use crate::gpu::{Gpu, lock};
use crate::kernel::{Grid, Kernel};
use crate::nvrtc;
use crate::stream::Stream;
use crate::types::{
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CUfunction, CUmodule,
};

/// Device helpers that stand before every kernel's text.
const PRELUDE: &str = include_str!("prelude.cuh");

/// A kernel file: its name for messages, its text, and what stands before it.
#[derive(Debug)]
pub struct Source {
    /// File name, as compiler messages shall show it.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
    /// Name and text of shared pieces it needs, in order. The prelude is always there.
    pub headers: &'static [(&'static str, &'static str)],
}

impl Source {
    /// A text that was written at run time. Texts live as long as the process, each of them once: a process compiles few.
    #[must_use]
    pub fn written(name: &str, text: &str, headers: &'static [(&'static str, &'static str)]) -> &'static Self {
        static WRITTEN: Mutex<Vec<&'static Source>> = Mutex::new(Vec::new());
        let mut written = lock(&WRITTEN);
        let is_same = |source: &&&'static Self| source.name == name && source.text == text && source.headers == headers;
        if let Some(known) = written.iter().find(is_same) {
            return known;
        }
        let (name, text) = (String::leak(name.to_owned()), String::leak(text.to_owned()));
        let source: &'static Self = Box::leak(Box::new(Self { name, text, headers }));
        written.push(source);
        source
    }

    /// The text as the compiler sees it, with the prelude in front. NVRTC is given no files, so pieces are joined.
    #[must_use]
    pub fn full_text(&self) -> String {
        let pieces = [("prelude.cuh", PRELUDE)].into_iter().chain(self.headers.iter().copied());
        let pieces = pieces.chain([(self.name, self.text)]);
        pieces.map(|(name, text)| format!("#line 1 \"{name}\"\n{text}\n")).collect()
    }

    /// The CUBIN for `arch`, which takes no GPU: from the cache, or compiled and kept there.
    pub fn compile(&self, defines: &Defines, arch: &str) -> Result<Vec<u8>> {
        let (text, options) = (self.full_text(), defines.options());
        let key = cache::Key::new(&text, &options, arch, &nvrtc::version()?);
        if let Some(image) = cache::read(&key) {
            return Ok(image);
        }
        let image = nvrtc::compile(self.name, &text, &options, arch)?;
        cache::write(&key, &image);
        Ok(image)
    }

    /// Takes an image out of the cache.
    fn forget(&self, defines: &Defines, arch: &str) -> Result<()> {
        cache::remove(&cache::Key::new(&self.full_text(), &defines.options(), arch, &nvrtc::version()?));
        Ok(())
    }
}

/// Preprocessor definitions: how numbers and types get from Rust into a kernel's text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Defines(BTreeMap<&'static str, String>);

impl Defines {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.0.insert(name, value.to_string());
        self
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.parse().ok()
    }

    /// All that a compiler is told beside the text and the architecture.
    pub(crate) fn options(&self) -> Vec<String> {
        let language = nvrtc::LANGUAGE.map(str::to_owned);
        language.into_iter().chain(self.0.iter().map(|(name, value)| format!("-D{name}={value}"))).collect()
    }
}

/// A module is known by its source's address: sources are statics.
type Key = (usize, Defines);

/// The modules loaded on one GPU.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    loaded: Mutex<HashMap<Key, Arc<Module>>>,
    /// Held while several texts are compiled, so that two threads do not compile the same ones.
    preparing: Mutex<()>,
}

#[derive(Debug)]
struct Module {
    raw: CUmodule,
    gpu_ordinal: usize,
    functions: Mutex<HashMap<&'static str, Function>>,
}

// SAFETY: module and function handles may be used from any thread; the driver locks internally.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// An entry point that is loaded and ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    raw: CUfunction,
}

// SAFETY: as for modules.
unsafe impl Send for Function {}
// SAFETY: as for modules.
unsafe impl Sync for Function {}

impl Modules {
    /// The kernel's function, compiling and loading its module at the first call.
    pub fn function(&self, gpu: &Gpu, kernel: &Kernel, defines: &Defines) -> Result<Function> {
        let module = self.module(gpu, kernel.source, defines)?;
        debug_assert_eq!(module.gpu_ordinal, gpu.ordinal());
        let mut functions = lock(&module.functions);
        if let Some(function) = functions.get(kernel.entry) {
            return Ok(*function);
        }
        let function = find(gpu, module.raw, kernel.entry)?;
        functions.insert(kernel.entry, function);
        Ok(function)
    }

    /// Loads the modules of texts, compiled beside each other.
    fn prepare(&self, gpu: &Gpu, sources: &[&'static Source], defines: &Defines) -> Result<()> {
        let key = |source: &'static Source| (std::ptr::from_ref(source).addr(), defines.clone());
        let missing = || {
            let loaded = lock(&self.loaded);
            let mut missing: Vec<&'static Source> = Vec::new();
            for source in sources.iter().filter(|source| !loaded.contains_key(&key(source))) {
                if !missing.iter().any(|other| std::ptr::eq(*other, *source)) {
                    missing.push(source);
                }
            }
            missing
        };
        // One alone is compiled where it is first used.
        if missing().len() < 2 {
            return Ok(());
        }
        let _preparing = lock(&self.preparing);
        let (missing, arch) = (missing(), gpu.arch());
        let compile = |source: &'static Source| (source, source.compile(defines, &arch));
        let compiled = std::thread::scope(|scope| {
            let running: Vec<_> = missing.iter().map(|source| scope.spawn(|| compile(source))).collect();
            running.into_iter().filter_map(|one| one.join().ok()).collect::<Vec<_>>()
        });
        for (source, image) in compiled {
            // An image that the driver refuses is compiled once more where it is used.
            let Ok(raw) = load_image(gpu, &image?) else { continue };
            let module = Module { raw, gpu_ordinal: gpu.ordinal(), functions: Mutex::default() };
            lock(&self.loaded).entry(key(source)).or_insert(Arc::new(module));
        }
        Ok(())
    }

    fn module(&self, gpu: &Gpu, source: &'static Source, defines: &Defines) -> Result<Arc<Module>> {
        let key = (std::ptr::from_ref(source).addr(), defines.clone());
        // The lock is held while compiling, so that two threads do not compile the same text.
        let mut modules = lock(&self.loaded);
        if let Some(module) = modules.get(&key) {
            return Ok(module.clone());
        }
        let raw = load(gpu, source, defines)?;
        let module = Arc::new(Module { raw, gpu_ordinal: gpu.ordinal(), functions: Mutex::default() });
        modules.insert(key, module.clone());
        Ok(module)
    }
}

impl Gpu {
    /// Compiles texts beside each other and loads them, those that are not loaded yet. Kernels of others are compiled at their first launch.
    pub fn prepare(&self, sources: &[&'static Source], defines: &Defines) -> Result<()> {
        self.modules().prepare(self, sources, defines)
    }
}

fn load(gpu: &Gpu, source: &Source, defines: &Defines) -> Result<CUmodule> {
    let arch = gpu.arch();
    if let Ok(module) = load_image(gpu, &source.compile(defines, &arch)?) {
        return Ok(module);
    }
    // A file that the driver refuses is of no use to anybody.
    source.forget(defines, &arch)?;
    load_image(gpu, &source.compile(defines, &arch)?)
}

fn load_image(gpu: &Gpu, image: &[u8]) -> Result<CUmodule> {
    let driver = gpu.bind()?;
    let mut module = std::ptr::null_mut();
    // SAFETY: a CUBIN carries its own length; the image outlives the call, which copies it.
    let code = unsafe { (driver.cuModuleLoadData)(&raw mut module, image.as_ptr().cast()) };
    driver.check("cuModuleLoadData", code)?;
    Ok(module)
}

fn find(gpu: &Gpu, module: CUmodule, entry: &'static str) -> Result<Function> {
    let driver = gpu.bind()?;
    let name = CString::new(entry).unwrap_or_default();
    let mut raw = std::ptr::null_mut();
    // SAFETY: writes one handle; the name is a C string.
    let code = unsafe { (driver.cuModuleGetFunction)(&raw mut raw, module, name.as_ptr()) };
    driver.check("cuModuleGetFunction", code)?;
    // Blocks may then ask for all the shared memory the device has; kernels that ask for little lose nothing.
    let most = c_int::try_from(gpu.facts().shared_bytes_per_block).unwrap_or(c_int::MAX);
    let mut fixed: c_int = 0;
    // SAFETY: writes one number; the handle was just made.
    let code = unsafe { (driver.cuFuncGetAttribute)(&raw mut fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, raw) };
    driver.check("cuFuncGetAttribute", code)?;
    let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the handle was just made.
    let code = unsafe { (driver.cuFuncSetAttribute)(raw, attribute, most - fixed) };
    driver.check("cuFuncSetAttribute", code)?;
    Ok(Function { raw })
}

impl Function {
    /// # Safety
    /// `arguments` point to values of the kernel's parameter types, and the kernel stays inside memory that lives until
    /// the launch is done.
    pub unsafe fn launch(&self, stream: &Stream, grid: Grid, arguments: &mut [*mut c_void]) -> Result<()> {
        let driver = stream.gpu().bind()?;
        // SAFETY: the caller's promise; handles are live.
        let code = unsafe {
            (driver.cuLaunchKernel)(
                self.raw,
                grid.blocks,
                1,
                1,
                grid.threads,
                1,
                1,
                grid.shared_bytes,
                stream.raw(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        driver.check("cuLaunchKernel", code)
    }

    pub fn blocks_per_sm(&self, gpu: &Gpu, grid: Grid) -> Result<u32> {
        let driver = gpu.bind()?;
        let mut blocks = 0;
        let problem = LaunchProblem::Grid { blocks: grid.blocks, threads: grid.threads };
        let threads = c_int::try_from(grid.threads).map_err(|_| Error::Launch { kernel: "occupancy", problem })?;
        // SAFETY: writes one integer; the handle is live.
        let code = unsafe {
            (driver.cuOccupancyMaxActiveBlocksPerMultiprocessor)(
                &raw mut blocks,
                self.raw,
                threads,
                grid.shared_bytes as usize,
            )
        };
        driver.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }
}
