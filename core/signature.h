// One signature per op, written once as text in ops.cc and checked here before anything is queued.
//
//   name(inputs; scalars) -> outputs
//   input    [&]name[?]:dtype[dims]   & written in place (gradient accumulators, parameters, moments); ? optional
//   scalar   name:type[=default]      required where it has no default
//   output   name[?]:dtype[dims]      allocated unless a tensor is passed; ? only where it is asked for
//   dtype    f32 bf16 i32 u8; F = f32 or bf16; A = any; W = F, row-major or packed; Q = W or
//            quantised; %s quantised as named by scalar s; =x as x, packed and quantised alike; @s named by scalar s
//   dims     symbol, symbol+1, number, or #n: any shape with n elements (an output #n takes the shape of the
//            first input that has #n)
//   type     f, i (also binds the dimension of its name), bool, or names a|b|c that stand for 0, 1, 2
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/args.h"

namespace steptrain {

struct Dim {
  int symbol = -1;  // index into Signature::symbols; -1: a constant
  int64_t add = 0;  // the constant, or what is added to the symbol
};

struct TensorParam {
  std::string name;
  std::string type;  // as written
  std::vector<Dim> dims;
  bool optional = false;
  bool inout = false;
  bool any_shape = false;  // dims holds one symbol: the element count

  // What `type` means, resolved once: a set of dtypes, or the dtype of an input, or the one a scalar names.
  unsigned accepted = 0;  // bit per DType
  int like_input = -1;
  int like_scalar = -1;
  bool may_be_packed = false;
  bool may_be_quantized = false;
  int format_of_scalar = -1;
};

struct ScalarParam {
  std::string name;
  std::string type;                // as written, without the default
  std::vector<std::string> names;  // of a bool: false, true; of numbers: none
  std::optional<double> fallback;  // none: required
  int symbol = -1;                 // the dimension that it binds
};

struct Signature {
  std::string name;
  std::vector<TensorParam> inputs;
  std::vector<TensorParam> outputs;
  std::vector<ScalarParam> scalars;
  std::vector<std::string> symbols;
  std::string text;

  int tensors() const { return static_cast<int>(inputs.size() + outputs.size()); }
};

Signature parse_signature(const std::string& text);

/// What the caller passed for a tensor parameter.
enum class Given : uint8_t { absent, tensor, allocate };

/// Checks dtypes, ranks and extents; fills shape, rank, dtype and packed of every output to be allocated.
/// Throws Error(E_SHAPE | E_DTYPE) naming op, parameter, expected and found.
void check(const Signature& signature, Args& args, const Given* given);

}  // namespace steptrain
