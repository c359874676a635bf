#include "cuda/runtime/choice.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"

namespace steptrain::cuda {
namespace {

constexpr std::string_view kNames[] = {"attention_backward", "lora_gradients", "stream_k"};
constexpr uint32_t kCount = static_cast<uint32_t>(Successor::kCount);
static_assert(sizeof(kNames) / sizeof(kNames[0]) == kCount);

uint32_t bit_of(std::string_view name) {
  std::string names;
  for (uint32_t i = 0; i < kCount; i++) {
    if (kNames[i] == name) return 1u << i;
    names += (i ? ", " : "") + std::string(kNames[i]);
  }
  throw Error("E_RANGE", "STEPTRAIN_KERNELS names '" + std::string(name) +
                             "'; expected verified, new, or a list of " + names);
}

}  // namespace

Choice Choice::of_environment() {
  Choice choice;
  const char* const set = std::getenv("STEPTRAIN_KERNELS");
  std::string_view names = set ? set : "";
  if (names == "verified") return choice;
  if (names == "new") {
    choice.taken_ = (1u << kCount) - 1;
    return choice;
  }
  while (!names.empty()) {
    const size_t comma = names.find(',');
    choice.taken_ |= bit_of(names.substr(0, comma));
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
  }
  return choice;
}

}  // namespace steptrain::cuda
