//! A feature table that two real processes read on one GPU.

use std::sync::Arc;

use headwater::cuda::{Gpu, Stream};
use headwater::feature::rows::encode;
use headwater::feature::{HostHome, IdMap, Layout, Placement, RowFormat, Source, Stored, TieredTable};
use headwater::memory::{Buffer, Device, Foreign};
use headwater::tensor::gather::IdType;

use crate::child::role;
use crate::kernels::gpu;
use crate::socket::{connect, hear, say, start};

const ROWS: u64 = 300;
const FORMAT: RowFormat = RowFormat { elements: 12, stored: Stored::I8, stride_bytes: 12 };

/// Rows in GPU memory twice over, with three virtual members, and in host memory, reached through a map.
fn table(gpu: &Gpu, host: HostHome) -> TieredTable {
    let features: Vec<f32> = (0..3600u16).map(|at| f32::from(at * 7 % 1013) * 0.25 - 60.0).collect();
    let encoded = encode(&features, &FORMAT);
    let source = Source::memory(Foreign::new(Arc::new(encoded.bytes)), encoded.scales, FORMAT).unwrap();
    let layout = Layout::new(ROWS, 20, 90, 3).unwrap();
    let group = vec![gpu.clone(); 3];
    let table = TieredTable::place(gpu, &group, &source, Placement { host, ..layout.into() }).unwrap();
    table.with_id_map(IdMap::of(&(0..ROWS).rev().collect::<Vec<_>>(), ROWS)).unwrap()
}

fn rows(table: &TieredTable, stream: &Stream) -> Vec<u8> {
    let ids: Vec<u64> = (0..ROWS).map(|at| at * 7 % ROWS).collect();
    let ids = Buffer::<u64, Device>::from_slice(stream, &ids).unwrap();
    let out = Buffer::<u8, Device>::on_stream(stream, ids.len() * 48).unwrap();
    table.gather(stream, ids.whole(), IdType::U64, Stored::F32, out.whole()).unwrap();
    out.to_vec(stream).unwrap()
}

#[test]
fn a_table_is_read_by_two_processes() {
    if role().is_some() {
        return peer();
    }
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut peer) = start("device_table::a_table_is_read_by_two_processes", folder.path());
    // Rows in memory of this process alone cannot be sent, and nothing was.
    let why = table(&gpu, HostHome::InPlace).send(&peer).unwrap_err();
    assert!(why.to_string().contains("shared memory"), "{why}");
    let mut table = table(&gpu, HostHome::Shared);
    table.send(&peer).unwrap();
    let why = table.retier(&stream, &[0; 300]).unwrap_err();
    assert!(why.to_string().contains("other processes"), "{why}");
    // Both read at the same time.
    let ours = rows(&table, &stream);
    say(&mut peer);
    hear(&mut peer);
    assert!(child.0.wait().unwrap().success());
    assert!(rows(&table, &stream) == ours, "the table outlives its reader");
}

fn peer() {
    let mut parent = connect();
    let gpu = Gpu::open(0).unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let mut received = TieredTable::receive(&parent, &gpu, None).unwrap();
    let theirs = rows(&received, &stream);
    assert!(theirs == rows(&table(&gpu, HostHome::InPlace), &stream));
    let served = received.served(&stream).unwrap();
    assert_eq!(served.tiers().map(|tier| tier.rows), [20, 70, 210, 0]);
    assert!(received.retier(&stream, &[0; 300]).is_err());
    hear(&mut parent);
    drop(received);
    say(&mut parent);
}

#[test]
fn what_is_no_table_is_refused() {
    let Some(gpu) = gpu() else { return };
    let cases: [(&[u8], &str); 4] = [
        (b"", "description"),
        (&[255, 255, 255, 127], "2147483647 bytes"),
        (&[2, 0, 0, 0, b'{', b'}'], "missing field"),
        (&[9, 0, 0, 0, b'x'], "description"),
    ];
    for (bytes, says) in cases {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut ours, bytes).unwrap();
        drop(ours);
        let why = TieredTable::receive(&theirs, &gpu, None).unwrap_err();
        assert!(why.to_string().contains(says), "{why}");
    }
}
