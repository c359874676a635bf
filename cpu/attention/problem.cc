// Checks of attention's arguments, and the range of keys visible to each query row.
#include <string>

#include "cpu/attention/problem.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

[[noreturn]] void refuse(const char* op, const char* code, const std::string& what) {
  throw Error(code, std::string(op) + ": " + what);
}

}  // namespace

Problem::Problem(const char* op, const TensorView& q, const TensorView& k, const TensorView& v,
                 const TensorView& cu, const TensorView& branches, bool causal, int64_t window, float scale)
    : tokens(q[0]),
      heads(q[1]),
      kv_heads(k[1]),
      group(kv_heads > 0 ? heads / kv_heads : 0),
      size(q[2]),
      sequences(cu[0] - 1),
      cu_seqlens(cu.as<int32_t>()),
      branch(branches ? branches.as<int32_t>() : nullptr),
      causal(causal),
      window(std::max<int64_t>(window, 0)),
      scale(scale) {
  if (k.dtype != q.dtype || v.dtype != q.dtype)
    refuse(op, "E_DTYPE",
           format("q is %s, so k and v must be, got %s and %s", name_of(q.dtype), name_of(k.dtype),
                  name_of(v.dtype)));
  if (heads != kv_heads * group)
    refuse(op, "E_SHAPE",
           format("%lld query heads cannot share %lld KV heads evenly", wide(heads), wide(kv_heads)));
  if (cu_seqlens[0] != 0) refuse(op, "E_RANGE", format("cu_seqlens[0] is %d, must be 0", cu_seqlens[0]));
  for (int64_t s = 0; s < sequences; s++) {
    if (cu_seqlens[s + 1] < cu_seqlens[s])
      refuse(op, "E_RANGE",
             format("cu_seqlens[%lld] is %d, below the %d before it", wide(s + 1), cu_seqlens[s + 1],
                    cu_seqlens[s]));
  }
  if (cu_seqlens[sequences] != tokens)
    refuse(op, "E_RANGE",
           format("cu_seqlens[%lld] is %d, must end at the %lld tokens", wide(sequences),
                  cu_seqlens[sequences], wide(tokens)));
}

RowBlock::RowBlock(const Problem& problem, int64_t sequence, int64_t index)
    : begin(index * kRows), count(std::min(kRows, problem.rows(sequence) - begin)) {
  find_places(problem.group);
  const auto end = static_cast<int32_t>(problem.length(sequence) - 1);
  key_branch = problem.branch ? problem.branch + problem.cu_seqlens[sequence] : nullptr;
  for (int64_t r = 0; r < kRows; r++) {
    const int32_t query = place[r].query;
    first[r] =
        static_cast<int32_t>(problem.window > 0 ? std::max<int64_t>(0, query - problem.window + 1) : 0);
    last[r] = problem.causal ? query : end;
    branch[r] = key_branch ? key_branch[query] : 0;
  }
}

RowBlock::RowBlock(int64_t begin, int64_t rows, int64_t group, int64_t query, int64_t window)
    : begin(begin), count(std::min(kRows, rows - begin)), branch{}, key_branch(nullptr) {
  find_places(group);
  for (int64_t r = 0; r < kRows; r++) {
    const int64_t at = query + place[r].query;
    first[r] = static_cast<int32_t>(window > 0 ? std::max<int64_t>(0, at - window + 1) : 0);
    last[r] = static_cast<int32_t>(at);
  }
}

void RowBlock::find_places(int64_t group) {
  RowPlace at{static_cast<int32_t>(begin / group), static_cast<int32_t>(begin % group)};
  for (int64_t r = 0; r < kRows; r++) {
    place[r] = at;
    if (r + 1 < count && ++at.member == group) at = {at.query + 1, 0};
  }
}

bool RowBlock::all_masked(int64_t from, int64_t to) const {
  if (!key_branch) return false;
  for (int64_t r = 1; r < kRows; r++) {
    if (branch[r] != branch[0]) return false;  // rare; the mask decides
  }
  for (int64_t key = from; key < to; key++) {
    if (key_branch[key] == 0 || key_branch[key] == branch[0]) return false;
  }
  return true;
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
