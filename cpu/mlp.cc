// Activations, elementwise: swiglu y = silu(gate)·up, sigmoid_gate y = σ(gate)·x, GELU (exact, or the tanh form), ReLU, each
// with its gradient. All outputs are `=`; arithmetic is f32, rounded once on the store.
#include "cpu/elementwise.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

/// P(N(0,1) ≤ x), relative error below 1e-6 on both sides.
vf normal_cdf(vf x) {
  const vf size = max(x, zero() - x);
  const vf z = size * set1(0.70710678f);
  // erfc(z) = t·P(t)·exp(-z²), t = 1/(1 + z/2): a minimax fit of the relative error on z in [0, 9.4].
  const vf t = set1(1.0f) / fma(z, set1(0.5f), set1(1.0f));
  constexpr float kFit[] = {-0.0588473341f, 0.283488728f, -0.484939103f, 0.275465433f, -0.0248211937f,
                            0.201917361f,   0.243300036f, 0.282348038f,  0.282087992f};
  vf p = set1(kFit[0]);
  for (int i = 1; i < 9; i++) p = fma(p, t, set1(kFit[i]));
  const vf tail = set1(0.5f) * t * p * exp(set1(-0.5f) * size * size);
  return select_less(x, zero(), tail, set1(1.0f) - tail);
}

constexpr float kGeluA = 1.5957691f;  // 2·sqrt(2/π): tanh(u) = 2σ(2u) - 1
constexpr float kGeluB = 1.5957691f * 0.044715f;

vf gelu_erf(vf x) {
  return x * normal_cdf(x);
}
vf gelu_erf_gradient(vf x) {
  const vf density = set1(0.39894228f) * exp(set1(-0.5f) * x * x);
  return fma(x, density, normal_cdf(x));
}
vf gelu_tanh(vf x) {
  return x * sigmoid(x * fma(set1(kGeluB) * x, x, set1(kGeluA)));
}
vf gelu_tanh_gradient(vf x) {
  const vf square = x * x;
  const vf s = sigmoid(x * fma(set1(kGeluB), square, set1(kGeluA)));
  const vf slope = fma(set1(3 * kGeluB), square, set1(kGeluA));
  return fma(x * slope, s * (set1(1.0f) - s), s);
}

void swiglu(Stream& stream, const Args& args) {
  const auto [gate, up, y] = args.tensors<3>();
  by_storage(gate.dtype, [&](auto t) {
    using T = decltype(t);
    map(stream, gate.numel(), gate.as<T>(), up.as<T>(), y.as<T>(),
        [](vf g, vf u) { return g * sigmoid(g) * u; });
  });
}

void swiglu_backward(Stream& stream, const Args& args) {
  const auto [dy, gate, up, dgate, dup] = args.tensors<5>();
  by_storage(dy.dtype, [&](auto t) {
    using T = decltype(t);
    each_chunk(stream, dy.numel(), [&](int64_t begin, int64_t end) {
      each_vector(begin, end, [&](int64_t i, int lanes) {
        const vf d = load_lanes(dy.as<T>() + i, lanes), g = load_lanes(gate.as<T>() + i, lanes);
        const vf u = load_lanes(up.as<T>() + i, lanes), s = sigmoid(g), silu = g * s;
        // silu' = s·(1 + g·(1 - s)) = s + silu·(1 - s)
        store_lanes(dgate.as<T>() + i, d * u * fma(silu, set1(1.0f) - s, s), lanes);
        store_lanes(dup.as<T>() + i, d * silu, lanes);
      });
    });
  });
}

void sigmoid_gate(Stream& stream, const Args& args) {
  const auto [gate, x, y] = args.tensors<3>();
  by_storage(gate.dtype, [&](auto t) {
    using T = decltype(t);
    map(stream, gate.numel(), gate.as<T>(), x.as<T>(), y.as<T>(), [](vf g, vf v) { return sigmoid(g) * v; });
  });
}

void sigmoid_gate_backward(Stream& stream, const Args& args) {
  const auto [dy, gate, x, dgate, dx] = args.tensors<5>();
  by_storage(dy.dtype, [&](auto t) {
    using T = decltype(t);
    each_chunk(stream, dy.numel(), [&](int64_t begin, int64_t end) {
      each_vector(begin, end, [&](int64_t i, int lanes) {
        const vf d = load_lanes(dy.as<T>() + i, lanes), s = sigmoid(load_lanes(gate.as<T>() + i, lanes));
        const vf through = d * s;
        store_lanes(dgate.as<T>() + i, through * load_lanes(x.as<T>() + i, lanes) * (set1(1.0f) - s), lanes);
        store_lanes(dx.as<T>() + i, through, lanes);
      });
    });
  });
}

/// y = body(x), for either storage type.
template <typename F>
void apply(Stream& stream, const Args& args, F body) {
  const auto [x, y] = args.tensors<2>();
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    map(stream, x.numel(), x.as<T>(), y.as<T>(), body);
  });
}

/// dx = body(dy, x).
template <typename F>
void apply_backward(Stream& stream, const Args& args, F body) {
  const auto [dy, x, dx] = args.tensors<3>();
  by_storage(dy.dtype, [&](auto t) {
    using T = decltype(t);
    map(stream, dy.numel(), dy.as<T>(), x.as<T>(), dx.as<T>(), body);
  });
}

void gelu(Stream& stream, const Args& args) {
  if (args.i(0)) return apply(stream, args, [](vf x) { return gelu_tanh(x); });
  apply(stream, args, [](vf x) { return gelu_erf(x); });
}

void gelu_backward(Stream& stream, const Args& args) {
  if (args.i(0)) return apply_backward(stream, args, [](vf d, vf x) { return d * gelu_tanh_gradient(x); });
  apply_backward(stream, args, [](vf d, vf x) { return d * gelu_erf_gradient(x); });
}

void relu(Stream& stream, const Args& args) {
  apply(stream, args, [](vf x) { return max(zero(), x); });  // in this order, which keeps NaN
}

void relu_backward(Stream& stream, const Args& args) {
  apply_backward(stream, args, [](vf d, vf x) { return select_less(zero(), x, d, zero()); });
}

}  // namespace

void register_mlp(KernelTable& table) {
  table.set("swiglu", swiglu);
  table.set("swiglu_backward", swiglu_backward);
  table.set("sigmoid_gate", sigmoid_gate);
  table.set("sigmoid_gate_backward", sigmoid_gate_backward);
  table.set("gelu", gelu);
  table.set("gelu_backward", gelu_backward);
  table.set("relu", relu);
  table.set("relu_backward", relu_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
