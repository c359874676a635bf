// What passes between the processes of a job, and the sum of what has come. Carriers move bytes; the addition is here, in an
// order that the caller gives, so that its bits depend on no carrier.
#include <algorithm>

#include "carriers/communicators.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

const steptrain_carrier& carrier_of(const Args& args, int64_t parts, const char* op) {
  const steptrain_carrier& carrier = communicator(args.i(0));
  if (parts != carrier.size)
    throw Error("E_SHAPE",
                format("%s: %lld parts for %d processes", op, static_cast<long long>(parts), carrier.size));
  return carrier;
}

using Move = int (*)(void* self, const void* from, void* to, size_t bytes, void* stream);

/// Now, or on the thread beside the queue. A carrier has one call at a time.
void carry(Stream& stream, const Args& args, const steptrain_carrier& carrier, Move move, size_t bytes,
           const char* op) {
  const auto [x, y] = args.tensors<2>();
  const auto moved = [=, from = x.data, to = y.data] {
    check_carried(carrier, move(carrier.self, from, to, bytes, nullptr), op);
  };
  if (args.i(1)) return stream.beside.give(moved);
  stream.beside.wait();
  moved();
}

void all_to_all(Stream& stream, const Args& args) {
  const TensorView& x = args.tensor[0];
  const auto& carrier = carrier_of(args, x[0], "all_to_all");
  carry(stream, args, carrier, carrier.all_to_all, static_cast<size_t>(x.bytes() / x[0]), "all_to_all");
}

void all_gather(Stream& stream, const Args& args) {
  const TensorView &x = args.tensor[0], &y = args.tensor[1];
  const auto& carrier = carrier_of(args, y[0], "all_gather");
  carry(stream, args, carrier, carrier.all_gather, static_cast<size_t>(x.bytes()), "all_gather");
}

void arrived(Stream& stream, const Args& args) {
  communicator(args.i(0));
  stream.beside.wait();
}

/// Elements of a run: R of them are in the cache at a time.
constexpr int64_t kRun = 512;

void sum_slices(Stream& stream, const Args& args) {
  const auto [x, pairs, y] = args.tensors<3>();
  const int64_t rows = x[0], n = x[1], additions = pairs[0], root = args.i(0);
  const auto* order = pairs.as<int32_t>();
  const auto is_row = [&](int64_t row) { return row >= 0 && row < rows; };
  for (int64_t p = 0; p < 2 * additions; p++)
    if (!is_row(order[p]))
      throw Error("E_RANGE", format("sum_slices: row %d of %lld", order[p], static_cast<long long>(rows)));
  if (!is_row(root)) throw Error("E_RANGE", "sum_slices: root is none of the rows");
  const int64_t runs = (n + kRun - 1) / kRun;
  float* const sums = stream.scratch.take<float>(stream.pool.threads() * rows * kRun);
  stream.pool.region([&](Worker& worker) {
    float* const own = sums + worker.index * rows * kRun;
    for (int64_t run; (run = worker.next()) < runs;) {
      const int64_t begin = run * kRun, count = std::min(kRun, n - begin);
      for (int64_t r = 0; r < rows; r++) std::copy_n(x.as<float>() + r * n + begin, count, own + r * kRun);
      for (int64_t p = 0; p < additions; p++) {
        float* const into = own + order[2 * p] * kRun;
        const float* const other = own + order[2 * p + 1] * kRun;
        for (int64_t i = 0; i < count; i++) into[i] += other[i];
      }
      std::copy_n(own + root * kRun, count, y.as<float>() + begin);
    }
  });
}

}  // namespace

void register_collectives(KernelTable& table) {
  table.set("all_to_all", all_to_all);
  table.set("all_gather", all_gather);
  table.set("arrived", arrived);
  table.set("sum_slices", sum_slices);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
