// What the environment changes: run by test.sh with HWEMU_DEVICES=2 and small limits.
#include "client.hpp"

int main() {
    void* first = use_device(0);
    void* second = use_device(1);
    int value = 0;
    OK(cu("cuDeviceGetCount", &value));
    EXPECT(value == 2);
    OK(cu("cuDriverGetVersion", &value));
    EXPECT(value == 12020);
    OK(cu("cuDeviceGetAttribute", &value, 16, 1));
    EXPECT(value == 8);
    OK(cu("cuDeviceCanAccessPeer", &value, 1, 0));
    EXPECT(value == 1);
    OK(cu("cuCtxEnablePeerAccess", first, 0u));
    EXPECT_CODE(704, cu("cuCtxEnablePeerAccess", first, 0u));
    EXPECT_CODE(101, cu("cuDeviceGet", &value, 2));
    DevicePointer a = 0, b = 0;
    OK(cu("cuMemAlloc_v2", &a, std::size_t{700}));
    EXPECT_CODE(2, cu("cuMemAllocAsync", &b, std::size_t{700}, static_cast<void*>(nullptr)));
    OK(cu("cuCtxSetCurrent", first));
    OK(cu("cuMemAllocAsync", &b, std::size_t{700}, static_cast<void*>(nullptr)));
    OK(cu("cuMemcpyAsync", b, a, std::size_t{700}, static_cast<void*>(nullptr)));
    OK(cu("cuPointerGetAttribute", &value, 9, a));
    EXPECT(value == 1);
    static char host[200];
    EXPECT_CODE(2, cu("cuMemHostRegister_v2", &host[0], std::size_t{101}, 0u));
    OK(cu("cuMemHostRegister_v2", &host[0], std::size_t{60}, 0u));
    EXPECT_CODE(2, cu("cuMemHostRegister_v2", &host[100], std::size_t{60}, 0u));
    void* pinned = nullptr;
    EXPECT_CODE(2, cu("cuMemHostAlloc", &pinned, std::size_t{101}, 0u));
    OK(cu("cuMemHostAlloc", &pinned, std::size_t{60}, 0u));
    OK(cu("cuMemFreeHost", pinned));
    OK(cu("cuMemHostAlloc", &pinned, std::size_t{60}, 0u));
    void* more = nullptr;
    EXPECT_CODE(2, cu("cuMemHostAlloc", &more, std::size_t{60}, 0u));
    OK(cu("cuDeviceGetAttribute", &value, 75, 0));
    EXPECT(value == 7);
    OK(cu("cuDeviceGetAttribute", &value, 76, 0));
    EXPECT(value == 5);
    EXPECT_CODE(801, cu("cuGreenCtxDestroy", second));
    std::printf("ok settings\n");
}
