//! Declaring a kernel once, and launching it safely ever after.
//!
//! A kernel's text is C++ and could touch anything. So the promise is made where the text is: [`Kernel::declare`] is
//! unsafe and says, for every pointer, how far the text may reach. A launch then compares count, types and lengths with
//! the declaration, and is safe.
//!
//! A length is a product of words: names of value parameters, names of integer defines, or extents of struct parameters
//! (`loops.0` is the first). `&["rows", "width_bytes"]` reads: rows times width_bytes elements.

use std::ffi::c_void;
use std::fmt;

use crate::error::{Error, LaunchProblem, Result};
use crate::gpu::Gpu;
use crate::module::{Defines, Source};
use crate::span::Span;
use crate::stream::Stream;

/// A kernel: where its text is, its entry point, and what it may touch.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) source: &'static Source,
    pub(crate) entry: &'static str,
    params: &'static [Param],
}

/// One parameter, in the order of the text.
#[derive(Debug, Clone, Copy)]
pub enum Param {
    /// A buffer the kernel reads. The element, then the product of words that bounds the elements it may touch.
    Read(&'static str, Element, &'static [&'static str]),
    /// A buffer the kernel writes, and may read.
    Write(&'static str, Element, &'static [&'static str]),
    /// A number.
    Value(&'static str, Scalar),
    /// A struct passed by value, of this size.
    Struct(&'static str, usize),
    /// The stream's fault cell, supplied by the launch.
    Fault,
}

/// The element type of a buffer parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Element {
    /// The text decides by a define; lengths are counted in bytes.
    Bytes,
    U32,
    U64,
    I64,
    F32,
}

/// The type of a number parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Scalar {
    U32,
    U64,
    F32,
    F64,
}

/// The size of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks.
    pub blocks: u32,
    /// Threads a block.
    pub threads: u32,
    /// Dynamic shared memory a block.
    pub shared_bytes: u32,
}

/// A plain struct that kernels take by value.
///
/// # Safety
/// The type is `repr(C)`, has no padding that matters, and has the layout the kernel's text gives it. Each extent is, for
/// every value of the struct, at least one more than the largest index the text can form from it.
pub unsafe trait KernelStruct: Copy {
    /// One more than the largest index the struct lets the kernel touch, for each buffer it describes. A length names them
    /// by number: `loops.0` is the first extent of the parameter `loops`.
    fn extents(&self) -> Vec<u64>;
}

impl Kernel {
    /// Declares a kernel.
    ///
    /// # Safety
    /// `entry` in `source` takes exactly `params`, and for all values within the declared types it touches no memory
    /// outside the declared lengths, whatever the defines.
    #[must_use]
    pub const unsafe fn declare(source: &'static Source, entry: &'static str, params: &'static [Param]) -> Self {
        Self { source, entry, params }
    }

    /// Starts a launch on `stream`; arguments follow in the order of the declaration.
    #[must_use]
    pub fn on<'a>(&'a self, stream: &'a Stream, defines: &'a Defines, grid: Grid) -> Launch<'a> {
        let arguments = Vec::with_capacity(self.params.len());
        Launch { kernel: self, stream, defines, grid, arguments, touched: Vec::new(), called: None }
    }

    /// Blocks of `grid`'s size that one SM can hold at a time.
    pub fn blocks_per_sm(&self, gpu: &Gpu, defines: &Defines, grid: Grid) -> Result<u32> {
        let function = gpu.modules().function(gpu, self, defines)?;
        function.blocks_per_sm(gpu, grid)
    }
}

impl Element {
    const fn size_bytes(self) -> u64 {
        match self {
            Self::Bytes => 1,
            Self::U32 | Self::F32 => 4,
            Self::U64 | Self::I64 => 8,
        }
    }
}

/// A launch being put together.
#[derive(Debug)]
pub struct Launch<'a> {
    kernel: &'a Kernel,
    stream: &'a Stream,
    defines: &'a Defines,
    grid: Grid,
    arguments: Vec<Argument>,
    /// What is reached through a table.
    touched: Vec<Span>,
    called: Option<Name<'a>>,
}

/// A name that is made where somebody wants it.
struct Name<'a>(&'a dyn Fn() -> String);

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&(self.0)())
    }
}

#[derive(Debug)]
enum Argument {
    Buffer(Span, Element),
    Value(Scalar, u64),
    Struct { bytes: Vec<u64>, size: usize, extents: Vec<u64> },
}

impl<'a> Launch<'a> {
    /// A buffer of `element`s.
    #[must_use]
    pub fn buffer(mut self, span: &Span, element: Element) -> Self {
        self.arguments.push(Argument::Buffer(span.clone(), element));
        self
    }

    /// A buffer whose element type the text takes from a define.
    #[must_use]
    pub fn bytes(self, span: &Span) -> Self {
        self.buffer(span, Element::Bytes)
    }

    /// A 64-bit number.
    #[must_use]
    pub fn u64(mut self, value: u64) -> Self {
        self.arguments.push(Argument::Value(Scalar::U64, value));
        self
    }

    /// A 32-bit number.
    #[must_use]
    pub fn u32(mut self, value: u32) -> Self {
        self.arguments.push(Argument::Value(Scalar::U32, u64::from(value)));
        self
    }

    /// A single-precision number.
    #[must_use]
    pub fn f32(mut self, value: f32) -> Self {
        self.arguments.push(Argument::Value(Scalar::F32, u64::from(value.to_bits())));
        self
    }

    /// A double-precision number.
    #[must_use]
    pub fn f64(mut self, value: f64) -> Self {
        self.arguments.push(Argument::Value(Scalar::F64, value.to_bits()));
        self
    }

    /// A struct passed by value.
    #[must_use]
    pub fn structure<S: KernelStruct>(mut self, value: &S) -> Self {
        let size = size_of::<S>();
        let mut bytes = vec![0u64; size.div_ceil(8)];
        // SAFETY: the vector is at least `size` bytes, and S is plain data by the trait's promise.
        unsafe { std::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), bytes.as_mut_ptr().cast(), size) };
        self.arguments.push(Argument::Struct { bytes, size, extents: value.extents() });
        self
    }

    /// Buffers that the kernel reaches through a table among its arguments: they live until it is done.
    #[must_use]
    pub fn touching<'s>(mut self, spans: impl IntoIterator<Item = &'s Span>) -> Self {
        self.touched.extend(spans.into_iter().cloned());
        self
    }

    /// What traces call it. Default: its entry point.
    #[must_use]
    pub fn called(mut self, name: &'a dyn Fn() -> String) -> Self {
        self.called = Some(Name(name));
        self
    }

    fn name(&self) -> String {
        self.called.as_ref().map_or_else(|| self.kernel.entry.to_owned(), |name| (name.0)())
    }

    /// Checks everything against the declaration and queues the launch.
    pub fn go(self) -> Result<()> {
        self.check().map_err(|problem| Error::Launch { kernel: self.kernel.entry, problem })?;
        let gpu = self.stream.gpu();
        let function = gpu.modules().function(gpu, self.kernel, self.defines)?;
        let fault = self.stream.fault_pointer();
        let mut words = self.words(fault);
        let mut pointers: Vec<*mut c_void> = words.iter_mut().map(|word| word.as_mut_ptr().cast()).collect();
        // SAFETY: the arguments match the declaration, whose author promised that the text then stays inside them; the
        // buffers are held by the arguments until their use is noted on the stream.
        let launch = || unsafe { function.launch(self.stream, self.grid, &mut pointers) };
        let launched = self.stream.launch_traced(&|| self.name(), launch);
        // After queueing: a note made before could be taken for done by a thread that waits in between.
        let given = self.arguments.iter().filter_map(|argument| match argument {
            Argument::Buffer(span, _) => Some(span),
            _ => None,
        });
        self.stream.note_use(given.chain(&self.touched));
        launched
    }

    fn words(&self, fault: u64) -> Vec<Vec<u64>> {
        let mut given = self.arguments.iter();
        let word = |argument: &Argument| match argument {
            Argument::Buffer(span, _) => vec![span.pointer()],
            Argument::Value(_, bits) => vec![*bits],
            Argument::Struct { bytes, .. } => bytes.clone(),
        };
        let filled = self.kernel.params.iter().map(|param| match param {
            Param::Fault => vec![fault],
            _ => given.next().map(word).unwrap_or_default(),
        });
        filled.collect()
    }

    fn check(&self) -> Result<(), LaunchProblem> {
        let declared: Vec<&Param> = self.kernel.params.iter().filter(|param| !matches!(param, Param::Fault)).collect();
        if declared.len() != self.arguments.len() {
            return Err(LaunchProblem::Count { declared: declared.len(), given: self.arguments.len() });
        }
        let most_blocks = i32::MAX.unsigned_abs();
        if !(1..=most_blocks).contains(&self.grid.blocks) || !(1..=1024).contains(&self.grid.threads) {
            return Err(LaunchProblem::Grid { blocks: self.grid.blocks, threads: self.grid.threads });
        }
        let pairs: Vec<(&Param, &Argument)> = declared.into_iter().zip(&self.arguments).collect();
        for (param, argument) in &pairs {
            check_type(param, argument)?;
        }
        pairs.iter().try_for_each(|(param, argument)| self.check_buffer(param, argument, &pairs))
    }

    fn check_buffer(
        &self,
        param: &Param,
        argument: &Argument,
        pairs: &[(&Param, &Argument)],
    ) -> Result<(), LaunchProblem> {
        let (&(Param::Read(name, element, terms) | Param::Write(name, element, terms)), Argument::Buffer(span, _)) =
            (param, argument)
        else {
            return Ok(());
        };
        let mut need_bytes = u128::from(element.size_bytes());
        for &term in terms {
            let factor = value_of(term, pairs, self.defines).ok_or(LaunchProblem::UnknownTerm { name, term })?;
            need_bytes = need_bytes.saturating_mul(u128::from(factor));
        }
        let have_bytes = span.bytes() as u64;
        if u128::from(have_bytes) < need_bytes {
            return Err(LaunchProblem::Length { name, have_bytes, need_bytes });
        }
        let (element_bytes, off_bytes) = (element.size_bytes(), span.pointer() % element.size_bytes());
        if off_bytes != 0 {
            // The GPU would not fault on this launch alone: it would lose the whole context.
            return Err(LaunchProblem::Alignment { name, element_bytes, off_bytes });
        }
        if matches!(param, Param::Write(..)) && span.allocation().is_read_only() {
            return Err(LaunchProblem::ReadOnly { name });
        }
        let (at, on) = (span.allocation().gpu(), self.stream.gpu());
        if span.allocation().is_device_only() && at.ordinal() != on.ordinal() && !on.reaches(at) {
            return Err(LaunchProblem::Place { name, at: at.ordinal(), on: on.ordinal() });
        }
        Ok(())
    }
}

fn value_of(term: &str, pairs: &[(&Param, &Argument)], defines: &Defines) -> Option<u64> {
    let given = pairs.iter().find_map(|(param, argument)| match (param, argument) {
        (Param::Value(name, _), Argument::Value(Scalar::U32 | Scalar::U64, bits)) if *name == term => Some(*bits),
        (Param::Struct(name, _), Argument::Struct { extents, .. }) => {
            let number = term.strip_prefix(name)?.strip_prefix('.')?;
            extents.get(number.parse::<usize>().ok()?).copied()
        }
        _ => None,
    });
    given.or_else(|| defines.number(term))
}

fn check_type(param: &Param, argument: &Argument) -> Result<(), LaunchProblem> {
    let fits = match (param, argument) {
        (Param::Read(_, declared, _) | Param::Write(_, declared, _), Argument::Buffer(_, given)) => declared == given,
        (Param::Value(_, declared), Argument::Value(given, _)) => declared == given,
        (Param::Struct(_, declared), Argument::Struct { size, .. }) => declared == size,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let given = match argument {
        Argument::Buffer(_, element) => format!("a buffer of {element:?}"),
        Argument::Value(scalar, _) => format!("a number of type {scalar:?}"),
        Argument::Struct { size, .. } => format!("a struct of {size} bytes"),
    };
    let (name, declared) = match param {
        Param::Read(name, element, _) | Param::Write(name, element, _) => (*name, format!("a buffer of {element:?}")),
        Param::Value(name, scalar) => (*name, format!("a number of type {scalar:?}")),
        Param::Struct(name, size) => (*name, format!("a struct of {size} bytes")),
        Param::Fault => ("fault", "the fault cell".into()),
    };
    Err(LaunchProblem::Type { name, declared, given })
}
