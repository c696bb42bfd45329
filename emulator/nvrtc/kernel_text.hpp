// Turns preprocessed kernel text into a C++ translation unit with a table of its kernels. See kernel_text.cpp.
#pragma once

#include <string>

namespace hwemu {

std::string to_translation_unit(const std::string& preprocessed);

}  // namespace hwemu
