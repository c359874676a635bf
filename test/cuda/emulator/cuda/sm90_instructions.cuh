// The emulator's twin of cuda/sm90_instructions.cuh, after the PTX ISA's description of each instruction.
#pragma once

#include <cuda.h>

#include <cmath>
#include <vector>

#include "cuda/fragments.h"
#include "cuda/instructions.cuh"

namespace steptrain::cuda {

using Barrier = uint64_t;

inline void mbarrier_init(Barrier* barrier, uint32_t arrivals) {
  emulator::mbarrier_init(barrier, arrivals);
}
inline void fence_barrier_init() {
  emulator::fence_barrier_init();
}
inline void mbarrier_arrive(Barrier* barrier) {
  emulator::mbarrier_arrive(barrier, 0);
}
inline void mbarrier_expect_tx(Barrier* barrier, uint32_t bytes) {
  emulator::mbarrier_arrive(barrier, bytes);
}
inline void mbarrier_wait(Barrier* barrier, uint32_t parity) {
  emulator::mbarrier_wait(barrier, parity);
}

/// The 128-byte swizzle: bits 4 to 6 of an address in shared memory are permuted by bits 7 to 9.
inline int64_t swizzled(int64_t address) {
  return address ^ (address >> 7 & 7) << 4;
}

inline void prefetch_map(const CUtensorMap*) {}
inline void tma_load(void* to, const CUtensorMap* matrix, int32_t row, int32_t column, Barrier* barrier) {
  const int64_t base = static_cast<char*>(to) - emulator::shared_base();
  if (base % 1024 != 0) emulator::forbid("a box that is not 1024-byte aligned");
  emulator::start_box(to, barrier, matrix->box_rows * matrix->box_columns * 2, [=, map = *matrix] {
    for (int64_t r = 0; r < map.box_rows; r++) {
      for (int64_t c = 0; c < map.box_columns; c++) {
        const int64_t from_row = row + r, from_column = column + c;
        const bool inside = from_row >= 0 && from_row < map.rows && from_column >= 0 && from_column < map.columns;
        const uint16_t element = inside ? map.data[from_row * map.columns + from_column] : 0;
        std::memcpy(emulator::shared_base() + swizzled(base + r * 128 + c * 2), &element, 2);
      }
    }
  });
}

/// Register i of lane l is row l/4, columns 2(l%4) and 2(l%4)+1 of matrix i,
/// whose row l/4 is where lane 8i + l/4 says.
inline void stmatrix(void* row, const uint32_t (&r)[4]) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) emulator::forbid("stmatrix to a row that is not 16-byte aligned");
  char* const mine = static_cast<char*>(row);
  const auto& all = emulator::exchange("stmatrix", &mine, sizeof mine);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; i++)
    std::memcpy(emulator::lane_value<char*>(all, 8 * i + lane / 4) + lane % 4 * 4, &r[i], 4);
}

inline void tma_store(const CUtensorMap* matrix, int32_t row, int32_t column, const void* from) {
  const int64_t base = static_cast<const char*>(from) - emulator::shared_base();
  if (base % 1024 != 0) emulator::forbid("a box that is not 1024-byte aligned");
  emulator::start_store(from, matrix->box_rows * matrix->box_columns * 2, [=, map = *matrix](const char* box) {
    for (int64_t r = 0; r < map.box_rows; r++) {
      for (int64_t c = 0; c < map.box_columns; c++) {
        const int64_t to_row = row + r, to_column = column + c;
        if (to_row < 0 || to_row >= map.rows || to_column < 0 || to_column >= map.columns) continue;
        // The bits that the permutation uses are 0 in the box's address.
        std::memcpy(const_cast<uint16_t*>(map.data) + to_row * map.columns + to_column,
                    box + swizzled(r * 128 + c * 2), 2);
      }
    }
  });
}
inline void tma_store_commit() {
  emulator::tma_store_commit();
}
template <int pending>
void tma_store_wait_read() {
  emulator::tma_store_wait_read(pending);
}

inline void bulk_store(float* to, const void* from, uint32_t bytes) {
  emulator::start_store(from, bytes, [=](const char* copied) { std::memcpy(to, copied, bytes); });
}
inline void bulk_add(float* to, const void* from, uint32_t bytes) {
  emulator::start_store(from, bytes, [=](const char* copied) {
    for (uint32_t i = 0; i < bytes / 4; i++) {
      float value;
      std::memcpy(&value, copied + 4 * i, 4);
      to[i] += value;
    }
  });
}
template <int pending>
void bulk_wait() {
  emulator::tma_store_wait_read(pending);
}

inline bool has_count(const uint32_t* count, uint32_t wanted) {
  return *count == wanted;
}
inline void wait_for_count(const uint32_t* count, uint32_t wanted) {
  emulator::await_count(count, wanted);
}
inline void store_release(uint32_t* count, uint32_t value) {
  emulator::release_count(count, value);
}

inline void load_where(bool taken, const float4* from, float& a, float& b, float& c, float& d) {
  if (taken) a = from->x, b = from->y, c = from->z, d = from->w;
}

inline uint64_t matrix_descriptor(const void* tile, uint32_t across) {
  return descriptor_at(static_cast<uint32_t>(static_cast<const char*>(tile) - emulator::shared_base()), across);
}

/// Like all of wgmma, by whole warps together.
inline void wgmma_fence() {
  emulator::exchange("wgmma.fence", nullptr, 0);
  emulator::wgmma_fence();
}
inline void wgmma_commit() {
  emulator::wgmma_commit();
}
template <int pending>
void wgmma_wait() {
  emulator::wgmma_wait(pending);
}
template <typename T, int n>
void pin(T (&)[n]) {}

/// The place in shared memory of element (outer, depth) of a descriptor's factor, by the canonical layouts of the
/// PTX ISA for bf16 with the 128-byte swizzle.
inline int64_t factor_address(uint64_t descriptor, bool across, int outer, int depth) {
  const int64_t start = static_cast<int64_t>(descriptor & 0x3fff) * 16;
  const int64_t leading = static_cast<int64_t>(descriptor >> 16 & 0x3fff) * 16,
                stride = static_cast<int64_t>(descriptor >> 32 & 0x3fff) * 16;
  if (descriptor >> 62 != 1) emulator::forbid("a descriptor without the 128-byte swizzle");
  const int64_t at = across ? outer / 64 * leading + outer % 64 * 2 + depth / 8 * stride + depth % 8 * 128
                            : outer / 8 * stride + outer % 8 * 128 + depth * 2;
  return swizzled(start + at);
}
/// Reads `outer` rows from `first` of a factor by 16 of the depth, to steps of the two extents, and notes what it read.
__attribute__((no_sanitize_address)) inline void read_factor(emulator::Factors& factors, uint64_t descriptor, bool across,
                                                             int first, int outer, float* to, int outer_step,
                                                             int depth_step) {
  for (int chunk = 0; chunk < 2 * outer; chunk++) {
    // Eight elements side by side: of the depth, or of the outer extent where the rows are the depth.
    const int at = across ? chunk / 16 * 8 : chunk / 2, depth = across ? chunk % 16 : chunk % 2 * 8;
    uint16_t bits[8];
    const char* const from = emulator::shared_base() + factor_address(descriptor, across, first + at, depth);
    emulator::read_chunk(factors, from);
    std::memcpy(bits, from, sizeof bits);
    for (int i = 0; i < 8; i++) {
      const int own = across ? at + i : at, k = across ? depth : depth + i;
      to[own * outer_step + k * depth_step] = __uint_as_float(static_cast<uint32_t>(bits[i]) << 16);
    }
  }
}

/// The descriptors of a product, which all lanes of a warp share.
struct Descriptors {
  uint64_t a, b;
};
inline void agree(const char* what, const Descriptors& own) {
  const auto& all = emulator::exchange(what, &own, sizeof own);
  for (int lane = 0; lane < emulator::kLanes; lane++) {
    const auto other = emulator::lane_value<Descriptors>(all, lane);
    if (other.a != own.a || other.b != own.b) emulator::forbid("lanes of a warp with different factors");
  }
}

/// Sums the products of a step in descending order, mma in ascending order: PTX promises neither, so nothing may
/// rely on a row having the same bits from both.
template <int kSums>
__attribute__((no_sanitize_address)) void add_product(float* sums, const emulator::Factors& factors, int lane) {
  for (int half = 0; half < 2; half++) {
    const float* const x = factors.a[lane / 4 + 8 * half];
    for (int j = 0; j < kSums / 4; j++)
      for (int e = 0; e < 2; e++) {
        float sum = sums[4 * j + 2 * half + e];
        const float* const y = factors.b.data() + 8 * j + lane % 4 * 2 + e;
        for (int k = 16; k-- > 0;) sum = std::fma(x[k], y[k * 2 * kSums], sum);
        sums[4 * j + 2 * half + e] = sum;
      }
  }
}

template <bool kMnMajorA, bool kMnMajorB, bool kFresh = false, int kSums>
void wgmma(float (&d)[kSums], uint64_t a, uint64_t b) {
  agree("wgmma", {a, b});
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32 % 4);
  auto factors = emulator::factors_of([&](emulator::Factors& made) {
    made.b.resize(16 * 2 * kSums);
    read_factor(made, a, kMnMajorA, 16 * warp, 16, made.a[0], 16, 1);
    read_factor(made, b, kMnMajorB, 0, 2 * kSums, made.b.data(), 1, 2 * kSums);
  });
  emulator::start_product(d, kSums, kFresh, factors,
                          [lane, of = factors.get()](float* sums) { add_product<kSums>(sums, *of, lane); });
}

template <int kSums>
void wgmma_from_registers(float (&d)[kSums], const uint32_t (&a)[4], uint64_t b) {
  agree("wgmma, a in registers", {0, b});
  struct Fragment {
    uint32_t a[4];
  } mine = {{a[0], a[1], a[2], a[3]}};
  const auto& all = emulator::exchange("its a", &mine, sizeof mine);
  const int lane = static_cast<int>(threadIdx.x % 32);
  auto factors = emulator::factors_of([&](emulator::Factors& made) {
    made.b.resize(16 * 2 * kSums);
    for (int row = 0; row < 16; row++)
      for (int k = 0; k < 16; k++) {
        // As mma's a: register 2·(k ≥ 8) + (row ≥ 8), neighbours in one.
        const auto from = emulator::lane_value<Fragment>(all, row % 8 * 4 + k % 8 / 2);
        made.a[row][k] = half_of(from.a[k / 8 * 2 + row / 8], k % 2);
      }
    read_factor(made, b, true, 0, 2 * kSums, made.b.data(), 1, 2 * kSums);
  });
  const uint32_t* const held = a;
  emulator::start_product(d, kSums, false, factors, [=, of = factors.get()](float* sums) {
    // The product reads them until it has been waited for.
    if (std::memcmp(held, mine.a, sizeof mine) != 0)
      emulator::forbid("registers of a factor that change before the product is waited for");
    add_product<kSums>(sums, *of, lane);
  });
}

inline void fence_proxy_async() {
  emulator::fence_proxy_async();
}
inline void fence_proxy_async_global() {}
inline void warpgroup_barrier(int id) {
  emulator::warpgroup_barrier(id, 128);
}
inline void named_barrier_sync(int id) {
  emulator::warpgroup_barrier(id, 256);
}
inline void named_barrier_arrive(int id) {
  emulator::named_barrier_arrive(id, 256);
}

template <int registers>
void shrink_registers() {
  emulator::set_registers(registers);
}
template <int registers>
void grow_registers() {
  emulator::set_registers(registers);
}

}  // namespace steptrain::cuda
