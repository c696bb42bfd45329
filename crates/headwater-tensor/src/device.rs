//! The name of a place an array can live in, as users write it.
//!
//! Only the name: nothing here asks whether the place exists. Unified memory carries no GPU ordinal, because it is host
//! memory that every GPU maps; which GPU reads it is decided by the operator.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Where an array lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// Ordinary host memory.
    Cpu,
    /// The memory of the GPU with this ordinal.
    Cuda(usize),
    /// Pinned host memory mapped into every GPU, read by both sides without a copy.
    Unified {
        /// Which side operators on this array prefer.
        affinity: Affinity,
    },
}

/// The side a unified array prefers to be computed on. Changing it moves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Affinity {
    /// Operators run on the GPU and results tend to stay there; the papers' "propagation".
    #[default]
    Gpu,
    /// Operators run on the CPU unless another operand asks for the GPU.
    Host,
}

impl Device {
    /// Whether arrays there are unified.
    pub const fn is_unified(self) -> bool {
        matches!(self, Device::Unified { .. })
    }
}

impl fmt::Display for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Affinity::Gpu => "gpu",
            Affinity::Host => "host",
        })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Device::Unified { affinity } => write!(f, "unified:{affinity}"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Device, Error> {
        let unknown = || Error::UnknownDevice { text: text.to_owned() };
        match text.split_once(':') {
            None => match text {
                "cpu" => Ok(Device::Cpu),
                "cuda" => Ok(Device::Cuda(0)),
                "unified" => Ok(Device::Unified { affinity: Affinity::default() }),
                _ => Err(unknown()),
            },
            Some(("cuda", ordinal)) => parse_ordinal(ordinal).map(Device::Cuda).ok_or_else(unknown),
            Some(("unified", "gpu")) => Ok(Device::Unified { affinity: Affinity::Gpu }),
            Some(("unified", "host")) => Ok(Device::Unified { affinity: Affinity::Host }),
            Some(_) => Err(unknown()),
        }
    }
}

/// `usize::from_str` also takes a leading plus, which no device name has.
fn parse_ordinal(text: &str) -> Option<usize> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for text in ["cpu", "cuda:0", "cuda:17", "unified:gpu", "unified:host"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        assert_eq!("unified".parse::<Device>().unwrap(), Device::Unified { affinity: Affinity::Gpu });
    }

    #[test]
    fn other_names_are_refused() {
        for text in
            ["", "CPU", "cpu:0", "cuda:", "cuda:+1", "cuda:-1", "cuda:x", "unified:", "unified:0", "gpu", " cpu"]
        {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
        assert!("cuda:99999999999999999999999".parse::<Device>().is_err());
    }
}
