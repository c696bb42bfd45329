//! The sizes of published datasets: nodes, edges, types, relations, features, classes, splits.
//!
//! Counts are those of OGB, OGB-LSC, PyG's Reddit and, for the relational ones, the table of the Hector paper as DGL
//! loads them (RDF sets and FB15k-237 with reverse relations, wikikg2 and biokg without). Where only the number of node
//! types or relations is published, sizes follow Zipf's law.

/// What is known of a dataset.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) nodes: Nodes,
    pub(super) edges: Edges,
    /// The type that has features and labels.
    pub(super) main_type: usize,
    pub(super) features: u64,
    pub(super) classes: u64,
    pub(super) splits: [u64; 3],
}

pub(super) enum Nodes {
    Named(&'static [(&'static str, u64)]),
    /// So many types, so many nodes in all.
    Types(u64, u64),
}

pub(super) enum Edges {
    /// One relation, each edge as it is.
    Directed(u64),
    /// One relation, each edge in both directions; both are counted.
    Undirected(u64),
    /// Source type, name, target type, edges.
    Named(&'static [(usize, &'static str, usize, u64)]),
    /// So many relations, so many edges in all.
    Relations(u64, u64),
    /// The same, every second relation the reverse of the one before.
    Reversed(u64, u64),
}

const fn relational(name: &'static str, nodes: Nodes, edges: Edges, classes: u64, splits: [u64; 3]) -> Shape {
    Shape { name, nodes, edges, main_type: 0, features: 0, classes, splits }
}

/// All of them.
pub(super) const SHAPES: [Shape; 15] = [
    Shape {
        name: "products",
        nodes: Nodes::Named(&[("product", 2_449_029)]),
        edges: Edges::Undirected(123_718_280),
        main_type: 0,
        features: 100,
        classes: 47,
        splits: [196_615, 39_323, 2_213_091],
    },
    Shape {
        name: "arxiv",
        nodes: Nodes::Named(&[("paper", 169_343)]),
        edges: Edges::Directed(1_166_243),
        main_type: 0,
        features: 128,
        classes: 40,
        splits: [90_941, 29_799, 48_603],
    },
    Shape {
        name: "papers100m",
        nodes: Nodes::Named(&[("paper", 111_059_956)]),
        edges: Edges::Directed(1_615_685_872),
        main_type: 0,
        features: 128,
        classes: 172,
        splits: [1_207_179, 125_265, 214_338],
    },
    Shape {
        name: "mag240m",
        nodes: Nodes::Named(&[("paper", 121_751_666), ("author", 122_383_112), ("institution", 25_721)]),
        edges: Edges::Named(&[
            (1, "affiliated_with", 2, 44_592_586),
            (1, "writes", 0, 386_022_720),
            (0, "cites", 0, 1_297_748_926),
        ]),
        main_type: 0,
        features: 768,
        classes: 153,
        splits: [1_112_392, 138_949, 146_818],
    },
    // 1,315 relations over this many nodes would have a terabyte of offsets; as in the data-tiering paper the graph has
    // one relation, and labels that nobody published.
    Shape {
        name: "wikikg90m",
        nodes: Nodes::Named(&[("entity", 87_143_637)]),
        edges: Edges::Directed(504_220_369),
        main_type: 0,
        features: 768,
        classes: 64,
        splits: [1_000_000, 100_000, 100_000],
    },
    Shape {
        name: "reddit",
        nodes: Nodes::Named(&[("post", 232_965)]),
        edges: Edges::Undirected(114_615_892),
        main_type: 0,
        features: 602,
        classes: 41,
        splits: [153_431, 23_831, 55_703],
    },
    // The hyperlinks of the English Wikipedia, as the data-tiering paper has them; features, classes and splits are made up.
    Shape {
        name: "wikipedia",
        nodes: Nodes::Named(&[("article", 13_593_032)]),
        edges: Edges::Directed(437_217_424),
        main_type: 0,
        features: 800,
        classes: 64,
        splits: [1_359_303, 100_000, 100_000],
    },
    relational("aifb", Nodes::Types(7, 7_262), Edges::Reversed(104, 48_810), 4, [112, 28, 36]),
    relational("mutag", Nodes::Types(5, 27_163), Edges::Reversed(50, 148_100), 2, [218, 54, 68]),
    relational("bgs", Nodes::Types(27, 94_806), Edges::Reversed(122, 672_884), 2, [94, 23, 29]),
    // DGL's page has 881,680 nodes; the graph it loads, and the tables of papers that use it, have these.
    relational("am", Nodes::Types(7, 1_885_136), Edges::Reversed(108, 5_668_682), 11, [642, 160, 198]),
    Shape {
        name: "mag",
        nodes: Nodes::Named(&[
            ("paper", 736_389),
            ("author", 1_134_649),
            ("institution", 8_740),
            ("field_of_study", 59_965),
        ]),
        edges: Edges::Named(&[
            (1, "affiliated_with", 2, 1_043_998),
            (1, "writes", 0, 7_145_660),
            (0, "cites", 0, 5_416_271),
            (0, "has_topic", 3, 7_505_078),
        ]),
        main_type: 0,
        features: 128,
        classes: 349,
        splits: [629_571, 64_879, 41_939],
    },
    relational("wikikg2", Nodes::Types(1, 2_500_604), Edges::Relations(535, 16_109_182), 0, [0; 3]),
    relational("fb15k", Nodes::Types(1, 14_541), Edges::Reversed(474, 620_232), 0, [0; 3]),
    relational(
        "biokg",
        Nodes::Named(&[
            ("disease", 10_687),
            ("protein", 17_499),
            ("drug", 10_533),
            ("sideeffect", 9_969),
            ("function", 45_085),
        ]),
        Edges::Relations(51, 4_762_678),
        0,
        [0; 3],
    ),
];
