//! The driver API's types, as far as they are used here, under the names its documentation gives them.
//!
//! Sizes are compared with the header's when this is compiled. What the driver is told as an enumeration is a plain integer
//! here: a newer driver may know values that are not listed.

#![allow(non_camel_case_types, non_snake_case, reason = "the names are those of the driver API's documentation")]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};

/// A type of which the driver hands out pointers, and nobody else looks inside.
macro_rules! handles {
    ($( $(#[$doc:meta])* $name:ident = $of:ident; )*) => { $(
        #[repr(C)]
        pub struct $of {
            _opaque: [u8; 0],
        }
        $(#[$doc])*
        pub type $name = *mut $of;
    )* };
}

handles! {
    /// A device's state in a process.
    CUcontext = CUctx_st;
    /// A queue of work.
    CUstream = CUstream_st;
    /// A mark in a stream.
    CUevent = CUevent_st;
    /// Compiled code that was loaded.
    CUmodule = CUmod_st;
    /// A kernel of a module.
    CUfunction = CUfunc_st;
    /// Work that was recorded.
    CUgraph = CUgraph_st;
    /// Recorded work that can be launched.
    CUgraphExec = CUgraphExec_st;
    /// Data of ours that graphs keep, and tell when they are gone.
    CUuserObject = CUuserObject_st;
    /// What stream-ordered memory is taken from.
    CUmemoryPool = CUmemPoolHandle_st;
    /// A context with some of the multiprocessors.
    CUgreenCtx = CUgreenCtx_st;
    /// What a green context is made of.
    CUdevResourceDesc = CUdevResourceDesc_st;
}

/// A device's handle, a small number.
pub type CUdevice = c_int;
/// An address that devices understand.
pub type CUdeviceptr = c_ulonglong;

/// A device's name for good.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUuuid {
    pub bytes: [c_char; 16],
}

/// What another process opens an allocation with.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUipcMemHandle {
    pub reserved: [c_char; 64],
}

/// Where memory lies, or who asks for it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUmemLocation {
    /// Such as [`CU_MEM_LOCATION_TYPE_DEVICE`].
    pub kind: c_uint,
    /// The device.
    pub id: c_int,
}

/// What a location may do with a pool's memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    /// Such as [`CU_MEM_ACCESS_FLAGS_PROT_READWRITE`].
    pub flags: c_uint,
}

/// How a node of a graph waits for another.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUgraphEdgeData {
    /// What of the node before is waited for: 0 for its end.
    pub from_port: u8,
    /// What of the node behind waits: always 0.
    pub to_port: u8,
    /// The type of the dependency: 0 for a full one, 1 for a programmatic one.
    pub kind: u8,
    _reserved: [u8; 5],
}

impl CUgraphEdgeData {
    /// From a kernel's `griddepcontrol.launch_dependents` to a kernel that calls `griddepcontrol.wait`.
    pub const PROGRAMMATIC: Self = Self { from_port: 1, to_port: 0, kind: 1, _reserved: [0; 5] };
}

/// Part of a device: of the kinds that the driver knows, multiprocessors alone are asked for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUdevResource {
    /// Such as [`CU_DEV_RESOURCE_TYPE_SM`].
    pub kind: c_uint,
    _internal: [u8; 92],
    /// The first member of a union, of a resource of kind SM.
    pub smCount: c_uint,
    /// The rest of the union. Later drivers end with a pointer here, which wants this alignment.
    _rest: [u8; 44],
}

impl CUdevResource {
    /// What the driver fills in.
    pub const EMPTY: Self = Self { kind: 0, _internal: [0; 92], smCount: 0, _rest: [0; 44] };
}

const _: () = {
    assert!(size_of::<CUstream>() == 8 && size_of::<CUdeviceptr>() == 8 && size_of::<CUdevice>() == 4);
    assert!(size_of::<CUuuid>() == 16 && size_of::<CUipcMemHandle>() == 64);
    assert!(size_of::<CUmemLocation>() == 8 && size_of::<CUmemAccessDesc>() == 12);
    assert!(size_of::<CUdevResource>() == 144 && std::mem::offset_of!(CUdevResource, smCount) == 96);
};

pub const CU_MEM_LOCATION_TYPE_DEVICE: c_uint = 1;
pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: c_uint = 3;
pub const CU_DEV_RESOURCE_TYPE_SM: c_uint = 1;

pub const CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: c_int = 1;
pub const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;

pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
pub const CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: c_int = 19;
pub const CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: c_int = 38;
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: c_int = 39;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: c_int = 41;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
