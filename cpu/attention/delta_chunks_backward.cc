// The backward of the gated delta rule by chunks (delta_chunks.h). A first walk keeps δ of all tokens and the state before every
// chunk of the trunk; the second goes back through the chunks, branches before what they continue, block by block
// (delta_chunks_block.h).
#include "cpu/attention/delta_chunks_block.h"

#if defined(__AVX512BF16__)

namespace steptrain::cpu::STEPTRAIN_ISA::delta {
namespace {

using Each = std::vector<Tiles>;  // of the value heads

/// The memory of one member of the pool.
struct Room {
  Walk trunk, own;
  Tree tree;
  Sums sums;
  RowGradients rows, continued;  // of a block; of the trunk's rows by branches
  std::vector<float*> kept;
  std::vector<Each>
      starts;  // the state before each chunk of the trunk; going back, before those of a branch too
  std::vector<Each> deltas;  // δ of each chunk of the trunk
  Each after, before, branch_after, branch_before;
  const Each branched_deltas, own_states, own_next;

  Room(Memory& memory, const Shape& shape, int64_t longest, bool branched)
      : trunk(memory, shape, true),
        own(memory, shape, true),
        tree(memory, longest, branched),
        sums(memory, shape),
        rows(memory, shape),
        continued(memory, shape),
        branched_deltas(trunk.deltas_of()),
        own_states(own.states()),
        own_next(own.next) {
    const auto each = [&](int64_t rows) {
      Each tiles;
      for (int64_t h = 0; h < shape.group; h++) tiles.push_back(memory.tiles(rows, shape.value_size));
      return tiles;
    };
    for (int64_t h = 0; h < shape.group; h++)
      kept.push_back(memory.take<float>(branched ? longest * shape.value_size : 0));
    // A trunk and a branch together have no more chunks than the sequence, but for the two that they begin.
    for (int64_t i = 0; i < longest / kChunk + 2; i++) {
      starts.push_back(each(shape.key_size));
      deltas.push_back(each(kChunk));
    }
    after = each(shape.key_size), before = each(shape.key_size);
    if (branched) branch_after = each(shape.key_size), branch_before = each(shape.key_size);
  }

  /// Lets branches take places in δ of a chunk of the trunk.
  void branch_from(int64_t m) {
    for (size_t h = 0; h < trunk.heads.size(); h++)
      std::copy_n(deltas[static_cast<size_t>(m)][h].data, kChunk * trunk.heads[h].delta.across * kSide,
                  branched_deltas[h].data);
    trunk.point_deltas(branched_deltas);
  }
};

/// The first walk: δ of all tokens, and the states before the chunks of the trunk.
void walk_forward(const Backward& work, Room& room) {
  const Shape& shape = work.shape;
  const auto remember = [&](Walk& walk, const Rows& path) {
    walk.remember(shape, work.qkv, work.gates, work.key_head, path, false);
  };
  const Tree& tree = room.tree;
  Walk &trunk = room.trunk, &own = room.own;
  trunk.point(room.starts[0]);
  trunk.clear(shape);
  own.point(room.own_states);
  own.next = room.own_next;
  int64_t last = 0;
  for (int64_t m = 0, chunks = tree.chunks(); m < chunks; m++) {
    const auto at = static_cast<size_t>(m);
    const Rows path = tree.chunk(m);
    trunk.point(room.starts[at]);
    trunk.point_deltas(room.deltas[at]);
    trunk.pack(shape);
    if (path.rows > 0) remember(trunk, path);
    if (m + 1 < chunks) trunk.leave(shape, path, room.starts[at + 1]);
    const int64_t first = last;
    while (last < tree.count && tree.branches[last].at / kChunk == m) last++;
    if (last > first) room.branch_from(m);
    for (int64_t b = last - 1; b >= first; b--) {
      const Tree::Branch& branch = tree.branches[b];
      const Rows beginning = tree.beginning(branch);
      remember(trunk, beginning);
      work.keep(trunk, beginning);
      int64_t done = beginning.rows - beginning.from;
      if (done == branch.count) continue;
      trunk.leave(shape, beginning, own.states());
      while (true) {
        const Rows later = tree.later(branch, done);
        own.pack(shape);
        remember(own, later);
        work.keep(own, later);
        done += later.rows;
        if (done == branch.count) break;
        own.leave(shape, later, own.next);
        own.step();
      }
    }
  }
}

/// The states before a block as factors of rows of gradients.
void pack_back(const Shape& shape, Walk& walk) {
  for (Head& head : walk.heads) row_panels(head.state, shape.key_size, shape.value_size, head.panels.high);
}

/// The gradients of a branch; those of the rows that it continues go to `continued`, of the state to `before`.
void branch_back(const Backward& work, Room& room, const Tree::Branch& branch, int64_t m,
                 bool first_of_state) {
  const Shape& shape = work.shape;
  const Tree& tree = room.tree;
  Walk &trunk = room.trunk, &own = room.own;
  const Rows beginning = tree.beginning(branch);
  work.read(trunk, beginning);
  work.recall(trunk, beginning);
  const int64_t begun = beginning.rows - beginning.from;
  const int64_t chunks = (branch.count - begun + kChunk - 1) / kChunk;
  if (chunks > 0) {
    // States after the trunk's chunk m are no longer needed.
    const auto start = [&](int64_t c) -> const Each& { return room.starts[static_cast<size_t>(m + 1 + c)]; };
    const auto read = [&](int64_t c) {
      const Rows path = tree.later(branch, begun + c * kChunk);
      own.point(start(c));
      work.read(own, path);
      work.recall(own, path);
      return path;
    };
    trunk.leave(shape, beginning, start(0));
    for (int64_t c = 0; c + 1 < chunks; c++) {
      const Rows path = read(c);
      own.leave(shape, path, start(c + 1));
    }
    for (int64_t c = chunks - 1; c >= 0; c--) {
      const Rows path = read(c);
      pack_back(shape, own);
      work.block(own, path, c + 1 < chunks ? room.branch_after : Each{}, room.branch_before, room.rows, true,
                 true);
      std::swap(room.branch_after, room.branch_before);
    }
  }
  work.block(trunk, beginning, chunks > 0 ? room.branch_after : Each{}, room.before, room.rows, true,
             first_of_state);
  room.continued.add(shape, room.rows, beginning.from);
}

void walk_back(const Backward& work, Room& room) {
  const Shape& shape = work.shape;
  const Tree& tree = room.tree;
  Walk& trunk = room.trunk;
  int64_t left = tree.count;
  const int64_t chunks = tree.chunks();
  for (int64_t m = chunks - 1; m >= 0; m--) {
    const auto at = static_cast<size_t>(m);
    const Rows path = tree.chunk(m);
    trunk.point(room.starts[at]);
    trunk.point_deltas(room.deltas[at]);
    pack_back(shape, trunk);
    if (path.rows > 0) work.read(trunk, path);
    bool fresh = true;
    for (; left > 0 && tree.branches[left - 1].at / kChunk == m; left--) {
      if (fresh) {
        room.branch_from(m);
        room.continued.clear(shape);
      }
      branch_back(work, room, tree.branches[left - 1], m, fresh);
      fresh = false;
    }
    if (path.rows > 0) {
      if (!fresh) {
        trunk.point_deltas(room.deltas[at]);
        work.read(trunk, path);
      }
      work.block(trunk, path, m + 1 < chunks ? room.after : Each{}, room.before, room.continued, fresh,
                 fresh);
    }
    std::swap(room.after, room.before);
  }
}

}  // namespace

void gated_delta_rule_backward(Stream& stream, const Args& args) {
  const auto [dout, qkv, a, b, a_log, dt_bias, cu, branches, da_log, ddt_bias, dqkv, da, db] =
      args.tensors<13>();
  const Shape shape(qkv, a[1], dout[2], args.i(0), args.i(1));
  if (!shape.fits(qkv.dtype)) return by_tokens("gated_delta_rule_backward", stream, args);
  const Recurrence sequences("gated_delta_rule_backward", qkv[0], cu, branches);
  const int64_t longest = sequences.longest(), tokens = qkv[0];
  Memory counted{nullptr};
  Room(counted, shape, longest, static_cast<bool>(branches));
  char* const scratch = stream.scratch.take<char>(stream.pool.threads() * counted.used);
  float* const drate = stream.scratch.take<float>(2 * tokens * shape.heads);
  float* const dsoft = drate + tokens * shape.heads;
  const bool branched = static_cast<bool>(branches);
  const GateInputs gates{a, b, a_log, dt_bias};
  const TensorView &incoming = dout, &inputs = qkv, &to_qkv = dqkv, &to_a = da, &to_b = db;
  stream.pool.region([&](Worker& worker) {
    Memory memory{scratch + worker.index * counted.used};
    Room room(memory, shape, longest, branched);
    const int64_t tasks = sequences.sequences * shape.key_heads;
    for (int64_t task; (task = worker.next()) < tasks;) {
      const int64_t s = task / shape.key_heads;
      room.tree.read(sequences, s);
      const Backward work{shape,
                          incoming.as<bf16>(),
                          inputs.as<bf16>(),
                          gates,
                          to_qkv.as<bf16>(),
                          to_a.as<bf16>(),
                          to_b.as<bf16>(),
                          drate,
                          dsoft,
                          sequences.begin(s),
                          task % shape.key_heads,
                          room.sums,
                          room.kept};
      walk_forward(work, room);
      walk_back(work, room);
    }
  });
  const auto add = [&](const TensorView& into, const float* from) {
    if (!into) return;
    stream.pool.run(shape.heads, [&](int64_t head) {
      float total = 0;
      for (int64_t t = 0; t < tokens; t++) total += from[t * shape.heads + head];
      into.as<float>()[head] += total;
    });
  };
  add(da_log, drate);
  add(ddt_bias, dsoft);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA::delta

#endif
