// Trees by the edge they belong to: the twin of Owner::edge_of, a thread a node.
//
// The sampler numbers trees by their seeds, which are the ends of edges and negatives. Telling it other numbers would
// join trees that must stay apart, so they are replaced once the sample is there: 4 bytes in and out a node.
//
// Defines: THREADS.

extern "C" __global__ void __launch_bounds__(THREADS)
    name_trees(u32* __restrict__ trees, u64 count, u64 sources, u64 positives, u64 triplets) {
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    for (u64 i = thread; i < count; i += threads) {
        const u64 tree = trees[i], at = tree >= sources ? tree - sources : tree;
        if (at < positives)
            trees[i] = (u32)at;
        else if (triplets)
            trees[i] = (u32)((at - positives) / triplets);
        else
            trees[i] = (u32)((at - positives) % (positives ? positives : 1));
    }
}
