//! What the first layer reads of each node type, decided from widths alone.

/// What the first layer reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputPlan {
    /// Nothing: it learns its own rows.
    Nothing,
    /// Features as they are, which have one width in all types.
    Together {
        /// That width.
        width: usize,
    },
    /// Rows of each type, brought to one width.
    Apart {
        /// That width.
        width: usize,
        /// Where the rows of each type come from.
        types: Vec<TypePlan>,
    },
}

/// Where the rows of one node type come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypePlan {
    /// Features of this width, projected.
    Projected(usize),
    /// A learnt row of this width a node, projected where the first layer reads another width.
    Learnt(usize),
}

/// What a run asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The width that rows of all types are brought to.
    pub width: usize,
    /// Elements of a learnt row.
    pub embedding: usize,
    /// Whether the first layer can do without rows.
    pub does_without: bool,
}

impl InputPlan {
    /// For node types whose features have these widths.
    #[must_use]
    pub fn new(widths: &[Option<usize>], wanted: Wanted) -> Self {
        if wanted.does_without && widths.iter().all(Option::is_none) {
            return Self::Nothing;
        }
        match widths.first() {
            Some(Some(width)) if widths.iter().all(|other| *other == Some(*width)) => Self::Together { width: *width },
            _ => {
                let plan =
                    |width: &Option<usize>| width.map_or(TypePlan::Learnt(wanted.embedding), TypePlan::Projected);
                Self::Apart { width: wanted.width, types: widths.iter().map(plan).collect() }
            }
        }
    }

    /// Elements of a row that the first layer reads.
    #[must_use]
    pub fn width(&self) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::Together { width } | Self::Apart { width, .. } => Some(*width),
        }
    }

    /// Whether anything of it is learnt.
    #[must_use]
    pub fn learns(&self) -> bool {
        matches!(self, Self::Apart { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_decide() {
        let wanted = |does_without| Wanted { width: 16, embedding: 4, does_without };
        let apart = |types: &[TypePlan]| InputPlan::Apart { width: 16, types: types.to_vec() };
        for (widths, does_without, expected) in [
            (&[Some(8)][..], false, InputPlan::Together { width: 8 }),
            (&[Some(8), Some(8)], true, InputPlan::Together { width: 8 }),
            (&[None], true, InputPlan::Nothing),
            (&[None, None], true, InputPlan::Nothing),
            (&[None, None], false, apart(&[TypePlan::Learnt(4), TypePlan::Learnt(4)])),
            (&[Some(8), None], true, apart(&[TypePlan::Projected(8), TypePlan::Learnt(4)])),
            (&[Some(8), Some(5)], false, apart(&[TypePlan::Projected(8), TypePlan::Projected(5)])),
        ] {
            let plan = InputPlan::new(widths, wanted(does_without));
            assert_eq!(plan, expected, "{widths:?}");
            assert_eq!(plan.width().is_none(), plan == InputPlan::Nothing);
        }
    }
}
