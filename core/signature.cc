#include "core/signature.h"

#include <cstdlib>

#include "core/error.h"

namespace steptrain {
namespace {

std::string trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n") - begin + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  std::string part;
  for (char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == separator && depth == 0) {
      parts.push_back(trim(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!trim(part).empty()) parts.push_back(trim(part));
  return parts;
}

constexpr int kMaxSymbols = 24;

int symbol_of(Signature& s, const std::string& name) {
  for (size_t i = 0; i < s.symbols.size(); i++) {
    if (s.symbols[i] == name) return static_cast<int>(i);
  }
  if (s.symbols.size() == kMaxSymbols)
    throw Error("E_SHAPE", "signature with too many dimensions: " + s.text);
  s.symbols.push_back(name);
  return static_cast<int>(s.symbols.size() - 1);
}

Dim parse_dim(Signature& s, const std::string& text) {
  const size_t plus = text.find('+');
  if (plus != std::string::npos)
    return {symbol_of(s, text.substr(0, plus)), std::atoll(text.c_str() + plus + 1)};
  if (text.find_first_not_of("0123456789") == std::string::npos) return {-1, std::atoll(text.c_str())};
  return {symbol_of(s, text), 0};
}

constexpr unsigned bit(DType dtype) {
  return 1u << static_cast<unsigned>(dtype);
}

void resolve_type(const Signature& s, TensorParam& p) {
  if (p.type[0] == '=') {
    for (size_t i = 0; i < s.inputs.size(); i++) {
      if (s.inputs[i].name == p.type.substr(1)) p.like_input = static_cast<int>(i);
    }
    if (p.like_input < 0) throw Error("E_DTYPE", "signature refers to an unknown input: " + s.text);
    const std::string& other = s.inputs[static_cast<size_t>(p.like_input)].type;
    p.may_be_packed = other == "W" || other == "Q";
    p.may_be_quantized = other == "Q";
  } else if (p.type[0] == '@') {
    for (size_t i = 0; i < s.scalars.size(); i++) {
      if (s.scalars[i].name == p.type.substr(1)) p.like_scalar = static_cast<int>(i);
    }
    if (p.like_scalar < 0) throw Error("E_DTYPE", "signature refers to an unknown scalar: " + s.text);
    p.may_be_packed = s.name == "pack_weight";
  } else if (p.type[0] == '%') {
    for (size_t i = 0; i < s.scalars.size(); i++) {
      if (s.scalars[i].name == p.type.substr(1)) p.format_of_scalar = static_cast<int>(i);
    }
    if (p.format_of_scalar < 0) throw Error("E_DTYPE", "signature refers to an unknown scalar: " + s.text);
    p.accepted = bit(DType::u8);
    p.may_be_packed = p.may_be_quantized = true;
  } else if (p.type == "A") {
    p.accepted = ~0u;
  } else if (p.type == "F" || p.type == "W" || p.type == "Q") {
    p.accepted = bit(DType::f32) | bit(DType::bf16);
    p.may_be_packed = p.type != "F";
    p.may_be_quantized = p.type == "Q";
  } else {
    for (DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u8}) {
      if (p.type == name_of(dtype)) p.accepted = bit(dtype);
    }
    if (!p.accepted) throw Error("E_DTYPE", "signature with an unknown dtype: " + s.text);
  }
}

TensorParam parse_tensor(Signature& s, std::string text) {
  TensorParam p;
  if (text[0] == '&') {
    p.inout = true;
    text = text.substr(1);
  }
  const size_t colon = text.find(':'), open = text.find('['), close = text.find(']');
  p.name = text.substr(0, colon);
  if (p.name.back() == '?') {
    p.optional = true;
    p.name.pop_back();
  }
  p.type = text.substr(colon + 1, open - colon - 1);
  const std::string dims = text.substr(open + 1, close - open - 1);
  if (!dims.empty() && dims[0] == '#') {
    p.any_shape = true;
    p.dims.push_back({symbol_of(s, dims.substr(1)), 0});
  } else {
    for (const auto& dim : split(dims, ',')) p.dims.push_back(parse_dim(s, dim));
  }
  return p;
}

ScalarParam parse_scalar(const Signature& s, const std::string& text) {
  const size_t colon = text.find(':'), equals = text.find('=');
  ScalarParam p;
  p.name = text.substr(0, colon);
  p.type = text.substr(colon + 1, equals - colon - 1);
  if (p.type == "bool") {
    p.names = {"false", "true"};
  } else if (p.type != "f" && p.type != "i") {
    p.names = split(p.type, '|');
    if (p.names.size() < 2) throw Error("E_RANGE", "signature with an unknown type of scalar: " + s.text);
  }
  if (equals == std::string::npos) return p;
  const std::string fallback = text.substr(equals + 1);
  if (p.names.empty()) {
    char* end = nullptr;
    p.fallback = std::strtod(fallback.c_str(), &end);
    if (end == fallback.c_str() || *end) p.fallback.reset();
  }
  for (size_t i = 0; i < p.names.size(); i++) {
    if (p.names[i] == fallback) p.fallback = static_cast<double>(i);
  }
  if (!p.fallback) throw Error("E_RANGE", "signature with a default that its type does not have: " + s.text);
  return p;
}

std::string shape_text(const TensorView& t) {
  std::string text = "[";
  for (int i = 0; i < t.rank; i++) text += (i ? "," : "") + std::to_string(t[i]);
  return text + "]";
}

std::string dims_text(const Signature& s, const TensorParam& p) {
  std::string text = "[";
  for (const auto& dim : p.dims) {
    if (text.size() > 1) text += ",";
    if (dim.symbol >= 0) text += s.symbols[static_cast<size_t>(dim.symbol)];
    if (dim.symbol < 0 || dim.add) text += (dim.symbol < 0 ? "" : "+") + std::to_string(dim.add);
  }
  return text + "]";
}

/// Extents of one call by symbol; -1 while unknown.
using Extents = std::array<int64_t, kMaxSymbols>;

[[noreturn]] void refuse(const Signature& s, const TensorParam& p, const char* code,
                         const std::string& what) {
  throw Error(code, s.name + ": " + p.name + " " + what);
}

/// Refuses a number that stands for none of the names.
void check_name(const Signature& s, const ScalarParam& p, double value) {
  const size_t n = p.names.size();
  if (value >= 0 && value < static_cast<double>(n)) return;
  std::string names = p.names[0];
  for (size_t i = 1; i < n; i++) names += (i + 1 < n ? ", " : " or ") + p.names[i];
  throw Error("E_RANGE", format("%s: %s must stand for %s, got %g", s.name.c_str(), p.name.c_str(),
                                names.c_str(), value));
}

/// The dtype that a parameter must have, where its signature names one.
DType resolved_dtype(const TensorParam& p, const Args& args) {
  if (p.like_input >= 0) return args.tensor[static_cast<size_t>(p.like_input)].dtype;
  if (p.like_scalar >= 0) return args.i(p.like_scalar) == 1 ? DType::bf16 : DType::f32;
  for (DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u8}) {
    if (p.accepted & bit(dtype)) return dtype;
  }
  return DType::f32;
}

/// Whether an output is packed: as the input that it is like, else always where it may be.
bool resolved_packed(const TensorParam& p, const Args& args) {
  return p.like_input >= 0 ? args.tensor[static_cast<size_t>(p.like_input)].packed : p.may_be_packed;
}

/// The format that a tensor must have: that of the input that it is like, or the one that a scalar names.
Format resolved_format(const Signature& s, const TensorParam& p, const Args& args) {
  if (p.like_input >= 0) return args.tensor[static_cast<size_t>(p.like_input)].format;
  if (p.format_of_scalar < 0) return Format::none;
  const auto at = static_cast<size_t>(p.format_of_scalar);
  const std::string& name = s.scalars[at].names[static_cast<size_t>(args.scalar[at])];
  for (size_t i = 0; i < kFormatNames.size(); i++) {
    if (name == kFormatNames[i]) return static_cast<Format>(i);
  }
  throw Error("E_DTYPE", "signature with an unknown format: " + s.text);
}

void check_tensor(const Signature& s, const TensorParam& p, const TensorView& t, Extents& extents,
                  const Args& args, bool is_output) {
  if (t.format != Format::none && !p.may_be_quantized)
    refuse(s, p, "E_DTYPE",
           format("is a quantised weight (%s), which this op does not read; unpack it first",
                  name_of(t.format)));
  const bool has_format = p.format_of_scalar >= 0 || p.like_input >= 0;
  if (has_format && t.format != resolved_format(s, p, args))
    refuse(
        s, p, "E_DTYPE",
        format("must have the format %s, got %s", name_of(resolved_format(s, p, args)), name_of(t.format)));
  if (t.format == Format::none &&
      (p.accepted ? !(p.accepted & bit(t.dtype)) : t.dtype != resolved_dtype(p, args))) {
    const char* wanted =
        p.type == "F" || p.type == "W" || p.type == "Q" ? "f32 or bf16" : name_of(resolved_dtype(p, args));
    refuse(s, p, "E_DTYPE", format("must be %s, got %s", wanted, name_of(t.dtype)));
  }
  if (t.packed && !p.may_be_packed)
    refuse(s, p, "E_DTYPE", "is a packed weight, which this op does not read; unpack it first");
  if (is_output && p.may_be_packed && t.packed != resolved_packed(p, args))
    refuse(s, p, "E_DTYPE", t.packed ? "must not be a packed weight" : "must be a packed weight");
  if (p.any_shape) {
    int64_t& n = extents[static_cast<size_t>(p.dims[0].symbol)];
    if (n < 0) n = t.numel();
    if (n != t.numel())
      refuse(s, p, "E_SHAPE",
             format("must have %lld elements, got %s", static_cast<long long>(n), shape_text(t).c_str()));
    return;
  }
  if (t.rank != static_cast<int>(p.dims.size()))
    refuse(s, p, "E_SHAPE", format("must be %s, got %s", dims_text(s, p).c_str(), shape_text(t).c_str()));
  for (int axis = 0; axis < t.rank; axis++) {
    const Dim& dim = p.dims[static_cast<size_t>(axis)];
    int64_t expected = dim.add;
    if (dim.symbol >= 0) {
      int64_t& extent = extents[static_cast<size_t>(dim.symbol)];
      if (extent < 0 && t[axis] >= dim.add) extent = t[axis] - dim.add;
      expected = extent + dim.add;
    }
    if (t[axis] != expected)
      refuse(
          s, p, "E_SHAPE",
          format("must be %s with %s = %lld, got %s", dims_text(s, p).c_str(),
                 dim.symbol < 0 ? "size" : s.symbols[static_cast<size_t>(dim.symbol)].c_str(),
                 static_cast<long long>(expected - (dim.symbol < 0 ? 0 : dim.add)), shape_text(t).c_str()));
  }
}

void infer(const Signature& s, const TensorParam& p, TensorView& t, const Extents& extents,
           const Args& args) {
  t.dtype = resolved_dtype(p, args);
  t.packed = resolved_packed(p, args);
  t.format = resolved_format(s, p, args);
  if (p.any_shape) {
    for (size_t i = 0; i < s.inputs.size(); i++) {
      if (s.inputs[i].any_shape && s.inputs[i].dims[0].symbol == p.dims[0].symbol) {
        t.shape = args.tensor[i].shape;
        t.rank = args.tensor[i].rank;
        return;
      }
    }
  }
  t.rank = static_cast<int>(p.dims.size());
  for (int axis = 0; axis < t.rank; axis++) {
    const Dim& dim = p.dims[static_cast<size_t>(axis)];
    const int64_t extent = dim.symbol < 0 ? 0 : extents[static_cast<size_t>(dim.symbol)];
    if (extent < 0)
      refuse(s, p, "E_SHAPE",
             "has an extent that no input decides: " + s.symbols[static_cast<size_t>(dim.symbol)]);
    t.shape[static_cast<size_t>(axis)] = extent + dim.add;
  }
}

}  // namespace

Signature parse_signature(const std::string& text) {
  Signature s;
  s.text = text;
  const size_t open = text.find('('), close = text.find(')');
  s.name = trim(text.substr(0, open));
  const std::string inside = text.substr(open + 1, close - open - 1);
  const size_t semicolon = inside.find(';');
  for (const auto& part : split(inside.substr(0, semicolon), ',')) s.inputs.push_back(parse_tensor(s, part));
  if (semicolon != std::string::npos) {
    for (const auto& part : split(inside.substr(semicolon + 1), ',')) {
      s.scalars.push_back(parse_scalar(s, part));
    }
  }
  const size_t arrow = text.find("->");
  if (arrow != std::string::npos) {
    for (const auto& part : split(text.substr(arrow + 2), ',')) s.outputs.push_back(parse_tensor(s, part));
  }
  // Only scalars that name a dimension bind one.
  for (auto& scalar : s.scalars) {
    for (size_t i = 0; i < s.symbols.size(); i++) {
      if (scalar.type == "i" && s.symbols[i] == scalar.name) scalar.symbol = static_cast<int>(i);
    }
  }
  for (auto& p : s.inputs) resolve_type(s, p);
  for (auto& p : s.outputs) resolve_type(s, p);
  if (s.tensors() > kMaxTensors || s.scalars.size() > kMaxScalars)
    throw Error("E_SHAPE", "signature too long: " + s.name);
  return s;
}

void check(const Signature& s, Args& args, const Given* given) {
  Extents extents;
  extents.fill(-1);
  for (size_t i = 0; i < s.scalars.size(); i++) {
    if (!s.scalars[i].names.empty()) check_name(s, s.scalars[i], args.scalar[i]);
    if (s.scalars[i].symbol < 0) continue;
    const int64_t extent = args.i(static_cast<int>(i));
    if (extent < 0)
      throw Error("E_SHAPE",
                  s.name + ": " + s.scalars[i].name + " must be at least 0, got " + std::to_string(extent));
    extents[static_cast<size_t>(s.scalars[i].symbol)] = extent;
  }
  for (size_t i = 0; i < s.inputs.size(); i++) {
    if (given[i] == Given::tensor) {
      check_tensor(s, s.inputs[i], args.tensor[i], extents, args, false);
    } else if (!s.inputs[i].optional) {
      refuse(s, s.inputs[i], "E_SHAPE", "is required");
    }
  }
  for (size_t i = 0; i < s.outputs.size(); i++) {
    const size_t at = s.inputs.size() + i;
    if (given[at] == Given::tensor) {
      check_tensor(s, s.outputs[i], args.tensor[at], extents, args, true);
    } else if (given[at] == Given::allocate) {
      infer(s, s.outputs[i], args.tensor[at], extents, args);
    } else if (!s.outputs[i].optional) {
      refuse(s, s.outputs[i], "E_SHAPE", "is required");
    }
  }
}

}  // namespace steptrain
