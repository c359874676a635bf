// Which experts each token of a mixture goes to, and the sum of what comes back: route, combine_experts and their gradients.
// Outputs are `=`. A row's numbers depend on that row alone; places follow from a count in one fixed order.
#include <cmath>

#include "cpu/elementwise.h"
#include "cpu/indices.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kRoutedTokens = 16;  // per task

/// body(t) for each token.
template <typename F>
void each_routed(Stream& stream, int64_t tokens, F body) {
  stream.pool.run((tokens + kRoutedTokens - 1) / kRoutedTokens, [&](int64_t task) {
    for (int64_t t = task * kRoutedTokens; t < std::min(tokens, (task + 1) * kRoutedTokens); t++) body(t);
  });
}

/// The softmax of a row of logits.
template <typename T>
struct GateSoftmax {
  const T* logits;
  int64_t experts;
  float largest, sum;

  GateSoftmax(const T* logits, int64_t experts, float largest)
      : logits(logits), experts(experts), largest(largest) {
    vf total = zero();
    each_vector(0, experts, [&](int64_t e, int lanes) {
      total = total + first_lanes(exp(load_lanes(logits + e, lanes) - set1(largest)), lanes);
    });
    sum = cpu::STEPTRAIN_ISA::sum(total);
  }
  vf at(int64_t e, int lanes) const { return exp(load_lanes(logits + e, lanes) - set1(largest)) / set1(sum); }
  float at(int64_t e) const { return (exp(set1(to_float(logits[e]) - largest)) / set1(sum))[0]; }
};

/// The k largest logits, of equal ones the first, in order. Nothing is larger than NaN.
template <typename T>
void choose_experts(const T* logits, int64_t experts, int64_t k, int32_t* chosen) {
  for (int64_t e = 0; e < experts; e++) {
    const float logit = to_float(logits[e]);
    int64_t at = std::min(e, k);
    if (at == k && !(logit > to_float(logits[chosen[k - 1]]))) continue;
    for (; at > 0 && logit > to_float(logits[chosen[at - 1]]); at--)
      if (at < k) chosen[at] = chosen[at - 1];
    chosen[at] = static_cast<int32_t>(e);
  }
}

void route(Stream& stream, const Args& args) {
  const auto [logits, adapter, weights, chosen, places, rows, offsets] = args.tensors<7>();
  const int64_t tokens = logits[0], experts = logits[1], k = args.i(0), groups = args.i(2);
  const bool normalise = args.i(1) != 0;
  if (k < 1 || k > experts)
    throw Error("E_RANGE", format("route: k is %lld, expected 1 to the %lld experts of logits",
                                  static_cast<long long>(k), static_cast<long long>(experts)));
  if (groups < experts || groups % experts != 0)
    throw Error("E_RANGE", format("route: P is %lld, expected a multiple of the %lld experts of logits",
                                  static_cast<long long>(groups), static_cast<long long>(experts)));
  const int32_t* const tuned = adapter ? adapter.as<const int32_t>() : nullptr;
  for (int64_t t = 0; tuned && t < tokens; t++)
    if (tuned[t] < -1 || tuned[t] + 1 >= groups / experts)
      throw Error("E_RANGE", format("route: adapter[%lld] is %d, outside -1..%lld", static_cast<long long>(t),
                                    tuned[t], static_cast<long long>(groups / experts - 2)));
  by_storage(logits.dtype, [&, &logits = logits, &weights = weights, &chosen = chosen](auto tag) {
    using T = decltype(tag);
    each_routed(stream, tokens, [&](int64_t t) {
      const T* const row = logits.template as<const T>() + t * experts;
      int32_t* const own = chosen.template as<int32_t>() + t * k;
      float* const weight = weights.template as<float>() + t * k;
      choose_experts(row, experts, k, own);
      const GateSoftmax<T> softmax(row, experts, to_float(row[own[0]]));
      float sum = 0;
      for (int64_t j = 0; j < k; j++) sum += weight[j] = softmax.at(own[j]);
      for (int64_t j = 0; normalise && j < k; j++) weight[j] /= sum;
    });
  });
  const int32_t* const expert = chosen.as<const int32_t>();
  const auto group = [&](int64_t i) { return (tuned ? (tuned[i / k] + 1) * experts : 0) + expert[i]; };
  int32_t* const first = offsets.as<int32_t>();
  int32_t* const next = stream.scratch.take<int32_t>(groups);
  std::fill(first, first + groups + 1, 0);
  for (int64_t i = 0; i < tokens * k; i++) first[group(i) + 1]++;
  for (int64_t g = 0; g < groups; g++) next[g] = first[g], first[g + 1] += first[g];
  for (int64_t i = 0; i < tokens * k; i++) {
    const int32_t row = next[group(i)]++;
    places.as<int32_t>()[i] = row;
    rows.as<int32_t>()[row] = static_cast<int32_t>(i / k);
  }
}

void route_backward(Stream& stream, const Args& args) {
  const auto [dweights, logits, weights, chosen, balance, dlogits] = args.tensors<6>();
  const int64_t tokens = logits[0], experts = logits[1], k = weights[1];
  const bool normalise = args.i(0) != 0;
  check_indices("route_backward", "experts", chosen, experts);
  by_storage(logits.dtype, [&, &dweights = dweights, &logits = logits, &weights = weights, &chosen = chosen,
                            &balance = balance, &dlogits = dlogits](auto tag) {
    using T = decltype(tag);
    const float* const further = balance ? balance.template as<const float>() : nullptr;
    // The gradients of all p, in f32, before any is rounded.
    float* const buffers = stream.scratch.take<float>(stream.pool.threads() * experts);
    stream.pool.region([&](Worker& worker) {
      float* const dp = buffers + worker.index * experts;
      for (int64_t t; (t = worker.next()) < tokens;) {
        const T* const row = logits.template as<const T>() + t * experts;
        const float* const weight = weights.template as<const float>() + t * k;
        const float* const dweight = dweights.template as<const float>() + t * k;
        const int32_t* const own = chosen.template as<const int32_t>() + t * k;
        float mean = 0;
        for (int64_t j = 0; j < k; j++) mean += dweight[j] * weight[j];
        std::fill(dp, dp + experts, 0.0f);
        if (further || !normalise) {
          float largest = to_float(row[0]);
          for (int64_t e = 1; e < experts; e++) largest = std::max(largest, to_float(row[e]));
          const GateSoftmax<T> softmax(row, experts, largest);
          // Without normalisation the weights are p, and their gradients are those of p.
          vf sum = zero();
          each_vector(0, experts, [&](int64_t e, int lanes) {
            if (further) sum = sum + softmax.at(e, lanes) * load_lanes(further + e, lanes);
          });
          const float all = cpu::STEPTRAIN_ISA::sum(sum) + (normalise ? 0.0f : mean);
          each_vector(0, experts, [&](int64_t e, int lanes) {
            const vf own_part = further ? load_lanes(further + e, lanes) - set1(all) : set1(-all);
            store_lanes(dp + e, softmax.at(e, lanes) * own_part, lanes);
          });
        }
        for (int64_t j = 0; j < k; j++)
          dp[own[j]] += weight[j] * (normalise ? dweight[j] - mean : dweight[j]);
        T* const out = dlogits.template as<T>() + t * experts;
        each_vector(0, experts,
                    [&](int64_t e, int lanes) { store_lanes(out + e, load_lanes(dp + e, lanes), lanes); });
      }
    });
  });
}

/// Refuses places that are not those of all rows, each once.
void check_places(Stream& stream, const char* op, const TensorView& places, int64_t rows) {
  if (places.numel() != rows)
    throw Error("E_SHAPE", format("%s: y has %lld rows, expected one for each of the %lld places", op,
                                  static_cast<long long>(rows), static_cast<long long>(places.numel())));
  check_indices(op, "places", places, rows);
  bool* const taken = stream.scratch.take<bool>(rows);
  std::fill(taken, taken + rows, false);
  for (int64_t i = 0; i < rows; i++) {
    bool& place = taken[places.as<const int32_t>()[i]];
    if (place)
      throw Error("E_RANGE", format("%s: places[%lld] is %d, which another place is too", op,
                                    static_cast<long long>(i), places.as<const int32_t>()[i]));
    place = true;
  }
}

void combine_experts(Stream& stream, const Args& args) {
  const auto [y, places, weights, z] = args.tensors<4>();
  const int64_t tokens = places[0], k = places[1], width = y[1];
  check_places(stream, "combine_experts", places, y[0]);
  by_storage(y.dtype, [&, &y = y, &places = places, &weights = weights, &z = z](auto tag) {
    using T = decltype(tag);
    stream.pool.run(tokens, [&](int64_t t) {
      const int32_t* const place = places.template as<const int32_t>() + t * k;
      const float* const weight = weights.template as<const float>() + t * k;
      each_vector(0, width, [&](int64_t h, int lanes) {
        vf sum = zero();
        for (int64_t j = 0; j < k; j++)
          sum = fma(set1(weight[j]), load_lanes(y.template as<const T>() + place[j] * width + h, lanes), sum);
        store_lanes(z.template as<T>() + t * width + h, sum, lanes);
      });
    });
  });
}

void combine_experts_backward(Stream& stream, const Args& args) {
  const auto [dz, y, places, weights, dy, dweights] = args.tensors<6>();
  const int64_t pairs = places.numel(), k = places[1], width = y[1];
  check_places(stream, "combine_experts_backward", places, y[0]);
  by_storage(y.dtype, [&, &dz = dz, &y = y, &places = places, &weights = weights, &dy = dy,
                       &dweights = dweights](auto tag) {
    using T = decltype(tag);
    stream.pool.run(pairs, [&](int64_t i) {
      const int64_t place = places.template as<const int32_t>()[i];
      const T* const from = dz.template as<const T>() + i / k * width;
      const T* const row = y.template as<const T>() + place * width;
      T* const to = dy.template as<T>() + place * width;
      const vf weight = set1(weights.template as<const float>()[i]);
      vf product = zero();
      each_vector(0, width, [&](int64_t h, int lanes) {
        const vf d = load_lanes(from + h, lanes);
        store_lanes(to + h, weight * d, lanes);
        product = fma(d, load_lanes(row + h, lanes), product);
      });
      dweights.template as<float>()[i] = sum(product);
    });
  });
}

}  // namespace

void register_experts(KernelTable& table) {
  table.set("route", route);
  table.set("route_backward", route_backward);
  table.set("combine_experts", combine_experts);
  table.set("combine_experts_backward", combine_experts_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
