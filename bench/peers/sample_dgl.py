"""DGL's NeighborSampler on arrays that Headwater exported."""

import torch

import common

args = common.arguments(__doc__).parse_args()
torch.set_num_threads(args.threads)

import dgl  # noqa: E402  torch's threads are set before DGL starts its own

indptr = torch.from_numpy(common.read(args, "indptr"))
indices = torch.from_numpy(common.read(args, "indices"))
features = torch.from_numpy(common.read(args, "feat")) if args.features else None
# DGL takes fan-outs in the order of layers, the seeds' own last.
fanouts = common.fanouts(args)[::-1]


graph = dgl.graph(("csc", (indptr, indices, torch.tensor([], dtype=torch.int64))))
sampler = dgl.dataloading.NeighborSampler(fanouts)


def draw(batch):
    inputs, _, blocks = sampler.sample(graph, torch.from_numpy(batch))
    if features is not None:
        torch.index_select(features, 0, inputs)
    return len(inputs), sum(block.num_edges() for block in blocks)


common.measure(args, f"DGL NeighborSampler {dgl.__version__}", common.batches(args), draw)
