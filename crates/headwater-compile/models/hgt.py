# HGT: Hu, Dong, Wang and Sun, "Heterogeneous Graph Transformer", 2020. A head has d = d_out // heads elements.
#
#   k = x K_tau,   q = x Q_tau,   v = x V_tau,   where tau is the node's type
#   l_e = mu_r / sqrt(d) (k_s W_att_r) . q_t,   a_e = softmax over the edges into t of l_e
#   h_t = sum over e of a_e v_s W_msg_r
#
#   variant = "pyg":     PyG's HGTConv. k, q and v have biases; o_t = GELU(h_t) A_tau + A_b_tau;
#                        out_t = s o_t + (1 - s) x_t with s = sigmoid(skip_tau), or o_t where d_in and d_out differ
#   variant = "hector":  no biases, no GELU, no residual: out_t = s h_t A_tau. W_att is applied to k, as the paper
#                        and DGL have it
def hgt(g, x: node[d_in],
        K: matrix[ntype, d_in, d_out], Q: matrix[ntype, d_in, d_out], V: matrix[ntype, d_in, d_out],
        W_att: matrix[etype, heads, d_out // heads, d_out // heads],
        W_msg: matrix[etype, heads, d_out // heads, d_out // heads], mu: vector[etype, heads, 1],
        A: matrix[ntype, d_out, d_out],
        K_b: vector[ntype, heads, d_out // heads] = when(variant == "pyg"),
        Q_b: vector[ntype, heads, d_out // heads] = when(variant == "pyg"),
        V_b: vector[ntype, heads, d_out // heads] = when(variant == "pyg"),
        A_b: vector[ntype, d_out] = when(variant == "pyg"),
        skip: vector[ntype, 1] = when(variant == "hector" or d_in == d_out),
        variant: Literal["pyg", "hector"] = "pyg"):
    d = d_out // heads
    for n in g.nodes():
        n["k"] = reshape(linear(n.x, K[n.ntype]), heads, d)
        n["q"] = reshape(linear(n.x, Q[n.ntype]), heads, d)
        n["v"] = reshape(linear(n.x, V[n.ntype]), heads, d)
        if variant == "pyg":
            n["k"] += K_b[n.ntype]
            n["q"] += Q_b[n.ntype]
            n["v"] += V_b[n.ntype]
    for e in g.edges():
        e["l"] = dot(linear(e.src["k"], W_att[e.etype]), e.dst["q"]) * mu[e.etype] / sqrt(d)
        e["a"] = edge_softmax(e["l"])
        e["m"] = linear(e.src["v"], W_msg[e.etype])
    for n in g.dst_nodes():
        n["h"] = flatten(sum(e["a"] * e["m"] for e in n.incoming_edges()))
        if variant == "hector":
            n["out"] = sigmoid(skip[n.ntype]) * linear(n["h"], A[n.ntype])
        else:
            n["o"] = linear(gelu(n["h"]), A[n.ntype]) + A_b[n.ntype]
            if d_in == d_out:
                s = sigmoid(skip[n.ntype])
                n["out"] = s * n["o"] + (1 - s) * n.x
            else:
                n["out"] = n["o"]
