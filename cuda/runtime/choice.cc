#include "cuda/runtime/choice.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"

namespace steptrain::cuda {
namespace {

struct Row {
  std::string_view name;
  bool by_default;  // right and faster on an H100: docs/evidence/h100.md
};
constexpr Row kRows[] = {
    {"few_rows", true},           {"lora", true}, {"tiles", true}, {"attention_forward", true},
    {"attention_backward", true},
};
constexpr uint32_t kCount = static_cast<uint32_t>(Successor::kCount);
static_assert(sizeof(kRows) / sizeof(kRows[0]) == kCount);

uint32_t bit_of(std::string_view name) {
  std::string names;
  for (uint32_t i = 0; i < kCount; i++) {
    if (kRows[i].name == name) return 1u << i;
    names += (i ? ", " : "") + std::string(kRows[i].name);
  }
  throw Error("E_RANGE", "STEPTRAIN_KERNELS names '" + std::string(name) +
                             "'; expected verified, new, or a list of " + names);
}

}  // namespace

Choice Choice::of_environment() {
  Choice choice;
  for (uint32_t i = 0; i < kCount; i++) choice.taken_ |= uint32_t{kRows[i].by_default} << i;
  const char* const set = std::getenv("STEPTRAIN_KERNELS");
  if (!set || !*set) return choice;
  std::string_view names = set;
  choice.taken_ = 0;
  choice.forced_ = true;
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
