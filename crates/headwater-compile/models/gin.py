# GIN: Xu, Hu, Leskovec and Jegelka, "How Powerful are Graph Neural Networks?", 2019.
#
#   h_t = (1 + eps) x_t + sum over s in N(t) of x_s,   out_t = ReLU(h_t W1 + b1) W2 + b2
#
# This is PyG's GINConv over Linear, ReLU, Linear. With train_eps, eps is learnt: it is `epsilon`, which begins at eps.
def gin(g, x: node[d_in], W1: matrix[d_in, d_hidden], b1: vector[d_hidden],
        W2: matrix[d_hidden, d_out], b2: vector[d_out], epsilon: vector[1] = when(train_eps),
        train_eps: bool = False, eps: float = 0.0):
    for n in g.dst_nodes():
        n["h"] = (1 + (epsilon if train_eps else eps)) * n.x + sum(e.src.x for e in n.incoming_edges())
        n["out"] = linear(relu(linear(n["h"], W1) + b1), W2) + b2
