//! What goes wrong, and when: a list of faults over a count of steps.

use std::time::Duration;

use rustix::io::Errno;

use crate::io::job::Step;
use crate::io::request::Op;

/// How an in-memory engine misbehaves. The default does not.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    /// Looked at in order; the first that refuses a step wins, and the shortest length.
    pub faults: Vec<Fault>,
    /// In which order requests that were submitted together complete.
    pub order: Order,
    /// Time each step takes at least.
    pub latency: Duration,
    /// The engine dies instead of taking this step, counted from 0.
    pub dies_at_step: Option<u64>,
}

/// One thing that goes wrong. Steps are the calls a kernel would see, counted from 0.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// Every step moves at most this many bytes.
    Short {
        /// The most bytes.
        bytes: usize,
    },
    /// Of each `period` steps the first is interrupted; a period of 1 interrupts all of them.
    Interrupted {
        /// Steps from one interruption to the next.
        period: u64,
    },
    /// Of each `period` steps the first finds the kernel short of resources.
    Busy {
        /// Steps from one refusal to the next.
        period: u64,
    },
    /// Writing stops with "no space left" once this many bytes are written in all.
    NoSpaceAfter {
        /// Bytes there is room for.
        bytes: u64,
    },
    /// One step meets a device error.
    DeviceAtStep {
        /// Which.
        step: u64,
    },
    /// The device cannot read or write this byte; steps stop short of it.
    DeviceAtOffset {
        /// The byte.
        offset: u64,
    },
}

/// In which order requests that were submitted together complete.
#[derive(Debug, Clone, Copy, Default)]
pub enum Order {
    /// As submitted.
    #[default]
    Submitted,
    /// Last first.
    Reversed,
    /// Some other order, the same for the same seed.
    Shuffled {
        /// Chooses the order.
        seed: u64,
    },
}

/// What happens to one step.
pub(super) enum Ruling {
    AtMost(usize),
    Refuse(Errno),
    Die,
}

pub(super) struct FaultState {
    plan: FaultPlan,
    steps: u64,
    written_bytes: u64,
    random: u64,
}

impl FaultState {
    pub(super) fn new(plan: FaultPlan) -> Self {
        let random = if let Order::Shuffled { seed } = plan.order { seed } else { 0 };
        Self { plan, steps: 0, written_bytes: 0, random }
    }

    pub(super) fn rule(&mut self, step: &Step) -> Ruling {
        let number = self.steps;
        self.steps += 1;
        if self.plan.dies_at_step == Some(number) {
            return Ruling::Die;
        }
        if !self.plan.latency.is_zero() {
            std::thread::sleep(self.plan.latency);
        }
        let mut most = step.len;
        for fault in &self.plan.faults {
            match self.apply(fault, number, step) {
                Ruling::AtMost(bytes) => most = most.min(bytes),
                stop => return stop,
            }
        }
        Ruling::AtMost(most)
    }

    pub(super) fn moved(&mut self, step: &Step, answer: &Result<usize, Errno>) {
        if let (Op::Write, Ok(bytes)) = (step.op, answer) {
            self.written_bytes += *bytes as u64;
        }
    }

    pub(super) fn reorder<T>(&mut self, jobs: &mut [T]) {
        match self.plan.order {
            Order::Submitted => {}
            Order::Reversed => jobs.reverse(),
            Order::Shuffled { .. } => {
                for last in (1..jobs.len()).rev() {
                    let below = last as u64 + 1;
                    let pick = usize::try_from(self.draw() % below).unwrap_or(last);
                    jobs.swap(last, pick);
                }
            }
        }
    }

    fn apply(&self, fault: &Fault, number: u64, step: &Step) -> Ruling {
        let due = |period: u64| number.is_multiple_of(period.max(1));
        match *fault {
            Fault::Short { bytes } => Ruling::AtMost(bytes.max(1)),
            Fault::Interrupted { period } if due(period) => Ruling::Refuse(Errno::INTR),
            Fault::Busy { period } if due(period) => Ruling::Refuse(Errno::AGAIN),
            Fault::DeviceAtStep { step } if step == number => Ruling::Refuse(Errno::IO),
            Fault::NoSpaceAfter { bytes } if step.op == Op::Write => {
                up_to(bytes.saturating_sub(self.written_bytes), Errno::NOSPC)
            }
            Fault::DeviceAtOffset { offset } if offset >= step.offset => up_to(offset - step.offset, Errno::IO),
            _ => Ruling::AtMost(step.len),
        }
    }

    /// SplitMix64: small, and good enough to vary an order.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Room for some bytes, or the error when there is none.
fn up_to(bytes: u64, errno: Errno) -> Ruling {
    match usize::try_from(bytes).unwrap_or(usize::MAX) {
        0 => Ruling::Refuse(errno),
        bytes => Ruling::AtMost(bytes),
    }
}
