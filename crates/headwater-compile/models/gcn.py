# GCN: Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", 2017.
#
#   out_t = sum over s in N(t) and t itself of  x_s W / sqrt(d_s d_t)  + b
#
# This is PyG's GCNConv: every node counts itself once, whether the graph has an edge from it to itself or not. Such edges are
# left out, and degrees are those of the others plus one: the caller gives
#   src_scale_s = 1 / sqrt(d_s),  dst_scale_t = 1 / sqrt(d_t),  self_scale_t = 1 / d_t.
@layer(drop_self_loops=True)
def gcn(g, x: node[d_in], W: matrix[d_in, d_out],
        src_scale: node[1] = constant, dst_scale: dst_node[1] = constant, self_scale: dst_node[1] = constant,
        b: vector[d_out] = when(bias), bias: bool = True):
    for n in g.nodes():
        n["z"] = linear(n.x, W)
    for n in g.dst_nodes():
        n["h"] = sum(e.src.src_scale * e.src["z"] for e in n.incoming_edges())
        n["out"] = n.dst_scale * n["h"] + n.self_scale * n["z"]
        if bias:
            n["out"] += b
