//! Layers of descriptions, published settings, what is refused and how, and the way through a file.

use std::path::Path;

use super::*;
use crate::error::Error;
use crate::optimiser::{Adam, Group, Rule, Sgd};

fn parse(text: &str) -> Result<RunFile> {
    RunFile::parse(text, Path::new("run.toml"))
}

fn resolve(text: &str) -> Result<RunConfig> {
    RunConfig::resolve(RunFile::default(), parse(text)?)
}

#[test]
fn models_have_what_was_published() {
    let of = |text: &str| resolve(text).unwrap();
    assert_eq!(of("features = 'cpu'").features, Features::Memory, "what it was called");
    let gcn = of("model = 'gcn'");
    assert_eq!((gcn.hidden, gcn.layers, gcn.epochs, gcn.full_graph), (16, 2, 200, true));
    assert_eq!((gcn.rate, gcn.decay, gcn.decay_first_layer_only, gcn.dropout), (0.01, 5e-4, true, 0.5));
    let gat = of("model = 'gat'\ndataset = 'data/cora'");
    assert_eq!((gat.hidden, gat.heads, gat.output_heads, gat.activation), (8, 8, 1, Activation::Elu));
    assert_eq!((gat.rate, gat.decay, gat.dropout, gat.attention_dropout), (0.005, 5e-4, 0.6, 0.6));
    let pubmed = of("model = 'gat'\ndataset = 'data/PubMed/'");
    assert_eq!((pubmed.output_heads, pubmed.rate, pubmed.decay), (8, 0.01, 1e-3));
    let sage = of("");
    assert_eq!(
        (sage.model, sage.hidden, sage.rate, sage.full_graph),
        (Model::Named(Architecture::Sage), 256, 0.003, false)
    );
    let rgcn = of("model = 'rgcn'");
    assert_eq!((rgcn.hidden, rgcn.epochs, rgcn.rate, rgcn.decay), (16, 50, 0.01, 5e-4));
    for model in ["gin", "hgt", "rgat", "layers/own.py"] {
        assert_eq!(of(&format!("model = '{model}'")).hidden, 64, "{model}");
    }
    // Whether features are divided by their sums is left to the features, and only where it was published.
    assert_eq!([gcn.normalise_features, gat.normalise_features, rgcn.normalise_features], [None, None, Some(false)]);
    let stops = |run: &RunConfig| run.patience().map(|patience| patience.epochs);
    assert_eq!([stops(&gcn), stops(&gat), stops(&of("model = 'gat'\npatience = 0"))], [None, Some(100), None]);
}

#[test]
fn flags_go_before_the_file_and_the_file_before_defaults() {
    let file = parse("model = 'gat'\nhidden = 16\nseed = 3\nout = 'here'").unwrap();
    let flags = RunFile { hidden: Some(32), threads: Some(1), dataset: Some("cora".into()), ..RunFile::default() };
    let run = RunConfig::resolve(flags, file).unwrap();
    assert_eq!((run.hidden, run.seed, run.threads, run.heads), (32, 3, 1, 8));
    assert_eq!((run.dataset.as_deref(), run.out.as_deref()), (Some(Path::new("cora")), Some(Path::new("here"))));
}

#[test]
fn layers_and_fanout_follow_each_other() {
    for (text, layers, fanout) in [
        ("", 2, &[10, 10][..]),
        ("layers = 3", 3, &[10, 10, 10]),
        ("layers = 1", 1, &[10]),
        ("fanout = [15, 10, -1]", 3, &[15, 10, -1]),
        ("layers = 2\nfanout = [5, 4]", 2, &[5, 4]),
    ] {
        let run = resolve(text).unwrap();
        assert_eq!((run.layers, run.fanout.as_slice()), (layers, fanout), "{text}");
    }
}

#[test]
fn a_file_reads_back_as_the_same_run() {
    let texts = [
        "",
        "model = 'gat'\ndataset = 'a b/ü'\nseed = 9223372036854775807",
        "model = './own.py'\nrate = 1\nclip = 0.1\nwithout = ['fuse', 'merge']\ntune = 'lanes=8,ahead=2'\noffload = ['host']\noffload_host_gb = 2",
    ];
    for text in texts {
        let run = resolve(text).unwrap();
        let again = resolve(&run.to_toml().unwrap()).unwrap();
        assert_eq!(run, again);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.toml");
    let run = resolve("model = 'hgt'\nschedule = 'cosine'").unwrap();
    run.write(&path).unwrap();
    assert_eq!(RunConfig::resolve(RunFile::default(), RunFile::read(&path).unwrap()).unwrap(), run);
    // Every field but those of a run that has none is written.
    let written: toml::Table = run.to_toml().unwrap().parse().unwrap();
    assert_eq!(written.len(), RunFile::FIELDS.len() - 13);
}

#[test]
fn values_that_cannot_be_are_named() {
    for (text, words) in [
        ("hidden = 0", &["hidden is 0", "1 to"][..]),
        ("hidden = 1000000000000", &["hidden"]),
        ("input_width = 2000000", &["input_width is 2000000"]),
        ("embedding = 2000000", &["embedding is 2000000"]),
        ("layers = 0", &["layers is 0"]),
        ("layers = 100000000000", &["layers is 100000000000", "100"]),
        ("heads = 0", &["heads"]),
        ("output_heads = 0", &["output_heads"]),
        ("batch = 0", &["batch is 0"]),
        ("epochs = 0", &["epochs is 0"]),
        ("keep = 0", &["keep is 0"]),
        ("threads = 100000", &["threads"]),
        ("schedule_epochs = 0", &["schedule_epochs"]),
        ("rate = 0", &["rate is 0", "more than 0"]),
        ("rate = -0.1", &["rate is -0.1"]),
        ("rate = nan", &["is NaN"]),
        ("rate = inf", &["is inf"]),
        ("decay = -1", &["decay is -1"]),
        ("dropout = 1", &["dropout is 1", "less than 1"]),
        ("attention_dropout = -0.5", &["attention_dropout is -0.5"]),
        ("momentum = 1.5", &["momentum is 1.5"]),
        ("hot_share = 1.01", &["hot_share is 1.01", "0 to 1"]),
        ("device = 'cpu'\nfeatures = 'dma'", &["features is dma", "memory, disk or tiered", "no GPU"]),
        ("device = 'cpu'\nfeatures = 'zero-copy'", &["features is zero-copy"]),
        ("device = 'cpu'\nfeatures = 'all-gpu'", &["features is all-gpu"]),
        ("device = 'cpu'\nsampler = 'gpu'", &["sampler is gpu", "auto or cpu"]),
        ("device = 'cpu'\nproducer = 'process'", &["producer is process", "expected thread", "no GPU"]),
        ("device = 'cpu'\ngather_sms = 8", &["gather_sms is 8", "expected 0", "no GPU"]),
        ("device = 'cpu'\ngather_window = 8", &["gather_window is 8", "no GPU"]),
        ("without = ['fuse', 'dust']", &["without is dust", "one_type, linear_linear", "fuse"]),
        ("device = 'cuda'\nfeatures = 'memory'", &["features is memory", "expected auto, dma", "device cpu"]),
        ("device = 'cuda:1'\nfeatures = 'disk'", &["features is disk", "does not read the dataset's files"]),
        ("gather_green = true", &["gather_green is true", "gather_sms is 0"]),
        ("clip = -1", &["clip is -1"]),
        ("min_delta = nan", &["min_delta is NaN"]),
        ("schedule_gamma = 0", &["schedule_gamma is 0"]),
        ("rate = 0.5\nschedule_floor = 0.75", &["schedule_floor is 0.75", "0 to 0.5"]),
        ("fanout = [10, 0]", &["fanout is [10, 0]", "-1 for all"]),
        ("fanout = [-2]", &["fanout is [-2]"]),
        ("fanout = []", &["layers is 0"]),
        ("layers = 3\nfanout = [5, 5]", &["fanout is [5, 5]", "3 of them"]),
        ("model = 'gat'\nloss = 'nll'", &["loss is nll", "cross_entropy", "logarithm"]),
        ("patience = 3\nevaluate_every = 0", &["patience is 3", "evaluate_every is 0"]),
        ("scores = 'in-degree'\nfeatures = 'memory'", &["scores is in-degree", "neither auto nor tiered"]),
        ("scores = 'pagerank'\nfull_graph = true", &["scores is pagerank", "whole graph"]),
        ("score_damping = 0.5", &["score_damping is 0.5", "0.85 where scores is expected"]),
        ("scores = 'pagerank'\nscore_damping = 1.5", &["score_damping is 1.5", "0 to 1"]),
        ("scores = 'presampled'\nscore_iterations = 3", &["score_iterations is 3", "PageRank"]),
        ("scores = 'pagerank'\nscore_batches = 3", &["score_batches is 3", "presampled"]),
        ("optimiser = 'sgd'\nnesterov = true\nmomentum = 0", &["nesterov is true", "momentum is 0"]),
        ("gather_green = true", &["gather_green is true", "gather_sms is 0"]),
        ("gather_green = true\ngather_sms = 0", &["gather_green is true", "gather_sms is 0"]),
    ] {
        let error = resolve(text).unwrap_err();
        assert!(matches!(error, Error::Setting { .. }), "{text}: {error:?}");
        let said = error.to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{text}: {said}");
    }
}

/// Fields about how a GPU makes batches are refused where it makes none; those of a run that says nothing are not.
#[test]
fn what_a_gpu_does_not_do_is_not_asked_of_it() {
    let full = "every step sees the whole graph";
    let runs = [
        ("full_graph = true", false, full),
        ("", true, "several node types"),
        ("normalise_features = true", false, "sums"),
    ];
    for (kind, has_types, why) in runs {
        let on_gpu = |more: &str| resolve(&format!("{kind}\n{more}")).unwrap().check_on_gpu(has_types);
        on_gpu("").unwrap();
        on_gpu("features = 'auto'\nsampler = 'auto'\nhot_share = 0.7\ndevice = 'cuda'").unwrap();
        for (more, words) in [
            ("features = 'tiered'", "features is tiered; expected auto"),
            ("features = 'zero-copy'", "features is zero-copy; expected auto"),
            ("sampler = 'gpu'", "sampler is gpu; expected auto"),
            ("producer = 'process'", "producer is process; expected thread"),
            ("gather_sms = 4", "gather_sms is 4; expected 0"),
            ("gather_window = 4", "gather_window is 4; expected 0"),
        ] {
            let said = on_gpu(more).unwrap_err().to_string();
            assert!(said.starts_with(words) && said.contains(why), "{kind} {more}: {said}");
        }
        assert_eq!(on_gpu("sampler = 'cpu'").is_err(), kind.starts_with("full"), "{kind}: the CPU draws");
    }
    let plain = resolve("features = 'tiered'\nsampler = 'gpu'\nproducer = 'process'\ngather_sms = 4").unwrap();
    plain.check_on_gpu(false).unwrap();
}

#[test]
fn a_hot_share_that_is_given_is_that_of_a_tiered_table() {
    let share = |features| RunFile { hot_share: Some(0.5), features, ..RunFile::default() };
    RunConfig::resolve(share(Some(Features::Tiered)), RunFile::default()).unwrap();
    RunConfig::resolve(RunFile::default(), share(Some(Features::Memory))).unwrap();
    let said = RunConfig::resolve(share(None), RunFile::default()).unwrap_err().to_string();
    assert!(said.contains("hot_share is 0.5; expected 0.2 where features is not tiered"), "{said}");
}

#[test]
fn paths_that_a_file_cannot_keep_are_named() {
    use std::os::unix::ffi::OsStringExt;
    let odd = || std::path::PathBuf::from(std::ffi::OsString::from_vec(b"./d\xff".to_vec()));
    for (flags, field) in [
        (RunFile { dataset: Some(odd()), ..RunFile::default() }, "dataset"),
        (RunFile { out: Some(odd()), ..RunFile::default() }, "out"),
        (RunFile { model: Some(Model::Text(odd())), ..RunFile::default() }, "model"),
    ] {
        let said = RunConfig::resolve(flags, RunFile::default()).unwrap_err().to_string();
        assert!(said.starts_with(&format!("{field} is ./d\u{fffd}; expected a path in UTF-8")), "{said}");
    }
}

#[test]
fn files_that_cannot_be_are_named() {
    for (text, words) in [
        ("hiden = 3", &["run.toml", "\"hiden\"", "did you mean \"hidden\"?"][..]),
        ("decay-first-layer-only = true", &["did you mean \"decay_first_layer_only\"?"]),
        ("[section]\nhidden = 3", &["\"section\""]),
        ("hidden = 3\nhidden = 4", &["run.toml", "line 2"]),
        ("hidden = ", &["run.toml", "line 1"]),
        ("seed = 1\nhidden = 'wide'", &["line 2", "hidden = 'wide'", "expected usize"]),
        ("hidden = -3", &["hidden = -3", "-3"]),
        ("seed = 9223372036854775808", &["line 1", "seed"]),
        ("optimiser = 'adamx'", &["adamx", "sgd", "adamw"]),
        ("loss = 'hinge'", &["hinge", "cross_entropy", "mse"]),
        ("metric = 'auc'", &["roc_auc"]),
        ("scores = 'degree'", &["out-degree", "weighted-pagerank", "presampled"]),
        ("model = 'gcm'", &["no model \"gcm\"", "did you mean \"gcn\"?"]),
        ("model = ''", &["no model \"\""]),
        ("fanout = 10", &["fanout = 10"]),
    ] {
        let said = parse(text).unwrap_err().to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{text}: {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, [0xff; 9]).unwrap();
    for path in [folder.path(), &folder.path().join("none"), &binary, Path::new("/dev/zero")] {
        let said = RunFile::read(path).unwrap_err().to_string();
        assert!(said.contains(path.to_str().unwrap()), "{said}");
    }
}

#[test]
fn fields_mean_what_they_say() {
    let of = |text: &str| resolve(text).unwrap();
    let sgd = of("optimiser = 'sgd'\nmomentum = 0.5\nnesterov = true\nclip = 2\npatience = 7\nwatch = 'loss'");
    assert_eq!(sgd.rule(), Rule::Sgd(Sgd { momentum: 0.5, nesterov: true }));
    assert_eq!(sgd.most_norm(), Some(2.0));
    assert_eq!(sgd.patience().map(|p| p.epochs), Some(7));
    let gcn = of("model = 'gcn'");
    assert_eq!((gcn.rule(), gcn.most_norm(), gcn.patience()), (Rule::Adam(Adam::default()), None, None));
    let [all, none] = [5e-4, 0.0].map(|decay| Group { decay });
    assert_eq!((gcn.groups(), of("model = 'gat'").groups()), ([all, none, none], [all, all, none]));
    assert_eq!([0, 1, 5].map(RunConfig::group_of_layer), [0, 1, 1]);
    let falling =
        of("schedule = 'cosine'\nschedule_floor = 0.001\nepochs = 10\nwarmup_steps = 5\nrate = 0.1").schedule(10);
    assert!((falling.at(4) - 0.1).abs() < 1e-12 && (falling.at(100) - 0.001).abs() < 1e-12);
    let stepping = of("schedule = 'step'\nschedule_epochs = 2\nschedule_gamma = 0.1\nrate = 0.1").schedule(5);
    assert!((stepping.at(9) - 0.1).abs() < 1e-12 && (stepping.at(10) - 0.01).abs() < 1e-12);
}

#[test]
fn widths_of_inputs_follow_each_other() {
    for (text, expected) in [
        ("hidden = 8", (8, 8)),
        ("hidden = 8\ninput_width = 12", (12, 12)),
        ("hidden = 8\nembedding = 4", (8, 4)),
        ("hidden = 8\ninput_width = 12\nembedding = 4", (12, 4)),
    ] {
        assert_eq!(resolve(text).unwrap().input_widths(), expected, "{text}");
    }
}

#[test]
fn models_by_name_or_path() {
    for (text, expected) in [
        ("gat", Some("gat")),
        ("GraphSAGE", Some("sage")),
        ("models/gat", Some("models/gat")),
        ("own.py", Some("own.py")),
        ("gats", None),
    ] {
        assert_eq!(text.parse::<Model>().ok().map(|model| model.to_string()).as_deref(), expected, "{text}");
    }
}
