//! Every option of every command does something that can be seen, or is refused with a reason.
//!
//! No option is listed here. The tests walk the command line as clap knows it, change one option after the other to another
//! value of its type, and compare the run with one that did not have it (`watch.rs`). A command needs words that run it
//! quickly (`commands!`); a command without them fails, and so does an option that is taken and changes nothing.

mod place;
mod values;
mod watch;

use std::collections::BTreeSet;

use clap::{Arg, ArgAction, Command, CommandFactory};
use headwater::train::run_config::RunFile;

use self::place::Place;
use self::values::{is_flag, is_word, others, words_of};
use self::watch::{Seen, is_echo, is_noise, watch};
use crate::program::fails_with;
use crate::source::args::Args;

/// What became of an option.
#[derive(Debug, PartialEq)]
enum Outcome {
    Changed(String),
    Refused(String),
    /// Taken, and nothing was different; or refused in words that do not say what is meant.
    Idle(String),
}

/// Words that run each command, in a folder with the files of `place.rs`. Every one is a test.
macro_rules! commands {
    ($($name:ident: $words:literal,)*) => {
        const BASES: &[&str] = &[$($words),*];
        $(#[test]
        fn $name() {
            check($words);
        })*
    };
}

commands! {
    info: "info",
    ingest: "ingest graph.csv -o made --json",
    inspect: "inspect flipped --no-verify --json",
    export: "export data --npy made",
    reorder: "reorder data -o made --json",
    tier: "tier data --fanout 3,3 --batch 16 --batches 2 --gpu-share 0.1 --json",
    train_resumed: "train --resume run --epochs 10 --json",
    train: "train flipped -o made --device cpu --hidden 8 --epochs 5 --rate 0.3 --seed 2 --batch 32 --json",
    infer: "infer run --json",
    compile: "compile gat --json",
    offload_plan: "offload plan --hidden 2048 --layers 16 --sequence 65536 --batch 1 --checkpoint --host-gb 1 --disk-write 2 --disk-read 0.7 --endurance 1 --json",
    produce: "produce",
    generate_rmat: "generate rmat --nodes-log2 6 --edges-per-node 4 -o made --json",
    generate_planted: "generate planted --nodes 200 --edges-per-node 4 -o made --json",
    generate_like: "generate like aifb --scale 0.02 -o made --json",
    bench_gather: "bench gather --table-gib 0.001 --width 128 --gathered-mib 1 --least-ms 1 --json",
    bench_sample: "bench sample data --fanout 3,3 --batch 16 --batches 4 --json",
    bench_reorder: "bench reorder --like products --scale 0.0002 --json",
    bench_tier: "bench tier data --fanout 3,3 --batch 16 --batches 4 --shares 0,50 --rounds 1 --disk-batches 2 --json",
    bench_train: "bench train --scale 0.0005 --model sage --fanout 3,3 --batch 16 --hidden 8 --batches 2 --json",
    bench_layer: "bench layer --scale 0.002 --width 8 --rounds 1 --json",
    bench_score: "bench score data --fanout 3,3 --batch 16 --rounds 1 --json",
}

#[test]
fn every_command_is_checked() {
    let mut leaves = Vec::new();
    walk(&Args::command(), String::new(), &mut leaves);
    let is_checked = |leaf: &String| BASES.iter().any(|base| base.starts_with(leaf.as_str()));
    let missing: Vec<&String> = leaves.iter().filter(|leaf| !is_checked(leaf)).collect();
    assert!(missing.is_empty(), "commands without words to run them: {missing:?}");
}

#[test]
fn help_names_what_may_change_when_a_run_goes_on() {
    let command = Args::command();
    let train = command.find_subcommand("train").unwrap();
    let resume = train.get_arguments().find(|arg| arg.get_id() == "resume").unwrap();
    let help = resume.get_help().unwrap().to_string();
    let (_, behind) = help.split_once('(').unwrap();
    let said: BTreeSet<String> =
        behind.split_once(')').unwrap().0.split(',').map(|name| name.trim().replace('-', "_")).collect();
    let known: BTreeSet<String> = RunFile::CHANGEABLE.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(said, known);
}

#[test]
fn lists_are_given_once_unless_their_help_says_otherwise() {
    fn check(command: &Command, wrong: &mut Vec<String>) {
        let takes_values = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        for arg in command.get_arguments().filter(takes_values) {
            let says = arg.get_help().is_some_and(|help| help.to_string().contains("may be given several times"));
            if says != matches!(arg.get_action(), ArgAction::Append) {
                wrong.push(format!("{} {}", command.get_name(), shown(arg)));
            }
        }
        command.get_subcommands().for_each(|below| check(below, wrong));
    }
    let mut wrong = Vec::new();
    check(&Args::command(), &mut wrong);
    assert!(wrong.is_empty(), "{wrong:?}");
    fails_with(&["train", "--fanout", "3,3", "--fanout", "3"], "cannot be used multiple times");
}

fn walk(command: &Command, path: String, leaves: &mut Vec<String>) {
    if !command.has_subcommands() {
        leaves.push(path.clone());
    }
    for below in command.get_subcommands() {
        walk(below, format!("{path} {}", below.get_name()).trim().to_owned(), leaves);
    }
}

/// Runs a command without and with each of its options.
fn check(words: &str) {
    let base = Base::new(words);
    let (mut changed, mut refused, mut idle) = (0, 0, Vec::new());
    for arg in base.command.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())) {
        match base.judge(arg) {
            Outcome::Changed(what) => {
                changed += 1;
                tell(&format!("  changed  {what}"));
            }
            Outcome::Refused(what) => {
                refused += 1;
                tell(&format!("  refused  {what}"));
            }
            Outcome::Idle(what) => idle.push(what),
        }
    }
    tell(&format!("{words}: {} options, {changed} changed, {refused} refused", changed + refused + idle.len()));
    assert!(idle.is_empty(), "options of `{words}` that are taken and do nothing:\n{}", idle.join("\n"));
}

#[expect(clippy::print_stderr, reason = "what was found is shown with the test")]
fn tell(text: &str) {
    eprintln!("{text}");
}

/// A command as it runs without the option in question.
struct Base {
    place: Place,
    command: Command,
    words: Vec<String>,
    seen: [Seen; 3],
}

impl Base {
    fn new(words: &str) -> Self {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut command = Args::command();
        while let Some(below) = words.iter().find_map(|word| command.find_subcommand(word)) {
            command = below.clone();
        }
        let place = Place::new();
        let seen = [(); 3].map(|()| watch(&words, place.fresh().path()));
        let runs = seen[0].code == Some(0) || !command.get_arguments().any(|_| true);
        assert!(runs, "{words:?}: {}", seen[0].stderr);
        Self { place, command, words, seen }
    }

    fn run(&self, words: &[String]) -> Seen {
        watch(words, self.place.fresh().path())
    }

    fn judge(&self, arg: &Arg) -> Outcome {
        let at = self.find(arg);
        let mut tries = self.tries(arg, at.as_ref());
        let (mut refused, mut unnamed, mut same) = (Vec::new(), Vec::new(), Vec::new());
        if tries.is_empty() {
            return Outcome::Idle(format!("{}: no other value is known", shown(arg)));
        }
        for words in tries.drain(..) {
            let with = words.iter().filter(|word| !self.words.contains(word)).cloned().collect::<Vec<_>>().join(" ");
            let with =
                if with.is_empty() { format!("without {}", shown(arg)) } else { format!("{} ({with})", shown(arg)) };
            let seen = self.run(&words);
            if seen.code != Some(0) {
                let is_nonsense = seen.code == Some(2) && seen.stderr.contains("invalid value");
                let why = format!("{with}: {}", seen.stderr.lines().last().unwrap_or_default());
                let count = |of: &[String], word: &String| of.iter().filter(|own| *own == word).count();
                let is_new = |word: &&String| count(&words, word) > count(&self.words, word);
                let is_value_named =
                    words.iter().filter(is_new).any(|word| word.len() > 2 && seen.stderr.contains(word));
                // What a flag alone makes fail is about that flag.
                match is_flag(arg) || names(arg, &seen.stderr) || is_value_named {
                    _ if is_nonsense => {}
                    true => refused.push(why),
                    false => unnamed.push(why),
                }
                continue;
            }
            match self.difference(arg, &words, &seen) {
                Some(what) => return Outcome::Changed(format!("{with}: {what}")),
                None => same.push(with),
            }
        }
        // Words that name what is done anyway change nothing, and one that names what cannot be done is refused. A number that
        // is out of range is refused too: more must be than are taken.
        if let Some(why) = unnamed.pop() {
            return Outcome::Idle(format!("{why}: the refusal does not say what it is about"));
        }
        let is_refused = if is_word(arg) { !refused.is_empty() } else { refused.len() > same.len() };
        match refused.pop().or_else(|| self.excludes(arg)) {
            Some(why) if is_refused || same.len() == 1 && is_flag(arg) => Outcome::Refused(why),
            _ if same.is_empty() => Outcome::Idle(format!("{}: no value is understood", shown(arg))),
            _ => Outcome::Idle(format!("{}: nothing changes", same.join(", "))),
        }
    }

    /// A flag that names what is done anyway is there to be refused beside those that it excludes.
    fn excludes(&self, arg: &Arg) -> Option<String> {
        let other = self.command.get_arg_conflicts_with(arg).into_iter().find(|other| is_flag(other))?;
        let both = [arg, other].map(|arg| format!("--{}", arg.get_long().unwrap_or_default()));
        let seen = self.run(&[&self.words[..], &both[..]].concat());
        (seen.code == Some(2)).then(|| seen.stderr.lines().next().unwrap_or_default().to_owned())
    }

    /// What is different from the runs without it, in this run and in another like it.
    fn difference(&self, arg: &Arg, words: &[String], first: &Seen) -> Option<String> {
        if self.differs(arg, std::slice::from_ref(first)).is_none_or(|found| found.is_empty()) {
            return None;
        }
        let second = self.run(words);
        self.differs(arg, &[first.clone(), second])
    }

    fn differs(&self, arg: &Arg, with: &[Seen]) -> Option<String> {
        let option = arg.get_id().as_str();
        let places: BTreeSet<&String> = self.seen.iter().chain(with).flat_map(|seen| seen.leaves.keys()).collect();
        let found = places.into_iter().find(|place| {
            let values = |seen: &[Seen]| -> BTreeSet<Option<String>> {
                seen.iter().map(|seen| seen.leaves.get(*place).cloned()).collect()
            };
            let (without, with) = (values(&self.seen), values(with));
            let appears = |these: &BTreeSet<_>, others: &BTreeSet<_>| {
                *these == BTreeSet::from([None]) && !others.contains(&None) && place.starts_with("file:")
            };
            let is_there = appears(&without, &with) || appears(&with, &without);
            let is_other = without.len() == 1 && with.len() == 1 && without != with;
            // The spread of one measurement is nothing, and that of several is something.
            let zero = Some("0.0".to_owned());
            let is_spread = without == BTreeSet::from([zero.clone()]) && !with.contains(&zero) && !with.contains(&None);
            is_there || is_spread || (!is_noise(place) && !is_echo(place, option) && is_other)
        });
        let most = |of: fn(&Seen) -> u64| self.seen.iter().map(of).max().unwrap_or(0);
        let (threads, ticks) = (most(|seen| seen.threads as u64), most(|seen| seen.ticks));
        let has_more = with.iter().all(|seen| seen.threads as u64 > threads + 1);
        let is_longer = with.iter().all(|seen| seen.ticks > 2 * ticks + 5);
        let more = has_more.then(|| "more threads".to_owned());
        found.cloned().or(more).or_else(|| is_longer.then(|| "more processor time".to_owned()))
    }

    /// Where an option stands among the words, and how many it takes.
    fn find(&self, arg: &Arg) -> Option<std::ops::Range<usize>> {
        let positionals: Vec<&Arg> = self.command.get_positionals().collect();
        let depth = 1 + self.words.iter().rposition(|word| word == self.command.get_name())?;
        let (mut at, mut positional) = (depth, 0);
        while at < self.words.len() {
            let word = &self.words[at];
            let named = self.command.get_arguments().find(|arg| {
                arg.get_long().is_some_and(|long| *word == format!("--{long}"))
                    || arg.get_short().is_some_and(|short| *word == format!("-{short}"))
            });
            let (here, end) = match named {
                Some(named) if is_flag(named) => (named, at + 1),
                Some(named) => (named, at + 2),
                None => {
                    positional += 1;
                    (*positionals.get(positional - 1)?, at + 1)
                }
            };
            if here.get_id() == arg.get_id() {
                return Some(at..end);
            }
            at = end;
        }
        None
    }

    /// The command with other values of an option.
    fn tries(&self, arg: &Arg, at: Option<&std::ops::Range<usize>>) -> Vec<Vec<String>> {
        let rest = |more: &[String]| match at {
            Some(at) => [&self.words[..at.start], more, &self.words[at.end..]].concat(),
            None => [&self.words[..], more].concat(),
        };
        let name = arg.get_long().map(|long| format!("--{long}"));
        if is_flag(arg) {
            return vec![if at.is_some() { rest(&[]) } else { rest(name.as_slice()) }];
        }
        let default =
            arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",");
        let now = at.map(|at| self.words[at.end - 1].clone()).or((!default.is_empty()).then_some(default));
        let with = |value: String| rest(&name.iter().cloned().chain([value]).collect::<Vec<_>>());
        let mut values = others(arg, now.as_deref());
        if values.is_empty() {
            // What is said of nonsense names what would be right.
            values = words_of(&self.run(&with("nonsense".to_owned())).stderr);
            values.push("nonsense".to_owned());
            values.retain(|value| Some(value) != now.as_ref());
        }
        values.into_iter().map(with).collect()
    }
}

/// Whether a refusal says which option it is about.
fn names(arg: &Arg, refusal: &str) -> bool {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], " ");
    let id = arg.get_id().as_str();
    [id, arg.get_long().unwrap_or(id)].iter().any(|name| plain(refusal).contains(&plain(name)))
}

fn shown(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| format!("<{}>", arg.get_id()), |long| format!("--{long}"))
}
