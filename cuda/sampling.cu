// Draws one token per row of logits [R, V], each row by its own parameters: biases and allowed tokens,
// temperature, then top-k, top-p and min-p as transformers' logits warpers define them, then the inverse of
// the cumulative distribution at a Philox number of the row's own key and counter, in order of the
// vocabulary. One launch; a row depends on its logits, parameters and key alone. Outputs are `=`.
//
// A row is cut into tiles of kTileTokens, and kBlockTiles of them are a block's: a warp reads a tile once and leaves its
// maximum and its masses. The block of a row that ends last does the rest. Without filters it finds the tile of the draw
// in their masses, then the token in it. With filters it gathers the tokens above a lower bound of the threshold, of tiles whose
// maximum is above it, and finds the exact threshold among them: by digits of three bits of integers in the order of
// the logits, each a pass over the candidates that adds up their mass by digit. Where too many tokens are above the bound, the whole row takes their
// place.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/philox.h"
#include "cuda/reduce.cuh"
#include "cuda/row_sampler.cuh"
#include "cuda/runtime/families.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

using namespace sampler;

constexpr int kBlockTiles = 2 * kBlockWarps;
constexpr int64_t kMaxWorkspace = int64_t{64} << 20;  // bytes

/// The op's inputs; absent ones are null.
struct SampleInputs {
  const float* logits;
  int64_t rows, vocabulary;
  const int32_t* keys;
  const float* temperature;
  const int32_t* top_k;
  const float *top_p, *min_p;
  const int32_t *bias_offsets, *bias_tokens;
  const float* bias;
  int64_t biases;
  const int32_t *allowed_offsets, *allowed;
  int64_t allowed_count;
};
enum Input {
  kTemperature = 2,
  kTopK,
  kTopP,
  kMinP,
  kBiasOffsets,
  kBiasTokens,
  kBias,
  kAllowedOffsets,
  kAllowed
};

struct SampleOutputs {
  int32_t* tokens;
  float *logprobs, *sampling_logprobs, *tempered_logprobs;
  int32_t* status;
};

/// Row r's parameters. `holds` is false, and reported, where one is out of range.
__device__ inline Warp warp_of(const SampleInputs& in, int64_t r, const FaultReporter& faults, bool& holds) {
  const float temperature = in.temperature ? in.temperature[r] : 1.0f, top_p = in.top_p ? in.top_p[r] : 1.0f,
              min_p = in.min_p ? in.min_p[r] : 0.0f;
  const int32_t top_k = in.top_k ? in.top_k[r] : 0;
  holds = true;
  const auto require = [&](bool good, int input, int32_t integer, float value) {
    if (good) return;
    holds = false;
    if (threadIdx.x == 0)
      report(faults, FaultKind::setting, input, r, integer, 0, static_cast<int64_t>(__float_as_uint(value)));
  };
  require(temperature >= 0 && temperature < INFINITY, kTemperature, 0, temperature);
  require(top_k >= 0, kTopK, top_k, 0);
  require(top_p > 0 && top_p <= 1, kTopP, 0, top_p);
  require(min_p >= 0 && min_p <= 1, kMinP, 0, min_p);
  return {temperature, top_k, top_p, min_p};
}

/// What a row's blocks share, in workspace.
struct Workspace {
  Tile* tiles;      // [rows][tiles]
  float* adjusted;  // [rows][V]; null where no row has biases or allowed tokens
  int32_t* tokens;  // [rows][kMaxCandidates, or V where that is less], in order of the vocabulary
  double* masses;   // of them
};

/// Row r's logits with its biases, -infinity where a token is not allowed, from token `begin` to `end`: `row` itself where
/// it has neither, null where a list does not hold. All blocks of a row come to the same end.
__device__ inline const float* adjusted(const SampleInputs& in, int64_t r, const float* row, float* out,
                                        int64_t begin, int64_t end, const FaultReporter& faults) {
  int64_t first_bias = 0, last_bias = 0, first_allowed = 0, last_allowed = 0;
  if (in.bias_offsets &&
      !range_holds(faults, kBiasOffsets, in.bias_offsets, r, in.rows, in.biases, first_bias, last_bias))
    return nullptr;
  if (in.allowed_offsets && !range_holds(faults, kAllowedOffsets, in.allowed_offsets, r, in.rows,
                                         in.allowed_count, first_allowed, last_allowed))
    return nullptr;
  const bool restricts = first_allowed < last_allowed;
  if (!restricts && first_bias == last_bias) return row;
  const auto inside = [&](int64_t token) { return begin <= token && token < end; };
  for (int64_t v = begin + threadIdx.x; v < end; v += blockDim.x) out[v] = restricts ? -INFINITY : row[v];
  __syncthreads();
  bool holds = true;
  for (int64_t i = first_allowed + threadIdx.x; i < last_allowed; i += blockDim.x) {
    const int32_t token = in.allowed[i];
    if (!index_holds(faults, kAllowed, i, token, in.vocabulary)) {
      holds = false;
    } else if (inside(token)) {
      out[token] = row[token];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {  // in order, since a token may have several
    for (int64_t i = first_bias; i < last_bias; i++) {
      const int32_t token = in.bias_tokens[i];
      if (!(in.bias[i] < INFINITY)) {
        report(faults, FaultKind::setting, kBias, i, 0, 0, static_cast<int64_t>(__float_as_uint(in.bias[i])));
        holds = false;
      } else if (!index_holds(faults, kBiasTokens, i, token, in.vocabulary)) {
        holds = false;
      } else if (inside(token)) {
        out[token] += in.bias[i];
      }
    }
  }
  return __syncthreads_and(holds) ? out : nullptr;
}

/// Uniform in [0, 1) with 53 bits, from the row's key and counter.
__device__ double uniform_of(const int32_t* key) {
  const auto word = [&](int i) { return static_cast<uint32_t>(key[i]); };
  const Philox4 block = philox({{word(2), word(3), 0, 0}}, word(0), word(1));
  return (static_cast<double>(block.v[0] >> 5) * 0x1p26 + static_cast<double>(block.v[1] >> 6)) * 0x1p-53;
}

/// log p of `token` where Σ exp(logit·inverse) is `mass`, relative to `largest`.
__device__ inline float logprob_of(const float* row, int64_t token, float largest, double temperature,
                                   double mass) {
  return static_cast<float>((static_cast<double>(row[token]) - largest) / temperature - log(mass));
}

__global__ void __launch_bounds__(kWarp* kBlockWarps)
    sample_kernel(const __grid_constant__ SampleInputs in, int64_t first_row, int parts, Workspace work,
                  SampleOutputs out, uint32_t* tickets, FaultReporter faults) {
  __shared__ int64_t drawn;
  take_turn();
  const int64_t at = blockIdx.x / static_cast<unsigned>(parts), r = first_row + at,
                vocabulary = in.vocabulary;
  const int64_t tile_count = (vocabulary + kTileTokens - 1) / kTileTokens;
  const int64_t first_tile = int64_t{blockIdx.x % static_cast<unsigned>(parts)} * kBlockTiles,
                end_tile = first_tile + kBlockTiles < tile_count ? first_tile + kBlockTiles : tile_count;
  const float* const model_row = in.logits + r * vocabulary;
  bool holds;
  const Warp warp = warp_of(in, r, faults, holds);
  if (!holds) return;
  const int64_t end_token = end_tile * kTileTokens < vocabulary ? end_tile * kTileTokens : vocabulary;
  const float* const row =
      adjusted(in, r, model_row, work.adjusted ? work.adjusted + at * vocabulary : nullptr,
               first_tile * kTileTokens, end_token, faults);
  if (!row) return;
  Tile* const tiles = work.tiles + at * tile_count;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t t = first_tile + threadIdx.x / kWarp; t < end_tile; t += blockDim.x / kWarp) {
    const Tile tile = read_tile(row, model_row, t * kTileTokens, vocabulary, warp.temperature, lane);
    if (lane == 0) tiles[t] = tile;
  }
  if (!last_block(tickets + at, static_cast<uint32_t>(parts))) return;

  float largest = -INFINITY, model_largest = -INFINITY, broken = 0;
  for (int64_t t = threadIdx.x; t < tile_count; t += blockDim.x) {
    largest = fmaxf(largest, tiles[t].largest);
    model_largest = fmaxf(model_largest, tiles[t].model_largest);
    if (tiles[t].broken) broken = 1;
  }
  largest = block_max(largest), model_largest = block_max(model_largest);
  if (block_max(broken) > 0 || !(model_largest > -INFINITY) || !(largest > -INFINITY)) {
    if (threadIdx.x != 0) return;
    out.tokens[r] = 0;
    out.logprobs[r] = out.sampling_logprobs[r] = 0;
    if (out.tempered_logprobs) out.tempered_logprobs[r] = 0;
    out.status[r] = 1;
    return;
  }
  double first = -static_cast<double>(vocabulary);
  for (int64_t t = threadIdx.x; t < tile_count; t += blockDim.x)
    if (tiles[t].largest == largest) first = fmax(first, -static_cast<double>(tiles[t].first));
  int64_t token = static_cast<int64_t>(-block_max(first));

  const int64_t candidates = vocabulary < kMaxCandidates ? vocabulary : kMaxCandidates;
  RowSampler sampler{row,
                     vocabulary,
                     warp,
                     tiles,
                     tile_count,
                     work.tokens + at * candidates,
                     work.masses + at * candidates,
                     largest};
  float sampling = 0, tempered = 0;
  if (warp.temperature > 0) {
    const double tempered_mass = sampler.sum_tiles([&](const Tile& tile) {
      return tile.tempered_mass > 0
                 ? tile.tempered_mass *
                       exp((static_cast<double>(tile.model_largest) - model_largest) / warp.temperature)
                 : 0.0;
    });
    sampler.weigh();
    const double u = uniform_of(in.keys + 4 * r);
    const bool filtered = (warp.top_k > 0 && warp.top_k < vocabulary) || warp.top_p < 1 || warp.min_p > 0;
    double kept = sampler.total;
    int64_t found = -1;
    if (filtered) {
      found = sampler.draw_filtered(u, kept);
    } else if (threadIdx.x < kWarp) {
      found = sampler.draw(u);
    }
    // -1 where every mass was lost in rounding: the most likely token.
    if (threadIdx.x == 0) drawn = found < 0 ? token : found;
    __syncthreads();
    token = drawn;
    tempered = logprob_of(model_row, token, model_largest, warp.temperature, tempered_mass);
    sampling =
        !filtered && row == model_row ? tempered : logprob_of(row, token, largest, warp.temperature, kept);
  }
  const double model_mass = sampler.sum_tiles([&](const Tile& tile) {
    return tile.model_mass > 0
               ? tile.model_mass * exp(static_cast<double>(tile.model_largest) - model_largest)
               : 0.0;
  });
  if (threadIdx.x != 0) return;
  out.tokens[r] = static_cast<int32_t>(token);
  out.logprobs[r] = logprob_of(model_row, token, model_largest, 1, model_mass);
  out.sampling_logprobs[r] = sampling;
  if (out.tempered_logprobs) out.tempered_logprobs[r] = tempered;
  out.status[r] = 0;
}

void sample(Stream& stream, const Args& args) {
  const auto [logits, keys, temperature, top_k, top_p, min_p, bias_offsets, bias_tokens, bias,
              allowed_offsets, allowed, tokens, logprobs, sampling_logprobs, tempered_logprobs, status] =
      args.tensors<16>();
  const int64_t rows = logits[0], vocabulary = logits[1];
  if (!bias_offsets != !bias_tokens || !bias_offsets != !bias || !allowed_offsets != !allowed)
    throw Error("E_SHAPE",
                "sample: bias_offsets, bias_tokens and bias are given together, as are allowed_offsets and "
                "allowed");
  if (rows > 0 && vocabulary == 0) throw Error("E_RANGE", "sample: the vocabulary is empty");
  const SampleInputs in{logits.as<float>(),
                        rows,
                        vocabulary,
                        keys.as<int32_t>(),
                        temperature.as<float>(),
                        top_k.as<int32_t>(),
                        top_p.as<float>(),
                        min_p.as<float>(),
                        bias_offsets.as<int32_t>(),
                        bias_tokens.as<int32_t>(),
                        bias.as<float>(),
                        bias ? bias[0] : 0,
                        allowed_offsets.as<int32_t>(),
                        allowed.as<int32_t>(),
                        allowed ? allowed[0] : 0};
  if (rows == 0) return;
  const int64_t tiles = (vocabulary + kTileTokens - 1) / kTileTokens;
  const int threads = static_cast<int>(std::clamp<int64_t>(tiles, 1, kBlockWarps)) * kWarp;
  const int64_t candidates = std::min<int64_t>(vocabulary, kMaxCandidates);
  const int64_t row_bytes =
      tiles * static_cast<int64_t>(sizeof(Tile)) + candidates * 12 + (bias || allowed ? vocabulary * 4 : 0);
  const int64_t together =  // rows of a launch
      std::min<int64_t>({rows, kTickets, std::max<int64_t>(kMaxWorkspace / row_bytes, 1)});
  const Workspace work{stream.scratch.take<Tile>(together * tiles),
                       bias || allowed ? stream.scratch.take<float>(together * vocabulary) : nullptr,
                       stream.scratch.take<int32_t>(together * candidates),
                       stream.scratch.take<double>(together * candidates)};
  const SampleOutputs out{tokens.as<int32_t>(), logprobs.as<float>(), sampling_logprobs.as<float>(),
                          tempered_logprobs.as<float>(), status.as<int32_t>()};
  const int64_t parts = (tiles + kBlockTiles - 1) / kBlockTiles;
  for (int64_t first = 0; first < rows; first += together)
    stream.launch_early({}, sample_kernel, std::min(together, rows - first) * parts, threads, 0, in, first,
                        static_cast<int>(parts), work, out, stream.ticket, stream.faults);
}

}  // namespace

void register_sampling(KernelTable& table) {
  table.set("sample", sample);
}

}  // namespace steptrain::cuda
