//! What a layer asks for, without arguments: for help, and for callers that decide what to give.

use super::declare::{Declaration, Kind, declarations, size_names};
use super::fault::{Outcome, Source, Span};
use super::known::OptionValue;
use super::surface::Expression;
use super::{layer_of, python};
use crate::error::Result;
use crate::inter::Domain;

/// What a layer asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Signature {
    /// The layer's name.
    pub layer: String,
    /// Names of all that follows but sizes, in the order of the text.
    pub parameters: Vec<String>,
    /// Rows that are given at every run.
    pub inputs: Vec<Declared>,
    /// Rows and matrices that are learnt.
    pub weights: Vec<Declared>,
    /// Sizes that the caller gives.
    pub sizes: Vec<String>,
    /// Options, all of which have a default.
    pub options: Vec<DeclaredOption>,
}

/// An input or a weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Which rows it has.
    pub domain: Domain,
    /// Its annotation, as it is written.
    pub annotation: String,
    /// What a row holds, as it is written: heads, if there are several, and the sizes of one.
    pub sizes: Vec<String>,
    /// The condition under which it is there, as it is written.
    pub when: Option<String>,
}

/// An option.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredOption {
    /// Its name.
    pub name: String,
    /// What it is if the caller says nothing.
    pub default: OptionValue,
    /// What it may be; empty where any value of the default's kind is right.
    pub choices: Vec<String>,
}

/// What the layer of a text asks for. `name` is what errors call the text.
pub fn signature(name: &str, text: &str) -> Result<Signature> {
    let source = Source { name, text };
    read(&source).map_err(|fault| source.error(fault))
}

fn read(source: &Source) -> Outcome<Signature> {
    let functions = python::parse(source.text)?;
    let layer = layer_of(&functions)?;
    let declared = declarations(layer)?;
    let sizes = size_names(&declared)?.into_iter().map(str::to_owned).collect();
    let mut signature = Signature {
        layer: layer.name.text.clone(),
        parameters: declared.iter().map(|declaration| declaration.name.text.clone()).collect(),
        inputs: vec![],
        weights: vec![],
        sizes,
        options: vec![],
    };
    for declaration in &declared {
        let name = declaration.name.text.clone();
        match &declaration.kind {
            Kind::Option(rule) => {
                let (default, choices) = (rule.default.clone(), rule.choices.clone());
                signature.options.push(DeclaredOption { name, default, choices });
            }
            Kind::Input { domain, sizes, .. } => signature.inputs.push(shown(source, declaration, *domain, sizes)),
            Kind::Weight { domain, sizes, .. } => signature.weights.push(shown(source, declaration, *domain, sizes)),
        }
    }
    Ok(signature)
}

fn shown(source: &Source, declaration: &Declaration, domain: Domain, sizes: &[Expression]) -> Declared {
    let written = |at: Span| source.text.get(at.start..at.end).unwrap_or_default().to_owned();
    Declared {
        name: declaration.name.text.clone(),
        domain,
        annotation: written(declaration.annotation.at),
        sizes: sizes.iter().map(|size| written(size.at)).collect(),
        when: declaration.when.map(|condition| written(condition.at)),
    }
}
