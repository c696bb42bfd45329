//! What a suite shows of its cases: tables that are ready for a page of results, and bars.

use super::case::{Case, Direction};
use super::class::Class;
use super::figures::Figures;
use super::peers::{self, Peer};
use super::record::{Outcome, Setting};
use super::suite::{self, Grid, Plan};
use super::table::{NOTHING, Table, figure, geometric_mean};
use crate::args::LayerSuite;
use crate::picture::{Bar, Bars};

/// Characters for which there is room left of a bar.
const LONGEST_NAME: usize = 56;

/// Tables and bars of a suite.
pub struct Page {
    pub tables: Vec<Table>,
    pub bars: Bars,
}

/// All that was found of a suite.
pub struct Found<'a> {
    pub grid: Grid,
    /// What the suite `optimisations` compares.
    pub plans: Vec<Plan>,
    pub outcomes: &'a [Outcome],
    pub peers: &'a [Peer],
}

/// What a suite shows.
pub fn page(suite: LayerSuite, found: &Found<'_>) -> Page {
    match suite {
        LayerSuite::Systems => found.systems(),
        LayerSuite::Optimisations => found.optimisations(),
        LayerSuite::Memory => found.memory(),
        LayerSuite::Breakdown => found.breakdown(),
        LayerSuite::Width => found.width(),
        LayerSuite::Kernels => found.kernels(),
    }
}

/// How cases were measured, in a sentence.
pub fn setting(of: &Outcome) -> String {
    let Setting { scale, even, rounds, machine, .. } = &of.setting;
    let who = match (&machine.gpu_name, machine.threads) {
        (Some(name), _) => name.clone(),
        (None, threads) => format!("{} CPU threads", threads.unwrap_or(1)),
    };
    let drawn = if *even { "drawn evenly" } else { "crowded around hubs" };
    let precision = format!("{:?}", of.case.precision).to_lowercase();
    let copies = machine.copy_gb_per_s;
    format!(
        "{who}, copies at {copies:.0} GB/s, products in {precision}; medians of {rounds}; graphs at scale {scale}, edges {drawn}."
    )
}

impl Found<'_> {
    fn find(&self, is_it: impl Fn(&Case) -> bool) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| is_it(&outcome.case))
    }

    /// Cases with figures, in their order.
    fn measured(&self) -> impl Iterator<Item = (&Case, &Figures)> {
        self.outcomes.iter().filter_map(|outcome| Some((&outcome.case, outcome.figures()?)))
    }

    /// Models in both directions, as names of columns behind one without.
    fn columns(&self) -> Vec<String> {
        let name = |(model, direction): (&str, Direction)| format!("{} {}", model.to_uppercase(), direction.name());
        std::iter::once(String::new()).chain(self.pairs().map(name)).collect()
    }

    fn pairs(&self) -> impl Iterator<Item = (&'static str, Direction)> {
        let directions = self.grid.directions;
        self.grid.models.iter().flat_map(move |model| directions.iter().map(move |direction| (*model, *direction)))
    }

    /// Shapes below each other, models in both directions beside each other.
    fn by_shape(&self, heading: &str, cell: impl Fn(&Outcome) -> String) -> Table {
        let mut table = Table::new(heading, self.columns());
        for like in self.grid.shapes {
            let cells = self.pairs().map(|(model, direction)| {
                let found =
                    self.find(|own| (own.like.as_str(), own.model.as_str(), own.direction) == (like, model, direction));
                found.map_or_else(|| NOTHING.to_owned(), &cell)
            });
            table.rows.push(std::iter::once((*like).to_owned()).chain(cells).collect());
        }
        table
    }

    fn systems(&self) -> Page {
        let mut tables = vec![self.by_shape("Headwater, milliseconds", ms)];
        for who in peers::systems(self.peers) {
            let times = |outcome: &Outcome| -> Option<(f64, f64)> {
                let ours = outcome.figures()?;
                let theirs = peers::find(self.peers, who, &outcome.case, Some([ours.nodes, ours.edges]))?;
                Some((theirs, theirs / ours.total_ms))
            };
            let cell = |outcome: &Outcome| {
                let alone = || match outcome.figures() {
                    Some(_) => None,
                    None => peers::find(self.peers, who, &outcome.case, None).map(figure),
                };
                let both = times(outcome).map(|(theirs, ratio)| format!("{} ({})", figure(theirs), figure(ratio)));
                both.or_else(alone).unwrap_or_else(|| NOTHING.to_owned())
            };
            let mut table = self.by_shape(&format!("{who}, milliseconds (as a multiple of Headwater's)"), cell);
            let mean = |(model, direction): (&str, Direction)| {
                let own = self.outcomes.iter().filter(|own| own.case.model == model && own.case.direction == direction);
                let ratios: Vec<f64> = own.filter_map(times).map(|(_, ratio)| ratio).collect();
                geometric_mean(&ratios).map_or_else(|| NOTHING.to_owned(), |mean| format!("({})", figure(mean)))
            };
            table.rows.push(std::iter::once("geometric mean".to_owned()).chain(self.pairs().map(mean)).collect());
            tables.push(table);
        }
        Page { tables, bars: self.times("Layers of Hector's evaluation") }
    }

    /// Milliseconds of every case as bars.
    fn times(&self, title: &str) -> Bars {
        let bar = |(case, found): (&Case, &Figures)| Bar {
            name: case.words(),
            lengths: vec![found.total_ms],
            figure: format!("{} ms", figure(found.total_ms)),
        };
        Bars { title: title.to_owned(), parts: Vec::new(), bars: self.measured().map(bar).collect() }
    }

    fn optimisations(&self) -> Page {
        let none = self.plans.first().map_or(&[][..], |plan| &plan.without[..]);
        let speed_up = |outcome: &Outcome| -> Option<f64> {
            let without = self.find(|own| *own == Case { without: none.to_vec(), ..outcome.case.clone() })?;
            Some(without.figures()?.total_ms / outcome.figures()?.total_ms)
        };
        let cell = |outcome: &Outcome| match speed_up(outcome) {
            Some(times) => format!("{} ({})", ms(outcome), figure(times)),
            None => ms(outcome),
        };
        let mut tables = Vec::new();
        for like in self.grid.shapes {
            let heading = format!("{like}, milliseconds (speed-up over none)");
            let mut table = Table::new(&heading, self.columns());
            for plan in &self.plans {
                let cells = self.pairs().map(|(model, direction)| {
                    let own = (like, model, direction, &plan.without);
                    let found = self
                        .find(|case| (&case.like.as_str(), case.model.as_str(), case.direction, &case.without) == own);
                    found.map_or_else(|| NOTHING.to_owned(), cell)
                });
                table.rows.push(std::iter::once(plan.label.clone()).chain(cells).collect());
            }
            tables.push(table);
        }
        let mut bars = Vec::new();
        for (plan, direction) in self.plans.iter().flat_map(|plan| suite::BOTH.map(|direction| (plan, direction))) {
            let own = self.outcomes.iter().filter(|own| own.case.without == plan.without);
            let ratios: Vec<f64> = own.filter(|own| own.case.direction == direction).filter_map(speed_up).collect();
            if let Some(mean) = geometric_mean(&ratios) {
                let (name, figure) = (format!("{} {}", plan.label, direction.name()), figure(mean));
                bars.push(Bar { name, lengths: vec![mean], figure: format!("{figure} ({} cases)", ratios.len()) });
            }
        }
        let title = "Speed-up over no optimisation, geometric means of cases that run with both".to_owned();
        Page { tables, bars: Bars { title, parts: Vec::new(), bars } }
    }

    fn memory(&self) -> Page {
        let columns = [
            "",
            "smallest MB",
            "peak MB",
            "of smallest",
            "graph's lists MB",
            "peak MB without compaction",
            "of smallest",
            "saved",
        ];
        let mut table = Table::new("Memory of training", columns);
        let mut bars = Vec::new();
        let mb = |bytes: usize| figure(bytes as f64 / 1e6);
        let share = |found: &Figures| found.peak_bytes as f64 / found.least_bytes.max(1) as f64;
        let pairs = self.grid.shapes.iter().flat_map(|like| self.grid.models.iter().map(move |model| (*like, *model)));
        for (like, model) in pairs {
            let found = |is_all: bool| {
                self.find(|own| own.like == like && own.model == model && own.without.is_empty() == is_all)
            };
            let (all, plain) = (found(true), found(false));
            let show = |of: Option<&Outcome>, what: &dyn Fn(&Figures) -> String| match of {
                Some(outcome) => outcome.figures().map_or_else(|| failure(outcome), what),
                None => NOTHING.to_owned(),
            };
            let times = |found: &Figures| format!("{} x", figure(share(found)));
            let saved = || {
                let (all, plain) = (all?.figures()?.peak_bytes as f64, plain?.figures()?.peak_bytes as f64);
                Some(format!("{:.0}%", 100.0 * (1.0 - all / plain.max(1.0))))
            };
            let lists = |found: &Figures| found.graph_bytes.map_or_else(|| NOTHING.to_owned(), mb);
            table.rows.push(vec![
                format!("{like} {}", model.to_uppercase()),
                show(all.filter(|own| own.figures().is_some()).or(plain), &|found| mb(found.least_bytes)),
                show(all, &|found| mb(found.peak_bytes)),
                show(all, &times),
                show(all, &lists),
                show(plain, &|found| mb(found.peak_bytes)),
                show(plain, &times),
                saved().unwrap_or_else(|| NOTHING.to_owned()),
            ]);
            for (name, own) in [("", all), (" without compaction", plain)] {
                bars.extend(own.and_then(Outcome::figures).map(|found| Bar {
                    name: format!("{like} {model}{name}"),
                    lengths: vec![share(found)],
                    figure: format!("{} x, {} MB", figure(share(found)), mb(found.peak_bytes)),
                }));
            }
        }
        let title = "Peak memory of training over inputs, outputs, weights and gradients".to_owned();
        Page { tables: vec![table], bars: Bars { title, parts: Vec::new(), bars } }
    }

    fn breakdown(&self) -> Page {
        let names = Class::ALL.map(Class::name);
        let columns = std::iter::once("").chain(names).chain(["all launches", "replayed"]);
        let mut table = Table::new("Time by class of kernel, milliseconds (share of all launches)", columns);
        let mut bars = Vec::new();
        for outcome in self.outcomes {
            let name = row_name(&outcome.case);
            let Some(found) = outcome.figures() else {
                let cells = std::iter::repeat_n(failure(outcome), table.columns.len() - 1);
                table.rows.push(std::iter::once(name).chain(cells).collect());
                continue;
            };
            let times = Class::ALL.map(|class| {
                let own = found.kernels.iter().filter(|own| own.class == class);
                own.fold(0.0, |sum, own| sum + own.ms)
            });
            let sum = times.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            let shown = times.map(|time| match time {
                0.0 => NOTHING.to_owned(),
                _ => format!("{} ({:.0}%)", figure(time), 100.0 * time / sum),
            });
            let last = [figure(sum), figure(found.total_ms)];
            table.rows.push(std::iter::once(name.clone()).chain(shown).chain(last).collect());
            let lengths = times.map(|time| time / sum).to_vec();
            bars.push(Bar { name, lengths, figure: format!("{} ms", figure(found.total_ms)) });
        }
        let (title, parts) = ("Time by class of kernel".to_owned(), names.map(str::to_owned).to_vec());
        Page { tables: vec![table], bars: Bars { title, parts, bars } }
    }

    fn width(&self) -> Page {
        let mut tables = Vec::new();
        for like in self.grid.shapes {
            let mut table = Table::new(&format!("{like}, milliseconds"), self.columns());
            for size in self.grid.sizes {
                let cells = self.pairs().map(|(model, direction)| {
                    let own = (like, model, direction, size.width, size.heads);
                    let found = self.find(|case| {
                        (&case.like.as_str(), case.model.as_str(), case.direction, case.width, case.heads) == own
                    });
                    found.map_or_else(|| NOTHING.to_owned(), ms)
                });
                let name =
                    format!("width {}, {} {}", size.width, size.heads, if size.heads > 1 { "heads" } else { "head" });
                table.rows.push(std::iter::once(name).chain(cells).collect());
            }
            tables.push(table);
        }
        Page { tables, bars: self.times("Widths and heads") }
    }

    fn kernels(&self) -> Page {
        let (mut tables, mut bars) = (Vec::new(), Vec::new());
        for outcome in self.outcomes {
            let name = row_name(&outcome.case);
            let Some(found) = outcome.figures() else { continue };
            let copies = outcome.setting.machine.copy_gb_per_s;
            let heading = format!("{name}: {} ms", figure(found.total_ms));
            let columns = ["kernel", "pass", "class", "ms", "GB/s", "of a copy's", "TFLOP/s"];
            let mut table = Table::new(&heading, columns);
            for kernel in &found.kernels {
                let reached = kernel.gb_per_s / copies;
                table.rows.push(vec![
                    kernel.kernel.clone(),
                    kernel.pass.clone(),
                    kernel.class.name().to_owned(),
                    figure(kernel.ms),
                    figure(kernel.gb_per_s),
                    format!("{:.0}%", 100.0 * reached),
                    figure(kernel.tflop_per_s),
                ]);
                let named = format!("{} {}: {}", outcome.case.like, outcome.case.model, kernel.kernel);
                let name = named.chars().take(LONGEST_NAME).collect();
                let figure = format!("{:.0}%, {} ms", 100.0 * reached, figure(kernel.ms));
                bars.push(Bar { name, lengths: vec![reached], figure });
            }
            tables.push(table);
        }
        Page {
            tables,
            bars: Bars { title: "Kernels: part of the speed of a copy".to_owned(), parts: Vec::new(), bars },
        }
    }
}

/// Shape, model and direction.
fn row_name(case: &Case) -> String {
    format!("{} {} {}", case.like, case.model.to_uppercase(), case.direction.name())
}

fn ms(outcome: &Outcome) -> String {
    outcome.figures().map_or_else(|| failure(outcome), |found| figure(found.total_ms))
}

/// What stands in the place of a figure; the reason stands below.
fn failure(outcome: &Outcome) -> String {
    // As the driver, the arena and the back end on the CPU say it; an illegal access of memory is another matter.
    let says = |why: &str| ["out of ", "OUT_OF_MEMORY", "host memory"].iter().any(|words| why.contains(words));
    if outcome.failure().is_some_and(says) { "no memory" } else { "failed" }.to_owned()
}

#[cfg(test)]
mod tests {
    use headwater::compile::Optimisations;
    use headwater::train::run_config::PrecisionName;

    use super::super::record::tests::{failed, measured};
    use super::*;

    /// A suite whose cases took 8 ms without optimisations, 4 ms with some and 2 ms with all, but for mag, which failed where
    /// some were left out.
    fn shown(suite: LayerSuite, peers: &[Peer]) -> Page {
        let on = Optimisations::GPU;
        let outcome = |case: Case| {
            let (ms, bytes) = match case.without.len() {
                0 => (2.0, 1500),
                1..5 => (4.0, 3000),
                _ => (8.0, 3000),
            };
            let is_short = case.like == "mag" && !case.without.is_empty();
            if is_short { failed(case, "out of device memory") } else { measured(case, ms, bytes) }
        };
        let cases = suite::cases(suite, on, PrecisionName::Tf32x3, None);
        let outcomes: Vec<Outcome> = cases.into_iter().map(outcome).collect();
        let (grid, plans) = (suite::grid(suite), suite::plans(on));
        page(suite, &Found { grid, plans, outcomes: &outcomes, peers })
    }

    /// The row of a name as text.
    fn row(table: &Table, name: &str) -> String {
        table.rows.iter().find(|cells| cells[0] == name).unwrap()[1..].join(" ")
    }

    #[test]
    fn every_row_is_as_long_as_its_heading_and_no_page_is_empty() {
        use clap::ValueEnum;
        for suite in LayerSuite::value_variants() {
            let page = shown(*suite, &[]);
            assert!(!page.tables.is_empty() && !page.bars.bars.is_empty(), "{suite:?}");
            for table in page.tables {
                assert!(!table.rows.is_empty(), "{suite:?}");
                assert!(table.rows.iter().all(|cells| cells.len() == table.columns.len()), "{suite:?} {table}");
            }
            let parts = page.bars.parts.len().max(1);
            assert!(page.bars.bars.iter().all(|bar| bar.lengths.len() == parts), "{suite:?}");
        }
    }

    #[test]
    fn other_systems_stand_beside_ours() {
        let peer = |shape: &str, what: &str, ms: Option<f64>| {
            let (shape, model, what) = (shape.to_owned(), "rgat".to_owned(), what.to_owned());
            Peer { shape, model, what, who: "PyG".to_owned(), ms, ..Peer::default() }
        };
        let peers = [
            peer("aifb", "training", Some(4.0)),
            peer("mag", "training", Some(16.0)),
            peer("am", "training", None),
            peer("aifb", "inference", Some(1.0)),
        ];
        let page = shown(LayerSuite::Systems, &peers);
        assert_eq!(page.tables.len(), 2);
        assert_eq!(row(&page.tables[0], "aifb"), "2.00 2.00 2.00 2.00 2.00 2.00");
        assert_eq!(row(&page.tables[1], "aifb"), "- - 1.00 (0.500) 4.00 (2.00) - -");
        assert_eq!(row(&page.tables[1], "am"), "- - - - - -");
        assert_eq!(row(&page.tables[1], "geometric mean"), "- - (0.500) (4.00) - -");
        assert_eq!(page.tables[1].columns[4], "RGAT training");
    }

    #[test]
    fn optimisations_are_shown_as_multiples_of_none() {
        let page = shown(LayerSuite::Optimisations, &[]);
        let am = &page.tables[2];
        assert!(am.heading.starts_with("am"), "{}", am.heading);
        assert!(row(am, "none").starts_with("8.00 (1.00) 8.00 (1.00)"));
        assert!(row(am, "all").starts_with("2.00 (4.00)"));
        assert!(row(am, "all but fuse").starts_with("4.00 (2.00)"));
        let mag = &page.tables[3];
        assert!(row(mag, "none").starts_with("no memory no memory"));
        assert!(row(mag, "all").starts_with("2.00 2.00"), "there is nothing to compare with");
        let all = page.bars.bars.iter().find(|bar| bar.name == "all training").unwrap();
        assert_eq!(all.figure, "4.00 (9 cases)");
    }

    #[test]
    fn memory_is_shown_as_multiples_of_the_smallest() {
        let page = shown(LayerSuite::Memory, &[]);
        assert_eq!(row(&page.tables[0], "am HGT"), "0.0010 0.0015 1.50 x 0.0005 0.0030 3.00 x 50%");
        assert_eq!(row(&page.tables[0], "mag HGT"), "0.0010 0.0015 1.50 x 0.0005 no memory no memory -");
    }

    #[test]
    fn time_is_shared_out_to_classes_and_kernels() {
        let page = shown(LayerSuite::Breakdown, &[]);
        assert_eq!(row(&page.tables[0], "am RGCN training"), "1.50 (75%) 0.500 (25%) - - - - 2.00 2.00");
        assert_eq!((page.bars.parts.len(), page.bars.bars[0].lengths[0]), (6, 0.75));
        let page = shown(LayerSuite::Kernels, &[]);
        assert_eq!(page.tables.len(), 6);
        let walk = row(&page.tables[0], "a kernel | walks over edges");
        assert_eq!(walk, "forward walks over edges 1.50 500 50% 2.00");
        let page = shown(LayerSuite::Width, &[]);
        assert_eq!(row(&page.tables[0], "width 64, 8 heads"), "- - 2.00 2.00 2.00 2.00");
    }
}
