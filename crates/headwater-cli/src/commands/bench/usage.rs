//! What a measurement costs besides time: CPU seconds of this process, joules of the GPU.

use headwater::cuda::{Gpu, Sensors};

/// A reader of both.
pub struct Meter {
    sensors: Option<Sensors>,
}

/// A point to measure from.
pub struct Mark {
    cpu_seconds: f64,
    joules: Option<f64>,
}

/// What passed since a mark.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// User and system time of every thread of this process.
    pub cpu_seconds: f64,
    /// Energy the GPU used, where it counts it.
    pub joules: Option<f64>,
}

impl Meter {
    /// A meter for `gpu`, which works without NVML, and without a GPU too.
    pub fn new<'a>(gpu: impl Into<Option<&'a Gpu>>) -> Self {
        Self { sensors: gpu.into().and_then(|gpu| Sensors::open(gpu).ok()) }
    }

    /// Now. Reading the sensors takes CPU time of its own, so it comes first here and last in `since`.
    pub fn mark(&self) -> Mark {
        let joules = self.joules();
        Mark { joules, cpu_seconds: cpu_seconds() }
    }

    /// From `mark` to now.
    pub fn since(&self, mark: &Mark) -> Used {
        let cpu_seconds = cpu_seconds() - mark.cpu_seconds;
        let joules = self.joules().zip(mark.joules).map(|(now, then)| now - then);
        Used { cpu_seconds, joules }
    }

    fn joules(&self) -> Option<f64> {
        self.sensors.as_ref().and_then(|sensors| sensors.read().joules_total)
    }
}

/// CPU time of this process so far.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
