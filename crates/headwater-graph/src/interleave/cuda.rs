//! Interleaved arrays in GPU memory: made, and read at any positions.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use bytemuck::Pod;
use headwater_cuda::{Allocation, Defines, Element, Gpu, Kernel, Param, Scalar, Source, Span, Stream};
use headwater_memory::Uploader;

use super::{Interleave, MOST_MEMBERS, Place, Spread};
use crate::error::{Error, Result};
use crate::scan::persistent_grid;
use crate::topology::index;
use crate::width::IdWidth;

/// The addressing, for kernels of other folders.
pub(crate) const HEADER: (&str, &str) = ("interleave.cuh", include_str!("interleave.cuh"));

static TEXT: Source = Source { name: "interleave.cu", text: include_str!("interleave.cu"), headers: &[HEADER] };

const SHARE: &[&str] = &["share", "ELEMENT_BYTES"];
// SAFETY: members are read below `share`; positions are read and `out` written below `wanted`.
static READ: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "read_interleaved",
        &[
            Param::Read("m0", Element::Bytes, SHARE),
            Param::Read("m1", Element::Bytes, SHARE),
            Param::Read("m2", Element::Bytes, SHARE),
            Param::Read("m3", Element::Bytes, SHARE),
            Param::Read("m4", Element::Bytes, SHARE),
            Param::Read("m5", Element::Bytes, SHARE),
            Param::Read("m6", Element::Bytes, SHARE),
            Param::Read("m7", Element::Bytes, SHARE),
            Param::Value("share", Scalar::U64),
            Param::Value("count", Scalar::U64),
            Param::Read("positions", Element::U64, &["wanted"]),
            Param::Value("wanted", Scalar::U64),
            Param::Write("out", Element::Bytes, &["wanted", "ELEMENT_BYTES"]),
            Param::Fault,
        ],
    )
};

const THREADS: u32 = 256;

/// An array spread over a group of GPUs.
#[derive(Debug, Clone)]
pub struct Interleaved {
    rule: Interleave,
    width: IdWidth,
    count: u64,
    members: Vec<Span>,
}

impl Interleaved {
    /// Spreads the elements of `all` over `group`, whose members read each other's memory.
    pub fn new<T: Pod>(group: &[Gpu], block_log2: u32, all: &[T]) -> Result<Self> {
        Self::from_bytes(group, block_log2, width_of::<T>()?, bytemuck::cast_slice(all))
    }

    /// As [`Interleaved::new`], from the bytes of elements that are so wide.
    pub fn from_bytes(group: &[Gpu], block_log2: u32, width: IdWidth, bytes: &[u8]) -> Result<Self> {
        let count = (bytes.len() / width.bytes()) as u64;
        let found = group.len() as u64;
        let too_many = Error::Length { name: "members", found, expected: MOST_MEMBERS as u64, of: "a group at most" };
        let rule = Interleave::new(group.len(), block_log2).ok_or(too_many)?;
        connect(group)?;
        let share_bytes = index(rule.share_len(count)).saturating_mul(width.bytes());
        let spread = Spread { bytes, element_bytes: width.bytes(), rule };
        let members = group.iter().enumerate().map(|(member, gpu)| {
            let span = Span::whole(Allocation::shareable(gpu, share_bytes)?);
            let mut uploader = Uploader::new(gpu, share_bytes)?;
            let place = |at: usize| Place { member, offset: (at / width.bytes()) as u64 };
            uploader.fill(&span, |at, part| spread.read(place(at), part))?;
            uploader.wait()?;
            Ok(span)
        });
        Ok(Self { rule, width, count, members: members.collect::<Result<_>>()? })
    }

    /// Queues `out[i] = array[positions[i]]`. A position that is none is reported by the stream's next synchronisation.
    pub fn read(&self, stream: &Stream, positions: &Span, out: &Span) -> Result<()> {
        let wanted = IdWidth::U64.elements("positions", positions)?;
        self.width.elements("out", out)?;
        let grid = persistent_grid(stream, wanted.div_ceil(u64::from(THREADS)), THREADS);
        let defines = defines(self.rule, self.width);
        let members = self.members.iter().cycle().take(MOST_MEMBERS);
        let launch = members.fold(READ.on(stream, &defines, grid), |launch, member| launch.bytes(member));
        let launch = launch.u64(self.rule.share_len(self.count)).u64(self.count);
        Ok(launch.buffer(positions, Element::U64).u64(wanted).bytes(out).go()?)
    }

    /// How positions are spread.
    #[must_use]
    pub fn rule(&self) -> Interleave {
        self.rule
    }

    /// The members' shares.
    #[must_use]
    pub fn members(&self) -> &[Span] {
        &self.members
    }
}

fn width_of<T: Pod>() -> Result<IdWidth> {
    let (element_bytes, why) = (size_of::<T>(), "interleaved elements have 4 or 8 bytes".to_owned());
    let fits = IdWidth::ALL.into_iter().find(|width| width.bytes() == element_bytes);
    fits.ok_or(Error::Bytes { name: "array", bytes: element_bytes, element_bytes, why })
}

/// Lets every GPU of the group read every other.
fn connect(group: &[Gpu]) -> Result<()> {
    for (one, other) in group.iter().flat_map(|one| group.iter().map(move |other| (one, other))) {
        if one.ordinal() != other.ordinal() {
            one.enable_access(other)?;
        }
    }
    Ok(())
}

fn defines(rule: Interleave, width: IdWidth) -> Defines {
    let element = Defines::new().with("ELEMENT", width.in_kernels()).with("ELEMENT_BYTES", width.bytes());
    rule.define(element)
}

impl Interleave {
    /// What the addressing is compiled with.
    pub(crate) fn define(self, defines: Defines) -> Defines {
        defines.with("MEMBERS", self.members).with("BLOCK_LOG2", self.block_log2)
    }
}

/// The texts of this folder with some of the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let rules = [(1, 0), (3, 0), (8, 10)].into_iter().filter_map(|(members, log2)| Interleave::new(members, log2));
    rules.flat_map(|rule| IdWidth::ALL.map(|width| (&TEXT, defines(rule, width)))).collect()
}
