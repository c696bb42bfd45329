// The lists of one relation: the twin of Topology::sound_list and Topology::has_edge.
//
// Ids of either width are read by one text: the width is the same for all threads, so the branch costs an instruction
// beside a request. Per list: both offsets are one request of 16 bytes. Per lookup: log2(degree) requests of an id where
// rows are sorted, else the list up to the neighbour, in requests that a thread's next ids share.

// The same struct stands in cuda.rs.
struct Lists {
    u64 rows, edges;
    u64 id_bytes; // 4 or 8
    u64 is_sorted;
};

struct Graph {
    Lists lists;
    const u64* offsets;
    const void* neighbours;
};

struct List {
    u64 start, degree;
};

// Damaged rows, and rows that are none, have no neighbours.
__device__ __forceinline__ List list_of(const Graph& graph, u64 row) {
    if (row >= graph.lists.rows) return List{0, 0};
    const u64 start = graph.offsets[row], end = graph.offsets[row + 1];
    return start <= end && end <= graph.lists.edges ? List{start, end - start} : List{0, 0};
}

// `at` is in a list.
__device__ __forceinline__ u64 neighbour_at(const Graph& graph, u64 at) {
    return graph.lists.id_bytes == 8 ? ((const u64*)graph.neighbours)[at] : (u64)((const u32*)graph.neighbours)[at];
}

__device__ inline bool has_edge(const Graph& graph, u64 row, u64 neighbour) {
    const List list = list_of(graph, row);
    u64 low = list.start, high = list.start + list.degree;
    if (!graph.lists.is_sorted) {
        while (low < high && neighbour_at(graph, low) != neighbour) low++;
        return low < high;
    }
    const u64 end = high;
    while (low < high) {
        const u64 middle = (low + high) / 2;
        if (neighbour_at(graph, middle) < neighbour)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && neighbour_at(graph, low) == neighbour;
}
