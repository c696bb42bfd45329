// The contract between a compiled kernel and the engine inside the driver stand-in.
// A kernel object is loaded with RTLD_LOCAL and cannot rely on symbol lookup, so the engine hands it one
// `Machine` at load time: the indices of the running thread and a few function pointers. Both sides are
// built from this header, and the kernel cache key covers it, so the layout needs no versioning.
#pragma once

namespace hwemu {

struct Index {
    unsigned x, y, z;
};

// What a kernel sees of the CUDA thread that runs now.
struct Thread {
    Index index;
    unsigned linear;  // x fastest, as CUDA numbers threads
    unsigned lane;
    unsigned loads;   // counted loads so far: the sequence number of `hw_count_load`
    unsigned spins;   // atomics since the thread last gave way
};

enum class WarpOp : unsigned { sync, ballot, any, all, shuffle, match, reduce, multiply };

// What a rendezvous of a warp gives back to each of its lanes: the values all lanes brought.
struct Lanes {
    unsigned long long value[32];
};

// A lane's fragments of a product of matrices, in the order of PTX's mma.m16n8k8 (TF32) or mma.m16n8k16 (bf16): 4 floats of d, which is
// c too, 4 words of a, 2 of b.
struct Fragments {
    float* sums;
    const unsigned *left, *right;
    bool is_bf16;
};

struct Machine {
    Thread* current;
    Index block_index, block_dim, grid_dim;
    void* dynamic_shared;
    // Waits for the whole block and returns how many threads brought a predicate other than zero.
    unsigned (*sync_block)(int predicate, const char* file, unsigned line);
    // Waits for the lanes of `mask` and returns what they brought; valid until this thread's next call.
    const Lanes* (*sync_warp)(WarpOp op, unsigned mask, unsigned long long value, const char* file, unsigned line);
    // Waits for the warp and adds the product of its matrices.
    void (*multiply)(const Fragments* own, const char* file, unsigned line);
    void (*count_load)(const void* address, unsigned bytes);
    // Where operations are held, every access of a kernel: 0 read, 1 written, 2 by an atomic.
    void (*access)(const void* address, unsigned bytes, unsigned kind);
    void (*give_way)();
    [[noreturn]] void (*fail)(int code, const char* what, const char* file, unsigned line);
};

// One row of the table that the NVRTC stand-in appends to every program.
struct Kernel {
    const char* name;
    void (*run_thread)(void** arguments);
    unsigned parameter_count;
    const unsigned* parameter_bytes;
    unsigned max_threads;  // from __launch_bounds__, else 1024
};

struct Module {
    const Kernel* kernels;
    unsigned kernel_count;
    unsigned char* shared_begin;  // every static __shared__ variable of the program lies in here
    unsigned char* shared_end;
};

// Exported by every kernel object under the name `hwemu_attach`.
using Attach = Module (*)(Machine*);

}  // namespace hwemu
