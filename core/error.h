// One exception type for everything that a kernel or the runtime refuses. `code` is stable API.
#pragma once

#include <cstdio>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace steptrain {

struct Error : std::runtime_error {
  Error(std::string code, const std::string& message, std::string hint = {},
        std::source_location where = std::source_location::current())
      : std::runtime_error(message), code(std::move(code)), hint(std::move(hint)) {
    const std::string path = where.file_name();
    location = path.substr(path.find_last_of('/') + 1) + ":" + std::to_string(where.line());
  }
  std::string code;  // E_SHAPE, E_DTYPE, E_RANGE, E_HANDLE, E_MEMORY, E_DEVICE, E_UNSUPPORTED, E_CANCELLED
  std::string hint;  // what to do, or empty
  std::string location;  // native file:line
};

/// printf into a std::string, for error sentences.
template <typename... T>
std::string format(const char* pattern, T... values) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

}  // namespace steptrain
