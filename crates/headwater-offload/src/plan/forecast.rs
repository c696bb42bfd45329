//! A step played through: when copies are made, when the GPU waits for them, and how much lies where.

use serde::Serialize;

use super::{Goes, Rates, Room, Trace};

/// What a step is expected to be like.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Forecast {
    /// The most bytes of saved blocks on the GPU at once.
    pub peak_bytes: u64,
    /// How long the GPU waits for copies.
    pub stall_s: f64,
    /// How long the step takes.
    pub step_s: f64,
    /// Bytes that leave the GPU.
    pub moved_bytes: u64,
    /// The most bytes in host memory at once.
    pub host_bytes: u64,
    /// Bytes that are written to disks.
    pub written_bytes: u64,
}

/// One link that moves one block after the other.
struct Link {
    rate: f64,
    free_s: f64,
}

impl Link {
    fn new(rate: f64) -> Self {
        Self { rate, free_s: 0.0 }
    }

    /// Moves bytes that are there at `from`; the moments at which that begins and ends.
    #[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
    fn move_from(&mut self, from: f64, bytes: u64) -> (f64, f64) {
        let begun = self.free_s.max(from);
        self.free_s = begun + if self.rate > 0.0 { bytes as f64 / self.rate } else { f64::INFINITY };
        (begun, self.free_s)
    }
}

/// Bytes that come and go over time.
#[derive(Default)]
struct Level(Vec<(f64, i128)>);

impl Level {
    fn hold(&mut self, from: f64, to: f64, bytes: u64) {
        if to > from {
            self.0.push((from, i128::from(bytes)));
            self.0.push((to, -i128::from(bytes)));
        }
    }

    fn most(mut self) -> u64 {
        // What goes makes room for what comes at the same moment.
        self.0.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut now = 0;
        let most = self.0.iter().map(|(_, change)| {
            now += change;
            now
        });
        u64::try_from(most.max().unwrap_or(0)).unwrap_or(0)
    }
}

/// When a block was saved, when its copy to the host was over, and when the disk had it; never, where it does not go.
#[derive(Clone, Copy)]
struct Left {
    saved_s: f64,
    down_s: f64,
    written_s: f64,
}

/// Plays a step in which blocks go where `goes` says.
#[must_use]
pub fn forecast(trace: &Trace, goes: &[Goes], rates: &Rates, room: &Room) -> Forecast {
    let mut found = Forecast::default();
    let (left, late) = forward(trace, goes, rates, room, &mut found);
    backward(trace, goes, rates, room, (&left, late), &mut found);
    found.step_s = trace.step_s + found.stall_s;
    found
}

/// When blocks have left, and by how much the forward pass is late when it ends.
fn forward(trace: &Trace, goes: &[Goes], rates: &Rates, room: &Room, found: &mut Forecast) -> (Vec<Left>, f64) {
    let (mut down, mut write) = (Link::new(rates.down), Link::new(rates.write));
    let (mut late, mut under_way) = (0.0, std::collections::VecDeque::new());
    let mut left = Vec::with_capacity(trace.blocks.len());
    for (at, block) in trace.blocks.iter().enumerate() {
        let now = block.saved_s + late;
        let Some(goes) = goes.get(at).filter(|goes| **goes != Goes::Nowhere) else {
            left.push(Left { saved_s: now, down_s: f64::INFINITY, written_s: f64::INFINITY });
            continue;
        };
        let (_, down_s) = down.move_from(now, block.bytes);
        let written_s = if *goes == Goes::Disk { write.move_from(down_s, block.bytes).1 } else { f64::INFINITY };
        found.moved_bytes += block.bytes;
        if *goes == Goes::Disk {
            found.written_bytes += block.bytes;
        }
        left.push(Left { saved_s: now, down_s, written_s });
        under_way.push_back((down_s, block.bytes));
        late += wait_for_window(&mut under_way, now, room.window_bytes.max(2 * block.bytes));
    }
    found.stall_s += late;
    (left, late)
}

/// The GPU waits for the oldest copies until at most so many bytes are under way; for how long.
fn wait_for_window(under_way: &mut std::collections::VecDeque<(f64, u64)>, now: f64, window_bytes: u64) -> f64 {
    let mut until = now;
    while let Some((end, _)) = under_way.front() {
        let bytes: u64 = under_way.iter().map(|(_, bytes)| bytes).sum();
        if *end > until && bytes <= window_bytes {
            break;
        }
        until = until.max(*end);
        under_way.pop_front();
    }
    until - now
}

/// Brings blocks back in the order in which they are needed, each as soon as those before it are used, and counts what lies where.
fn backward(
    trace: &Trace,
    goes: &[Goes],
    rates: &Rates,
    room: &Room,
    (left, mut late): (&[Left], f64),
    found: &mut Forecast,
) {
    let mut order: Vec<usize> = (0..trace.blocks.len()).collect();
    order.sort_by(|one, other| trace.blocks[*one].needed_s.total_cmp(&trace.blocks[*other].needed_s));
    let begun = trace.blocks.iter().map(|block| block.needed_s).fold(f64::INFINITY, f64::min) + late;
    let (mut up, mut read) = (Link::new(rates.up), Link::new(rates.read));
    let (mut gpu, mut host) = (Level::default(), Level::default());
    // Blocks that came back and are not used up: when they will be, and their bytes.
    let mut ahead: std::collections::VecDeque<(f64, u64)> = std::collections::VecDeque::new();
    for at in order {
        let block = trace.blocks[at];
        let needed = block.needed_s + late;
        let Left { saved_s, down_s, written_s } = left[at];
        if down_s >= needed {
            // It has not gone yet, or never goes: it is taken as it is.
            gpu.hold(saved_s, block.freed_s + late, block.bytes);
            if goes[at] != Goes::Nowhere {
                host.hold(saved_s, block.freed_s + late, block.bytes);
            }
            continue;
        }
        let is_read = goes[at] == Goes::Disk && written_s <= begun;
        let mut from = begun.max(down_s);
        let bytes_ahead: u64 = ahead.iter().map(|(_, bytes)| bytes).sum();
        let mut over = (bytes_ahead + block.bytes).saturating_sub(room.window_bytes.max(2 * block.bytes));
        while over > 0
            && let Some((end, bytes)) = ahead.pop_front()
        {
            from = from.max(end);
            over = over.saturating_sub(bytes);
        }
        if is_read {
            let (read_begun, read_s) = read.move_from(begun, block.bytes);
            host.hold(saved_s, written_s, block.bytes);
            host.hold(read_begun, read_s.max(from), block.bytes);
            from = from.max(read_s);
        } else {
            host.hold(saved_s, block.freed_s + late, block.bytes);
        }
        let (up_begun, up_s) = up.move_from(from, block.bytes);
        if up_s > needed {
            found.stall_s += up_s - needed;
            late += up_s - needed;
        }
        gpu.hold(saved_s, down_s, block.bytes);
        gpu.hold(up_begun, block.freed_s + late, block.bytes);
        ahead.push_back((block.freed_s + late, block.bytes));
    }
    (found.peak_bytes, found.host_bytes) = (gpu.most(), host.most());
}
