// The twin of choose.rs: the same positions of a row in the same order, found by a group of lanes together.
//
// A group is 1 to 32 neighbouring lanes of a warp that work on one row, so that its neighbours are read by one
// instruction and merge into few requests, and so that a warp has several rows in flight. Positions are handed on in
// batches of as many as there are lanes: take(j, position) is called by the lane that has the j-th, all lanes at a
// time.
//
// Floyd's method is a chain: draw j gives way if an earlier one took its position. The draws themselves do not depend
// on each other, so all lanes draw at once and then learn in order what the earlier ones took: two shuffles a
// position.

// Some neighbouring lanes of a warp.
struct Group {
    u32 lanes, lane, mask;

    __device__ __forceinline__ u64 from(u64 value, u32 source) const {
        return __shfl_sync(mask, value, (int)source, (int)lanes);
    }
    template <class Number> __device__ __forceinline__ Number across(Number value, u32 distance) const {
        return __shfl_xor_sync(mask, value, (int)distance, (int)lanes);
    }
    // Which lanes say yes, the group's first in bit 0.
    __device__ __forceinline__ u32 which(bool yes) const {
        return __ballot_sync(mask, yes) >> (threadIdx.x % 32 - lane);
    }
};

__device__ __forceinline__ Group group_of(u32 lanes) {
    const u32 lane = threadIdx.x % lanes;
    const u32 all = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
    return Group{lanes, lane, all << (threadIdx.x % 32 - lane)};
}

// Positions `first` to `first + count`, in order.
template <class Take>
__device__ __forceinline__ void choose_run(const Group& g, u64 first, u64 count, Take take) {
    for (u64 j = g.lane; j < count; j += g.lanes) take(j, first + j);
}

template <class Take>
__device__ __forceinline__ void choose_with_replacement(const Group& g, u64 key, u64 degree, u64 wanted, Take take) {
    if (degree == 0) return;
    for (u64 j = g.lane; j < wanted; j += g.lanes) take(j, hw_below(key, j, degree));
}

// `wanted` of `degree` positions, which are more. `taken(j)` is what take(j, ..) was given; it is asked only when there
// are more positions than lanes.
template <class Take, class Taken>
__device__ __forceinline__ void choose_by_floyd(const Group& g, u64 key, u64 degree, u64 wanted, Take take,
                                                Taken taken) {
    const u64 first = degree - wanted;
    for (u64 begin = 0; begin < wanted; begin += g.lanes) {
        const u64 j = begin + g.lane, left = wanted - begin;
        u64 mine = j < wanted ? hw_below(key, j, first + j + 1) : ALL_NEIGHBOURS;
        __syncwarp(g.mask);
        for (u64 earlier = 0; earlier < begin; earlier++)
            if (taken(earlier) == mine) mine = first + j;
        const u32 here = left < g.lanes ? (u32)left : g.lanes;
        for (u32 earlier = 0; earlier + 1 < here; earlier++) {
            const u64 other = g.from(mine, earlier);
            if (g.lane > earlier && other == mine) mine = first + j;
        }
        if (j < wanted) take(j, mine);
        __syncwarp(g.mask);
    }
}

#if WEIGHTED

// When an edge arrives; `later` than another by time, then by position.
struct Arrival {
    double time;
    u64 position;
};

__device__ __forceinline__ bool is_later(const Arrival& a, const Arrival& b) {
    return a.time > b.time || (a.time == b.time && a.position > b.position);
}

// -ln(u) for the uniform number above zero that these bits are: the steps of choose.rs, each rounded once.
__device__ __forceinline__ double exponential(u64 bits) {
    const double number = (double)((bits >> 11) + 1);
    const u64 raw = (u64)__double_as_longlong(number);
    i64 exponent = (i64)(raw >> 52) - 1023;
    double mantissa = __longlong_as_double((i64)((raw & ((1ull << 52) - 1)) | (1023ull << 52)));
    if (mantissa > 1.41421356237309504880) {
        mantissa = __dmul_rn(mantissa, 0.5);
        exponent += 1;
    }
    const double s = __ddiv_rn(__dadd_rn(mantissa, -1.0), __dadd_rn(mantissa, 1.0)), square = __dmul_rn(s, s);
    double series = 0.0;
    for (int odd = 21; odd >= 3; odd -= 2) series = __dmul_rn(__dadd_rn(series, __ddiv_rn(1.0, (double)odd)), square);
    const double ln_mantissa = __dmul_rn(2.0, __dadd_rn(s, __dmul_rn(s, series)));
    return __dadd_rn(__dmul_rn((double)(53 - exponent), 0.693147180559945309417), -ln_mantissa);
}

// The earliest arrival after `last`; position ALL_NEIGHBOURS when there is none. All lanes get it.
__device__ __forceinline__ Arrival next_arrival(const Group& g, u64 key, Array<float> weights, u64 degree,
                                                const Arrival* last) {
    Arrival best = {0.0, ALL_NEIGHBOURS};
    for (u64 at = g.lane; at < degree; at += g.lanes) {
        const float weight = weights[at];
        if (!(weight > 0.0f)) continue;
        const Arrival arrival = {__ddiv_rn(exponential(hw_draw(key, at)), (double)weight), at};
        if (last && !is_later(arrival, *last)) continue;
        if (best.position == ALL_NEIGHBOURS || is_later(best, arrival)) best = arrival;
    }
    for (u32 distance = g.lanes / 2; distance > 0; distance /= 2) {
        const Arrival other = {g.across(best.time, distance), g.across(best.position, distance)};
        if (other.position == ALL_NEIGHBOURS) continue;
        if (best.position == ALL_NEIGHBOURS || is_later(best, other)) best = other;
    }
    return best;
}

// `wanted` of the positions that have a weight, in order when they are no more than that.
template <class Take>
__device__ __forceinline__ void choose_weighted(const Group& g, u64 key, Array<float> weights, u64 degree, u64 wanted,
                                                Take take) {
    u64 with_weight = 0;
    for (u64 begin = 0; begin < degree && with_weight <= wanted; begin += g.lanes)
        with_weight += __popc(g.which(begin + g.lane < degree && weights[begin + g.lane] > 0.0f));
    if (with_weight <= wanted) {
        u64 before = 0;
        for (u64 begin = 0; begin < degree; begin += g.lanes) {
            const bool has_weight = begin + g.lane < degree && weights[begin + g.lane] > 0.0f;
            const u32 which = g.which(has_weight);
            if (has_weight) take(before + __popc(which & ((1u << g.lane) - 1)), begin + g.lane);
            before += __popc(which);
        }
        return;
    }
    Arrival last = {0.0, 0};
    u64 mine = 0;
    for (u64 j = 0; j < wanted; j++) {
        last = next_arrival(g, key, weights, degree, j ? &last : (const Arrival*)0);
        if (j % g.lanes == g.lane) mine = last.position;
        const bool is_full = (j + 1) % g.lanes == 0 || j + 1 == wanted;
        if (is_full && g.lane <= j % g.lanes) take(j - j % g.lanes + g.lane, mine);
        __syncwarp(g.mask);
    }
}

// `wanted` positions, each the first to arrive in a race of its own.
template <class Take>
__device__ __forceinline__ void choose_weighted_again(const Group& g, u64 key, Array<float> weights, u64 degree,
                                                      u64 wanted, Take take) {
    u64 mine = 0;
    for (u64 j = 0; j < wanted; j++) {
        const u64 first = next_arrival(g, hw_key_of(key, j), weights, degree, (const Arrival*)0).position;
        if (first == ALL_NEIGHBOURS) return;
        if (j % g.lanes == g.lane) mine = first;
        const bool is_full = (j + 1) % g.lanes == 0 || j + 1 == wanted;
        if (is_full && g.lane <= j % g.lanes) take(j - j % g.lanes + g.lane, mine);
        __syncwarp(g.mask);
    }
}

#endif
