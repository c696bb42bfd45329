# GraphSAGE: Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", 2017.
#
#   out_t = mean over s in N(t) of x_s  W_neigh  +  x_t W_root  +  b
#
# This is PyG's SAGEConv. A node without neighbours has a mean, a sum and a maximum of 0.
def sage(g, x: node[d_in], W_neigh: matrix[d_in, d_out],
         W_root: matrix[d_in, d_out] = when(root), b: vector[d_out] = when(bias),
         aggregate: Literal["mean", "sum", "max"] = "mean", root: bool = True, bias: bool = True):
    for n in g.dst_nodes():
        if aggregate == "mean":
            n["h"] = mean(e.src.x for e in n.incoming_edges())
        elif aggregate == "sum":
            n["h"] = sum(e.src.x for e in n.incoming_edges())
        else:
            n["h"] = max(e.src.x for e in n.incoming_edges())
        n["out"] = linear(n["h"], W_neigh)
        if bias:
            n["out"] += b
        if root:
            n["out"] += linear(n.x, W_root)
