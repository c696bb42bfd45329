// From kernel text to C++: finds the kernels, rewrites the two things that C++ cannot express, appends the table.
// It works on preprocessed text, where comments are gone and macros and #if are resolved, so looking at
// tokens is enough. Line markers stay, so that compilers and sanitizers name the original lines.
//
//   extern __shared__ T name[];       becomes   T* name = (T*)the block's dynamic shared memory;
//   extern "C" __global__ void f()    becomes   __global__ void f(), because a kernel may have the name of a
//                                               C library function and lies in an unnamed namespace anyway.
#include "kernel_text.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

namespace hwemu {

namespace {

struct Token {
    std::size_t begin, end;
    std::string text;
};

struct Found {
    std::string name, bounds;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::size_t end_of_literal(const std::string& text, std::size_t at) {
    const char quote = text[at++];
    while (at < text.size() && text[at] != quote) at += text[at] == '\\' ? 2 : 1;
    return std::min(at + 1, text.size());
}

// Words, literals and single characters; white space and line markers are left out.
std::vector<Token> tokens_of(const std::string& text) {
    std::vector<Token> out;
    bool line_start = true;
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at];
        std::size_t end = at + 1;
        if (c == '#' && line_start) {
            at = std::min(text.find('\n', at), text.size());
            continue;
        }
        if (std::isspace(static_cast<unsigned char>(c))) {
            line_start = line_start || c == '\n';
            ++at;
            continue;
        }
        if (is_word(c)) {
            // A quote between digits belongs to the number.
            const bool number = std::isdigit(static_cast<unsigned char>(c));
            while (end < text.size() && (is_word(text[end]) || (number && text[end] == '\''))) ++end;
        } else if (c == '"' || c == '\'') {
            end = end_of_literal(text, at);
        }
        out.push_back({at, end, text.substr(at, end - at)});
        line_start = false;
        at = end;
    }
    return out;
}

class Rewriter {
public:
    explicit Rewriter(std::string text) : text_(std::move(text)), tokens_(tokens_of(text_)) {}

    std::string run(std::vector<Found>& kernels) {
        for (std::size_t i = 0; i < tokens_.size(); ++i) {
            if (is(i, "extern") && is(i + 1, "__shared__")) {
                rewrite_dynamic_shared(i);
            } else if (is(i, "extern") && is(i + 1, "\"C\"")) {
                if (is(i + 2, "{"))
                    open_c_block(i);
                else
                    find_kernel(i, kernels);
            } else if (is(i, "{")) {
                ++depth_;
            } else if (is(i, "}")) {
                if (--depth_ < c_block_depth_) c_block_depth_ = never;
            } else if (is(i, "__global__") && depth_ == c_block_depth_) {
                add_kernel(i, kernels);
            }
        }
        return apply();
    }

private:
    static constexpr int never = -1;

    bool is(std::size_t i, const char* text) const { return i < tokens_.size() && tokens_[i].text == text; }

    std::size_t after_parentheses(std::size_t i) const {
        int open = 0;
        for (; i < tokens_.size(); ++i) {
            open += is(i, "(") - is(i, ")");
            if (!open) return i + 1;
        }
        return i;
    }

    std::string between(std::size_t first, std::size_t last) const {
        return text_.substr(tokens_[first].begin, tokens_[last].end - tokens_[first].begin);
    }

    // extern "C" { ... }: a namespace in its place keeps the names and drops the linkage.
    void open_c_block(std::size_t i) {
        replace(i, i + 1, "inline namespace hwemu_c");
        c_block_depth_ = depth_ + 1;
    }

    // From extern "C" to the declared name: a kernel if __global__ stands between.
    void find_kernel(std::size_t i, std::vector<Found>& kernels) {
        if (add_kernel(i + 2, kernels)) replace(i, i + 1, "");
    }

    // Reads a declaration up to the parenthesis behind its name.
    bool add_kernel(std::size_t i, std::vector<Found>& kernels) {
        Found found;
        bool global = false;
        while (i < tokens_.size() && !is(i, ";") && !is(i, "{") && !is(i, "}")) {
            if (is(i, "__launch_bounds__") && is(i + 1, "(")) {
                const std::size_t end = after_parentheses(i + 1);
                if (end > i + 3) found.bounds = between(i + 2, end - 2);
                i = end;
            } else if ((is(i, "__attribute__") || is(i, "__align__") || is(i, "__cluster_dims__")) && is(i + 1, "(")) {
                i = after_parentheses(i + 1);
            } else if (is(i, "(")) {
                break;
            } else {
                global = global || is(i, "__global__");
                if (is_word(tokens_[i].text[0])) found.name = tokens_[i].text;
                ++i;
            }
        }
        if (!global || !is(i, "(")) return false;
        for (const Found& known : kernels)
            if (known.name == found.name) return true;
        kernels.push_back(found);
        return true;
    }

    void rewrite_dynamic_shared(std::size_t i) {
        std::size_t type = i + 2;
        while (is(type, "__align__") || is(type, "alignas") || is(type, "__attribute__")) type = after_parentheses(type + 1);
        std::size_t bracket = type;
        while (bracket < tokens_.size() && !is(bracket, "[") && !is(bracket, ";")) ++bracket;
        if (!is(bracket, "[") || !is(bracket + 1, "]") || bracket < type + 2) return;
        const std::string element = between(type, bracket - 2), name = tokens_[bracket - 1].text;
        replace(i, bracket + 1, element + "* const " + name + " = (" + element + "*)::hwemu_machine->dynamic_shared");
    }

    struct Edit {
        std::size_t begin, end;
        std::string text;
    };
    void replace(std::size_t first, std::size_t last, std::string text) {
        edits_.push_back({tokens_[first].begin, tokens_[last].end, std::move(text)});
    }

    std::string apply() const {
        std::string out;
        std::size_t at = 0;
        for (const Edit& edit : edits_) {
            out += text_.substr(at, edit.begin - at) + edit.text;
            at = edit.end;
        }
        return out + text_.substr(at);
    }

    std::string text_;
    std::vector<Token> tokens_;
    std::vector<Edit> edits_;
    int depth_ = 0, c_block_depth_ = never;
};

std::string table_of(const std::vector<Found>& kernels) {
    std::string out = "\nstatic const ::hwemu::Kernel hwemu_kernels[] = {\n";
    for (const Found& kernel : kernels) {
        const std::string shim = "::hwemu::Shim<&" + kernel.name + ">::";
        out += "    {\"" + kernel.name + "\", " + shim + "run, " + shim + "count, " + shim + "bytes, ::hwemu::first_bound(" +
               kernel.bounds + ")},\n";
    }
    return out + "    {nullptr, nullptr, 0, nullptr, 0}};\n";
}

const char attach[] = R"(
#ifdef __SANITIZE_THREAD__
extern "C" __attribute__((visibility("hidden"))) void (*hwemu_watch)(const void*, unsigned, unsigned);
#endif
extern "C" unsigned char __start_hwemu_shared[] __attribute__((weak, visibility("hidden")));
extern "C" unsigned char __stop_hwemu_shared[] __attribute__((weak, visibility("hidden")));
extern "C" __attribute__((visibility("default"))) ::hwemu::Module hwemu_attach(::hwemu::Machine* machine) {
    ::hwemu_machine = machine;
#ifdef __SANITIZE_THREAD__
    ::hwemu_watch = machine->access;
#endif
    return {hwemu_text::hwemu_kernels, sizeof hwemu_text::hwemu_kernels / sizeof hwemu_text::hwemu_kernels[0] - 1,
            __start_hwemu_shared, __stop_hwemu_shared};
}
)";

}  // namespace

std::string to_translation_unit(const std::string& preprocessed) {
    std::vector<Found> kernels;
    const std::string text = Rewriter(preprocessed).run(kernels);
    return "namespace hwemu_text { namespace {\n" + text + "\n# 1 \"hwemu-table\"" + table_of(kernels) + "}}\n" + attach;
}

}  // namespace hwemu
