// Rows with very many members: a thread block takes them one after the other, all of it together.
//
// Bytes: two bounds a row, by neighbouring threads. A group of lanes alone waits for one member after the other; 256 threads
// share a hub's members, so that the row with most edges takes about as long as 8 to 256 times fewer.

template <bool IS> struct HwYes {
    static const bool value = IS;
};

template <u32 MOST> __device__ inline bool hw_is_hub(const HwMembers &members, u32 row) {
    return hw_end(members, row) - hw_first(members, row) > MOST;
}

// Calls `body` with every hub among the rows of this block, which takes PER rows at a time. All threads call it together.
template <u32 MOST, u32 PER, class Body>
__device__ inline void hw_each_hub(const HwMembers &members, u32 rows, const Body &body) {
    __shared__ u32 hubs[256];
    for (u64 turn = 0; (turn * gridDim.x + blockIdx.x) * PER < rows; turn += 256 / PER) {
        const u64 row = ((turn + threadIdx.x / PER) * gridDim.x + blockIdx.x) * PER + threadIdx.x % PER;
        const bool is_hub = row < rows && hw_is_hub<MOST>(members, (u32)row);
        if (!__syncthreads_or(is_hub)) continue;
        hubs[threadIdx.x] = is_hub ? (u32)row : 0xffffffffu;
        __syncthreads();
        for (u32 i = 0; i < 256; i++) {
            if (hubs[i] != 0xffffffffu) body(hubs[i]);
        }
        __syncthreads();
    }
}
