"""PyG's NeighborLoader on arrays that Headwater exported, or Headwater's with one import changed."""

import time

import numpy as np
import torch

import common

parser = common.arguments(__doc__)
parser.add_argument("--workers", type=int, default=0, help="DataLoader processes; threads of Headwater's loader")
parser.add_argument("--headwater", action="store_true", help="headwater.pyg.NeighborLoader instead of PyG's")
args = parser.parse_args()
torch.set_num_threads(args.threads)

import torch_geometric  # noqa: E402
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.typing import WITH_PYG_LIB  # noqa: E402

if args.headwater:
    from headwater.pyg import NeighborLoader
else:
    from torch_geometric.loader import NeighborLoader

indptr, indices = common.read(args, "indptr"), common.read(args, "indices")
nodes = len(indptr) - 1
targets = np.repeat(np.arange(nodes), np.diff(indptr))
data = Data(edge_index=torch.from_numpy(np.stack([indices, targets])), num_nodes=nodes)
if args.features:
    data.x = torch.from_numpy(common.read(args, "feat"))

seeds = torch.from_numpy(common.batches(args).reshape(-1))
loader = NeighborLoader(
    data,
    num_neighbors=common.fanouts(args),
    input_nodes=seeds,
    batch_size=args.batch,
    num_workers=args.workers,
    persistent_workers=args.workers > 0,
    is_sorted=True,
)

# With workers the first batches were drawn before the clock starts; they are left out, and so is the end, which is
# drawn by fewer and fewer workers.
skipped = 4 * max(args.workers, 1)
seconds, counted_nodes, counted_edges = [], 0, 0
last = None
for at, batch in enumerate(loader):
    now = time.perf_counter()
    if last is not None and skipped <= at < args.batches - skipped:
        seconds.append(now - last)
        counted_nodes += batch.num_nodes
        counted_edges += batch.num_edges
    last = now
kind = "Headwater" if args.headwater else "pyg-lib" if WITH_PYG_LIB else "torch-sparse"
common.show(args, f"PyG {torch_geometric.__version__} ({kind})", seconds, sum(seconds), counted_nodes, counted_edges)
