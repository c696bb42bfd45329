// The scales of a graph convolution: roots of degrees in the whole graph, gathered for the nodes of a block.
//
// A thread a node: 8 bytes of id, a degree from anywhere in a table of 4 bytes a node, 4 bytes written, and for a
// target 8 bytes of starts and two scales. The degrees are the random reads, one line each; a few operations beside
// them, among them a root and a division, rounded as the CPU rounds them, so scales are equal to the bit.
//
// A node that the graph does not have is reported and counts as one without neighbours.
//
// Defines: THREADS, SRC_AT, DST_AT (where a block's counts have its nodes), COUNTS.

extern "C" __global__ void __launch_bounds__(THREADS)
    scales(const float* __restrict__ degrees, u64 nodes, const u64* __restrict__ ids, u32 src_room, const u32* counts,
           const u32* __restrict__ dst_starts, u32 dst_slots, u32 dst_room, float* __restrict__ src_scale,
           float* __restrict__ dst_scale, float* __restrict__ self_scale, Fault* fault) {
    const u32 src = counts[SRC_AT] < src_room ? counts[SRC_AT] : src_room;
    const u32 dst = counts[DST_AT] < dst_room ? counts[DST_AT] : dst_room;
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < src; at += (u64)gridDim.x * THREADS) {
        const u64 id = ids[at];
        if (id >= nodes) hw_fault(fault, FAULT_ID_OUT_OF_RANGE, at, id, nodes);
        const float degree = id < nodes ? degrees[id] : 1.0f, root = __fsqrt_rn(degree);
        src_scale[at] = __fdiv_rn(1.0f, root);
        if (at >= dst || at + 1 >= dst_slots) continue;
        // Where a block has some of a node's edges, those count for all of them.
        const u32 found = dst_starts[at + 1] - dst_starts[at];
        const float whole = found > 0 ? __fdiv_rn(__fsub_rn(degree, 1.0f), (float)found) : 1.0f;
        dst_scale[at] = __fdiv_rn(whole, root);
        self_scale[at] = __fdiv_rn(1.0f, degree);
    }
}
