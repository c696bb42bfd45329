// The NVRTC stand-in: the interface of the run-time compiler in front of the system's C++ compiler.
// What it calls a CUBIN is a short text that names a shared object; the driver stand-in opens it.
#include <cstring>
#include <exception>
#include <string>

#include "compiler.hpp"

#define HWEMU_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Result : int {
    success = 0,
    program_creation_failure = 2,
    invalid_input = 3,
    invalid_program = 4,
    invalid_option = 5,
    compilation = 6,
    internal_error = 11,
};

struct Program {
    hwemu::Source source;
    std::string log, image;
    bool compiled = false;
};

bool is_safe_name(const std::string& name) {
    return !name.empty() && name[0] != '/' && name.find("..") == std::string::npos;
}

// sm_90, sm_90a and compute_90 are all 900; sm_90a alone has what only that GPU has.
std::vector<std::string> architecture_defines(const std::string& value) {
    std::string digits;
    for (char c : value)
        if (c >= '0' && c <= '9') digits += c;
    std::vector<std::string> defines = {"-D__CUDA_ARCH__=" + (digits.empty() ? "520" : digits + "0")};
    if (!value.empty() && value.back() == 'a') defines.push_back("-D__CUDA_ARCH_FEAT_SM" + digits + "_ALL=1");
    return defines;
}

bool starts_with(const std::string& text, const char* prefix) { return text.compare(0, std::strlen(prefix), prefix) == 0; }

// Keeps what the preprocessor needs; everything else concerns a GPU.
int take_options(int count, const char* const* options, std::vector<std::string>& out) {
    std::vector<std::string> architecture = architecture_defines("");
    for (int i = 0; i < count; ++i) {
        if (!options[i]) return invalid_input;
        std::string option = options[i];
        // Short options may have their value in the next argument.
        const bool split = option == "-D" || option == "-U" || option == "-I" || option == "-arch";
        const std::string next = split && i + 1 < count ? options[++i] : "";
        if (!starts_with(option, "-")) return invalid_option;
        if (option == "-arch") option = "-arch=" + next;
        else if (split) option += next;
        const std::string value = option.substr(std::min(option.find('='), option.size() - 1) + 1);
        if (starts_with(option, "-arch=") || starts_with(option, "--gpu-architecture=")) architecture = architecture_defines(value);
        else if (starts_with(option, "--define-macro=")) out.push_back("-D" + value);
        else if (starts_with(option, "--undefine-macro=")) out.push_back("-U" + value);
        else if (starts_with(option, "--include-path=")) out.push_back("-I" + value);
        else if (starts_with(option, "-D") || starts_with(option, "-U") || starts_with(option, "-I")) out.push_back(option);
    }
    out.insert(out.end(), architecture.begin(), architecture.end());
    return success;
}

}  // namespace

HWEMU_EXPORT int nvrtcVersion(int* major, int* minor) {
    if (!major || !minor) return invalid_input;
    *major = 12;
    *minor = 8;
    return success;
}

HWEMU_EXPORT int nvrtcCreateProgram(Program** out, const char* text, const char* name, int header_count,
                                    const char* const* headers, const char* const* include_names) {
    if (!out || !text || header_count < 0 || (header_count && (!headers || !include_names))) return invalid_input;
    auto* program = new Program;
    program->source.text = text;
    const std::string given = name && *name ? name : "default_program.cu";
    program->source.name = given.substr(given.find_last_of('/') + 1);
    for (int i = 0; i < header_count; ++i) {
        if (!headers[i] || !include_names[i] || !is_safe_name(include_names[i])) {
            delete program;
            return invalid_input;
        }
        program->source.headers.emplace_back(include_names[i], headers[i]);
    }
    *out = program;
    return success;
}

HWEMU_EXPORT int nvrtcDestroyProgram(Program** program) {
    if (!program || !*program) return invalid_program;
    delete *program;
    *program = nullptr;
    return success;
}

HWEMU_EXPORT int nvrtcCompileProgram(Program* program, int option_count, const char* const* options) {
    if (!program) return invalid_program;
    if (option_count < 0 || (option_count && !options)) return invalid_input;
    program->source.preprocessor_options.clear();
    program->log.clear();
    program->compiled = false;
    if (int error = take_options(option_count, options, program->source.preprocessor_options)) return error;
    try {
        const std::string object = hwemu::compile(program->source, program->log);
        if (object.empty()) return compilation;
        program->image = "HWEMU1\n" + object + "\n";
        program->compiled = true;
        return success;
    } catch (const std::exception& error) {
        program->log += error.what();
        return internal_error;
    }
}

// The size counts a closing NUL, so that a reader of the text always finds an end.
HWEMU_EXPORT int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) {
    if (!program) return invalid_program;
    if (!bytes || !program->compiled) return invalid_input;
    *bytes = program->image.size() + 1;
    return success;
}

HWEMU_EXPORT int nvrtcGetCUBIN(Program* program, char* out) {
    if (!program) return invalid_program;
    if (!out || !program->compiled) return invalid_input;
    std::memcpy(out, program->image.c_str(), program->image.size() + 1);
    return success;
}

HWEMU_EXPORT int nvrtcGetProgramLogSize(Program* program, std::size_t* bytes) {
    if (!program) return invalid_program;
    if (!bytes) return invalid_input;
    *bytes = program->log.size() + 1;
    return success;
}

HWEMU_EXPORT int nvrtcGetProgramLog(Program* program, char* out) {
    if (!program) return invalid_program;
    if (!out) return invalid_input;
    std::memcpy(out, program->log.c_str(), program->log.size() + 1);
    return success;
}

HWEMU_EXPORT const char* nvrtcGetErrorString(int result) {
    switch (result) {
        case success: return "NVRTC_SUCCESS";
        case program_creation_failure: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
        case invalid_input: return "NVRTC_ERROR_INVALID_INPUT";
        case invalid_program: return "NVRTC_ERROR_INVALID_PROGRAM";
        case invalid_option: return "NVRTC_ERROR_INVALID_OPTION";
        case compilation: return "NVRTC_ERROR_COMPILATION";
        case internal_error: return "NVRTC_ERROR_INTERNAL_ERROR";
        default: return "NVRTC_ERROR unknown";
    }
}
