//! What a network learns, in GPU memory: all parameters one behind the other, and their gradients likewise. So a step is one
//! launch, and so are copies.

use std::ops::Range;

use headwater_cuda::{Allocation, Span, Stream};

use crate::array::check_length;
use crate::error::{Error, Result};
use crate::parameter::Parameters;

/// Parameters begin at multiples of this, so that rows can be read in the largest pieces.
const ALIGN_ELEMENTS: usize = 64;

/// Parameters and gradients in GPU memory.
#[derive(Debug)]
pub(crate) struct Flat {
    /// Where each parameter lies, in elements.
    places: Vec<Range<usize>>,
    len: usize,
    pub values: Span,
    pub gradients: Span,
}

impl Flat {
    /// Room for all of a network, filled with what it holds.
    pub fn new(stream: &Stream, parameters: &Parameters) -> Result<Self> {
        let mut len = 0;
        let place = |parameter: &crate::Parameter| {
            let first = len;
            len = (first + parameter.values.len()).next_multiple_of(ALIGN_ELEMENTS);
            first..first + parameter.values.len()
        };
        let places: Vec<Range<usize>> = parameters.iter().map(place).collect();
        let room = || -> Result<Span> {
            let span = Span::whole(Allocation::on_stream(stream, 4 * len.max(ALIGN_ELEMENTS))?);
            // What lies between parameters counts for nothing.
            stream.fill(&span, 0)?;
            Ok(span)
        };
        let made = Self { places, len, values: room()?, gradients: room()? };
        made.send(stream, parameters)?;
        Ok(made)
    }

    /// Elements, with what lies between parameters.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where each parameter lies.
    pub fn places(&self) -> &[Range<usize>] {
        &self.places
    }

    /// A parameter in one of the arrays.
    pub fn part(&self, of: &Span, parameter: usize) -> Result<Span> {
        let place = &self.places[parameter];
        of.part(4 * place.start, 4 * place.len()).ok_or_else(|| Error::Length {
            what: "the array of all parameters".to_owned(),
            found: of.bytes() / 4,
            expected: place.end,
        })
    }

    /// Brings what a network holds to the GPU.
    pub fn send(&self, stream: &Stream, parameters: &Parameters) -> Result<()> {
        let mut all = vec![0.0f32; self.values.bytes() / 4];
        for (place, parameter) in self.places.iter().zip(parameters.iter()) {
            check_length("a parameter", parameter.values.len(), place.len())?;
            all[place.clone()].copy_from_slice(&parameter.values);
        }
        Ok(stream.upload(bytemuck::cast_slice(&all), &self.values)?)
    }

    /// Brings what the GPU holds back.
    pub fn fetch(&self, stream: &Stream, parameters: &mut Parameters) -> Result<()> {
        let mut all = vec![0.0f32; self.values.bytes() / 4];
        stream.download(&self.values, bytemuck::cast_slice_mut(&mut all))?;
        for (place, values) in self.places.iter().zip(parameters.values_mut()) {
            check_length("a parameter", values.len(), place.len())?;
            values.copy_from_slice(&all[place.clone()]);
        }
        Ok(())
    }
}
