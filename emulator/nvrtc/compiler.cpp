// Runs the system's C++ compiler on kernel text, with a cache on disk.
// Two steps: the preprocessor alone, without the device header and without system headers (NVRTC has none),
// then the rewritten text with the device header, which is compiled once for all kernels. Objects are keyed by
// everything that went into them and renamed into place, so that processes may share the cache.
#include "compiler.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernel_text.hpp"

namespace fs = std::filesystem;

namespace hwemu {

namespace {

using Words = std::vector<std::string>;

#ifdef __SANITIZE_ADDRESS__
constexpr bool built_sanitized = true;
#else
constexpr bool built_sanitized = false;
#endif

bool sanitize() {
    const char* text = std::getenv("HWEMU_SANITIZE");
    return text && *text ? std::strcmp(text, "0") != 0 : built_sanitized;
}

// The device headers lie beside this library.
fs::path own_folder() {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&sanitize), &info);
    return fs::absolute(info.dli_fname).parent_path();
}

std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
}

Words compiler() {
    const char* text = std::getenv("HWEMU_CXX");
    std::istringstream words(text && *text ? text : "g++");
    Words out;
    for (std::string word; words >> word;) out.push_back(word);
    return out;
}

// Whether operations of streams are held, and kernels tell what they read and write.
bool watched() {
    const char* text = std::getenv("HWEMU_ORDER");
    return text && *text && !sanitize();
}

bool is_clang() { return compiler().back().find("clang") != std::string::npos; }

Words object_options() {
    // Under the sanitizers compiling takes longer than running: optimising doubles it.
    Words out = {"-std=c++17", sanitize() ? "-O0" : "-O1", "-g1", "-fPIC", "-w", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
                 "-fno-strict-aliasing", "-ffp-contract=off", "-fno-math-errno", "-fno-omit-frame-pointer"};
    // The calls of ThreadSanitizer, which the emulator answers itself (watch.cpp).
    if (watched()) out.push_back("-fsanitize=thread");
    if (!sanitize()) return out;
    // An access by way of a null pointer, or of one that wrapped, is AddressSanitizer's to find.
    out.insert(out.end(), {"-fsanitize=address,undefined", "-fno-sanitize=null,pointer-overflow", "-fno-sanitize-recover=undefined"});
    if (is_clang()) return out;
    // Red zones between shared variables too; only GCC knows the option.
    out.push_back("-fsanitize-sections=hwemu_shared");
    // Checks are calls instead of code at every access, of which alignment is one (checks.cpp), and arrays of a thread have their bounds
    // checked (undefined) but no red zones: most of the suite's time on the emulator is that of compiling kernels.
    out.push_back("-fno-sanitize=alignment");
    for (const char* option : {"asan-instrumentation-with-call-threshold=0", "asan-stack=0"}) out.insert(out.end(), {"--param", option});
    return out;
}

// What answers the calls that are compiled into kernels at every access; linked to each. Empty where there are none.
fs::path access_object() {
    if (watched()) return own_folder() / "watch.o";
    if (sanitize() && !is_clang()) return own_folder() / "checks.o";
    return {};
}

// The first linker that is quicker than the usual one, which takes a third of the time of a small kernel.
Words linker_options() {
    for (const char* name : {"mold", "lld", "gold"}) {
        std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
        for (std::string folder; std::getline(folders, folder, ':');)
            if (access((folder + "/ld." + name).c_str(), X_OK) == 0) return {std::string("-fuse-ld=") + name};
    }
    return {};
}

class Hash {
public:
    void add(const std::string& text) {
        for (unsigned char c : text + '\0') {
            a_ = (a_ ^ c) * 0x100000001b3ull;
            b_ = (b_ + c) * 0x9e3779b97f4a7c15ull;
            b_ ^= b_ >> 29;
        }
    }
    std::string hex() const {
        char out[33];
        std::snprintf(out, sizeof out, "%016llx%016llx", static_cast<unsigned long long>(a_), static_cast<unsigned long long>(b_));
        return out;
    }

private:
    std::uint64_t a_ = 0xcbf29ce484222325ull, b_ = 0x243f6a8885a308d3ull;
};

const char* const device_headers[] = {"device.hpp", "runtime.hpp", "device/vector.hpp", "device/bits.hpp", "device/math.hpp",
                                      "device/atomic.hpp", "device/warp.hpp"};

// The device headers and how they are compiled.
void add_device(Hash& hash) {
    for (const Words& words : {compiler(), object_options()})
        for (const std::string& word : words) hash.add(word);
    for (const char* header : device_headers) hash.add(read(own_folder() / header));
    if (!access_object().empty()) hash.add(read(access_object()));
}

std::string key_of(const Source& source) {
    Hash hash;
    hash.add(source.name);
    hash.add(source.text);
    for (const auto& [name, text] : source.headers) {
        hash.add(name);
        hash.add(text);
    }
    for (const std::string& word : source.preprocessor_options) hash.add(word);
    add_device(hash);
    return hash.hex();
}

fs::path cache_folder() {
    const char* named = std::getenv("HWEMU_CACHE");
    if (named && *named) return fs::absolute(named);
    return fs::temp_directory_path() / ("hwemu-cache-" + std::to_string(getuid()));
}

// A preloaded sanitizer is meant for the client, not for the compiler.
std::vector<char*> environment_without_preload() {
    std::vector<char*> out;
    for (char** entry = environ; *entry; ++entry)
        if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) out.push_back(*entry);
    out.push_back(nullptr);
    return out;
}

bool run(const Words& words, const fs::path& folder, std::string& log) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const std::string log_path = folder / "hwemu-log";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    pid_t child = 0;
    const int error = posix_spawnp(&child, words[0].c_str(), &actions, nullptr, arguments.data(), environment_without_preload().data());
    posix_spawn_file_actions_destroy(&actions);
    if (error) {
        log += "cannot run " + words[0] + ": " + std::strerror(error) + "\n";
        return false;
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    log += read(log_path);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A name that no other thread and no other process has.
fs::path own_name(const std::string& key) {
    static std::atomic<unsigned> number{0};
    return cache_folder() / (key + "." + std::to_string(getpid()) + "." + std::to_string(number++));
}

// The device header beside its precompiled form: reading the text is half of what GCC does for a small kernel. GCC takes the
// text where the form does not fit, clang always.
fs::path device_header() {
    const fs::path plain = own_folder() / "device.hpp";
    if (is_clang()) return plain;
    Hash hash;
    add_device(hash);
    const fs::path folder = cache_folder() / ("header-" + hash.hex());
    if (fs::exists(folder)) return folder / "device.hpp";
    const fs::path made = own_name("header");
    for (const char* header : device_headers) write(made / header, read(own_folder() / header));
    Words words = compiler();
    for (const std::string& word : object_options()) words.push_back(word);
    words.insert(words.end(), {"-x", "c++-header", "device.hpp", "-o", "device.hpp.gch"});
    std::string log;
    std::error_code other;
    const bool done = run(words, made, log);
    // Whoever was first has the same.
    if (done) fs::rename(made, folder, other);
    if (!done || other) fs::remove_all(made, other);
    return done ? folder / "device.hpp" : plain;
}

bool build(const Source& source, const fs::path& folder, std::string& log) {
    for (const auto& [name, text] : source.headers) write(folder / name, text);
    write(folder / source.name, source.text);
    Words preprocess = compiler();
    preprocess.insert(preprocess.end(), {"-std=c++17", "-E", "-nostdinc", "-I.", "-DHEADWATER_EMULATED=1", "-D__CUDACC__=1",
                                         "-D__CUDACC_RTC__=1"});
    preprocess.insert(preprocess.end(), source.preprocessor_options.begin(), source.preprocessor_options.end());
    preprocess.insert(preprocess.end(), {"-x", "c++", source.name, "-o", "hwemu-preprocessed"});
    if (!run(preprocess, folder, log)) return false;
    write(folder / "hwemu-unit.cpp", to_translation_unit(read(folder / "hwemu-preprocessed")));
    Words object = compiler();
    for (const std::string& word : object_options()) object.push_back(word);
    object.push_back("-fdebug-prefix-map=" + folder.string() + "=.");
    const Words linker = linker_options();
    if (!watched()) {
        object.insert(object.end(), linker.begin(), linker.end());
        object.insert(object.end(), {"-shared", "-include", device_header(), "hwemu-unit.cpp", "-o", "hwemu-object.so"});
        if (!access_object().empty()) object.push_back(access_object());
        return run(object, folder, log);
    }
    // Linked without the sanitizer's own library.
    object.insert(object.end(), {"-c", "-include", device_header(), "hwemu-unit.cpp", "-o", "hwemu-unit.o"});
    Words link = compiler();
    link.insert(link.end(), linker.begin(), linker.end());
    link.insert(link.end(), {"-shared", "hwemu-unit.o", access_object(), "-o", "hwemu-object.so"});
    return run(object, folder, log) && run(link, folder, log);
}

}  // namespace

std::string compile(const Source& source, std::string& log) {
    const std::string key = key_of(source);
    const fs::path object = cache_folder() / (key + ".so");
    if (fs::exists(object)) return object;
    const fs::path folder = own_name(key);
    fs::create_directories(folder);
    const bool built = build(source, folder, log);
    if (built) fs::rename(folder / "hwemu-object.so", object);
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    return built ? object.string() : std::string();
}

}  // namespace hwemu
