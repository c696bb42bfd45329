//! A disk of a test that has its own clock: jobs take as long as their bytes say, and no thread does them.

use std::collections::HashMap;
use std::time::Duration;

use super::{Arc, Condvar, Desk, Disk, Done, Instant, Job, Mutex, Op, PoisonError, Shared, VecDeque};

/// Who knows how late it is, in seconds.
pub(crate) trait HandClock: Send + Sync {
    fn now(&self) -> f64;
    /// What the disk does now, as a share of its rates.
    fn share(&self) -> f64;
    /// Somebody waits on the host until something happens, or until the disk is done with a job.
    fn wait(&self, next_s: Option<f64>);
}

/// What moves the disk on.
pub(crate) struct Hand<S> {
    clock: Box<dyn HandClock>,
    base: Instant,
    /// Jobs that it was given, and when; the ways do not wait for each other.
    asked: Mutex<HashMap<(u64, bool), f64>>,
    ways: Mutex<[Channel<S>; 2]>,
}

struct Channel<S> {
    rate: f64,
    free_s: f64,
    flying: Option<(f64, f64, Job<S>)>,
}

impl<S> Hand<S> {
    pub(super) fn note(&self, job: &Job<S>) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert((job.block, job.op == Op::Read), self.clock.now());
    }

    /// Does all that is done by now.
    pub(super) fn play(&self, desk: &mut Desk<S>) {
        let now = self.clock.now();
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, channel) in ways.iter_mut().enumerate() {
            let jobs = if at == 0 { &mut desk.writes } else { &mut desk.reads };
            while let Some((begun, ended, job)) = channel.flying.take().or_else(|| self.begin(channel, jobs)) {
                if ended > now {
                    channel.flying = Some((begun, ended, job));
                    break;
                }
                channel.free_s = ended;
                let took = [begun, ended].map(|moment| self.base + Duration::from_secs_f64(moment));
                desk.done.push(Done { job, result: Ok(()), took: Some(took.into()) });
            }
        }
    }

    fn begin(&self, channel: &Channel<S>, jobs: &mut VecDeque<Job<S>>) -> Option<(f64, f64, Job<S>)> {
        let job = jobs.pop_front()?;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = asked.remove(&(job.block, job.op == Op::Read)).unwrap_or(0.0);
        let begun = channel.free_s.max(asked);
        let bytes: usize = job.pieces.iter().map(|piece| piece.bytes).sum();
        Some((begun, begun + bytes as f64 / (channel.rate * self.clock.share()), job))
    }

    pub(super) fn wait(&self) {
        let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = ways.iter().filter_map(|channel| channel.flying.as_ref().map(|(_, ended, _)| *ended));
        let next = ends.min_by(f64::total_cmp);
        drop(ways);
        self.clock.wait(next);
    }
}

impl<S: Send + 'static> Disk<S> {
    /// A disk that writes and reads so many bytes a second.
    pub fn by_hand(clock: impl HandClock + 'static, (write, read): (f64, f64)) -> Self {
        let desk = Desk {
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            done: Vec::new(),
            rates: Vec::new(),
            is_closed: false,
            is_alive: true,
        };
        let shared = Arc::new(Shared { state: Mutex::new(desk), work: Condvar::new(), news: Condvar::new() });
        let ways = [write, read].map(|rate| Channel { rate, free_s: 0.0, flying: None });
        let hand =
            Hand { clock: Box::new(clock), base: Instant::now(), asked: Mutex::default(), ways: Mutex::new(ways) };
        Self { shared, worker: None, transfer: "by hand".to_owned(), hand: Some(hand) }
    }
}
