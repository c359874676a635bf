// The forward of the gated delta rule by chunks (delta_chunks.h).
#include "cpu/attention/delta_chunks.h"

#if defined(__AVX512BF16__)

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace delta {

/// What the chunk itself gives to o of the own rows: Σ_j G·(q·k)·δ_j, of factors of two halves.
void inner_outputs(const Rows& path, const Head& head, const Halves& deltas, const Halves& square,
                   const Tiles& out) {
  const int64_t depth = path.depth();
  column_panels<true>(head.delta, 0, path.rows, depth, nullptr, deltas);
  const auto row = [&](int64_t r, int64_t step) { return head.gates.queries + r * kChunk + step * kSide; };
  left_factor<true>(path.from, path.rows, depth, row, square);
  product(path.from, path.rows, depth,
          {{square.high, deltas.high}, {square.low, deltas.high}, {square.high, deltas.low}}, out, false);
}

/// o of the own rows of a path: e^g·Sᵀq, of which `memory` has Sᵀq of what is stored, and what the chunk gives.
void store_outputs(const Shape& shape, int64_t index, const Rows& path, const Keys& keys, const Head& head,
                   const Tiles& memory, const Tiles& inner, bf16* o) {
  const float size = 1.0f / std::sqrt(static_cast<float>(shape.key_size));
  for (int64_t i = path.from; i < path.rows; i++) {
    const vf scale = set1(head.gates.power[i] * keys.query_scale[i] * size);
    bf16* const to = o + (path.token(i) * shape.heads + index) * shape.value_size;
    for (int64_t right = 0; right < memory.across; right++) {
      const float *const far = memory.row(i, right), *const near = inner.row(i, right);
      store_row(to + right * kSide, fma(scale, load(far), load(near)),
                fma(scale, load(far + kLanes), load(near + kLanes)));
    }
  }
}

namespace {

struct Forward {
  const Shape& shape;
  const bf16* qkv;
  GateInputs gates;
  bf16* o;
  int64_t key_head;

  void rows(Walk& walk, const Rows& path) const {
    walk.remember(shape, qkv, gates, key_head, path, true);
    for (int64_t h = 0; h < shape.group; h++) {
      const Head& head = walk.heads[static_cast<size_t>(h)];
      const bf16* const left = walk.keys.query_left;
      product(path.from, path.rows, shape.key_size, {{left, head.panels.high}, {left, head.panels.low}},
              walk.memory, false);
      inner_outputs(path, head, walk.deltas, walk.square, walk.inner);
      store_outputs(shape, key_head * shape.group + h, path, walk.keys, head, walk.memory, walk.inner, o);
    }
  }

  void branch(Walk& trunk, Walk& own, const Tree& tree, const Tree::Branch& branch) const {
    const Rows beginning = tree.beginning(branch);
    rows(trunk, beginning);
    int64_t done = beginning.rows - beginning.from;
    if (done == branch.count) return;
    trunk.leave(shape, beginning, own.states());
    while (true) {
      const Rows path = tree.later(branch, done);
      own.pack(shape);
      rows(own, path);
      done += path.rows;
      if (done == branch.count) return;
      own.leave(shape, path, own.next);
      own.step();
    }
  }

  void sequence(Walk& trunk, Walk& own, const Tree& tree) const {
    trunk.clear(shape);
    int64_t last = 0;  // branches that began
    for (int64_t m = 0, chunks = tree.chunks(); m < chunks; m++) {
      const Rows path = tree.chunk(m);
      trunk.pack(shape);
      if (path.rows > 0) rows(trunk, path);
      const bool goes_on = m + 1 < chunks;
      if (goes_on) trunk.leave(shape, path, trunk.next);
      const int64_t first = last;
      while (last < tree.count && tree.branches[last].at / kChunk == m) last++;
      // A branch takes the places of the trunk after its beginning: the last one goes first.
      for (int64_t b = last - 1; b >= first; b--) branch(trunk, own, tree, tree.branches[b]);
      if (goes_on) trunk.step();
    }
  }
};

}  // namespace

void gated_delta_rule(Stream& stream, const Args& args) {
  const auto [qkv, a, b, a_log, dt_bias, cu, branches, state, slots, lengths, o] = args.tensors<11>();
  const Shape shape(qkv, a[1], o[2], args.i(0), args.i(1));
  if (!shape.fits(qkv.dtype) || state || slots || lengths) return by_tokens("gated_delta_rule", stream, args);
  const Recurrence sequences("gated_delta_rule", qkv[0], cu, branches);
  const int64_t longest = sequences.longest();
  const auto each = [&, &branches = branches](Memory memory, const auto& body) {
    Walk trunk(memory, shape, false), own(memory, shape, false);
    Tree tree(memory, longest, static_cast<bool>(branches));
    body(trunk, own, tree);
    return memory.used;
  };
  const int64_t room = each({nullptr}, [](auto&...) {});
  char* const scratch = stream.scratch.take<char>(stream.pool.threads() * room);
  stream.pool.region([&, &qkv = qkv, &a = a, &b = b, &a_log = a_log, &dt_bias = dt_bias,
                      &o = o](Worker& worker) {
    each({scratch + worker.index * room}, [&](Walk& trunk, Walk& own, Tree& tree) {
      const int64_t tasks = sequences.sequences * shape.key_heads;
      for (int64_t task; (task = worker.next()) < tasks;) {
        tree.read(sequences, task / shape.key_heads);
        Forward{shape, qkv.as<bf16>(), {a, b, a_log, dt_bias}, o.as<bf16>(), task % shape.key_heads}.sequence(
            trunk, own, tree);
      }
    });
  });
}

/// Defined in delta_chunks_backward.cc.
void gated_delta_rule_backward(Stream& stream, const Args& args);

}  // namespace delta

void register_delta_chunks(KernelTable& table) {
  table.set("gated_delta_rule", delta::gated_delta_rule);
  table.set("gated_delta_rule_backward", delta::gated_delta_rule_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA

#endif
