// Two real processes share device memory by an IPC handle: `ipc KERNELS.cu` starts itself again as the peer.
#include <sys/wait.h>
#include <unistd.h>

#include "client.hpp"

namespace {

struct Handle {
    unsigned char bytes[64];
};

int peer() {
    Handle handle;
    EXPECT(fread(&handle, sizeof handle, 1, stdin) == 1);
    use_device(0);
    DevicePointer address = 0, again = 0;
    OK(cu("cuIpcOpenMemHandle_v2", &address, handle, 1u));
    OK(cu("cuIpcOpenMemHandle_v2", &again, handle, 1u));
    EXPECT(address == again && live("ipc_mappings") == 1);
    auto* words = reinterpret_cast<unsigned*>(address);
    EXPECT(words[0] == 41);
    words[99] = 43;
    EXPECT_CODE(1, cu("cuMemFree_v2", address));
    OK(cu("cuIpcCloseMemHandle", address));
    OK(cu("cuIpcCloseMemHandle", address));
    EXPECT_CODE(1, cu("cuIpcCloseMemHandle", address));
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    if (count > 1) return peer();
    use_device(0);
    DevicePointer address = 0, pool = 0;
    OK(cu("cuMemAlloc_v2", &address, std::size_t{400}));
    OK(cu("cuMemsetD32Async", address, 41u, std::size_t{1}, static_cast<void*>(nullptr)));
    Handle handle;
    OK(cu("cuIpcGetMemHandle", &handle, address));
    EXPECT_CODE(201, cu("cuIpcOpenMemHandle_v2", &pool, handle, 1u));
    OK(cu("cuMemAllocAsync", &pool, std::size_t{400}, static_cast<void*>(nullptr)));
    Handle other;
    EXPECT_CODE(1, cu("cuIpcGetMemHandle", &other, pool));
    int ends[2];
    EXPECT(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], 0);
        execl("/proc/self/exe", arguments[0], "peer", static_cast<char*>(nullptr));
        _exit(3);
    }
    EXPECT(write(ends[1], &handle, sizeof handle) == sizeof handle);
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(reinterpret_cast<unsigned*>(address)[99] == 43);
    OK(cu("cuMemFree_v2", address));
    OK(cu("cuMemFreeAsync", pool, static_cast<void*>(nullptr)));
    std::printf("ok ipc\n");
}
