//! OGB's folders of tables, each table any bytes: one kind of node, or two with one relation.

#![no_main]

use headwater_fuzz::Place;
use libfuzzer_sys::fuzz_target;

const ONE_KIND: [&str; 8] = [
    "raw/edge.csv.gz",
    "raw/num-node-list.csv.gz",
    "raw/num-edge-list.csv.gz",
    "raw/node-feat.csv.gz",
    "raw/node-label.csv.gz",
    "raw/node_year.csv.gz",
    "raw/edge-feat.csv.gz",
    "split/time/train.csv.gz",
];
const TWO_KINDS: [&str; 7] = [
    "raw/triplet-type-list.csv.gz",
    "raw/num-node-dict.csv.gz",
    "raw/relations/a___r___b/edge.csv.gz",
    "raw/relations/a___r___b/num-edge-list.csv.gz",
    "raw/relations/a___r___b/edge-feat.csv.gz",
    "raw/node-feat/a/node-feat.csv.gz",
    "split/time/b/train.csv.gz",
];

// Tables are told apart by a byte that is in none of them.
fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let place = Place::new();
    let names: &[&str] = if first % 2 == 0 { &ONE_KIND } else { &TWO_KINDS };
    for (name, table) in names.iter().zip(rest.split(|byte| *byte == b'~')) {
        place.write(&format!("source/{name}"), table);
    }
    place.ingest();
});
