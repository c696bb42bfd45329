//! Which options somebody typed, for commands that cannot follow all of them everywhere.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::ArgMatches;
use clap::parser::ValueSource;

/// The options on the command line, by their names. Those that have their default are not among them.
pub struct Given(BTreeSet<String>);

impl Given {
    /// Those of the innermost command.
    pub fn of(matches: &ArgMatches) -> Self {
        let mut matches = matches;
        while let Some((_, below)) = matches.subcommand() {
            matches = below;
        }
        let is_typed = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        // Groups are among them, by the names of their types.
        let typed = matches.ids().map(|id| id.as_str()).filter(|name| !name.starts_with(char::is_uppercase));
        Self(typed.filter(|name| is_typed(name)).map(str::to_owned).collect())
    }

    /// Refuses options that would be taken in vain.
    pub fn refuse(&self, names: &[&str], why: &str) -> anyhow::Result<()> {
        match names.iter().find(|name| self.0.contains(**name)) {
            Some(name) => bail!("--{} would change nothing: {why}", name.replace('_', "-")),
            None => Ok(()),
        }
    }

    /// Refuses all options but these.
    pub fn only(&self, names: &[&str], why: &str) -> anyhow::Result<()> {
        let others: Vec<&str> = self.0.iter().map(String::as_str).filter(|name| !names.contains(name)).collect();
        self.refuse(&others, why)
    }
}
