// The bf16 product (cuda/gemm/product.h) on Hopper.
#include "cuda/gemm/sm90_product.cuh"
#include "cuda/gemm/sm90_tiles.h"

namespace steptrain::cuda {
namespace hopper {
namespace {

/// By cuda/gemm/sm90_tiles.cuh, if it is to; a scale that nobody folded into the LoRA pair, or its mask, has
/// kernels for dy·W alone.
bool multiply_by_tiles(Stream& stream, Layout layout, const Product& p) {
  const Choice& choice = stream.hardware.choice;
  if (!choice.takes(Successor::tiles) && !(choice.takes(Successor::lora) && p.rank > 0)) return false;
  const bool masked = p.rank > 0 && (p.lora_scale != 1 || p.dropped == Dropped::lora);
  if (masked && layout != Layout::input) return false;
  if (layout == Layout::forward) {
    multiply_forward(stream, p);
  } else if (layout == Layout::weight) {
    multiply_weight(stream, p);
  } else {
    masked ? multiply_input_masked(stream, p) : multiply_input(stream, p);
  }
  return true;
}

}  // namespace
}  // namespace hopper

void multiply_sm90(Stream& stream, Layout layout, const Product& product) {
  if (hopper::multiply_by_tiles(stream, layout, product)) return;
  if (layout == Layout::forward) return hopper::launch<Layout::forward>(stream, product, Store{});
  if (layout == Layout::input) return hopper::launch<Layout::input>(stream, product, Store{});
  hopper::launch<Layout::weight>(stream, product, Store{});
}

}  // namespace steptrain::cuda
