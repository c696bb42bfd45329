// What emitted kernels share: the graph and the buffers as they come, and vectors across a group of lanes.
//
// Bytes: a map is one load of 4 bytes a row, or none; a search among types is a few loads that all rows share. A vector is
// read and written by neighbouring lanes, so in whole lines. `hw_pick` moves an element between lanes: a shuffle a slot.

#define HW_INFINITY hw_float(0x7f800000u)
// The least number but minus infinity.
#define HW_LEAST hw_float(0xff7fffffu)

// What every kernel begins with. Before it stand only reads of memory that no kernel of the program writes: tables, counts, lists of the graph and
// of rows. Every thread block calls it, since kernels behind rely on that. Where kernels are recorded as a graph, a kernel goes on once all that it
// waits for is over and written; from then on thread blocks of those behind it may be launched. In this order, since what is launched earlier could
// find lines in a cache that are older than what it waits for: loads through the read-only path are not told of writes.
__device__ inline void hw_begin() {
#if !defined(HEADWATER_EMULATED) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Which row of a coarser domain a row belongs to; see adjacency/mod.rs.
#define HW_MAP_SAME 0u
#define HW_MAP_FIRST 1u
#define HW_MAP_LISTED 2u
#define HW_MAP_STRETCHES 3u
#define HW_MAP_ENDS 4u
struct HwMap {
    u64 kind;
    u64 count;
    const u32 *list;
    const u32 *starts;
};

// Which rows of a finer domain belong to a row.
#define HW_MEMBERS_BETWEEN 1u
#define HW_MEMBERS_LISTED 2u
// Row i has row i, as long as that is one of the first `starts[1]`; others have none.
#define HW_MEMBERS_FIRST 3u
struct HwMembers {
    u64 kind;
    u64 count;
    const u32 *starts;
    const u32 *rows;
};

// Rows cut into pieces of one type. HW_MAP_SAME: every row is a piece and a type; HW_MAP_FIRST: there is one type, and `count` is the
// most pieces that sums are cut into; HW_MAP_LISTED: `all` has type, first row and count of each piece, pieces of a type one after
// the other from `starts[type]` on. Behind pieces that are chunks of sums `all` has how many shares that take as long they make,
// where the first chunk of each share stands, and the end of the last.
struct HwTiles {
    u64 kind;
    u64 count;
    const u32 *all;
    const u32 *starts;
};
struct HwTile {
    u32 type, first, count;
};
struct HwRange {
    u32 first, end;
};
__device__ inline HwTile hw_listed_tile(const HwTiles &tiles, u32 at) {
    const u32 *tile = tiles.all + 3 * (u64)at;
    return HwTile{tile[0], tile[1], tile[2]};
}

// Which rows of another domain the members of all rows lead to, member after member; null where they are looked up by maps.
struct HwChain {
    u64 kind;
    u64 count;
    const u32 *list;
    const u32 *unused;
};

struct HwOrder;
struct HwGraph {
    const u32 *rows;
    const HwMap *maps;
    const HwMembers *members;
    const HwTiles *tiles;
    const HwOrder *orders;
    const HwChain *chains;
};

// A buffer, and which of its rows stand for the first, the second and so on; all in order where there is no list.
// Data begins on 16 bytes.
struct HwBuffer {
    float *data;
    const u32 *rows;
};

__device__ inline u32 hw_least(u32 a, u32 b) { return a < b ? a : b; }

// The stretch that a row lies in: the last that begins at or before it.
__device__ inline u32 hw_stretch(const HwMap &map, u32 row) {
    u32 low = 0, high = (u32)map.count;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (map.starts[middle] <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

__device__ inline u32 hw_map(const HwMap &map, u32 row) {
    if (map.kind == HW_MAP_LISTED) return map.list[row];
    if (map.kind == HW_MAP_SAME) return row;
    if (map.kind == HW_MAP_FIRST) return 0;
    const u32 stretch = hw_stretch(map, row);
    return map.kind == HW_MAP_ENDS ? map.list[stretch] : stretch;
}

__device__ inline u32 hw_first(const HwMembers &members, u32 row) {
    return members.kind == HW_MEMBERS_FIRST ? hw_least(row, members.starts[1]) : members.starts[row];
}
__device__ inline u32 hw_end(const HwMembers &members, u32 row) {
    return members.kind == HW_MEMBERS_FIRST ? hw_least(row + 1, members.starts[1]) : members.starts[row + 1];
}
__device__ inline u32 hw_member(const HwMembers &members, u32 at) {
    return members.kind == HW_MEMBERS_LISTED ? members.rows[at] : at;
}

__device__ inline u32 hw_row(const HwBuffer &buffer, u32 row) { return buffer.rows ? buffer.rows[row] : row; }

// An entry of a table, or a buffer, of which a kernel that is compiled for one graph knows the kind: branches on it are gone. HW_KINDS has
// those of the first map, list of members, list of tiles, order, chain and buffer (1 where it is rows of a larger table), then of the
// second of each, and so on; a kernel for any graph is compiled without it.
#ifdef HW_KINDS
__device__ constexpr u32 hw_kind(u32 at) {
    const u8 all[] = {HW_KINDS};
    return all[at];
}
template <u32 AT, class Entry> __device__ inline Entry hw_known(Entry entry) {
    constexpr u32 kind = hw_kind(AT);
    entry.kind = kind;
    return entry;
}
template <u32 AT> __device__ inline HwBuffer hw_known_rows(HwBuffer buffer) {
    constexpr bool is_picked = hw_kind(AT);
    if (!is_picked) buffer.rows = nullptr;
    return buffer;
}
#else
template <u32 AT, class Entry> __device__ inline Entry hw_known(Entry entry) { return entry; }
template <u32 AT> __device__ inline HwBuffer hw_known_rows(HwBuffer buffer) { return buffer; }
#endif

// The lanes of this thread's group, as a mask.
template <u32 G> __device__ inline u32 hw_group_lanes() {
    return G == 32 ? 0xffffffffu : ((1u << (G % 32)) - 1u) << (threadIdx.x % 32 / G * G);
}

// The sum over each stretch of PART lanes of a group, in all lanes of the stretch. PART is a power of two.
template <u32 G, u32 PART> __device__ inline float hw_part_sum(float x, u32 lanes) {
    for (u32 apart = PART / 2; apart > 0; apart /= 2) {
        x += __shfl_xor_sync(lanes, x, apart, G);
    }
    return x;
}

// The sum over a group, in every lane of it. Pairs are added, so all lanes have the same bits.
template <u32 G> __device__ inline float hw_group_sum(float x, u32 lanes) { return hw_part_sum<G, G>(x, lanes); }

// Element `at` of a vector, wherever it lies; see row.rs. All lanes of the group call this together.
template <u32 G, u32 V, int SLOTS> __device__ inline float hw_pick(const float (&x)[SLOTS], u32 at, u32 lanes) {
    float found = __shfl_sync(lanes, x[0], at / V % G, G);
#pragma unroll
    for (u32 slot = 1; slot < SLOTS; slot++) {
        const float other = __shfl_sync(lanes, x[slot], at / V % G, G);
        found = at / (V * G) * V + at % V == slot ? other : found;
    }
    return found;
}

// LEN floats that begin on 16 bytes where 4 divides LEN, on 8 where 2 does.
template <u32 LEN> __device__ inline void hw_load_own(float (&x)[LEN], const float *from) {
#pragma unroll
    for (u32 i = 0; i < LEN; i += LEN % 4 == 0 ? 4 : LEN % 2 == 0 ? 2 : 1) {
        if (LEN % 4 == 0) {
            const float4 all = *(const float4 *)(from + i);
            x[i] = all.x, x[i + 1] = all.y, x[i + 2] = all.z, x[i + 3] = all.w;
        } else if (LEN % 2 == 0) {
            const float2 both = *(const float2 *)(from + i);
            x[i] = both.x, x[i + 1] = both.y;
        } else {
            x[i] = from[i];
        }
    }
}
template <u32 LEN> __device__ inline void hw_store_own(float *to, const float (&x)[LEN]) {
#pragma unroll
    for (u32 i = 0; i < LEN; i += LEN % 4 == 0 ? 4 : LEN % 2 == 0 ? 2 : 1) {
        if (LEN % 4 == 0) {
            *(float4 *)(to + i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
        } else if (LEN % 2 == 0) {
            *(float2 *)(to + i) = make_float2(x[i], x[i + 1]);
        } else {
            to[i] = x[i];
        }
    }
}

// A vector of LEN elements across G lanes, V beside each other; zeros behind its end, and where it is not to be read.
template <u32 G, u32 V, u32 LEN, u32 SLOTS>
__device__ inline void hw_load_row(float (&x)[SLOTS], const float *from, u32 lane, bool is_there) {
#pragma unroll
    for (u32 s = 0; s < SLOTS; s += V) {
        const u32 e = (s / V * G + lane) * V;
        const bool is_in = is_there && (LEN % (G * V) == 0 || e < LEN);
        if (V == 4 && LEN % 4 == 0) {
            const float4 all = is_in ? *(const float4 *)(from + e) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            x[s] = all.x, x[s + V / 4] = all.y, x[s + V / 2] = all.z, x[s + V * 3 / 4] = all.w;
        } else if (V == 2 && LEN % 2 == 0) {
            const float2 both = is_in ? *(const float2 *)(from + e) : make_float2(0.0f, 0.0f);
            x[s] = both.x, x[s + V / 2] = both.y;
        } else {
#pragma unroll
            for (u32 i = 0; i < V; i++) x[s + i] = is_there && e + i < LEN ? from[e + i] : 0.0f;
        }
    }
}
template <u32 G, u32 V, u32 LEN, u32 SLOTS>
__device__ inline void hw_store_row(float *to, const float (&x)[SLOTS], u32 lane) {
#pragma unroll
    for (u32 s = 0; s < SLOTS; s += V) {
        const u32 e = (s / V * G + lane) * V;
        if (V == 4 && LEN % 4 == 0) {
            if (e < LEN) *(float4 *)(to + e) = make_float4(x[s], x[s + V / 4], x[s + V / 2], x[s + V * 3 / 4]);
        } else if (V == 2 && LEN % 2 == 0) {
            if (e < LEN) *(float2 *)(to + e) = make_float2(x[s], x[s + V / 2]);
        } else {
#pragma unroll
            for (u32 i = 0; i < V; i++) {
                if (e + i < LEN) to[e + i] = x[s + i];
            }
        }
    }
}

// The larger; NaN where either is, unlike `fmaxf`.
__device__ inline float hw_max(float a, float b) { return a > b || a != a ? a : b; }

// The largest over a group, in every lane of it. Of 0 and -0 lanes may have either, so all take what the first one has.
template <u32 G> __device__ inline float hw_group_max(float x, u32 lanes) {
    for (u32 apart = G / 2; apart > 0; apart /= 2) x = hw_max(x, __shfl_xor_sync(lanes, x, apart, G));
    return __shfl_sync(lanes, x, 0, G);
}

// One more element of a softmax: the largest so far, and the sum of exponentials beside it. As long as all are minus infinity
// there is nothing to add: infinity less itself would be NaN.
__device__ inline void hw_join(float &largest, float &sum, float x) {
    const float now = hw_max(largest, x);
    sum = now == -HW_INFINITY ? 0.0f : sum * expf(largest - now) + expf(x - now);
    largest = now;
}

// A sum of exponentials beside its own largest, as it is beside the largest of all; of none there is none.
__device__ inline float hw_beside(float own, float sum, float largest) {
    return own == -HW_INFINITY ? 0.0f : sum * expf(own - largest);
}

// The factor of an element in a dropout; see cpu/dropout.rs.
__device__ inline float hw_kept(u64 key, u64 at, u32 threshold, float scale) {
    const u32 part = (u32)(hw_draw(key, at / 4) >> (16 * (at % 4))) & 0xffffu;
    return part >= threshold ? scale : 0.0f;
}

// Comparisons are those of torch, which decide where NaN goes; see cpu/scalar.rs.
__device__ inline float hw_relu(float x) { return x <= 0.0f ? 0.0f : x; }
__device__ inline float hw_step(float x) { return x <= 0.0f ? 0.0f : 1.0f; }
__device__ inline float hw_leaky(float x, float slope) { return x > 0.0f ? x : slope * x; }
__device__ inline float hw_leaky_step(float x, float slope) { return x > 0.0f ? 1.0f : slope; }
__device__ inline float hw_elu(float x, float a) { return x <= 0.0f ? a * expm1f(x) : x; }
__device__ inline float hw_elu_slope(float x, float a) { return x > 0.0f ? 1.0f : a * expf(x); }
__device__ inline float hw_normal(float x) { return 0.5f * (1.0f + erff(x * 0.70710678f)); }
__device__ inline float hw_gelu(float x) { return x * hw_normal(x); }
__device__ inline float hw_gelu_slope(float x) { return hw_normal(x) + x * 0.39894228f * expf(-0.5f * x * x); }
__device__ inline float hw_sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }
