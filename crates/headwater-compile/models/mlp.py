# MLP: what features alone tell. Neighbours are not read; a network of these layers is what others are compared with.
#
#   out_t = x_t W + b
def mlp(g, x: node[d_in], W: matrix[d_in, d_out], b: vector[d_out]):
    for n in g.dst_nodes():
        n["out"] = linear(n.x, W) + b
