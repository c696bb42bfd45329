"""Samples as batches of PyG, with GraphLearn's fields: `node`, `edge`, `batch` (the seeds) and `batch_size`."""

from __future__ import annotations

from typing import Any, Dict, Literal, Optional

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from ..sampler import HeteroSamplerOutput, SamplerOutput
from ..typing import EdgeType, NodeType, reverse_edge_type


def to_data(
    sampler_out: SamplerOutput,
    batch_labels: Optional[Tensor] = None,
    node_feats: Optional[Tensor] = None,
    edge_feats: Optional[Tensor] = None,
    *,
    edge_dir: Literal["in", "out"] = "out",
    **kwargs: Any,
) -> Data:
    """A batch of a graph with one type of nodes. Links point as edges do: in direction 'out' they are turned around."""
    edges = torch.stack([sampler_out.row, sampler_out.col])
    data = Data(x=node_feats, edge_index=edges, edge_attr=edge_feats, y=batch_labels, **kwargs)
    # PyG would take the number of seeds for it where there are no features.
    data.num_nodes = sampler_out.node.numel()
    data.node, data.edge = sampler_out.node, sampler_out.edge
    data.batch = sampler_out.batch
    data.batch_size = 0 if sampler_out.batch is None else sampler_out.batch.numel()
    data.num_sampled_nodes = sampler_out.num_sampled_nodes
    data.num_sampled_edges = sampler_out.num_sampled_edges
    if not isinstance(sampler_out.metadata, dict):
        if sampler_out.metadata is not None:
            data.metadata = sampler_out.metadata
        return data
    for name, value in sampler_out.metadata.items():
        data[name] = value.flip(0) if name == "edge_label_index" and edge_dir == "out" else value
    return data


def to_hetero_data(
    hetero_sampler_out: HeteroSamplerOutput,
    batch_label_dict: Optional[Dict[NodeType, Tensor]] = None,
    node_feat_dict: Optional[Dict[NodeType, Tensor]] = None,
    edge_feat_dict: Optional[Dict[EdgeType, Tensor]] = None,
    edge_dir: Literal["in", "out"] = "out",
    **kwargs: Any,
) -> HeteroData:
    """A batch by types. Edge types that were not reached are there and empty; node types that were not are left out."""
    out = hetero_sampler_out
    data = HeteroData(**kwargs)
    edges = out.get_edge_index()
    nothing = torch.empty(0, dtype=torch.long, device=out.device)
    for kind, index in edges.items():
        data[kind].edge_index = index
        if out.edge is not None:
            data[kind].edge = out.edge.get(kind, nothing)
        if edge_feat_dict and kind in edge_feat_dict:
            data[kind].edge_attr = edge_feat_dict[kind]
    for kind, nodes in out.node.items():
        data[kind].node, data[kind].num_nodes = nodes, nodes.numel()
        if node_feat_dict and kind in node_feat_dict:
            data[kind].x = node_feat_dict[kind]
    for kind, seeds in (out.batch or {}).items():
        data[kind].batch, data[kind].batch_size = seeds, seeds.numel()
        if batch_label_dict and kind in batch_label_dict:
            data[kind].y = batch_label_dict[kind]
    _count(data, out, edges)
    _link(data, out, edge_dir)
    return data


def _count(data: HeteroData, out: HeteroSamplerOutput, edges: Dict[EdgeType, Tensor]) -> None:
    """Counts of each hop, as long for every type as for the one that was reached last."""
    of_nodes, of_edges = out.num_sampled_nodes or {}, out.num_sampled_edges or {}
    hops = max([0, *(len(own) - 1 for own in of_nodes.values()), *(len(own) for own in of_edges.values())])
    data.num_sampled_nodes = {kind: _padded(of_nodes.get(kind), hops + 1, out.device) for kind in out.node}
    data.num_sampled_edges = {kind: _padded(of_edges.get(kind), hops, out.device) for kind in edges}


def _padded(counts: Any, length: int, device: Optional[torch.device]) -> Tensor:
    padded = torch.zeros(length, dtype=torch.long, device=device)
    if counts is not None:
        padded[: len(counts)] = torch.as_tensor(counts, device=device)
    return padded


def _link(data: HeteroData, out: HeteroSamplerOutput, edge_dir: str) -> None:
    """Links are with the edges of their type, and their ends, for triplets, with the nodes of theirs."""
    if not isinstance(out.metadata, dict):
        if out.metadata is not None:
            data.metadata = out.metadata
        return
    kind = out.input_type
    told = reverse_edge_type(kind) if edge_dir == "out" else kind
    for name, value in out.metadata.items():
        if name == "edge_label_index":
            data[told].edge_label_index = value.flip(0) if edge_dir == "out" else value
        elif name == "edge_label":
            data[told].edge_label = value
        elif name == "src_index":
            data[kind[0]].src_index = value
        elif name in ("dst_pos_index", "dst_neg_index"):
            data[kind[-1]][name] = value
        else:
            data[name] = value
