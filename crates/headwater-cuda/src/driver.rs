//! The driver's functions, looked up once by name.
//!
//! Types and loading are ours: a machine without a driver, or with an old one, is an ordinary case that must not panic; and
//! results are taken as plain integers, because a newer driver may return a code that no list of today has.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::library::DRIVER;
use crate::types::{
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphEdgeData,
    CUgraphExec, CUgreenCtx, CUipcMemHandle, CUmemAccessDesc, CUmemoryPool, CUmodule, CUstream, CUuserObject, CUuuid,
};

/// The oldest driver API that has everything in the required part of the table.
const OLDEST_VERSION: c_int = 12_000;

macro_rules! driver_functions {
    (
        required { $( fn $name:ident($($arg:ident: $ty:ty),* $(,)?); )* }
        optional { $( fn $opt:ident($($oarg:ident: $oty:ty),* $(,)?); )* }
    ) => {
        /// The driver as a table of functions. `None` marks what this driver does not have.
        #[allow(non_snake_case)]
        pub(crate) struct Driver {
            $( pub $name: unsafe extern "C" fn($($arg: $ty),*) -> c_int, )*
            $( pub $opt: Option<unsafe extern "C" fn($($oarg: $oty),*) -> c_int>, )*
            _library: crate::library::Library,
        }

        impl Driver {
            fn from_library(library: crate::library::Library, have: &str) -> Result<Self> {
                Ok(Self {
                    // SAFETY: the type written here is the function's type in the driver API's documentation.
                    $( $name: *unsafe { library.handle.get(stringify!($name).as_bytes()) }
                        .map_err(|_| too_old(have, stringify!($name)))?, )*
                    // SAFETY: as above.
                    $( $opt: unsafe { library.handle.get(stringify!($opt).as_bytes()) }.ok().map(|symbol| *symbol), )*
                    _library: library,
                })
            }
        }
    };
}

driver_functions! {
    required {
        fn cuInit(flags: c_uint);
        fn cuDriverGetVersion(version: *mut c_int);
        fn cuGetErrorName(code: c_int, text: *mut *const c_char);
        fn cuGetErrorString(code: c_int, text: *mut *const c_char);
        fn cuDeviceGetCount(count: *mut c_int);
        fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
        fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice);
        fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: CUdevice);
        fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
        fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
        fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
        fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        fn cuCtxGetCurrent(context: *mut CUcontext);
        fn cuCtxSetCurrent(context: CUcontext);
        fn cuCtxSynchronize();
        fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
        fn cuStreamDestroy_v2(stream: CUstream);
        fn cuStreamSynchronize(stream: CUstream);
        fn cuStreamQuery(stream: CUstream);
        fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        fn cuEventCreate(event: *mut CUevent, flags: c_uint);
        fn cuEventDestroy_v2(event: CUevent);
        fn cuEventRecord(event: CUevent, stream: CUstream);
        fn cuEventQuery(event: CUevent);
        fn cuEventSynchronize(event: CUevent);
        fn cuEventElapsedTime(ms: *mut f32, start: CUevent, end: CUevent);
        fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize);
        fn cuMemFree_v2(pointer: CUdeviceptr);
        fn cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream);
        fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream);
        fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
        fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
        fn cuMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize);
        fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        fn cuMemFreeHost(pointer: *mut c_void);
        fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint);
        fn cuMemHostUnregister(pointer: *mut c_void);
        fn cuMemHostGetDevicePointer_v2(device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint);
        fn cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint);
        fn cuMemAdvise(pointer: CUdeviceptr, bytes: usize, advice: c_int, device: CUdevice);
        fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
        fn cuMemsetD8Async(to: CUdeviceptr, value: u8, bytes: usize, stream: CUstream);
        fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr);
        fn cuIpcOpenMemHandle_v2(pointer: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint);
        fn cuIpcCloseMemHandle(pointer: CUdeviceptr);
        fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
        fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: CUfunction);
        fn cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int);
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int, function: CUfunction, threads: c_int, shared_bytes: usize);
        fn cuLaunchKernel(
            function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared_bytes: c_uint, stream: CUstream, arguments: *mut *mut c_void,
            extra: *mut *mut c_void);
        fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_int);
        fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
        fn cuStreamIsCapturing(stream: CUstream, status: *mut c_int);
        fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
        fn cuGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: u64);
        fn cuGraphLaunch(executable: CUgraphExec, stream: CUstream);
        fn cuGraphExecDestroy(executable: CUgraphExec);
        fn cuGraphDestroy(graph: CUgraph);
    }
    optional {
        fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, pointer: CUdeviceptr);
        fn cuPointerGetAttribute(data: *mut c_void, attribute: c_int, pointer: CUdeviceptr);
        fn cuStreamGetCaptureInfo_v2(
            stream: CUstream, status: *mut c_int, id: *mut u64, graph: *mut CUgraph, behind: *mut *const c_void,
            count: *mut usize);
        fn cuStreamUpdateCaptureDependencies(
            stream: CUstream, nodes: *mut c_void, count: usize, flags: c_uint);
        fn cuStreamUpdateCaptureDependencies_v2(
            stream: CUstream, nodes: *mut c_void, edges: *const CUgraphEdgeData, count: usize, flags: c_uint);
        fn cuUserObjectCreate(
            object: *mut CUuserObject, data: *mut c_void, end: unsafe extern "C" fn(*mut c_void), count: c_uint,
            flags: c_uint);
        fn cuUserObjectRelease(object: CUuserObject, count: c_uint);
        fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);
        fn cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize);
        fn cuDeviceGetDevResource(device: CUdevice, resource: *mut CUdevResource, kind: c_uint);
        fn cuDevSmResourceSplitByCount(
            result: *mut CUdevResource, groups: *mut c_uint, input: *const CUdevResource,
            remaining: *mut CUdevResource, flags: c_uint, minimum: c_uint);
        fn cuDevResourceGenerateDesc(description: *mut CUdevResourceDesc, resources: *mut CUdevResource, count: c_uint);
        fn cuGreenCtxCreate(context: *mut CUgreenCtx, description: CUdevResourceDesc, device: CUdevice, flags: c_uint);
        fn cuGreenCtxDestroy(context: CUgreenCtx);
        fn cuGreenCtxStreamCreate(stream: *mut CUstream, context: CUgreenCtx, flags: c_uint, priority: c_int);
    }
}

// SAFETY: the table holds function pointers of a library that stays loaded; the driver API may be called from any thread.
unsafe impl Send for Driver {}
// SAFETY: as above; nothing in the table is ever written after construction.
unsafe impl Sync for Driver {}

impl Driver {
    /// The process's driver: found, checked and initialised at the first call, whose outcome stands for good.
    pub fn get() -> Result<&'static Self> {
        static DRIVER_TABLE: OnceLock<Result<Driver>> = OnceLock::new();
        DRIVER_TABLE.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self> {
        let library = DRIVER.load()?;
        let version = version_of(&library)?;
        let have = version_text(version);
        if version < OLDEST_VERSION {
            return Err(too_old(&have, "the whole table"));
        }
        let driver = Self::from_library(library, &have)?;
        // SAFETY: cuInit takes no pointers and may be called any number of times.
        driver.check("cuInit", unsafe { (driver.cuInit)(0) })?;
        Ok(driver)
    }

    /// Turns a result code into an error that carries the driver's own words.
    pub fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let (name, text) = (self.describe(self.cuGetErrorName, code), self.describe(self.cuGetErrorString, code));
        Err(Error::Driver { call, code, name, text })
    }

    fn describe(&self, ask: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int, code: c_int) -> String {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes a pointer to a string of its own that lives as long as the library, or null.
        let known = unsafe { ask(code, &raw mut text) } == 0 && !text.is_null();
        // SAFETY: checked just above.
        if known { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { "unknown".into() }
    }

    /// The driver API's version, as major.minor.
    pub fn version(&self) -> String {
        let mut version = 0;
        // SAFETY: writes one integer.
        unsafe { (self.cuDriverGetVersion)(&raw mut version) };
        version_text(version)
    }
}

fn version_of(library: &crate::library::Library) -> Result<c_int> {
    type Ask = unsafe extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: cuDriverGetVersion has had this type since the first driver.
    let ask: Ask =
        *unsafe { library.handle.get(b"cuDriverGetVersion") }.map_err(|_| too_old("unknown", "cuDriverGetVersion"))?;
    let mut version = 0;
    // SAFETY: writes one integer; needs no initialisation before it.
    unsafe { ask(&raw mut version) };
    Ok(version)
}

fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn too_old(have: &str, symbol: &'static str) -> Error {
    Error::DriverTooOld { have: have.to_owned(), need: version_text(OLDEST_VERSION), symbol }
}
