//! Values that a text names on nodes and edges: `n["z"]`, `e["a"]`.
//!
//! A name stands for one value a domain. Sums over edges are finished when their loop is, and cannot be read before.

use std::collections::{BTreeMap, BTreeSet};

use super::Expand;
use super::meaning::plural;
use crate::front::fault::{Outcome, Span};
use crate::inter::{Binary, Domain, Reduce, ValueId};

/// Values by name and domain.
#[derive(Debug, Default)]
pub struct Fields {
    done: BTreeMap<String, BTreeMap<Domain, Field>>,
    /// Sums of the loop over edges that is being walked.
    sums: BTreeMap<(String, Domain), Field>,
    /// What that loop read of nodes.
    read: BTreeSet<(String, Domain)>,
}

/// A value and where it was defined.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    value: ValueId,
    at: Span,
}

impl Fields {
    /// The coarsest domain that has the name.
    pub fn find(&self, name: &str) -> Option<(Domain, Field)> {
        self.done.get(name)?.first_key_value().map(|(domain, field)| (*domain, *field))
    }

    fn get(&self, name: &str, domain: Domain) -> Option<Field> {
        self.done.get(name)?.get(&domain).copied()
    }
}

impl Expand<'_> {
    /// Reads `name` of an element: its own value, or for a node that is written the value of the same node among all.
    pub fn field(&mut self, name: &str, element: Domain, at: Span) -> Outcome<ValueId> {
        let found = self.fields.get(name, element).map(|field| (element, field));
        let shared = || self.fields.get(name, Domain::SRC).filter(|_| element == Domain::DST).map(|f| (Domain::SRC, f));
        let Some((domain, field)) = found.or_else(shared) else {
            return Err(at.fault(self.not_there(name, element, at)));
        };
        self.note_read(name, domain, at)?;
        let own = self.builder.lift(field.value, element);
        let own = self.built(own, at)?;
        self.lift_here(own, at)
    }

    /// `n["z"] = value`
    pub fn define(&mut self, name: &str, element: Domain, value: ValueId, at: Span) -> Outcome<()> {
        if element != self.here {
            return Err(at.fault("every edge would write it again; expected `+=`, which adds up over edges"));
        }
        if let Some(Field { at: before, .. }) = self.fields.get(name, element) {
            let line = self.source.line(before);
            let of = plural(element);
            let why = format!("`{name}` of {of} is defined already (line {line}); expected another name or `+=`");
            return Err(at.fault(why));
        }
        let value = self.lift_here(value, at)?;
        self.store(name, element, value, at);
        Ok(())
    }

    /// `n["h"] += value`: to what is there, or over the edges of the loop.
    pub fn add(&mut self, name: &str, element: Domain, value: ValueId, at: Span) -> Outcome<()> {
        if element != self.here {
            return self.add_over_edges(name, element, value, at);
        }
        let Some(field) = self.fields.get(name, element) else {
            return Err(at.fault(format!("there is no `{name}` of {} to add to; expected `=`", plural(element))));
        };
        let sum = self.plus(Some(field), value, at)?;
        self.store(name, element, sum, at);
        Ok(())
    }

    fn add_over_edges(&mut self, name: &str, element: Domain, value: ValueId, at: Span) -> Outcome<()> {
        let key = (name.to_owned(), element);
        if self.fields.read.contains(&key) {
            return Err(at.fault(format!("`{name}` was read in this loop; expected another name for what is added up")));
        }
        if let (None, Some((domain, before))) = (self.fields.get(name, element), self.fields.find(name))
            && matches!(domain, Domain::Node(_))
        {
            let (on, line) = (plural(domain), self.source.line(before.at));
            return Err(
                at.fault(format!("`{name}` is computed on {on} (line {line}); expected another name for the sum"))
            );
        }
        let value = self.lift_here(value, at)?;
        let sum = self.builder.reduce(value, element, Reduce::Sum);
        let sum = self.built(sum, at)?;
        let value = self.plus(self.fields.sums.get(&key).copied(), sum, at)?;
        self.fields.sums.insert(key, Field { value, at });
        Ok(())
    }

    /// Begins a loop over edges: what was read before does not matter.
    pub fn begin_sums(&mut self) {
        self.fields.read.clear();
    }

    /// Ends a loop over edges: sums can be read now.
    pub fn finish_sums(&mut self) -> Outcome<()> {
        for ((name, element), Field { value, at }) in std::mem::take(&mut self.fields.sums) {
            let sum = self.plus(self.fields.get(&name, element), value, at)?;
            self.store(&name, element, sum, at);
        }
        Ok(())
    }

    /// The layer's result, for nodes that are written.
    pub fn result(&mut self, at: Span) -> Outcome<ValueId> {
        let found = self.fields.get("out", Domain::DST).or_else(|| self.fields.get("out", Domain::SRC));
        match found {
            Some(field) => {
                let out = self.builder.lift(field.value, Domain::DST);
                self.built(out, field.at)
            }
            None => Err(at.fault("a layer's result is n[\"out\"]; expected one in a loop over g.dst_nodes()")),
        }
    }

    /// A value and what was there before it.
    fn plus(&mut self, before: Option<Field>, value: ValueId, at: Span) -> Outcome<ValueId> {
        match before {
            Some(before) => {
                let sum = self.builder.binary(Binary::Add, before.value, value);
                self.built(sum, at)
            }
            None => Ok(value),
        }
    }

    fn store(&mut self, name: &str, element: Domain, value: ValueId, at: Span) {
        self.label(value, name);
        self.fields.done.entry(name.to_owned()).or_default().insert(element, Field { value, at });
    }

    /// What a node has may not be read while a loop over edges adds to it.
    fn note_read(&mut self, name: &str, domain: Domain, at: Span) -> Outcome<()> {
        let key = (name.to_owned(), domain);
        if self.fields.sums.contains_key(&key) {
            return Err(
                at.fault(format!("`{name}` is being added up in this loop; expected to read it after the loop"))
            );
        }
        if self.here == Domain::Edge && domain != Domain::Edge {
            self.fields.read.insert(key);
        }
        Ok(())
    }

    fn not_there(&self, name: &str, element: Domain, at: Span) -> String {
        let quoted = self.source.quote(at);
        if self.fields.sums.keys().any(|(sum, _)| sum == name) {
            return format!("{quoted} is being added up in this loop; expected to read it after the loop");
        }
        if let Some((domain, field)) = self.fields.find(name) {
            let line = self.source.line(field.at);
            let from = if element == Domain::Edge { "an edge" } else { "a node" };
            let (on, expected) = (plural(domain), plural(element));
            return format!(
                "{quoted} is computed on {on} (line {line}), but read from {from}; expected a value of {expected}"
            );
        }
        if self.inputs.contains_key(name) {
            return format!("`{name}` is an input; expected `.{name}`, found {quoted}");
        }
        format!("there is no {quoted} so far; expected a value that a statement above defines")
    }
}
