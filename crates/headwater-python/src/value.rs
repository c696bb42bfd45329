//! Plain values between Python and JSON: numbers, words, lists and dictionaries.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use serde_json::{Map, Number, Value};

/// What Python gave for a field. Paths are words, and anything that can be gone through is a list.
pub fn of_python(field: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::Null);
    }
    // A bool is an int too.
    if let Ok(yes) = value.cast::<PyBool>() {
        return Ok(Value::Bool(yes.is_true()));
    }
    if value.cast::<PyInt>().is_ok() {
        let whole = value.extract::<i64>().map(Number::from).or_else(|_| value.extract::<u64>().map(Number::from));
        return whole.map(Value::Number);
    }
    if let Ok(real) = value.cast::<PyFloat>() {
        // JSON has no word for what is no number; the field says what it should be.
        return Ok(Number::from_f64(real.value()).map_or_else(|| Value::from(real.to_string()), Value::Number));
    }
    if let Ok(word) = value.cast::<PyString>() {
        return Ok(Value::from(word.to_str()?));
    }
    if value.hasattr("__fspath__")? {
        return Ok(Value::from(value.call_method0("__fspath__")?.extract::<String>()?));
    }
    if let Ok(items) = value.try_iter() {
        return items.map(|item| of_python(field, &item?)).collect::<PyResult<Vec<_>>>().map(Value::Array);
    }
    let kind = value.get_type();
    Err(PyTypeError::new_err(format!("{field} is a {kind}; it should be a number, a word or a list")))
}

/// All fields of a dictionary.
pub fn fields(given: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Value)>> {
    let one = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let field: String = key.extract()?;
        let value = of_python(&field, &value)?;
        Ok((field, value))
    };
    given.iter().map(one).collect()
}

/// A value as Python has it.
pub fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(yes) => PyBool::new(py, *yes).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => whole.into_pyobject(py)?.into_any(),
            (None, Some(whole)) => whole.into_pyobject(py)?.into_any(),
            _ => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(word) => PyString::new(py, word).into_any(),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Object(fields) => to_dict(py, fields)?.into_any(),
    })
}

/// An object as a dictionary.
pub fn to_dict<'py>(py: Python<'py>, fields: &Map<String, Value>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (field, value) in fields {
        dict.set_item(field, to_python(py, value)?)?;
    }
    Ok(dict)
}
