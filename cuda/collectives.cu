// What passes between the processes of a job, and the sum of what has come, with the bits of cpu/collectives.cc. Carriers queue
// their copies on the device's stream; a thread of the sum takes one column and keeps its rows in shared memory.
#include "carriers/communicators.h"
#include "core/error.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int kSliceColumns = 128;  // of a block

const steptrain_carrier& carrier_of(const Args& args, int64_t parts, const char* op) {
  const steptrain_carrier& carrier = communicator(args.i(0));
  if (parts != carrier.size)
    throw Error("E_SHAPE",
                format("%s: %lld parts for %d processes", op, static_cast<long long>(parts), carrier.size));
  return carrier;
}

/// Lets what comes next wait for all that travels beside the queue.
void join(Stream& stream) {
  stream.beside->join(stream.stream);
  stream.predecessor->is_kernel = false;  // it must not start early
}

/// The stream on which an op's bytes travel, behind all that was queued before it. The device refuses a capture of these ops.
cudaStream_t way(Stream& stream, const Args& args) {
  if (!args.i(1)) {
    join(stream);
    return stream.stream;
  }
  stream.predecessor->is_kernel = false;
  return stream.beside->after(stream.stream);
}

void all_to_all(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  const auto& carrier = carrier_of(args, x[0], "all_to_all");
  const auto bytes = static_cast<size_t>(x.bytes() / x[0]);
  check_carried(carrier, carrier.all_to_all(carrier.self, x.data, y.data, bytes, way(stream, args)),
                "all_to_all");
}

void all_gather(Stream& stream, const Args& args) {
  const auto [x, y] = args.tensors<2>();
  const auto& carrier = carrier_of(args, y[0], "all_gather");
  const auto bytes = static_cast<size_t>(x.bytes());
  check_carried(carrier, carrier.all_gather(carrier.self, x.data, y.data, bytes, way(stream, args)),
                "all_gather");
}

void arrived(Stream& stream, const Args& args) {
  communicator(args.i(0));
  join(stream);
}

__global__ void __launch_bounds__(kSliceColumns)
    sum_slices_kernel(const float* x, const int32_t* pairs, float* y, int64_t rows, int64_t n,
                      int64_t additions, int64_t root, FaultReporter faults) {
  extern __shared__ float sums[];
  const int64_t column = int64_t{blockIdx.x} * kSliceColumns + threadIdx.x;
  if (column >= n) return;
  float* const own = sums + threadIdx.x;
  for (int64_t r = 0; r < rows; r++) own[r * kSliceColumns] = x[r * n + column];
  for (int64_t p = 0; p < additions; p++) {
    const int32_t into = pairs[2 * p], other = pairs[2 * p + 1];
    if (!index_holds(faults, 1, 2 * p, into, rows) || !index_holds(faults, 1, 2 * p + 1, other, rows)) return;
    own[into * kSliceColumns] += own[other * kSliceColumns];
  }
  y[column] = own[root * kSliceColumns];
}

void sum_slices(Stream& stream, const Args& args) {
  const auto [x, pairs, y] = args.tensors<3>();
  const int64_t rows = x[0], n = x[1], root = args.i(0);
  if (root < 0 || root >= rows) throw Error("E_RANGE", "sum_slices: root is none of the rows");
  const auto shared = rows * kSliceColumns * static_cast<int64_t>(sizeof(float));
  stream.launch(sum_slices_kernel, (n + kSliceColumns - 1) / kSliceColumns, kSliceColumns, shared,
                x.as<float>(), pairs.as<int32_t>(), y.as<float>(), rows, n, pairs[0], root, stream.faults);
}

}  // namespace

void register_collectives(KernelTable& table) {
  table.set("all_to_all", all_to_all);
  table.set("all_gather", all_gather);
  table.set("arrived", arrived);
  table.set("sum_slices", sum_slices);
}

}  // namespace steptrain::cuda
