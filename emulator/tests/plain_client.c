// A client in C, built without sanitizers, that opens the sanitised libraries with libasan preloaded: as the
// Rust process does it. A kernel writes behind a buffer that this client got from malloc; ASan must end it.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void* library(const char* variable) {
    void* handle = dlopen(getenv(variable), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return handle;
}

#define CALL(handle, name, ...)                                        \
    do {                                                               \
        int code = ((int (*)())dlsym(handle, name))(__VA_ARGS__);      \
        if (code) {                                                    \
            fprintf(stderr, "%s gave %d\n", name, code);               \
            exit(2);                                                   \
        }                                                              \
    } while (0)

int main(void) {
    void *cuda = library("HEADWATER_LIBCUDA"), *nvrtc = library("HEADWATER_LIBNVRTC");
    void *context, *program, *module, *function;
    CALL(cuda, "cuInit", 0);
    CALL(cuda, "cuDevicePrimaryCtxRetain", &context, 0);
    CALL(cuda, "cuCtxSetCurrent", context);
    const char* text = "extern \"C\" __global__ void fill(float* data) { data[threadIdx.x] = 1.0f; }";
    CALL(nvrtc, "nvrtcCreateProgram", &program, text, "fill.cu", 0, NULL, NULL);
    CALL(nvrtc, "nvrtcCompileProgram", program, 0, NULL);
    char image[4096];
    CALL(nvrtc, "nvrtcGetCUBIN", program, image);
    CALL(nvrtc, "nvrtcDestroyProgram", &program);
    CALL(cuda, "cuModuleLoadData", &module, image);
    CALL(cuda, "cuModuleGetFunction", &function, module, "fill");
    float* data = malloc(16 * sizeof(float));
    void* arguments[] = {&data};
    typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
    Launch launch = (Launch)dlsym(cuda, "cuLaunchKernel");
    if (launch(function, 1, 1, 1, 16, 1, 1, 0, NULL, arguments, NULL)) return 2;
    printf("in bounds\n");
    fflush(stdout);
    launch(function, 1, 1, 1, 17, 1, 1, 0, NULL, arguments, NULL);
    printf("out of bounds went unseen\n");
    return 0;
}
