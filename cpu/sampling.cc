// Draws one token per row of logits [R, V], each row by its own parameters: biases and allowed tokens,
// temperature, then top-k, top-p and min-p as transformers' logits warpers define them, then the inverse of
// the cumulative distribution, in order of the vocabulary, at a Philox number of the row's own key and
// counter. A row depends on its logits, parameters and key alone. Outputs are `=`.
#include <cmath>

#include "core/philox.h"
#include "cpu/indices.h"
#include "cpu/row_sampler.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

/// The parameters of every row.
class Parameters {
 public:
  /// Throws E_RANGE.
  Parameters(const Args& args, int64_t rows, int64_t vocabulary)
      : temperature_(args.tensor[2]),
        top_k_(args.tensor[3]),
        top_p_(args.tensor[4]),
        min_p_(args.tensor[5]),
        bias_offsets_(args.tensor[6]),
        bias_tokens_(args.tensor[7]),
        bias_(args.tensor[8]),
        allowed_offsets_(args.tensor[9]),
        allowed_(args.tensor[10]),
        vocabulary_(vocabulary) {
    check_lists();
    for (int64_t r = 0; r < rows; r++) check_warp(r);
  }

  Warp warp(int64_t r) const {
    Warp warp;
    if (temperature_) warp.temperature = temperature_.as<float>()[r];
    if (top_k_) warp.top_k = top_k_.as<int32_t>()[r];
    if (top_p_) warp.top_p = top_p_.as<float>()[r];
    if (min_p_) warp.min_p = min_p_.as<float>()[r];
    return warp;
  }
  bool filters(int64_t r) const {
    const Warp warp = this->warp(r);
    return warp.temperature > 0 && warp.filters(vocabulary_);
  }
  bool adjusts(int64_t r) const {
    return !range(bias_offsets_, r).empty() || !range(allowed_offsets_, r).empty();
  }

  /// Row r's logits with its biases, -infinity where a token is not allowed.
  void adjust(int64_t r, const float* row, float* out) const {
    const auto allowed = range(allowed_offsets_, r), biased = range(bias_offsets_, r);
    if (allowed.empty()) {
      std::copy(row, row + vocabulary_, out);
    } else {
      std::fill(out, out + vocabulary_, -INFINITY);
      for (int64_t i = allowed.begin; i < allowed.end; i++) {
        const int32_t token = allowed_.as<int32_t>()[i];
        out[token] = row[token];
      }
    }
    for (int64_t i = biased.begin; i < biased.end; i++)
      out[bias_tokens_.as<int32_t>()[i]] += bias_.as<float>()[i];
  }

 private:
  struct Range {
    int64_t begin, end;
    bool empty() const { return begin == end; }
  };
  static Range range(const TensorView& offsets, int64_t r) {
    if (!offsets) return {0, 0};
    return {offsets.as<int32_t>()[r], offsets.as<int32_t>()[r + 1]};
  }

  void check_lists() const {
    if (!bias_offsets_ != !bias_tokens_ || !bias_offsets_ != !bias_ || !allowed_offsets_ != !allowed_)
      throw Error("E_SHAPE",
                  "sample: bias_offsets, bias_tokens and bias are given together, as are allowed_offsets and "
                  "allowed");
    if (bias_) {
      check_offsets("sample", "bias_offsets", bias_offsets_, bias_[0]);
      check_indices("sample", "bias_tokens", bias_tokens_, vocabulary_);
      for (int64_t i = 0; i < bias_[0]; i++) {
        const float bias = bias_.as<float>()[i];
        if (!(bias < INFINITY))
          throw Error("E_RANGE", format("sample: bias[%lld] is %g, expected a number or -inf",
                                        static_cast<long long>(i), static_cast<double>(bias)));
      }
    }
    if (allowed_) {
      check_offsets("sample", "allowed_offsets", allowed_offsets_, allowed_[0]);
      check_indices("sample", "allowed", allowed_, vocabulary_);
    }
  }

  void check_warp(int64_t row) const {
    const Warp warp = this->warp(row);
    const auto r = static_cast<long long>(row);
    if (!(warp.temperature >= 0) || !std::isfinite(warp.temperature))
      throw Error("E_RANGE",
                  format("sample: temperature[%lld] is %g, expected 0 or more", r, warp.temperature));
    if (warp.top_k < 0)
      throw Error("E_RANGE", format("sample: top_k[%lld] is %lld, expected 0 (off) or more", r,
                                    static_cast<long long>(warp.top_k)));
    if (!(warp.top_p > 0 && warp.top_p <= 1))
      throw Error("E_RANGE",
                  format("sample: top_p[%lld] is %g, expected more than 0, up to 1 (off)", r, warp.top_p));
    if (!(warp.min_p >= 0 && warp.min_p <= 1))
      throw Error("E_RANGE", format("sample: min_p[%lld] is %g, expected 0 (off) to 1", r, warp.min_p));
  }

  TensorView temperature_, top_k_, top_p_, min_p_, bias_offsets_, bias_tokens_, bias_, allowed_offsets_,
      allowed_;
  int64_t vocabulary_;
};

/// Uniform in [0, 1) with 53 bits, from the row's key and counter.
double uniform_of(const int32_t* key) {
  const auto word = [&](int i) { return static_cast<uint32_t>(key[i]); };
  const Philox4 block = philox({{word(2), word(3), 0, 0}}, word(0), word(1));
  return (static_cast<double>(block.v[0] >> 5) * 0x1p26 + static_cast<double>(block.v[1] >> 6)) * 0x1p-53;
}

struct Draw {
  int32_t token = 0;
  float logprob = 0, sampling = 0, tempered = 0;
  int32_t status = 1;
};

/// One row; tempered only where `wants_tempered` or where it comes with the rest.
Draw draw_row(const float* row, int64_t vocabulary, const Parameters& parameters, int64_t r,
              const int32_t* key, bool wants_tempered, const SamplerWorkspace& work) {
  const Warp warp = parameters.warp(r);
  Draw drawn;
  RowSampler sampler(row, vocabulary, warp, work);
  if (!sampler.scan()) return drawn;
  const bool adjusts = parameters.adjusts(r), filters = parameters.filters(r);
  if (adjusts) {
    parameters.adjust(r, row, work.adjusted);
    sampler = RowSampler(work.adjusted, vocabulary, warp, work);
    if (!sampler.scan()) return drawn;
  }
  drawn.status = 0;
  if (warp.temperature == 0) {
    drawn.token = sampler.most_likely();
  } else {
    const double u = uniform_of(key);
    if (filters) {
      sampler.filter();
      drawn.token = sampler.draw_filtered(u, drawn.sampling);
    } else {
      drawn.token = sampler.draw(u);
    }
    const auto tempered = [&](const float* logits) {
      return softmax(logits, vocabulary, warp.inverse()).logprob(logits[drawn.token], warp.inverse());
    };
    const bool sampled_as_tempered = !filters && !adjusts;
    if (sampled_as_tempered || wants_tempered) drawn.tempered = tempered(row);
    if (!filters) drawn.sampling = adjusts ? tempered(work.adjusted) : drawn.tempered;
  }
  drawn.logprob = softmax(row, vocabulary, 1).logprob(row[drawn.token], 1);
  return drawn;
}

void sample(Stream& stream, const Args& args) {
  const auto [logits, keys] = args.tensors<2>();
  const TensorView &tokens = args.tensor[11], &logprobs = args.tensor[12],
                   &sampling_logprobs = args.tensor[13], &tempered_logprobs = args.tensor[14],
                   &status = args.tensor[15];
  const int64_t rows = logits[0], vocabulary = logits[1];
  if (rows > 0 && vocabulary == 0) throw Error("E_RANGE", "sample: the vocabulary is empty");
  const Parameters parameters(args, rows, vocabulary);
  bool filters = false, adjusts = false;
  for (int64_t r = 0; r < rows; r++) {
    filters |= parameters.filters(r);
    adjusts |= parameters.adjusts(r);
  }

  const int64_t threads = stream.pool.threads();
  SamplerWorkspace* workspaces = stream.scratch.take<SamplerWorkspace>(threads);
  for (int64_t i = 0; i < threads; i++) {
    Scratch& s = stream.scratch;
    workspaces[i] = {filters ? s.take<float>(vocabulary / kSkip + 1) : nullptr,
                     s.take<double>(vocabulary / kTileTokens + 1),
                     filters ? s.take<float>(vocabulary) : nullptr,
                     filters ? s.take<Candidate>(vocabulary) : nullptr,
                     filters ? s.take<Candidate>(vocabulary) : nullptr,
                     adjusts ? s.take<float>(vocabulary) : nullptr};
  }

  stream.pool.region([&](Worker& worker) {
    for (int64_t r; (r = worker.next()) < rows;) {
      const Draw drawn =
          draw_row(logits.as<float>() + r * vocabulary, vocabulary, parameters, r, keys.as<int32_t>() + 4 * r,
                   static_cast<bool>(tempered_logprobs), workspaces[worker.index]);
      tokens.as<int32_t>()[r] = drawn.token;
      logprobs.as<float>()[r] = drawn.logprob;
      sampling_logprobs.as<float>()[r] = drawn.sampling;
      if (tempered_logprobs) tempered_logprobs.as<float>()[r] = drawn.tempered;
      status.as<int32_t>()[r] = drawn.status;
    }
  });
}

}  // namespace

void register_sampling(KernelTable& table) {
  table.set("sample", sample);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
