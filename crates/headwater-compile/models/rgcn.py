# RGCN: Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional Networks", 2018.
#
#   out_t = sum over edge types r of the mean over s in N_r(t) of  x_s W_r  +  x_t root_W  +  b
#
# This is PyG's RGCNConv. Options offer the other forms:
#   norm = "none":   the sum over all edges
#   norm = "given":  the sum of edge_norm_e x_s W_r
#   norm = "gcn":    the sum of src_scale_s dst_scale_t x_s W_r
#   features=False:  there is no x. A row is learnt for every node and edge type that occur together, in place of
#                    x_s W_r, and one for every node, in place of x_t root_W
def rgcn(g, x: node[d_in] = when(features), W: matrix[etype, d_in, d_out] = when(features),
         E: vector[src_pair, d_out] = when(not features),
         root_W: matrix[d_in, d_out] = when(root and features),
         root_E: vector[node, d_out] = when(root and not features),
         b: vector[d_out] = when(bias), edge_norm: edge[1] = when(norm == "given", constant),
         src_scale: node[1] = when(norm == "gcn", constant), dst_scale: dst_node[1] = when(norm == "gcn", constant),
         norm: Literal["rel_mean", "none", "given", "gcn"] = "rel_mean",
         root: bool = True, bias: bool = True, features: bool = True):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype]) if features else E[e.src, e.etype]
    for n in g.dst_nodes():
        if norm == "rel_mean":
            n["out"] = relation_mean(e["m"] for e in n.incoming_edges())
        elif norm == "given":
            n["out"] = sum(e.edge_norm * e["m"] for e in n.incoming_edges())
        elif norm == "gcn":
            n["out"] = n.dst_scale * sum(e.src.src_scale * e["m"] for e in n.incoming_edges())
        else:
            n["out"] = sum(e["m"] for e in n.incoming_edges())
        if root:
            n["out"] += linear(n.x, root_W) if features else n.root_E
        if bias:
            n["out"] += b
