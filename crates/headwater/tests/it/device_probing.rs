//! What a machine lacks is an ordinary answer: each case in a process of its own, with the driver it would find.

use headwater::cuda::{Allocation, Error, Found, Gpu, Report, Sensors, Span, Stream, cublas_available};

use crate::child::in_child;
use crate::kernels::{add, gpu, words};
use crate::{child, emulator};

fn missing<T>(found: &Found<T>) -> &str {
    match found {
        Found::Missing { missing } => missing,
        Found::Here(_) => panic!("it was found"),
    }
}

#[test]
fn no_driver() {
    in_child("device_probing::no_driver", &[("HEADWATER_LIBCUDA", "/nonexistent/libcuda.so")], || {
        let why = Gpu::open(0).unwrap_err();
        assert!(matches!(why, Error::LibraryMissing(_)), "{why}");
        let text = why.to_string();
        assert!(text.contains("HEADWATER_LIBCUDA") && text.contains("/nonexistent/libcuda.so"), "{text}");
        let report = Report::new();
        assert_eq!(missing(&report.driver), text);
        assert!(report.gpus.is_empty() && report.peers.is_empty());
    });
}

#[test]
fn no_driver_anywhere_the_search_goes() {
    // The real search on a machine without a driver names every place; with one there is nothing to see.
    if child::role().is_none() && std::env::var_os("HEADWATER_LIBCUDA").is_none() && Gpu::count().is_err() {
        let text = Gpu::open(0).unwrap_err().to_string();
        assert!(text.contains("HEADWATER_LIBCUDA (not set)") && text.contains("libcuda.so.1"), "{text}");
    }
}

#[test]
fn no_device() {
    if !emulator::here() {
        return;
    }
    in_child("device_probing::no_device", &[("HWEMU_DEVICES", "0")], || {
        let why = Gpu::open(0).unwrap_err();
        assert!(matches!(why, Error::Driver { code: 100, .. }), "{why}");
        assert!(why.to_string().contains("NO_DEVICE"), "{why}");
        let report = Report::new();
        assert!(missing(&report.driver).contains("NO_DEVICE") && report.gpus.is_empty());
    });
}

#[test]
fn a_driver_that_is_too_old() {
    if !emulator::here() {
        return;
    }
    in_child("device_probing::a_driver_that_is_too_old", &[("HWEMU_DRIVER_VERSION", "11000")], || {
        let why = Gpu::open(0).unwrap_err();
        assert!(matches!(&why, Error::DriverTooOld { have, need, .. } if have == "11.0" && need == "12.0"), "{why}");
        assert!(missing(&Report::new().driver).contains("too old"));
    });
}

#[test]
fn no_compiler() {
    let Some(_) = gpu() else { return };
    let nowhere = [("HEADWATER_LIBNVRTC", "/nonexistent/libnvrtc.so"), ("HEADWATER_CACHE", "")];
    in_child("device_probing::no_compiler", &nowhere, || {
        let gpu = Gpu::open(0).unwrap();
        let stream = Stream::new(&gpu).unwrap();
        let data = Span::whole(Allocation::on_stream(&stream, 64).unwrap());
        stream.fill(&data, 0).unwrap();
        let why = add(&stream, &data, 1).unwrap_err();
        assert!(matches!(why, Error::LibraryMissing(_)) && why.to_string().contains("NVRTC"), "{why}");
        // The stream is as good as before.
        assert_eq!(words(&stream, &data), [0; 16]);
        let report = Report::new();
        assert!(missing(&report.nvrtc).contains("/nonexistent/libnvrtc.so"));
        assert_eq!(report.gpus.len(), Gpu::count().unwrap());
    });
}

#[test]
fn no_cublas_and_no_nvml() {
    let Some(_) = gpu() else { return };
    let nowhere = [("HEADWATER_LIBCUBLAS", "/nonexistent/a"), ("HEADWATER_LIBNVML", "/nonexistent/b")];
    in_child("device_probing::no_cublas_and_no_nvml", &nowhere, || {
        let why = cublas_available().unwrap_err();
        assert!(why.to_string().contains("/nonexistent/a"), "{why}");
        let why = Sensors::open(&Gpu::open(0).unwrap()).unwrap_err();
        assert!(matches!(why, Error::LibraryMissing(_)) && why.to_string().contains("/nonexistent/b"), "{why}");
        let report = Report::new();
        assert!(missing(&report.cublas).contains("cuBLAS") && missing(&report.nvml).contains("NVML"));
    });
}

#[test]
fn an_ordinal_that_nobody_has() {
    let Some(_) = gpu() else { return };
    let count = Gpu::count().unwrap();
    let why = Gpu::open(99).unwrap_err();
    assert!(matches!(why, Error::NoDevice { asked: 99, count: seen } if seen == count), "{why}");
}

#[test]
fn two_devices_are_peers() {
    if !emulator::here() {
        return;
    }
    in_child("device_probing::two_devices_are_peers", &[("HWEMU_DEVICES", "2")], || {
        assert_eq!(Report::new().peers, [[false, true], [true, false]]);
        let (near, far) = (Gpu::open(0).unwrap(), Gpu::open(1).unwrap());
        assert_eq!((near.ordinal(), far.ordinal()), (0, 1));
        let (here, there) = (Stream::new(&near).unwrap(), Stream::new(&far).unwrap());
        let data = Span::whole(Allocation::on_stream(&there, 400).unwrap());
        there.fill(&data, 0).unwrap();
        here.wait_for(&there).unwrap();
        // The launch gives the GPU access to its peer by itself.
        add(&here, &data, 5).unwrap();
        there.wait_for(&here).unwrap();
        assert_eq!(words(&there, &data), [5; 100]);
        // Dropped with its last use on the other GPU.
        add(&here, &data, 1).unwrap();
        drop(data);
        here.synchronize().unwrap();
        there.synchronize().unwrap();
    });
}
