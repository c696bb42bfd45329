//! Layers that come with the compiler. They are texts like any other, and go the same way.

/// All of them, by name.
pub const BUILTIN: [(&str, &str); 8] = [
    ("gcn", include_str!("../../models/gcn.py")),
    ("sage", include_str!("../../models/sage.py")),
    ("gat", include_str!("../../models/gat.py")),
    ("gin", include_str!("../../models/gin.py")),
    ("rgcn", include_str!("../../models/rgcn.py")),
    ("rgat", include_str!("../../models/rgat.py")),
    ("hgt", include_str!("../../models/hgt.py")),
    ("mlp", include_str!("../../models/mlp.py")),
];

/// The text of a layer that comes with the compiler.
#[must_use]
pub fn builtin(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
