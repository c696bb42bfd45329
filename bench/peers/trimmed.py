"""PyG's GraphSAGE on batches of a loader, layer by layer on what that layer still needs."""

import torch
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer


class Sage(torch.nn.Module):
    """`widths` are those of features, of hidden layers, and classes."""

    def __init__(self, widths):
        super().__init__()
        self.layers = torch.nn.ModuleList(SAGEConv(*pair, "mean") for pair in zip(widths, widths[1:]))

    def forward(self, batch):
        x, edges = batch.x, batch.edge_index
        for at, layer in enumerate(self.layers):
            x, edges, _ = trim_to_layer(at, batch.num_sampled_nodes, batch.num_sampled_edges, x, edges)
            x = layer(x, edges)
            if at + 1 < len(self.layers):
                x = x.relu()
        return x[: batch.batch_size]
