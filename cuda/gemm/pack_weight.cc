// pack_weight and unpack_weight: a packed weight is row-major on a GPU,
// so both convert or copy; y is =. One launch.
#include "cuda/convert.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

void pack_weight(Stream& stream, const Args& args) {
  const auto [w, y] = args.tensors<2>();
  convert(stream, w, y);
}

void unpack_weight(Stream& stream, const Args& args) {
  const auto [w, y] = args.tensors<2>();
  convert(stream, w, y);
}

}  // namespace

void register_pack_weight(KernelTable& table) {
  table.set("pack_weight", pack_weight);
  table.set("unpack_weight", unpack_weight);
}

}  // namespace steptrain::cuda
