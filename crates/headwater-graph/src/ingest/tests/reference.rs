//! Edge lists through the reader and through a few lines that anybody can check: the same edges, or a refusal by both.

use proptest::prelude::*;

use super::super::testing::write;
use super::*;
use crate::ingest::text::{Asked, Delimiter};

/// Source and target of every edge, comma between them, no header. None for a text that is refused.
fn edges_of(text: &str) -> Option<Vec<[String; 2]>> {
    let body = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() || (body.contains('\r') && !text.contains('\n')) {
        return None;
    }
    let (mut edges, mut width) = (Vec::new(), None);
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.trim().is_empty() || line.trim_start().starts_with(['#', '%']) {
            continue;
        }
        let fields = fields(line)?;
        if *width.get_or_insert(fields.len()) != fields.len()
            || fields.len() < 2
            || fields[..2].contains(&String::new())
        {
            return None;
        }
        edges.push([fields[0].clone(), fields[1].clone()]);
    }
    Some(edges).filter(|edges| !edges.is_empty())
}

fn fields(line: &str) -> Option<Vec<String>> {
    let (mut found, mut rest) = (Vec::new(), line);
    loop {
        let (field, after) = match rest.trim_start().strip_prefix('"') {
            None => {
                rest.find(',').map_or((rest.trim().to_owned(), ""), |end| (rest[..end].trim().to_owned(), &rest[end..]))
            }
            Some(quoted) => {
                let (mut text, mut quoted) = (String::new(), quoted);
                loop {
                    let end = quoted.find('"')?;
                    text += &quoted[..end];
                    quoted = &quoted[end + 1..];
                    match quoted.strip_prefix('"') {
                        Some(more) => (text.push('"'), quoted = more).0,
                        None => break (text, quoted.trim_start()),
                    }
                }
            }
        };
        found.push(field);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None if after.is_empty() => return Some(found),
            None => return None,
        }
    }
}

/// Ids by their place among all ids, in the order of their bytes or of their numbers.
fn numbered<K: Ord + Clone>(edges: &[[K; 2]]) -> (u64, Vec<(u64, u64)>) {
    let mut all: Vec<K> = edges.iter().flatten().cloned().collect();
    all.sort();
    all.dedup();
    let number = |id: &K| all.binary_search(id).unwrap() as u64;
    (all.len() as u64, edges.iter().map(|[source, target]| (number(source), number(target))).collect())
}

/// What the reader finds, before anything is built.
fn found(text: &str, options: IngestOptions) -> Option<(u64, Vec<(u64, u64)>)> {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let bench = Bench { folder };
    let source = bench.path("edges");
    write(&source, text);
    let read = Ingest::read(Some(&source), &bench.out(), options, &Silent).ok()?;
    let Found::List(list) = &read.collected.relations[0].edges else { panic!("edges of a text are a list") };
    let ids = |ids: &super::edges::GrowingIds| Ids::from(ids.clone()).iter().collect::<Vec<u64>>();
    let ends = ids(&list.sources).into_iter().zip(ids(&list.targets)).collect();
    Some((read.collected.nodes[0].count, ends))
}

fn asked(ids: IdKind) -> IngestOptions {
    let text = Asked { delimiter: Some(Delimiter::Byte(b',')), header: Some(false), ..Asked::default() };
    IngestOptions { text, ids, format: Some(Format::EdgeList), ..IngestOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_of_names(text in "[ab1,,,\"#\r\n\n]{0,24}") {
        let expected = edges_of(&text).map(|edges| numbered(&edges));
        prop_assert_eq!(found(&text, asked(IdKind::String)), expected, "{:?}", text);
    }

    #[test]
    fn any_text_of_numbers(text in "([0-9]{1,2},[0-9a]{1,2}(,x)?\r?\n|#c\n|\n){0,6}") {
        let edges = edges_of(&text).unwrap_or_default();
        let wide = |id: &String| id.parse::<u64>().ok();
        let edges: Option<Vec<[u64; 2]>> = edges.iter().map(|[one, other]| Some([wide(one)?, wide(other)?])).collect();
        let expected = edges.filter(|edges| !edges.is_empty()).map(|edges| numbered(&edges));
        prop_assert_eq!(found(&text, asked(IdKind::Integer)), expected.clone(), "{:?}", text);
        // What is found out is what was asked for, or refused.
        let auto = found(&text, asked(IdKind::Auto));
        prop_assert!(auto == expected || expected.is_none(), "{:?}: {:?}", text, auto);
    }

    #[test]
    fn what_is_found_out_is_what_is_meant(
        pairs in prop::collection::vec((0usize..9, 0usize..9), 4..20),
        delimiter in prop::sample::select(vec![",", "\t", ";", "|", " ", "  "]),
        header in any::<bool>(),
        named in any::<bool>(),
        quoted in any::<bool>(),
        end in prop::sample::select(vec!["\n", "\r\n"]),
        cut in any::<bool>(),
    ) {
        const NAMES: [&str; 9] = ["ann", "bob", "eve", "joe", "kim", "lea", "max", "sue", "tom"];
        let id = |at: usize| if named { NAMES[at].to_owned() } else { (3 * at).to_string() };
        let field = |at: usize| if quoted { format!("\"{}\"", id(at)) } else { id(at) };
        let head = if header { format!("# people{end}source{delimiter}target{end}") } else { String::new() };
        let lines: Vec<String> = pairs.iter().map(|(one, other)| format!("{}{delimiter}{}", field(*one), field(*other))).collect();
        let text = head + &lines.join(end) + if cut { "" } else { end };
        let edges: Vec<[usize; 2]> = pairs.iter().map(|(one, other)| [*one, *other]).collect();
        prop_assert_eq!(found(&text, IngestOptions::default()), Some(numbered(&edges)), "{:?}", text);
    }
}
