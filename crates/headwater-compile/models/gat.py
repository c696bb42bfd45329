# GAT: Velickovic et al., "Graph Attention Networks", 2018.
#
#   z = x W,   l_e = LeakyReLU(z_s . al + z_t . ar),   a_e = softmax over the edges into t of l_e
#   out_t = sum over e of a_e z_s + b,   heads concatenated or their mean
#
# This is PyG's GATConv: every node has an edge to itself, and dropout falls on a_e.
@layer(self_loops=self_loops)
def gat(g, x: node[d_in], W: matrix[d_in, heads * d_out], al: vector[heads, d_out], ar: vector[heads, d_out],
        b: vector[heads * d_out if concat_heads else d_out] = when(bias),
        slope: float = 0.2, attention_dropout: float = 0.0, concat_heads: bool = True, bias: bool = True,
        self_loops: bool = True):
    for n in g.nodes():
        n["z"] = reshape(linear(n.x, W), heads, d_out)
        n["l"] = dot(n["z"], al)
        n["r"] = dot(n["z"], ar)
    for e in g.edges():
        e["a"] = dropout(edge_softmax(leaky_relu(e.src["l"] + e.dst["r"], slope)), attention_dropout)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["h"] += e["a"] * e.src["z"]
        if concat_heads:
            n["out"] = flatten(n["h"])
        else:
            n["out"] = mean_heads(n["h"])
        if bias:
            n["out"] += b
