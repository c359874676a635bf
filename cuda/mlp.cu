// Activations, elementwise: swiglu y = silu(gate)·up, GELU (exact, or the tanh form), ReLU, each with its
// gradient. All outputs are `=`; arithmetic is f32, rounded once on the store. One launch each.
#include "cuda/mlp.h"

#include "cuda/activation.cuh"
#include "cuda/elementwise.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

/// P(N(0,1) ≤ x), relative error below 1e-6 on both sides: the fit of cpu/mlp.cc.
__device__ inline float normal_cdf(float x) {
  const float size = fabsf(x);
  const float z = size * 0.70710678f;
  // erfc(z) = t·P(t)·exp(-z²), t = 1/(1 + z/2): a minimax fit of the relative error on z in [0, 9.4].
  const float t = 1.0f / fmaf(z, 0.5f, 1.0f);
  constexpr float kFit[] = {-0.0588473341f, 0.283488728f, -0.484939103f, 0.275465433f, -0.0248211937f,
                            0.201917361f,   0.243300036f, 0.282348038f,  0.282087992f};
  float p = kFit[0];
#pragma unroll
  for (int i = 1; i < 9; i++) p = fmaf(p, t, kFit[i]);
  const float tail = 0.5f * t * p * expf(-0.5f * size * size);
  return x < 0 ? tail : 1.0f - tail;
}

constexpr float kGeluA = 1.5957691f;  // 2·sqrt(2/π): tanh(u) = 2σ(2u) - 1
constexpr float kGeluB = 1.5957691f * 0.044715f;

struct Swiglu {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = swiglu_value(in[0], in[1]);
  }
};
struct SwigluGradient {  // of dy, gate, up
  __device__ void operator()(const float (&in)[3], float (&out)[2]) const {
    const float s = sigmoid(in[1]), silu = in[1] * s;
    // silu' = s·(1 + g·(1 - s)) = s + silu·(1 - s)
    out[0] = in[0] * in[2] * fmaf(silu, 1.0f - s, s);
    out[1] = in[0] * silu;
  }
};

struct GeluErf {
  __device__ static float value(float x) { return x * normal_cdf(x); }
  __device__ static float slope(float x) { return fmaf(x, 0.39894228f * expf(-0.5f * x * x), normal_cdf(x)); }
};
struct GeluTanh {
  __device__ static float value(float x) { return x * sigmoid(x * fmaf(kGeluB * x, x, kGeluA)); }
  __device__ static float slope(float x) {
    const float square = x * x;
    const float s = sigmoid(x * fmaf(kGeluB, square, kGeluA));
    return fmaf(x * fmaf(3 * kGeluB, square, kGeluA), s * (1.0f - s), s);
  }
};
struct Relu {
  __device__ static float value(float x) { return x < 0 ? 0.0f : x; }  // keeps NaN
};

template <typename Activation>
struct Value {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = Activation::value(in[0]);
  }
};
template <typename Activation>
struct Gradient {  // of dy, x
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[0] * Activation::slope(in[1]);
  }
};
/// Selects instead of multiplying, so that an infinite dy below 0 gives 0.
template <>
struct Gradient<Relu> {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const { out[0] = in[1] > 0 ? in[0] : 0; }
};

template <typename Activation>
void apply(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  by_storage(x.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise(stream, Operands<T, 1, 1>{{x.as<T>()}, {y.as<T>()}}, x.numel(), all_wide({x, y}),
                Value<Activation>{});
  });
}

template <typename Activation>
void apply_backward(Stream& stream, const Args& args) {
  const auto [dy, x, dx] = args.tensors<3>();
  by_storage(dy.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise(stream, Operands<T, 2, 1>{{dy.as<T>(), x.as<T>()}, {dx.as<T>()}}, dy.numel(),
                all_wide({dy, x, dx}), Gradient<Activation>{});
  });
}

void swiglu(Stream& stream, const Args& args) {
  const auto [gate, up, y] = args.tensors<3>();
  apply_swiglu(stream, gate, up, y);
}

void swiglu_backward(Stream& stream, const Args& args) {
  const auto [dy, gate, up, dgate, dup] = args.tensors<5>();
  by_storage(dy.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise(stream,
                Operands<T, 3, 2>{{dy.as<T>(), gate.as<T>(), up.as<T>()}, {dgate.as<T>(), dup.as<T>()}},
                dy.numel(), all_wide({dy, gate, up, dgate, dup}), SwigluGradient{});
  });
}

struct SigmoidGate {  // of gate, x
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[1] / (1.0f + expf(-in[0]));
  }
};
struct SigmoidGateGradient {  // of dy, gate, x: dgate, dx
  __device__ void operator()(const float (&in)[3], float (&out)[2]) const {
    const float sigma = 1.0f / (1.0f + expf(-in[1])), through = in[0] * sigma;
    out[0] = through * in[2] * (1.0f - sigma);
    out[1] = through;
  }
};

void sigmoid_gate(Stream& stream, const Args& args) {
  const auto [gate, x, y] = args.tensors<3>();
  by_storage(gate.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise(stream, Operands<T, 2, 1>{{gate.as<T>(), x.as<T>()}, {y.as<T>()}}, gate.numel(),
                all_wide({gate, x, y}), SigmoidGate{});
  });
}

void sigmoid_gate_backward(Stream& stream, const Args& args) {
  const auto [dy, gate, x, dgate, dx] = args.tensors<5>();
  by_storage(dy.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise(stream, Operands<T, 3, 2>{{dy.as<T>(), gate.as<T>(), x.as<T>()}, {dgate.as<T>(), dx.as<T>()}},
                dy.numel(), all_wide({dy, gate, x, dgate, dx}), SigmoidGateGradient{});
  });
}

void gelu(Stream& stream, const Args& args) {
  args.i(0) ? apply<GeluTanh>(stream, args) : apply<GeluErf>(stream, args);
}
void gelu_backward(Stream& stream, const Args& args) {
  args.i(0) ? apply_backward<GeluTanh>(stream, args) : apply_backward<GeluErf>(stream, args);
}
void relu(Stream& stream, const Args& args) {
  apply<Relu>(stream, args);
}
void relu_backward(Stream& stream, const Args& args) {
  apply_backward<Relu>(stream, args);
}

}  // namespace

void apply_swiglu(Stream& stream, const TensorView& gate, const TensorView& up, const TensorView& y) {
  by_storage(gate.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise(stream, Operands<T, 2, 1>{{gate.as<T>(), up.as<T>()}, {y.as<T>()}}, gate.numel(),
                all_wide({gate, up, y}), Swiglu{});
  });
}

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

}  // namespace steptrain::cuda
