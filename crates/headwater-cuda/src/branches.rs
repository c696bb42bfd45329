//! Captured work that waits for some of what was captured before it, and not for all of it: kernels of a graph that do not depend on each
//! other run beside each other, which fills a GPU that each of them leaves half empty.

use std::ffi::{c_int, c_uint, c_void};

use crate::error::Result;
use crate::stream::Stream;
use crate::types::CUgraphEdgeData;

/// A node of a graph under capture.
type Node = *const c_void;

/// Parts of the work that a stream captures, each behind some of the parts before it.
#[derive(Debug)]
pub struct Branches<'a> {
    stream: &'a Stream,
    /// What the stream waited for before.
    base: Vec<Node>,
    /// The last nodes of every part.
    parts: Vec<(Vec<Node>, Launched)>,
    /// Parts that no other is behind.
    is_last: Vec<bool>,
}

/// When a part may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launched {
    /// When all is over that it is behind.
    After,
    /// It is one kernel that waits itself, by `griddepcontrol.wait`, until that is over: its thread blocks are launched as soon as those
    /// before it leave room (programmatic dependent launch), if these are such a kernel, too.
    Early,
}

impl Stream {
    /// Begins parts of captured work. `None` where work of the stream is not captured, or the driver does not tell what it waits for.
    pub fn branches(&self) -> Result<Option<Branches<'_>>> {
        let driver = self.gpu().bind()?;
        let is_told = driver.cuStreamGetCaptureInfo_v2.is_some() && driver.cuStreamUpdateCaptureDependencies.is_some();
        if !is_told || !self.is_recorded() {
            return Ok(None);
        }
        Ok(Some(Branches { stream: self, base: self.waits_for()?, parts: Vec::new(), is_last: Vec::new() }))
    }

    /// Nodes that the next one waits for.
    fn waits_for(&self) -> Result<Vec<Node>> {
        let driver = self.gpu().bind()?;
        let Some(info) = driver.cuStreamGetCaptureInfo_v2 else { return Ok(Vec::new()) };
        let (mut status, mut nodes, mut count) = (0, std::ptr::null(), 0);
        let (id, graph) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: writes a number, an address and a count; what is null is not written.
        let code = unsafe { info(self.raw(), &raw mut status, id, graph, &raw mut nodes, &raw mut count) };
        driver.check("cuStreamGetCaptureInfo", code)?;
        let nodes = nodes.cast::<Node>();
        // SAFETY: so many nodes lie there until the next call for this stream, and are copied before it.
        Ok((0..count).map(|at| unsafe { *nodes.add(at) }).collect())
    }

    /// Lets the next node wait for these alone, of some of them until their thread blocks let others be launched.
    fn set_waits(&self, nodes: &[Node], is_early: &dyn Fn(&Node) -> bool) -> Result<()> {
        const SET: c_uint = 1;
        let driver = self.gpu().bind()?;
        let Some(update) = driver.cuStreamUpdateCaptureDependencies else { return Ok(()) };
        // GPUs before compute capability 9.0 do not have it; events of a trace wait for kernels, not for their launch.
        let may_be = self.gpu().facts().compute_capability >= (9, 0) && !self.is_traced();
        let is_any = may_be && nodes.iter().any(is_early);
        if let Some(update) = driver.cuStreamUpdateCaptureDependencies_v2.filter(|_| is_any) {
            let edge = |node| if is_early(node) { CUgraphEdgeData::PROGRAMMATIC } else { CUgraphEdgeData::default() };
            let edges: Vec<CUgraphEdgeData> = nodes.iter().map(edge).collect();
            let nodes_at = nodes.as_ptr().cast_mut().cast();
            // SAFETY: the nodes are of the graph that the stream is captured for, and there is an edge for each.
            let code: c_int = unsafe { update(self.raw(), nodes_at, edges.as_ptr(), nodes.len(), SET) };
            return driver.check("cuStreamUpdateCaptureDependencies_v2", code);
        }
        // SAFETY: the nodes are of the graph that the stream is captured for.
        let code: c_int = unsafe { update(self.raw(), nodes.as_ptr().cast_mut().cast(), nodes.len(), SET) };
        driver.check("cuStreamUpdateCaptureDependencies", code)
    }
}

impl Branches<'_> {
    /// Captures the next part, behind those that were captured as these.
    pub fn part<E: From<crate::Error>>(
        &mut self,
        after: &[usize],
        launched: Launched,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut nodes: Vec<Node> = after.iter().flat_map(|part| self.parts[*part].0.iter().copied()).collect();
        if nodes.is_empty() {
            nodes.clone_from(&self.base);
        }
        nodes.sort_unstable();
        nodes.dedup();
        let lets_others =
            |node: &Node| self.parts.iter().any(|(nodes, how)| *how == Launched::Early && nodes[..] == [*node]);
        self.stream.set_waits(&nodes, &|node| launched == Launched::Early && lets_others(node))?;
        work()?;
        self.parts.push((self.stream.waits_for()?, launched));
        after.iter().for_each(|part| self.is_last[*part] = false);
        self.is_last.push(true);
        Ok(())
    }

    /// Ends the parts: what the stream captures from here on waits for all of them.
    pub fn join(self) -> Result<()> {
        let last = self.parts.iter().zip(&self.is_last).filter(|(_, is_last)| **is_last);
        let mut nodes: Vec<Node> = last.flat_map(|((nodes, _), _)| nodes.iter().copied()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.is_empty() { Ok(()) } else { self.stream.set_waits(&nodes, &|_| false) }
    }
}
