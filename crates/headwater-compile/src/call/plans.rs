//! Plans that were made for graphs of about these rows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Plans that are kept at most; the oldest goes first.
pub(super) const MOST_PLANS: usize = 16;

/// Some plans of a layer.
#[derive(Debug)]
pub(super) struct Plans<P>(Mutex<Vec<Arc<P>>>);

impl<P> Default for Plans<P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P> Plans<P> {
    /// The one that serves, or a new one.
    pub fn find<E>(&self, serves: impl Fn(&P) -> bool, make: impl FnOnce() -> Result<P, E>) -> Result<Arc<P>, E> {
        let known = |plans: &[Arc<P>]| plans.iter().find(|plan| serves(plan)).cloned();
        if let Some(found) = known(&self.lock()) {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        let mut plans = self.lock();
        // Another thread may have been faster.
        if let Some(found) = known(&plans) {
            return Ok(found);
        }
        if plans.len() == MOST_PLANS {
            plans.remove(0);
        }
        plans.push(Arc::clone(&made));
        Ok(made)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<P>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
