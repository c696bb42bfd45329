//! A run as fields that a program gives, each by its name.

use serde_json::{Map, Value};

use super::RunFile;
use super::nearest::nearest;
use crate::error::{Error, Result};

impl RunFile {
    /// Takes fields by name; null is one that was not given. What is wrong is named.
    pub fn of_fields(fields: impl IntoIterator<Item = (String, Value)>) -> Result<Self> {
        let mut given = Self::default();
        for (field, value) in fields {
            if !Self::FIELDS.contains(&field.as_str()) {
                let nearest = nearest(&field, Self::FIELDS).map(str::to_owned);
                return Err(Error::NoField { field, nearest });
            }
            // One at a time: what is wrong with a value does not say whose it is.
            let only = Map::from_iter([(field.clone(), value)]);
            let wrong = |why: serde_json::Error| Error::Field { field, why: why.to_string() };
            given = serde_json::from_value::<Self>(Value::Object(only)).map_err(wrong)?.over(given);
        }
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(fields: &[(&str, Value)]) -> Result<RunFile> {
        RunFile::of_fields(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())))
    }

    #[test]
    fn fields_are_taken_by_name_and_the_wrong_one_is_named() {
        let given = of(&[("hidden", json!(32)), ("fanout", json!([5, -1])), ("rate", Value::Null)]).unwrap();
        assert_eq!((given.hidden, given.fanout, given.rate), (Some(32), Some(vec![5, -1]), None));
        for (field, value, words) in [
            ("hiden", json!(1), "there is no field \"hiden\"; did you mean \"hidden\"?"),
            ("hidden", json!("x"), "hidden: invalid type: string \"x\", expected usize"),
            ("model", json!("sagee"), "model: there is no model \"sagee\""),
        ] {
            let refused = of(&[(field, value)]).unwrap_err().to_string();
            assert!(refused.starts_with(words), "{refused}");
        }
    }
}
