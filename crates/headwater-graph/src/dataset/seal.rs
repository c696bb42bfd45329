//! The manifest's own checksum.
//!
//! It is taken of what the manifest says and not of how it is written: of the text with keys in order and without white
//! space, so that a manifest that was indented anew is still whole. Fields this version does not know count too.

use std::path::Path;

use serde_json::Value;

use super::checksum::{Checksum, block_sum, join};
use super::manifest::Manifest;
use crate::error::{Error, Result};

/// The field that holds it; the one field it is not taken of.
const FIELD: &str = "blake3";
/// Manifests of this version have none.
const WITHOUT: &str = "1.0";

/// Gives a manifest its checksum.
pub(super) fn seal(manifest: Manifest) -> serde_json::Result<Manifest> {
    let value = serde_json::to_value(&manifest)?;
    Ok(Manifest { blake3: Some(sum(value)), ..manifest })
}

/// Whether the text of a manifest says what was sealed. `path` is for messages.
pub(super) fn check(text: &[u8], path: &Path) -> Result<()> {
    let manifest = Manifest::parse(text, path)?;
    let wrong = |why: String| Error::Manifest { path: path.to_owned(), why };
    let value = serde_json::from_slice(text).map_err(|why| wrong(why.to_string()))?;
    let found = sum(value);
    match manifest.blake3 {
        Some(expected) if expected == found => Ok(()),
        None if manifest.version == WITHOUT => Ok(()),
        None => Err(wrong(format!("has no {FIELD:?}; expected {found}"))),
        Some(expected) => {
            let (found, expected) = (found.to_string(), expected.to_string());
            Err(Error::ArrayFile { path: path.to_owned(), what: "the checksum", found, expected })
        }
    }
}

/// The checksum of a manifest in its parsed form.
pub(super) fn sum(mut value: Value) -> Checksum {
    if let Value::Object(fields) = &mut value {
        fields.remove(FIELD);
    }
    let mut text = String::new();
    write(&value, &mut text);
    join(&[block_sum(0, &[text.as_bytes()])])
}

/// Keys are sorted here: whether they already are depends on how a program around us builds the parser.
fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (name, value) in fields {
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for value in values {
                write(value, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}
