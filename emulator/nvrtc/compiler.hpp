// Runs the system's C++ compiler on kernel text, with a cache on disk. See compiler.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hwemu {

struct Source {
    std::string name, text;
    std::vector<std::pair<std::string, std::string>> headers;  // include name, text
    std::vector<std::string> preprocessor_options;
};

// The path of the object, or empty when the text does not compile; `log` is what the compiler said.
std::string compile(const Source& source, std::string& log);

}  // namespace hwemu
