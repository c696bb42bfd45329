//! Loops on all threads, compiled once.
//!
//! A parallel iterator is compiled anew for every closure it is given, thousands of lines each time. Here work is shared out by
//! a few functions that call through a pointer once a piece; the loop over a piece is in the closure, as fast as any.
//!
//! ```
//! use headwater_tensor::parallel;
//! let squares: Vec<u64> = parallel::map(&[1u32, 2, 3], |number| u64::from(*number).pow(2));
//! assert_eq!((squares.as_slice(), parallel::position(&squares, |square| *square > 3)), (&[1, 4, 9][..], Some(1)));
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;
use rayon::prelude::*;

/// Elements of a piece where each takes a few instructions: enough to hide the hand-over.
pub const PIECE: usize = 1 << 14;

/// Calls `body` with ranges of `piece` positions, the last one shorter, that make up `0..count`.
pub fn for_ranges(count: usize, piece: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
    match pieces(count, piece) {
        0 => {}
        1 => body(0..count),
        many => (0..many).into_par_iter().for_each(|at| body(range(at, count, piece))),
    }
}

/// Calls `body` with the first position and the elements of every part of a list.
pub fn for_parts<T: Pod>(list: &mut [T], part: usize, body: &(dyn Fn(usize, &mut [T]) + Sync)) {
    let bytes = size_of::<T>();
    for_bytes(bytemuck::cast_slice_mut(list), part * bytes, &|start, part| {
        body(start / bytes, bytemuck::cast_slice_mut(part));
    });
}

/// A value for every position.
pub fn tabulate<T: Pod>(count: usize, value: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut values = vec![T::zeroed(); count];
    for_parts(&mut values, PIECE, &|start, part| {
        part.iter_mut().zip(start..).for_each(|(to, at)| *to = value(at));
    });
    values
}

/// A value for every element.
pub fn map<A: Sync, T: Pod>(list: &[A], value: impl Fn(&A) -> T + Sync) -> Vec<T> {
    let mut values = vec![T::zeroed(); list.len()];
    for_parts(&mut values, PIECE, &|start, part| {
        part.iter_mut().zip(&list[start..]).for_each(|(to, from)| *to = value(from));
    });
    values
}

/// The sum of what every range of positions comes to.
pub fn sum(count: usize, piece: usize, of: &(dyn Fn(Range<usize>) -> u64 + Sync)) -> u64 {
    (0..pieces(count, piece)).into_par_iter().map(|at| of(range(at, count, piece))).sum()
}

/// Where the first element stands of which something is true.
pub fn position<A: Sync>(list: &[A], is: impl Fn(&A) -> bool + Sync) -> Option<usize> {
    first(list.len(), PIECE, &|range| list[range.clone()].iter().position(&is).map(|at| range.start + at))
}

/// What the first range has that has something. Ranges after it may not be asked.
pub fn first(count: usize, piece: usize, find: &(dyn Fn(Range<usize>) -> Option<usize> + Sync)) -> Option<usize> {
    (0..pieces(count, piece)).into_par_iter().find_map_first(|at| find(range(at, count, piece)))
}

/// Calls `body` with every piece of work and its number. Pieces are large: each is taken by itself.
pub fn for_each<W: Send>(work: impl Iterator<Item = W>, body: impl Fn(usize, W) + Sync) {
    let work: Vec<Mutex<Option<W>>> = work.map(|piece| Mutex::new(Some(piece))).collect();
    for_ranges(work.len(), 1, &|range| {
        taken(&work[range.start]).into_iter().for_each(|piece| body(range.start, piece))
    });
}

/// As [`for_each`], with the first error in the order of the work. Once a piece has failed, none after it is begun.
pub fn try_for_each<W: Send, E: Send>(
    work: impl Iterator<Item = W>,
    body: impl Fn(W) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let work: Vec<Mutex<Option<W>>> = work.map(|piece| Mutex::new(Some(piece))).collect();
    try_collect(work.len(), |at| taken(&work[at]).map_or(Ok(()), &body)).map(drop)
}

/// What every piece of work comes to, in order.
pub fn collect<T: Send>(count: usize, make: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let made: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    for_ranges(count, 1, &|range| {
        let value = make(range.start);
        *made[range.start].lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    });
    made.iter().filter_map(taken).collect()
}

/// What every piece of work comes to, in order, or the first error in that order; pieces after a failed one are not started.
pub fn try_collect<T: Send, E: Send>(count: usize, make: impl Fn(usize) -> Result<T, E> + Sync) -> Result<Vec<T>, E> {
    let failed = AtomicUsize::new(usize::MAX);
    let made = collect(count, |at| {
        let made = (at < failed.load(Ordering::Relaxed)).then(|| make(at));
        if let Some(Err(_)) = made {
            failed.fetch_min(at, Ordering::Relaxed);
        }
        made
    });
    made.into_iter().flatten().collect()
}

fn taken<W>(piece: &Mutex<Option<W>>) -> Option<W> {
    piece.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn for_bytes(list: &mut [u8], part: usize, body: &(dyn Fn(usize, &mut [u8]) + Sync)) {
    match pieces(list.len(), part) {
        0 => {}
        1 => body(0, list),
        _ => list.par_chunks_mut(part).enumerate().for_each(|(at, bytes)| body(at * part, bytes)),
    }
}

fn pieces(count: usize, piece: usize) -> usize {
    count.div_ceil(piece.max(1))
}

fn range(at: usize, count: usize, piece: usize) -> Range<usize> {
    let start = at * piece.max(1);
    start..count.min(start + piece.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 3 * PIECE + 5;

    #[test]
    fn every_position_is_reached_once() {
        let counts: Vec<AtomicUsize> = (0..COUNT).map(|_| AtomicUsize::new(0)).collect();
        for_ranges(COUNT, 1000, &|range| {
            assert!(range.len() == 1000 || range.end == COUNT);
            counts[range].iter().for_each(|count| _ = count.fetch_add(1, Ordering::Relaxed));
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        for_ranges(0, 1000, &|_| unreachable!("there is nothing"));
    }

    #[test]
    fn values_stand_in_order() {
        let numbers: Vec<u64> = tabulate(COUNT, |at| at as u64);
        assert!(numbers.iter().zip(0..).all(|(number, at)| *number == at));
        assert_eq!(map(&numbers, |number| *number as f32), (0..COUNT).map(|at| at as f32).collect::<Vec<_>>());
        let mut parts = vec![0u16; COUNT];
        for_parts(&mut parts, 7, &|start, part| part.fill(u16::try_from(start % 1000).unwrap()));
        assert!(parts.iter().enumerate().all(|(at, part)| usize::from(*part) == (at - at % 7) % 1000));
        assert!(tabulate(0, |_| 1u8).is_empty());
        let names = collect(100, |at| at.to_string());
        assert!(names.iter().enumerate().all(|(at, name)| *name == at.to_string()));
    }

    #[test]
    fn the_first_is_found() {
        let numbers: Vec<u32> = tabulate(COUNT, |at| u32::try_from(at % 20_000).unwrap());
        assert_eq!(position(&numbers, |number| *number == 19_999), Some(19_999));
        assert_eq!(position(&numbers, |number| *number > 19_999), None);
        assert_eq!(sum(COUNT, 10, &|range| range.len() as u64), COUNT as u64);
    }

    #[test]
    fn the_first_error_ends_the_work() {
        assert_eq!(try_collect(5, |at| Ok::<_, ()>(at * at)), Ok(vec![0, 1, 4, 9, 16]));
        let fails = |at| if at % 10 == 3 { Err(at) } else { Ok(at) };
        assert_eq!(try_collect(100, fails), Err(3));
        assert_eq!(try_for_each(0..100, |at| fails(at).map(drop)), Err(3));
    }

    #[test]
    fn work_is_handed_over() {
        let mut numbers = [0; 10];
        for_each(numbers.iter_mut(), |at, number| *number = at);
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}
