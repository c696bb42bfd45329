//! What is learned: named arrays in a fixed order.
//!
//! The order is that in which they were added, and gradients come in the same order. Names are unique, so that a
//! checkpoint finds each one again whatever was added before it.

use std::collections::HashMap;

use crate::array::{Array, check_length};
use crate::error::{Error, Result};

/// One learned array.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name, such as `layer0.weight`.
    pub name: String,
    /// Its extents, outermost first.
    pub shape: Vec<usize>,
    /// Its numbers, row by row.
    pub values: Vec<f32>,
    /// Which of the optimiser's groups it belongs to.
    pub group: usize,
}

/// All that a model learns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    list: Vec<Parameter>,
    by_name: HashMap<String, usize>,
}

impl Parameters {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one at the end and says where it stands.
    pub fn push(&mut self, parameter: Parameter) -> Result<usize> {
        let wrong = |why: String| Err(Error::Parameter { name: parameter.name.clone(), why });
        let elements = parameter.shape.iter().try_fold(1usize, |all, &extent| all.checked_mul(extent));
        if parameter.name.is_empty() || self.by_name.contains_key(&parameter.name) {
            return wrong("needs a name that no other has".to_owned());
        }
        if elements != Some(parameter.values.len()) {
            let (found, shape) = (parameter.values.len(), &parameter.shape);
            return wrong(format!("has {found} values, which do not fill its shape {shape:?}"));
        }
        let at = self.list.len();
        self.by_name.insert(parameter.name.clone(), at);
        self.list.push(parameter);
        Ok(at)
    }

    /// How many arrays there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many numbers are learned.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.iter().map(|parameter| parameter.values.len()).sum()
    }

    /// Bytes that the numbers take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.count() * size_of::<f32>()
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Parameter> {
        self.list.iter()
    }

    /// The one at a place.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<&Parameter> {
        self.list.get(place)
    }

    /// The one of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.by_name.get(name).map(|&at| &self.list[at])
    }

    /// Where the one of this name stands.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The numbers of each, in their order, to be changed. Names and shapes stay.
    pub fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [f32]> {
        self.list.iter_mut().map(|parameter| parameter.values.as_mut_slice())
    }

    /// Arrays of zeros for the gradients, in the same order.
    #[must_use]
    pub fn zero_gradients(&self) -> Vec<Vec<f32>> {
        self.list.iter().map(|parameter| vec![0.0; parameter.values.len()]).collect()
    }

    /// Takes over values by name. Either every parameter gets its values or none does.
    pub fn restore(&mut self, arrays: Vec<Array>) -> Result<()> {
        check_length("the list of saved parameters", arrays.len(), self.len())?;
        let mut found = HashMap::new();
        for array in arrays {
            let at = self.position(&array.name);
            let fits =
                at.filter(|&at| self.list[at].shape == array.shape && self.list[at].values.len() == array.values.len());
            let Some(at) = fits else {
                let why = format!("was saved with shape {:?}; {}", array.shape, self.expected(at));
                return Err(Error::Parameter { name: array.name, why });
            };
            if found.insert(at, array.values).is_some() {
                return Err(Error::Parameter { name: array.name, why: "was saved twice".to_owned() });
            }
        }
        found.into_iter().for_each(|(at, values)| self.list[at].values = values);
        Ok(())
    }

    fn expected(&self, at: Option<usize>) -> String {
        at.map_or_else(
            || "the model has none of this name".to_owned(),
            |at| format!("expected {:?}", self.list[at].shape),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, shape: &[usize], values: usize) -> Parameter {
        Parameter { name: name.to_owned(), shape: shape.to_owned(), values: vec![1.0; values], group: 0 }
    }

    #[test]
    fn they_keep_their_order_and_are_found_by_name() {
        let mut all = Parameters::new();
        for (name, shape, values) in
            [("w", vec![2, 3], 6), ("a", vec![3], 3), ("scale", vec![], 1), ("none", vec![0, 4], 0)]
        {
            all.push(parameter(name, &shape, values)).unwrap();
        }
        assert_eq!((all.len(), all.count(), all.bytes(), all.is_empty()), (4, 10, 40, false));
        assert_eq!(all.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["w", "a", "scale", "none"]);
        assert_eq!(
            (all.position("a"), all.get("a").unwrap().shape.as_slice(), all.get("b")),
            (Some(1), &[3][..], None)
        );
        assert_eq!(all.zero_gradients().iter().map(Vec::len).collect::<Vec<_>>(), [6, 3, 1, 0]);
    }

    #[test]
    fn what_is_no_parameter_is_refused_by_name() {
        let mut all = Parameters::new();
        all.push(parameter("w", &[2], 2)).unwrap();
        for (wrong, word) in [
            (parameter("w", &[2], 2), "no other has"),
            (parameter("", &[2], 2), "no other has"),
            (parameter("v", &[2, 2], 3), "[2, 2]"),
            (parameter("v", &[usize::MAX, 2], 3), "3 values"),
        ] {
            let said = all.push(wrong).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn values_come_back_by_name_all_or_none() {
        let mut all = Parameters::new();
        all.push(parameter("w", &[2], 2)).unwrap();
        all.push(parameter("b", &[1], 1)).unwrap();
        let array = |name: &str, values: &[f32]| Array {
            name: name.to_owned(),
            shape: vec![values.len()],
            values: values.to_vec(),
        };
        for (wrong, word) in [
            (vec![array("b", &[7.0])], "1 elements; expected 2"),
            (vec![array("b", &[7.0]), array("v", &[1.0])], "none of this name"),
            (vec![array("b", &[7.0]), array("w", &[1.0])], "expected [2]"),
            (vec![array("b", &[7.0]), array("b", &[1.0])], "twice"),
        ] {
            let before = all.clone();
            let said = all.restore(wrong).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
            assert_eq!(all, before);
        }
        all.restore(vec![array("b", &[7.0]), array("w", &[8.0, 9.0])]).unwrap();
        assert_eq!(all.iter().flat_map(|p| p.values.clone()).collect::<Vec<_>>(), [8.0, 9.0, 7.0]);
    }
}
