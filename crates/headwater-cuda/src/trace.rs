//! When the launches of a stream ran, for those who want to see them.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::error::Result;
use crate::gpu::lock;
use crate::stream::{Event, Stream};

/// A launch and when it ran.
#[derive(Debug)]
pub struct TracedLaunch {
    /// What was launched.
    pub name: String,
    /// Before it.
    pub begin: Event,
    /// After it.
    pub end: Event,
}

/// Launches of a stream; none are kept until somebody asks for them.
#[derive(Debug, Default)]
pub(crate) struct Traced(Mutex<Option<VecDeque<TracedLaunch>>>);

impl Stream {
    /// Keeps from now on when launches run. Two events more a launch, and none may be recorded as part of a graph.
    pub fn trace_launches(&self) {
        lock(&self.traced().0).get_or_insert_with(VecDeque::new);
    }

    /// Whether launches are kept.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        lock(&self.traced().0).is_some()
    }

    /// The launches that are over and were not taken yet.
    pub fn take_traced(&self) -> Result<Vec<TracedLaunch>> {
        let mut traced = lock(&self.traced().0);
        let Some(kept) = traced.as_mut() else { return Ok(Vec::new()) };
        let mut over = 0;
        while over < kept.len() && kept[over].end.has_passed()? {
            over += 1;
        }
        Ok(kept.drain(..over).collect())
    }

    /// Launches, and notes when where that is wanted.
    pub(crate) fn launch_traced(&self, name: &dyn Fn() -> String, launch: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.is_traced() {
            return launch();
        }
        let (begin, end) = (Event::timed(self.gpu())?, Event::timed(self.gpu())?);
        begin.record_on(self)?;
        launch()?;
        end.record_on(self)?;
        if let Some(kept) = lock(&self.traced().0).as_mut() {
            kept.push_back(TracedLaunch { name: name(), begin, end });
        }
        Ok(())
    }
}
