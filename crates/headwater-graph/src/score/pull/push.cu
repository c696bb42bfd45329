// Every row hands its contribution on to its neighbours: sums[neighbour] += the whole part of contributions[row].
//
// The CPU pulls over lists that it has turned round; here lists stay as they are for sampling, and additions that meet
// are left to atomics. Sums are whole numbers, so their order does not matter. Work is cut by edges: a block takes TILE of
// them, finds the rows they belong to by two searches of the offsets, brings those rows' bounds into shared memory and
// looks each edge up there. A hub is shared by many blocks and short rows share a warp, without a case for either; only
// where rows without edges are so many that their bounds do not fit is the search made in the offsets themselves.
//
// Per edge: its id (4 or 8 bytes, read once, side by side) and one 8-byte atomic on a sector of the sums, which stay in
// the second-level cache up to some six million nodes; per row 8 bytes of offset and 4 of contribution; per tile two
// searches of log2(rows) requests. No floating point but one conversion an edge. Ids of rows that contribute nothing are
// not read, so a first hop from few seeds costs little more than the offsets.
//
// Defines: THREADS; TILE, edges of a block at a time.

// The row an edge belongs to: the last of low..high that begins at or before it. low < high.
__device__ __forceinline__ u64 row_of(const u64* offsets, u64 low, u64 high, u64 edge) {
    while (high - low > 1) {
        const u64 middle = low + (high - low) / 2;
        if (offsets[middle] <= edge)
            low = middle;
        else
            high = middle;
    }
    return low;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    push(Lists lists, const u64* __restrict__ offsets, const void* __restrict__ neighbours,
         const float* __restrict__ contributions, u64 targets, u64* sums, u64 sources) {
    __shared__ u64 ends[2];
    __shared__ u64 bounds[TILE];
    const Graph graph = {lists, offsets, neighbours};
    if (lists.rows == 0) return;
    for (u64 begin = (u64)blockIdx.x * TILE; begin < lists.edges; begin += (u64)gridDim.x * TILE) {
        const u64 end = begin + TILE < lists.edges ? begin + TILE : lists.edges;
        if (threadIdx.x < 2) ends[threadIdx.x] = row_of(offsets, 0, lists.rows, threadIdx.x == 0 ? begin : end - 1);
        __syncthreads();
        // Offsets that fall could turn the two round.
        const u64 first = ends[0], rows = ends[1] < first ? 1 : ends[1] - first + 1;
        const bool fits = rows <= TILE;
        for (u64 i = threadIdx.x; fits && i < rows; i += THREADS) bounds[i] = offsets[first + i];
        __syncthreads();
        const u64* starts = fits ? bounds : offsets + first;
        for (u64 edge = begin + threadIdx.x, row = 0; edge < end; edge += THREADS) {
            row = row_of(starts, row, rows, edge);
            const float contribution = first + row < targets ? contributions[first + row] : 0.0f;
            if (contribution < 1.0f) continue;
            const u64 source = neighbour_at(graph, edge);
            if (source < sources) atomicAdd(sums + source, (u64)(i64)contribution);
        }
        __syncthreads();
    }
}
