// linear_swiglu: y[T,N] = silu(gate)·up of gate = x·W_gateᵀ and up = x·W_upᵀ, each with a LoRA pair of its
// own; all outputs are =. One region computes u of both pairs first; then each task multiplies a block of
// rows by the same panel of both weights. gate and up are rounded to the dtype of x before they are combined,
// so y has the bits of linear, linear, swiglu. linear_swiglu_stack is the same with stacks of pairs.
#include "cpu/gemm/projection.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

/// y, and gate and up where they are given.
template <typename T>
void combine(Stream& stream, const TensorView& x, const Projection<T>& gates, const Projection<T>& ups,
             const TensorView& y, const TensorView& gate, const TensorView& up) {
  const int threads = stream.pool.threads();
  const Rows<T> rows(stream.scratch, x);
  const int64_t buffer_size = gates.buffer_size() + ups.buffer_size();
  T* const buffers = stream.scratch.take<T>(threads * buffer_size);
  const Grid grid(x[0], gates.panels(), threads, !gates.in_place() || !ups.in_place());

  stream.pool.region([&](Worker& worker) {
    if (!rows.in_place()) rows.copy(worker, 0);
    gates.pack(worker, 1);
    ups.pack(worker, 2);
    const bool pairs = gates.has_pair() || ups.has_pair();
    if (pairs || !rows.in_place()) worker.barrier();
    gates.multiply(worker, 3, rows);
    ups.multiply(worker, 4, rows);
    if (pairs) worker.barrier();
    T* const buffer = buffers + worker.index * buffer_size;
    for (int64_t task; (task = worker.next(5)) < grid.tasks();) {
      const int64_t first = grid.first_row(task), last = grid.last_panel(task);
      for (int64_t p = grid.first_panel(task); p < last; p++) {
        const int64_t columns = gates.columns(p);
        const auto gate_panel = gates.panel(p, buffer);
        const auto up_panel = ups.panel(p, buffer + gates.buffer_size());
        each_block(first, grid.last_row(task), [&](int64_t t, int64_t count) {
          alignas(64) float g[kBlockRows * kTileStride], u[kBlockRows * kTileStride];
          alignas(64) T kept_gate[kPanel], kept_up[kPanel];
          const int64_t run = t == first ? last : 0;
          gates.block(count, rows, t, gate_panel, g, run);
          ups.block(count, rows, t, up_panel, u, run);
          for (int64_t i = 0; i < count; i++) {
            const int64_t at = (t + i) * y[1] + p * kPanel;
            T* const out = y.template as<T>() + at;
            T* const out_gate = gate ? gate.template as<T>() + at : kept_gate;
            T* const out_up = up ? up.template as<T>() + at : kept_up;
            each_vector(columns, [&](int64_t j, auto... n) {
              store(out_gate + j, load(g + i * kTileStride + j), n...);
              store(out_up + j, load(u + i * kTileStride + j), n...);
              const vf rounded = load(out_gate + j, n...);
              store(out + j, rounded * sigmoid(rounded) * load(out_up + j, n...), n...);
            });
          }
        });
      }
    }
  });
}

template <typename T>
void with_pairs(Stream& stream, const Args& args) {
  const auto [x, w_gate, w_up, gate_a, gate_b, up_a, up_b, row_ids, positions, y, gate, up, gate_u, up_u] =
      args.tensors<14>();
  const Dropout gate_dropout =
      dropout_of("linear_swiglu", x[0], gate_a, gate_b, row_ids, positions, args.d(2), args.i(3), args.i(4));
  const Dropout up_dropout =
      dropout_of("linear_swiglu", x[0], up_a, up_b, row_ids, positions, args.d(2), args.i(5), args.i(6));
  if ((gate_u && !gate_a) || (up_u && !up_a))
    throw Error("E_SHAPE", "linear_swiglu: gate_u and up_u are the LoRA pairs'; pass a pair or no u");
  const Projection<T> gates(stream, w_gate, gate_a, gate_b, gate_u, x[0], args.f(0), gate_dropout);
  const Projection<T> ups(stream, w_up, up_a, up_b, up_u, x[0], args.f(1), up_dropout);
  combine(stream, x, gates, ups, y, gate, up);
}

template <typename T>
void with_stacks(Stream& stream, const Args& args) {
  const auto [x, w_gate, w_up, adapter, gate_a, gate_b, gate_ranks, gate_scales, up_a, up_b, up_ranks,
              up_scales, y] = args.tensors<13>();
  const Stack gate_stack{gate_a ? adapter : TensorView{}, gate_ranks, gate_scales};
  const Stack up_stack{up_a ? adapter : TensorView{}, up_ranks, up_scales};
  check_stack("linear_swiglu_stack", "gate_", gate_stack, x.dtype, gate_a, gate_b);
  check_stack("linear_swiglu_stack", "up_", up_stack, x.dtype, up_a, up_b);
  const TensorView none;
  const Dropout undropped;
  Projection<T> gates(stream, w_gate, none, none, none, x[0], 1, undropped);
  Projection<T> ups(stream, w_up, none, none, none, x[0], 1, undropped);
  if (gate_stack) gates.add_stack(stream, gate_stack, gate_a, gate_b, x[0]);
  if (up_stack) ups.add_stack(stream, up_stack, up_a, up_b, x[0]);
  combine(stream, x, gates, ups, y, {}, {});
}

void linear_swiglu(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? with_pairs<bf16>(stream, args) : with_pairs<float>(stream, args);
}

void linear_swiglu_stack(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? with_stacks<bf16>(stream, args) : with_stacks<float>(stream, args);
}

}  // namespace

void register_linear_swiglu(KernelTable& table) {
  table.set("linear_swiglu", linear_swiglu);
  table.set("linear_swiglu_stack", linear_swiglu_stack);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
