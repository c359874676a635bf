// Divergences between the next-token distributions of a student and a teacher, item by item (core/objective.h):
// the generalised Jensen-Shannon divergence over all classes (arXiv 2306.13649, equation 1), and the reverse KL
// of what is known where a teacher says the log-prob of one token alone. A row of weight 0 is not read and gets
// gradient 0.
#pragma once

#include "core/error.h"
#include "core/objective.h"

namespace steptrain::objective {
namespace {

/// The one thread of the CPU that reads a row. On a GPU a block does (cuda/objective_divergence.cu).
struct Alone {
  STEPTRAIN_HOST_DEVICE static int64_t rank() { return 0; }
  STEPTRAIN_HOST_DEVICE static int64_t size() { return 1; }
  STEPTRAIN_HOST_DEVICE static double sum(double x) { return x; }
  STEPTRAIN_HOST_DEVICE static int64_t first_largest(float, int64_t index) { return index; }
};

/// D(student, teacher) of the softmax of two rows of logits: KL(teacher ‖ student) at beta 0, KL(student ‖ teacher)
/// at beta 1, else beta·KL(teacher ‖ m) + (1 - beta)·KL(student ‖ m) with m = (1 - beta)·student + beta·teacher.
struct Divergence {
  static constexpr const char* kName = "divergence";
  static constexpr Check kCheck = Check::none;
  static constexpr int64_t kChunk = 4;  // items of a thread of the CPU at a time: each is a whole vocabulary
  enum { kLoss, kReverse, kForward, kEntropy, kAgreed, kWeight, kSums };
  const float *student, *teacher, *weights;  // [R,V], [R,V], [R]
  int64_t classes;
  double beta;
  float *loss, *gradient, *stats;  // [1], [R,V], [5]

  static Divergence from(const Args& args) {
    const auto [student, teacher, weights, loss, dstudent, stats] = args.tensors<6>();
    const double beta = args.d(0);
    if (!(beta >= 0 && beta <= 1)) throw Error("E_RANGE", "divergence: beta is from 0 to 1");
    return {student.as<float>(), teacher.as<float>(),  weights.as<float>(), student[1], beta,
            loss.as<float>(),    dstudent.as<float>(), stats.as<float>()};
  }
  STEPTRAIN_HOST_DEVICE void clear(int64_t i) const { clear(i, Alone()); }
  template <typename Team>
  STEPTRAIN_HOST_DEVICE void clear(int64_t i, Team team) const {
    for (int64_t c = team.rank(); c < classes; c += team.size()) gradient[i * classes + c] = 0;
  }
  STEPTRAIN_HOST_DEVICE bool skips(int64_t i) const { return weights[i] == 0; }
  STEPTRAIN_HOST_DEVICE void add(int64_t i, Tally<kSums>& tally) const { add(i, tally, Alone()); }
  /// Every thread of the team calls this and gets the row's sums in its tally.
  template <typename Team>
  STEPTRAIN_HOST_DEVICE void add(int64_t i, Tally<kSums>& tally, Team team) const {
    const float *s = student + i * classes, *t = teacher + i * classes;
    float* const drow = gradient + i * classes;
    const int64_t best_s = largest(s, team), best_t = largest(t, team);
    const double top_s = s[best_s], top_t = t[best_t];
    // Sums over the student's e: e, e·(s - t), e·s; over the teacher's: e, e·(t - s). The student's e waits in the gradient.
    double sum_s = 0, sum_t = 0, gap_s = 0, gap_t = 0, mean_s = 0, broken = 0;
    for (int64_t c = team.rank(); c < classes; c += team.size()) {
      const double x = s[c], y = t[c];
      broken += nan_unless_finite(s[c], t[c]);
      const double es = exp(x - top_s), et = exp(y - top_t);
      sum_s += es;
      sum_t += et;
      gap_s += es * (x - y);
      gap_t += et * (y - x);
      mean_s += es * (x - top_s);
      drow[c] = static_cast<float>(es);
    }
    sum_s = team.sum(sum_s), sum_t = team.sum(sum_t);
    gap_s = team.sum(gap_s), gap_t = team.sum(gap_t), mean_s = team.sum(mean_s);
    const double weight = weights[i] + team.sum(broken);
    const double log_s = log(sum_s), log_t = log(sum_t), shift = top_s + log_s - top_t - log_t;
    const double reverse = gap_s / sum_s - shift, forward = gap_t / sum_t + shift;
    double value = beta == 1 ? reverse : forward;
    if (beta == 0) {
      for (int64_t c = team.rank(); c < classes; c += team.size())
        drow[c] = static_cast<float>(weight * (drow[c] / sum_s - exp(t[c] - top_t) / sum_t));
    } else if (beta == 1) {
      for (int64_t c = team.rank(); c < classes; c += team.size()) {
        const double gap = static_cast<double>(s[c]) - t[c] - shift;
        drow[c] = static_cast<float>(weight * (drow[c] / sum_s) * (gap - reverse));
      }
    } else {
      double to_mixture_s = 0, to_mixture_t = 0;
      for (int64_t c = team.rank(); c < classes; c += team.size()) {
        const double ls = s[c] - top_s - log_s, lt = t[c] - top_t - log_t;
        to_mixture_s += exp(ls) * (ls - mixture(ls, lt));
        to_mixture_t += exp(lt) * (lt - mixture(ls, lt));
      }
      to_mixture_s = team.sum(to_mixture_s), to_mixture_t = team.sum(to_mixture_t);
      value = beta * to_mixture_t + (1 - beta) * to_mixture_s;
      for (int64_t c = team.rank(); c < classes; c += team.size()) {
        const double ls = s[c] - top_s - log_s, lt = t[c] - top_t - log_t;
        drow[c] = static_cast<float>(weight * (1 - beta) * exp(ls) * (ls - mixture(ls, lt) - to_mixture_s));
      }
    }
    tally[kLoss] += weight * value;
    tally[kReverse] += weight * reverse;
    tally[kForward] += weight * forward;
    tally[kEntropy] += weight * (log_s - mean_s / sum_s);
    tally[kAgreed] += best_s == best_t ? weight : 0;
    tally[kWeight] += weight;
  }
  STEPTRAIN_HOST_DEVICE void finish(const Tally<kSums>& total) const {
    loss[0] = static_cast<float>(total[kLoss]);
    for (int k = 0; k < 4; k++) stats[k] = mean_of(total[kReverse + k], total[kWeight]);
    stats[4] = static_cast<float>(total[kWeight]);
  }

 private:
  /// The first class with the largest of a row's logits. Some class where one is NaN.
  template <typename Team>
  STEPTRAIN_HOST_DEVICE int64_t largest(const float* row, Team team) const {
    int64_t best = team.rank() < classes ? team.rank() : classes - 1;
    for (int64_t c = best + team.size(); c < classes; c += team.size())
      if (row[c] > row[best]) best = c;
    return team.first_largest(row[best], best);
  }
  /// log((1 - beta)·exp(ls) + beta·exp(lt))
  STEPTRAIN_HOST_DEVICE double mixture(double ls, double lt) const {
    const double top = max_of(ls, lt);
    return top + log((1 - beta) * exp(ls - top) + beta * exp(lt - top));
  }
};

/// KL(student ‖ teacher) of two classes, the sampled token and all others, from the log-probs of that token: what a
/// server can say. TRL's ServerDistillationTrainer has the same with beta 1, loss_add_tail and the sampled token.
struct SampledDivergence {
  static constexpr const char* kName = "sampled_divergence";
  static constexpr Check kCheck = Check::none;
  enum { kLoss, kLead, kWeight, kSums };
  const float *student, *teacher, *weights;  // [R]
  float *loss, *gradient, *stats;            // [1], [R], [2]

  static SampledDivergence from(const Args& args) {
    const auto [student, teacher, weights, loss, dstudent, stats] = args.tensors<6>();
    return {student.as<float>(), teacher.as<float>(),  weights.as<float>(),
            loss.as<float>(),    dstudent.as<float>(), stats.as<float>()};
  }
  STEPTRAIN_HOST_DEVICE void clear(int64_t i) const { gradient[i] = 0; }
  STEPTRAIN_HOST_DEVICE bool skips(int64_t i) const { return weights[i] == 0; }
  STEPTRAIN_HOST_DEVICE void add(int64_t i, Tally<kSums>& tally) const {
    const double weight = weights[i] + nan_unless_finite(student[i], teacher[i]);
    const double p = exp(static_cast<double>(student[i])),
                 lead = static_cast<double>(student[i]) - teacher[i];
    const double rest_s = rest(student[i]), rest_lead = rest_s - rest(teacher[i]);
    gradient[i] = static_cast<float>(weight * p * (lead - rest_lead));
    tally[kLoss] += weight * (p * lead + exp(rest_s) * rest_lead);
    tally[kLead] += weight * lead;
    tally[kWeight] += weight;
  }
  STEPTRAIN_HOST_DEVICE void finish(const Tally<kSums>& total) const {
    loss[0] = static_cast<float>(total[kLoss]);
    stats[0] = mean_of(total[kLead], total[kWeight]);
    stats[1] = static_cast<float>(total[kWeight]);
  }

 private:
  /// log(1 - exp(x)), where at least 1e-7 is left, as in TRL: f32 has no probability between that and 1.
  STEPTRAIN_HOST_DEVICE static double rest(double x) { return log(-expm1(min_of(x, -1e-7))); }
};

}  // namespace
}  // namespace steptrain::objective
