// What ThreadSanitizer's instrumentation calls, without ThreadSanitizer: every access is told to the driver stand-in.
// The compiler turns atomics into calls too, so they are carried out here.
namespace {

// Until the driver stand-in has said who is told.
void nobody(const void*, unsigned, unsigned) {}

}  // namespace

extern "C" {

void (*hwemu_watch)(const void* address, unsigned bytes, unsigned kind) = nobody;

}

namespace {

enum Kind : unsigned { read, write, atomic };

void tell(const volatile void* address, unsigned bytes, Kind kind) {
    hwemu_watch(const_cast<const void*>(address), bytes, kind);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* address, unsigned long bytes) { tell(address, static_cast<unsigned>(bytes), read); }
void __tsan_write_range(void* address, unsigned long bytes) { tell(address, static_cast<unsigned>(bytes), write); }

#define HWEMU_ACCESS(bytes)                                                           \
    void __tsan_read##bytes(void* address) { tell(address, bytes, read); }            \
    void __tsan_write##bytes(void* address) { tell(address, bytes, write); }          \
    void __tsan_volatile_read##bytes(void* address) { tell(address, bytes, read); }   \
    void __tsan_volatile_write##bytes(void* address) { tell(address, bytes, write); } \
    void __tsan_unaligned_read##bytes(void* address) { tell(address, bytes, read); }  \
    void __tsan_unaligned_write##bytes(void* address) { tell(address, bytes, write); }
HWEMU_ACCESS(1)
HWEMU_ACCESS(2)
HWEMU_ACCESS(4)
HWEMU_ACCESS(8)
HWEMU_ACCESS(16)

#define HWEMU_FETCH(bits, type, name)                                                        \
    type __tsan_atomic##bits##_fetch_##name(volatile type* address, type value, int) {       \
        tell(address, sizeof(type), atomic);                                                 \
        return __atomic_fetch_##name(address, value, __ATOMIC_SEQ_CST);                      \
    }
#define HWEMU_ATOMIC(bits, type)                                                                                       \
    type __tsan_atomic##bits##_load(const volatile type* address, int) {                                               \
        tell(address, sizeof(type), atomic);                                                                           \
        return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                             \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile type* address, type value, int) {                                        \
        tell(address, sizeof(type), atomic);                                                                           \
        __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                            \
    }                                                                                                                  \
    type __tsan_atomic##bits##_exchange(volatile type* address, type value, int) {                                     \
        tell(address, sizeof(type), atomic);                                                                           \
        return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type* address, type* expected, type value, int, int) {  \
        tell(address, sizeof(type), atomic);                                                                           \
        return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type* address, type* expected, type value, int, int) {    \
        tell(address, sizeof(type), atomic);                                                                           \
        return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    }                                                                                                                  \
    HWEMU_FETCH(bits, type, add)                                                                                       \
    HWEMU_FETCH(bits, type, sub)                                                                                       \
    HWEMU_FETCH(bits, type, and)                                                                                       \
    HWEMU_FETCH(bits, type, or)                                                                                        \
    HWEMU_FETCH(bits, type, xor)                                                                                       \
    HWEMU_FETCH(bits, type, nand)
HWEMU_ATOMIC(8, unsigned char)
HWEMU_ATOMIC(16, unsigned short)
HWEMU_ATOMIC(32, unsigned)
HWEMU_ATOMIC(64, unsigned long long)

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}
