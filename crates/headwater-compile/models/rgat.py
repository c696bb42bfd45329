# RGAT: Busbridge et al., "Relational Graph Attention Networks", 2019, with additive attention.
#
#   z_e = x_s W_r,   q_e = x_t W_r,   l_e = LeakyReLU(z_e . al_r + q_e . ar_r),   a_e = softmax of l_e
#   out_t = sum over e of a_e z_e + b,   heads concatenated or their mean
#
# By default this is Hector's RGAT: a pair of vectors an edge type, and a softmax over all edges into a node.
#   vectors = "shared":  one pair of vectors for all types; with one head this is PyG's RGATConv
#   by = "etype":        the softmax is over the edges of one type into a node, which the paper calls within-relation
def rgat(g, x: node[d_in], W: matrix[etype, d_in, heads * d_out],
         al: vector[etype, heads, d_out] = when(vectors == "relation"),
         ar: vector[etype, heads, d_out] = when(vectors == "relation"),
         shared_al: vector[heads, d_out] = when(vectors == "shared"),
         shared_ar: vector[heads, d_out] = when(vectors == "shared"),
         b: vector[heads * d_out if concat_heads else d_out] = when(bias),
         slope: float = 0.2, attention_dropout: float = 0.0, concat_heads: bool = True, bias: bool = True,
         vectors: Literal["relation", "shared"] = "relation", by: Literal["dst", "etype"] = "dst"):
    for e in g.edges():
        e["z"] = reshape(linear(e.src.x, W[e.etype]), heads, d_out)
        e["q"] = reshape(linear(e.dst.x, W[e.etype]), heads, d_out)
        if vectors == "relation":
            e["l"] = dot(e["z"], al[e.etype]) + dot(e["q"], ar[e.etype])
        else:
            e["l"] = dot(e["z"], shared_al) + dot(e["q"], shared_ar)
        e["a"] = dropout(edge_softmax(leaky_relu(e["l"], slope), by=by), attention_dropout)
    for n in g.dst_nodes():
        n["h"] = sum(e["a"] * e["z"] for e in n.incoming_edges())
        n["out"] = flatten(n["h"]) if concat_heads else mean_heads(n["h"])
        if bias:
            n["out"] += b
