"""DGL's GraphBolt on arrays that Headwater exported."""

import time

import torch

import common

args = common.arguments(__doc__).parse_args()
torch.set_num_threads(args.threads)

import dgl  # noqa: E402  torch's threads are set before DGL starts its own
import dgl.graphbolt as gb  # noqa: E402

indptr = torch.from_numpy(common.read(args, "indptr"))
indices = torch.from_numpy(common.read(args, "indices"))
features = torch.from_numpy(common.read(args, "feat")) if args.features else None
graph = gb.fused_csc_sampling_graph(indptr, indices)
# One fan-out a hop, the seeds' own last, as in DGL's layers.
fanouts = [torch.tensor([fanout]) for fanout in reversed(common.fanouts(args))]


def samples(seeds):
    """The pipeline that GraphBolt's own examples build, in this process."""
    items = gb.ItemSet(torch.from_numpy(seeds).flatten(), names="seed_nodes")
    return iter(gb.ItemSampler(items, batch_size=args.batch).sample_neighbor(graph, fanouts))


def count(batch):
    if features is not None:
        torch.index_select(features, 0, batch.input_nodes)
    edges = sum(len(layer.sampled_csc.indices) for layer in batch.sampled_subgraphs)
    return len(batch.input_nodes), edges


seeds = common.batches(args)
for batch in samples(seeds[:4]):
    count(batch)
seconds, nodes, edges, begun = [], 0, 0, time.perf_counter()
for batch in samples(seeds):
    counted = count(batch)
    now = time.perf_counter()
    seconds.append(now - begun)
    nodes, edges, begun = nodes + counted[0], edges + counted[1], now
common.show(args, f"DGL GraphBolt {dgl.__version__}", seconds, sum(seconds), nodes, edges)
