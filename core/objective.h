// The objectives, item by item: loss and gradient stand here once, and each device sums over the items its
// own way (cpu/objective.h, cuda/objective.cuh). This file has what they share and the likelihood objectives
// over rows with weights: tokens (nll), binary labels (bce), classes (cross_entropy). Items and sums in f64;
// all outputs are `=`. A row of weight 0 is not read and gets gradient 0;
// a non-finite one makes the loss NaN.
//
// An objective is a struct made by `from(args)` with
//   kName, kSums        the op, and how many sums over items it needs
//   kCheck, kChecked    what `holds` checks, and of which input of the op
//   clear(i)            sets the gradients of item i to 0
//   skips(i)            whether its weight is 0
//   holds(i)            whether its label or target may be read; absent where kCheck is none
//   add(i, tally)       writes its gradients and adds it to the sums
//   finish(total)       writes loss and statistics
#pragma once

#include <cmath>
#include <cstdint>

#include "core/args.h"
#include "core/host_device.h"

namespace steptrain::objective {
// Each instruction set has a copy in a namespace of its own, so that the linker does not merge them.
namespace {

/// Sums over items, and the largest of one quantity. Zero where it is made with {}.
template <int N>
struct Tally {
  double sum[N];
  double largest;

  STEPTRAIN_HOST_DEVICE double& operator[](int k) { return sum[k]; }
  STEPTRAIN_HOST_DEVICE double operator[](int k) const { return sum[k]; }
  STEPTRAIN_HOST_DEVICE void raise(double x) {
    if (x > largest) largest = x;
  }
};

/// What must hold of an item before it is read.
enum class Check {
  none,
  probability,  // labels[i] is from 0 to 1
  binary,       // labels[i] is 0 or 1
  index,        // targets[i] is a class
};

/// x / n, and 0 of nothing.
STEPTRAIN_HOST_DEVICE inline float mean_of(double x, double n) {
  return n == 0 ? 0.0f : static_cast<float>(x / n);
}

/// 0, or NaN where one of them is NaN or infinite: added to an item's weight, so that no saturating function
/// hides a broken input.
template <typename... T>
STEPTRAIN_HOST_DEVICE inline double nan_unless_finite(T... x) {
  return (... + (static_cast<double>(x) - static_cast<double>(x)));
}
STEPTRAIN_HOST_DEVICE inline bool is_nan(double x) {
  return x != x;
}

STEPTRAIN_HOST_DEVICE inline double min_of(double x, double y) {
  return y < x ? y : x;
}
STEPTRAIN_HOST_DEVICE inline double max_of(double x, double y) {
  return x < y ? y : x;
}
STEPTRAIN_HOST_DEVICE inline double clamp(double x, double low, double high) {
  return x < low ? low : high < x ? high : x;
}

STEPTRAIN_HOST_DEVICE inline double sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
STEPTRAIN_HOST_DEVICE inline double log_sigmoid(double x) {
  return min_of(x, 0.0) - log1p(exp(-fabs(x)));
}

/// loss = -Σ weights·logprobs.
struct Nll {
  static constexpr const char* kName = "nll";
  static constexpr int kSums = 1;
  static constexpr Check kCheck = Check::none;
  const float *logprobs, *weights;  // [R]
  float *loss, *gradient;           // [1], [R]

  static Nll from(const Args& args) {
    const auto [logprobs, weights, loss, dlogprobs] = args.tensors<4>();
    return {logprobs.as<float>(), weights.as<float>(), loss.as<float>(), dlogprobs.as<float>()};
  }
  STEPTRAIN_HOST_DEVICE void clear(int64_t i) const { gradient[i] = 0; }
  STEPTRAIN_HOST_DEVICE bool skips(int64_t i) const { return weights[i] == 0; }
  STEPTRAIN_HOST_DEVICE void add(int64_t i, Tally<kSums>& tally) const {
    const double weight = weights[i] + nan_unless_finite(logprobs[i]);
    gradient[i] = static_cast<float>(-weight);
    tally[0] -= weight * logprobs[i];
  }
  STEPTRAIN_HOST_DEVICE void finish(const Tally<kSums>& total) const {
    loss[0] = static_cast<float>(total[0]);
  }
};

/// The sums of a classification, its loss and its statistics: accuracy, mean probability (bce: of label 1;
/// cross_entropy: of the target), Σ weights, items.
enum ClassSum { kLoss, kRight, kProbability, kWeight, kItems, kClassSums };
STEPTRAIN_HOST_DEVICE inline void finish_classes(const Tally<kClassSums>& total, float* loss, float* stats) {
  loss[0] = static_cast<float>(total[kLoss]);
  stats[0] = mean_of(total[kRight], total[kWeight]);
  stats[1] = mean_of(total[kProbability], total[kWeight]);
  stats[2] = static_cast<float>(total[kWeight]);
  stats[3] = static_cast<float>(total[kItems]);
}

/// loss = -Σ weights·(y·log σ(x) + (1 - y)·log σ(-x)).
struct Bce {
  static constexpr const char* kName = "bce";
  static constexpr int kSums = kClassSums;
  static constexpr Check kCheck = Check::probability;
  static constexpr int kChecked = 1;
  const float *logits, *labels, *weights;  // [n]
  float *loss, *gradient, *stats;          // [1], [n], [4]

  static Bce from(const Args& args) {
    const auto [logits, labels, weights, loss, dlogits, stats] = args.tensors<6>();
    return {logits.as<float>(), labels.as<float>(),  weights.as<float>(),
            loss.as<float>(),   dlogits.as<float>(), stats.as<float>()};
  }
  STEPTRAIN_HOST_DEVICE void clear(int64_t i) const { gradient[i] = 0; }
  STEPTRAIN_HOST_DEVICE bool skips(int64_t i) const { return weights[i] == 0; }
  STEPTRAIN_HOST_DEVICE bool holds(int64_t i) const { return labels[i] >= 0 && labels[i] <= 1; }
  STEPTRAIN_HOST_DEVICE void add(int64_t i, Tally<kSums>& tally) const {
    const float x = logits[i], y = labels[i], w = weights[i];
    const double weight = w + nan_unless_finite(x);
    const double p = sigmoid(x);
    gradient[i] = static_cast<float>(weight * (p - y));
    tally[kLoss] -= weight * (y * log_sigmoid(x) + (1.0 - y) * log_sigmoid(-x));
    tally[kRight] += (x >= 0) == (y >= 0.5f) ? w : 0;
    tally[kProbability] += weight * p;
    tally[kWeight] += w;
    tally[kItems] += 1;
  }
  STEPTRAIN_HOST_DEVICE void finish(const Tally<kSums>& total) const { finish_classes(total, loss, stats); }
};

/// loss = -Σ weights·log softmax(logits)[target].
struct CrossEntropy {
  static constexpr const char* kName = "cross_entropy";
  static constexpr int kSums = kClassSums;
  static constexpr Check kCheck = Check::index;
  static constexpr int kChecked = 1;
  const float *logits, *weights;  // [R,C], [R]
  const int32_t* targets;         // [R]
  int64_t classes;
  float *loss, *gradient, *stats;  // [1], [R,C], [4]

  static CrossEntropy from(const Args& args) {
    const auto [logits, targets, weights, loss, dlogits, stats] = args.tensors<6>();
    return {logits.as<float>(), weights.as<float>(), targets.as<int32_t>(), logits[1],
            loss.as<float>(),   dlogits.as<float>(), stats.as<float>()};
  }
  STEPTRAIN_HOST_DEVICE void clear(int64_t i) const {
    for (int64_t c = 0; c < classes; c++) gradient[i * classes + c] = 0;
  }
  STEPTRAIN_HOST_DEVICE bool skips(int64_t i) const { return weights[i] == 0; }
  STEPTRAIN_HOST_DEVICE bool holds(int64_t i) const { return targets[i] >= 0 && targets[i] < classes; }
  STEPTRAIN_HOST_DEVICE void add(int64_t i, Tally<kSums>& tally) const {
    const float* row = logits + i * classes;
    float* drow = gradient + i * classes;
    const int64_t target = targets[i];
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
      if (row[c] > row[best]) best = c;
    double sum = 0, weight = weights[i];
    for (int64_t c = 0; c < classes; c++) {
      sum += exp(static_cast<double>(row[c]) - row[best]);
      weight += nan_unless_finite(row[c]);
    }
    for (int64_t c = 0; c < classes; c++) {
      const double p = exp(static_cast<double>(row[c]) - row[best]) / sum;
      drow[c] = static_cast<float>(weight * (p - (c == target ? 1 : 0)));
    }
    const double logprob = static_cast<double>(row[target]) - row[best] - log(sum);
    tally[kLoss] -= weight * logprob;
    tally[kRight] += best == target ? weights[i] : 0;
    tally[kProbability] += weight * exp(logprob);
    tally[kWeight] += weights[i];
    tally[kItems] += 1;
  }
  STEPTRAIN_HOST_DEVICE void finish(const Tally<kSums>& total) const { finish_classes(total, loss, stats); }
};

}  // namespace
}  // namespace steptrain::objective
