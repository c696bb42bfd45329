//! Small runs from end to end.
