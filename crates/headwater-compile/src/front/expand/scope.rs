//! Names and what they mean, loop by loop and call by call.

use std::collections::BTreeMap;

use super::meaning::Meaning;

/// Names that are known at a place.
#[derive(Debug, Default)]
pub struct Scope {
    frames: Vec<Frame>,
}

#[derive(Debug)]
struct Frame {
    names: BTreeMap<String, Meaning>,
    sight: Sight,
}

/// What a part of a text sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Its own names and those around it: a loop.
    Outer,
    /// Its own names alone: a function.
    Own,
}

impl Scope {
    /// Begins a loop or a function.
    pub fn enter(&mut self, sight: Sight) {
        self.frames.push(Frame { names: BTreeMap::new(), sight });
    }

    /// Ends it; its names are forgotten.
    pub fn leave(&mut self) {
        self.frames.pop();
    }

    /// What a name means.
    pub fn get(&self, name: &str) -> Option<&Meaning> {
        self.visible().find_map(|frame| frame.names.get(name))
    }

    /// Gives a name a meaning in the function that was just entered, which sees no other.
    pub fn bind(&mut self, name: &str, meaning: Meaning) {
        if let Some(frame) = self.frames.last_mut() {
            frame.names.insert(name.to_owned(), meaning);
        }
    }

    /// Gives a name a meaning here. `false` where it belongs to something around, which would not see it.
    #[must_use]
    pub fn set(&mut self, name: &str, meaning: Meaning) -> bool {
        if self.visible().skip(1).any(|frame| frame.names.contains_key(name)) {
            return false;
        }
        self.bind(name, meaning);
        true
    }

    /// Frames that can be seen, the innermost first.
    fn visible(&self) -> impl Iterator<Item = &Frame> {
        let loops = self.frames.iter().rev().take_while(|frame| frame.sight == Sight::Outer).count();
        self.frames.iter().rev().take(loops + 1)
    }
}
