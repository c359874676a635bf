#include "core/signature.h"

#include <cstdlib>
#include <cstring>

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

Dim parse_dim(const std::string& text) {
  const size_t plus = text.find('+');
  if (plus != std::string::npos) return {text.substr(0, plus), std::atoll(text.c_str() + plus + 1)};
  if (text.find_first_not_of("0123456789") == std::string::npos) return {"", std::atoll(text.c_str())};
  return {text, 0};
}

TensorParam parse_tensor(std::string text) {
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
    p.dims.push_back({dims.substr(1), 0});
  } else {
    for (const auto& dim : split(dims, ',')) p.dims.push_back(parse_dim(dim));
  }
  return p;
}

std::string shape_text(const TensorView& t) {
  std::string text = "[";
  for (int i = 0; i < t.rank; i++) text += (i ? "," : "") + std::to_string(t[i]);
  return text + "]";
}

std::string dims_text(const TensorParam& p) {
  std::string text = "[";
  for (const auto& dim : p.dims) {
    if (text.size() > 1) text += ",";
    text += dim.symbol;
    if (dim.symbol.empty() || dim.add) text += (dim.symbol.empty() ? "" : "+") + std::to_string(dim.add);
  }
  return text + "]";
}

bool accepts(const std::string& type, DType dtype) {
  if (type == "A") return true;
  if (type == "F" || type == "W") return dtype == DType::f32 || dtype == DType::bf16;
  return type == name_of(dtype);
}

/// Symbols of one call. A handful of entries, so a linear scan beats a map.
struct Bindings {
  std::array<std::pair<const std::string*, int64_t>, 32> entries;
  int count = 0;
  const int64_t* find(const std::string& symbol) const {
    for (int i = 0; i < count; i++) {
      if (*entries[static_cast<size_t>(i)].first == symbol) return &entries[static_cast<size_t>(i)].second;
    }
    return nullptr;
  }
  void bind(const std::string& symbol, int64_t value) {
    entries[static_cast<size_t>(count++)] = {&symbol, value};
  }
};

[[noreturn]] void refuse(const Signature& s, const TensorParam& p, const char* code,
                         const std::string& what) {
  throw Error(code, s.name + ": " + p.name + " " + what);
}

DType output_dtype(const Signature& s, const TensorParam& p, const Args& args) {
  if (p.type[0] == '=') {
    for (size_t i = 0; i < s.inputs.size(); i++) {
      if (s.inputs[i].name == p.type.substr(1)) return args.tensor[i].dtype;
    }
  }
  if (p.type[0] == '@') {
    for (size_t i = 0; i < s.scalars.size(); i++) {
      if (s.scalars[i].name == p.type.substr(1))
        return args.i(static_cast<int>(i)) == 1 ? DType::bf16 : DType::f32;
    }
  }
  if (p.type == "bf16") return DType::bf16;
  if (p.type == "i32") return DType::i32;
  if (p.type == "u8") return DType::u8;
  return DType::f32;
}

void check_tensor(const Signature& s, const TensorParam& p, const TensorView& t, Bindings& bound,
                  const Args& args) {
  const bool referring = p.type[0] == '=' || p.type[0] == '@';
  if (referring) {
    const DType wanted = output_dtype(s, p, args);
    if (t.dtype != wanted)
      refuse(s, p, "E_DTYPE", format("must be %s, got %s", name_of(wanted), name_of(t.dtype)));
  } else if (!accepts(p.type, t.dtype)) {
    const char* wanted = p.type == "F" || p.type == "W" ? "f32 or bf16" : p.type.c_str();
    refuse(s, p, "E_DTYPE", format("must be %s, got %s", wanted, name_of(t.dtype)));
  }
  if (t.packed && p.type != "W")
    refuse(s, p, "E_DTYPE", "is a packed weight, which this op does not read; unpack it first");
  if (p.any_shape) {
    const int64_t* n = bound.find(p.dims[0].symbol);
    if (!n) {
      bound.bind(p.dims[0].symbol, t.numel());
    } else if (*n != t.numel()) {
      refuse(s, p, "E_SHAPE",
             format("must have %lld elements, got %s", static_cast<long long>(*n), shape_text(t).c_str()));
    }
    return;
  }
  if (t.rank != static_cast<int>(p.dims.size()))
    refuse(s, p, "E_SHAPE", format("must be %s, got %s", dims_text(p).c_str(), shape_text(t).c_str()));
  for (int axis = 0; axis < t.rank; axis++) {
    const Dim& dim = p.dims[static_cast<size_t>(axis)];
    const int64_t found = t[axis] - (dim.symbol.empty() ? 0 : dim.add);
    const int64_t* expected = dim.symbol.empty() ? &dim.add : bound.find(dim.symbol);
    if (!expected && found >= 0) {
      bound.bind(dim.symbol, found);
    } else if (!expected || *expected != found) {
      refuse(s, p, "E_SHAPE",
             format("must be %s with %s = %lld, got %s", dims_text(p).c_str(),
                    dim.symbol.empty() ? "size" : dim.symbol.c_str(),
                    static_cast<long long>(expected ? *expected : 0), shape_text(t).c_str()));
    }
  }
}

void infer(const Signature& s, const TensorParam& p, TensorView& t, const Bindings& bound, const Args& args) {
  t.dtype = output_dtype(s, p, args);
  t.packed = p.type == "W" || (p.type[0] == '@' && s.name == "pack_weight");
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
    const int64_t* value = dim.symbol.empty() ? &dim.add : bound.find(dim.symbol);
    if (!value) refuse(s, p, "E_SHAPE", "has an extent that no input decides: " + dim.symbol);
    t.shape[static_cast<size_t>(axis)] = *value + (dim.symbol.empty() ? 0 : dim.add);
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
  for (const auto& part : split(inside.substr(0, semicolon), ',')) s.inputs.push_back(parse_tensor(part));
  if (semicolon != std::string::npos) {
    for (const auto& part : split(inside.substr(semicolon + 1), ','))
      s.scalars.push_back({part.substr(0, part.find(':')), part.back() == 'i'});
  }
  const size_t arrow = text.find("->");
  if (arrow != std::string::npos) {
    for (const auto& part : split(text.substr(arrow + 2), ',')) s.outputs.push_back(parse_tensor(part));
  }
  if (s.tensors() > kMaxTensors || s.scalars.size() > kMaxScalars)
    throw Error("E_SHAPE", "signature too long: " + s.name);
  return s;
}

void check(const Signature& s, Args& args, const Given* given) {
  Bindings bound;
  for (size_t i = 0; i < s.scalars.size(); i++) {
    if (s.scalars[i].integer) bound.bind(s.scalars[i].name, args.i(static_cast<int>(i)));
  }
  for (size_t i = 0; i < s.inputs.size(); i++) {
    if (given[i] == Given::tensor) {
      check_tensor(s, s.inputs[i], args.tensor[i], bound, args);
    } else if (!s.inputs[i].optional) {
      refuse(s, s.inputs[i], "E_SHAPE", "is required");
    }
  }
  for (size_t i = 0; i < s.outputs.size(); i++) {
    const size_t at = s.inputs.size() + i;
    if (given[at] == Given::tensor) {
      check_tensor(s, s.outputs[i], args.tensor[at], bound, args);
    } else if (given[at] == Given::allocate) {
      infer(s, s.outputs[i], args.tensor[at], bound, args);
    } else if (!s.outputs[i].optional) {
      refuse(s, s.outputs[i], "E_SHAPE", "is required");
    }
  }
}

}  // namespace steptrain
