// Walks: a thread a walk, with where it is and where it was in registers.
//
// Steps depend on each other, so a walk is a chain of requests, and what counts is how many chains are under way: a
// thread needs few registers and no shared memory, and an SM holds all the threads it can. A warp a walk would wait for
// the same chain with 32 threads.
//
// Per step: one request of 16 bytes for both offsets, one of 4 or 8 bytes for the neighbour, 8 bytes out; a sector of
// the output fills up in the second-level cache. Per trial of a node2vec step: one neighbour, and a lookup in the list
// of the node before (lists.cuh).
//
// Defines: THREADS.

// Chances of acceptance in steps of 2^-53. The same struct stands in cuda.rs.
struct Accept {
    u64 back, near, far, is_plain;
};

__device__ __forceinline__ u64 step_from(const Graph& graph, const Accept& accept, u64 key, u64 here, u64 before,
                                         bool has_before) {
    const List list = list_of(graph, here);
    if (list.degree == 0) return here;
    for (u64 trial = 0;; trial++) {
        const u64 there = neighbour_at(graph, list.start + hw_below(key, 2 * trial, list.degree));
        if (there >= graph.lists.rows) return here;
        if (accept.is_plain || !has_before) return there;
        const u64 limit = there == before                    ? accept.back
                          : has_edge(graph, before, there) ? accept.near
                                                             : accept.far;
        if (hw_draw(key, 2 * trial + 1) >> 11 < limit) return there;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    walk(Lists lists, const u64* __restrict__ offsets, const void* __restrict__ neighbours, Accept accept, u64 key,
         const u64* __restrict__ starts, u64 walks, u64 nodes, u64* __restrict__ out) {
    const Graph graph = {lists, offsets, neighbours};
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    for (u64 walk = thread; walk < walks; walk += threads) {
        const u64 walk_key = hw_key_of(key, walk);
        u64 here = starts[walk], before = here;
        out[walk * nodes] = here;
        for (u64 step = 1; step < nodes; step++) {
            const u64 there = step_from(graph, accept, hw_key_of(walk_key, step), here, before, step > 1);
            out[walk * nodes + step] = there;
            before = here;
            here = there;
        }
    }
}
