// Prints as JSON where tensor cores, ldmatrix, stmatrix and TMA read and write elements, by the formulas of cuda/ and by
// the emulator, under the names of test/golden/cuda/layouts.json. The emulator's build.mjs builds it.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "cuda/attention/sm90_tiles.cuh"
#include "cuda/attention/tile.cuh"
#include "cuda/gemm/factor.cuh"

namespace steptrain::cuda {
namespace {

using hopper::BoxTile;
using Numbers = std::vector<int64_t>;
using Table = std::vector<Numbers>;

std::map<std::string, std::map<std::string, std::string>> found;

std::string json(const Numbers& numbers) {
  std::string text = "[";
  for (const int64_t n : numbers) text += (text.size() > 1 ? "," : "") + std::to_string(n);
  return text + "]";
}
std::string json(const Table& table) {
  std::string text = "[";
  for (const Numbers& row : table) text += (text.size() > 1 ? "," : "") + json(row);
  return text + "]";
}
/// Row and column of each value, one after another.
std::string json_pairs(const Table& table) {
  std::string text = "[";
  for (const Numbers& row : table) {
    text += text.size() > 1 ? ",[" : "[";
    for (size_t i = 0; i < row.size(); i += 2)
      text += (i > 0 ? ",[" : "[") + std::to_string(row[i]) + "," + std::to_string(row[i + 1]) + "]";
    text += "]";
  }
  return text + "]";
}

/// Runs `body` on one block.
void run(int threads, std::function<void()> body) {
  static cudaStream_t stream = [] {
    cudaStream_t made;
    cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    return made;
  }();
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = 200 << 10;
  config.stream = stream;
  emulator::launch(config, std::move(body));
  cudaStreamSynchronize(stream);
}

Table table(int rows, int columns) {
  return Table(static_cast<size_t>(rows), Numbers(static_cast<size_t>(columns), -1));
}
int64_t& at(Table& t, int row, int column) {
  return t[static_cast<size_t>(row)][static_cast<size_t>(column)];
}

float from_bits(uint32_t pair, int half) {
  return __uint_as_float(half ? pair & 0xffff0000u : pair << 16);
}

/// Where TMA leaves the elements of a matrix [rows, columns] in shared memory, box by box of 64 columns.
Table boxed(int rows, int columns) {
  std::vector<uint16_t> elements(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < elements.size(); i++) elements[i] = static_cast<uint16_t>(i);
  const CUtensorMap map{elements.data(), rows, columns, static_cast<uint32_t>(rows), 64, {}};
  Table where = table(rows, columns);
  run(32, [&] {
    static Barrier barrier;
    char* const tile = dynamic_shared();
    if (threadIdx.x != 0) return;
    mbarrier_init(&barrier, 1);
    fence_barrier_init();
    mbarrier_expect_tx(&barrier, static_cast<uint32_t>(rows * columns * 2));
    for (int box = 0; box < columns / 64; box++) tma_load(tile + box * rows * 128, &map, 0, box * 64, &barrier);
    mbarrier_wait(&barrier, 0);
    for (int i = 0; i < rows * columns; i++) {
      uint16_t element;
      std::memcpy(&element, tile + 2 * i, 2);
      at(where, element / columns, element % columns) = 2 * i;
    }
  });
  return where;
}

template <int kRows, int kDepth>
void k_major() {
  using Tile = BoxTile<kRows, kDepth>;
  char* const tile = emulator::shared_base();
  Table by_tile = table(kRows, kDepth), by_descriptor = table(kRows, kDepth);
  for (int r = 0; r < kRows; r++)
    for (int d = 0; d < kDepth; d++) {
      at(by_tile, r, d) = Tile::at(tile, r, d / 8) - tile + d % 8 * 2;
      at(by_descriptor, r, d) = factor_address(Tile::k_major(tile, r / 64 * 64, d / 16 * 16), false, r % 64, d % 16);
    }
  auto& of = found[format("k_major_sw128_%dx%d_bytes", kRows, kDepth)];
  of["BoxTile::at"] = json(by_tile);
  of["BoxTile::k_major"] = json(by_descriptor);
  of["tma_load"] = json(boxed(kRows, kDepth));
}

template <int kOuter, int kDepth>
void mn_major() {
  using Tile = BoxTile<kDepth, kOuter>;
  char* const tile = emulator::shared_base();
  const Table left = boxed(kDepth, kOuter);
  Table by_tile = table(kOuter, kDepth), by_descriptor = by_tile, by_copy = by_tile;
  for (int o = 0; o < kOuter; o++)
    for (int d = 0; d < kDepth; d++) {
      at(by_tile, o, d) = Tile::at(tile, d, o / 8) - tile + o % 8 * 2;
      at(by_descriptor, o, d) = factor_address(Tile::mn_major(tile, d / 16 * 16), true, o, d % 16);
      at(by_copy, o, d) = left[static_cast<size_t>(d)][static_cast<size_t>(o)];
    }
  auto& of = found[format("mn_major_sw128_%dx%d_bytes", kOuter, kDepth)];
  of["BoxTile::at"] = json(by_tile);
  of["BoxTile::mn_major"] = json(by_descriptor);
  of["tma_load"] = json(by_copy);
}

/// Writes value(row, depth) into a K-major tile.
template <typename Tile, typename F>
void put(char* tile, int rows, int depth, F value) {
  for (int r = 0; r < rows; r++)
    for (int d = 0; d < depth; d++) {
      const uint16_t bits = round_to_bf16(value(r, d));
      std::memcpy(Tile::at(tile, r, d / 8) + d % 8 * 2, &bits, 2);
    }
}

template <int kColumns>
void sums_of_a_warpgroup() {
  Table formula = table(128, kColumns), product = table(128, kColumns);
  for (int t = 0; t < 128; t++)
    for (int i = 0; i < kColumns / 2; i++) {
      at(formula, t, 2 * i) = t / 32 * 16 + fragment_row(t % 32, i);
      at(formula, t, 2 * i + 1) = fragment_column(t % 32, i);
    }
  // The place of each sum by a thread of a product.
  Table named = table(128, kColumns);
  for (int t = 0; t < 128; t++) {
    TensorSums<2, kColumns / 8, 1> sums{};
    sums.first_row = t / 32 * 16 + fragment_row(t % 32, 0);
    sums.first_column = fragment_column(t % 32, 0);
    for (int half = 0; half < 2; half++)
      for (int pair = 0; pair < kColumns / 8; pair++)
        for (int e = 0; e < 2; e++) {
          const auto i = static_cast<int>(&sums.at(half, pair, e) - sums.v);
          at(named, t, 2 * i) = sums.row(half);
          at(named, t, 2 * i + 1) = sums.column(pair) + e;
        }
  }
  // The places of a·bᵀ, with the rows of a, then those of b, as values at depth 0.
  for (int which = 0; which < 2; which++)
    run(128, [&] {
      using A = BoxTile<64, 64>;
      using B = BoxTile<kColumns, 64>;
      char* const a = dynamic_shared();
      char* const b = a + A::kBytes;
      if (threadIdx.x == 0) {
        put<A>(a, 64, 64, [&](int r, int d) { return d > 0 ? 0.0f : which == 0 ? static_cast<float>(r) : 1.0f; });
        put<B>(b, kColumns, 64, [&](int r, int d) { return d > 0 ? 0.0f : which == 1 ? static_cast<float>(r) : 1.0f; });
      }
      __syncthreads();
      float d[kColumns / 2] = {};
      wgmma_fence();
      wgmma<false, false>(d, A::k_major(a, 0, 0), B::k_major(b, 0, 0));
      wgmma_commit();
      wgmma_wait<0>();
      for (int i = 0; i < kColumns / 2; i++)
        at(product, static_cast<int>(threadIdx.x), 2 * i + which) = static_cast<int64_t>(d[i]);
    });
  auto& of = found[format("wgmma_m64n%d_d_row_column", kColumns)];
  of["fragment_row, fragment_column"] = json_pairs(formula);
  of["TensorSums"] = json_pairs(named);
  of["wgmma"] = json_pairs(product);
}

void factor_in_registers() {
  // The result of RegisterFactor for sums whose values are their rows, then their columns.
  Table held = table(128, 16);
  for (int t = 0; t < 128; t++)
    for (int which = 0; which < 2; which++) {
      float sums[8];
      for (int i = 0; i < 8; i++)
        sums[i] = static_cast<float>(which ? fragment_column(t % 32, i) : t / 32 * 16 + fragment_row(t % 32, i));
      hopper::RegisterFactor<8> of;
      of.round(sums);
      for (int v = 0; v < 8; v++)
        at(held, t, 2 * v + which) = static_cast<int64_t>(from_bits(of.a[0][v / 2], v % 2));
    }
  // The product with the identity shows the thread and register of each element.
  Table multiplied = table(128, 16), thread = table(64, 16), value = table(64, 16);
  for (int which = 0; which < 2; which++)
    run(128, [&] {
      using B = BoxTile<16, 64>;
      char* const b = dynamic_shared();
      if (threadIdx.x == 0) put<B>(b, 16, 64, [](int k, int n) { return k == n ? 1.0f : 0.0f; });
      __syncthreads();
      const int t = static_cast<int>(threadIdx.x);
      uint32_t a[4];
      for (int i = 0; i < 4; i++)
        a[i] = which ? round_to_bf16_pair(static_cast<float>(2 * i), static_cast<float>(2 * i + 1))
                     : round_to_bf16_pair(static_cast<float>(t), static_cast<float>(t));
      float d[32] = {};
      wgmma_fence();
      wgmma_from_registers(d, a, B::mn_major(b, 0));
      wgmma_commit();
      wgmma_wait<0>();
      for (int i = 0; i < 8; i++)
        at(which ? value : thread, t / 32 * 16 + fragment_row(t % 32, i), fragment_column(t % 32, i)) =
            static_cast<int64_t>(d[i]);
    });
  for (int row = 0; row < 64; row++)
    for (int depth = 0; depth < 16; depth++) {
      const auto t = static_cast<int>(at(thread, row, depth)), v = static_cast<int>(at(value, row, depth));
      at(multiplied, t, 2 * v) = row;
      at(multiplied, t, 2 * v + 1) = depth;
    }
  auto& of = found["wgmma_a_registers_row_depth"];
  of["RegisterFactor::round"] = json_pairs(held);
  of["wgmma_from_registers"] = json_pairs(multiplied);
}

/// The values that `load(registers, tile, lane)` reads from a tile of outer indices, then of depths.
template <typename Fill, typename Load>
std::string fragments(int values, Fill fill, Load load) {
  Table t = table(32, 2 * values);
  for (int which = 0; which < 2; which++)
    run(32, [&] {
      char* const tile = dynamic_shared();
      if (threadIdx.x == 0) fill(tile, which);
      __syncthreads();
      const int lane = static_cast<int>(threadIdx.x);
      uint32_t r[4];
      load(r, tile, lane);
      for (int v = 0; v < values; v++)
        at(t, lane, 2 * v + which) = static_cast<int64_t>(from_bits(r[v / 2], v % 2));
    });
  return json_pairs(t);
}

template <bool kKMajor>
void fragments_of_factors(const char* how) {
  using Tile = FactorTile<16, 16, kKMajor, 32>;
  const auto fill = [](char* tile, int which) {
    put<Tile>(tile, 16, 16, [&](int row, int column) {
      const int outer = kKMajor ? row : column, depth = kKMajor ? column : row;
      return static_cast<float>(which ? depth : outer);
    });
  };
  found["mma_m16n8k16_a_row_depth"][how] = fragments(
      8, fill, [](uint32_t(&r)[4], char* tile, int lane) { load_a<Tile, kKMajor>(r, tile, 0, 0, lane); });
  found["mma_m16n8k16_b_column_depth"][how] = fragments(
      4, fill, [](uint32_t(&r)[4], char* tile, int lane) { load_b<Tile, kKMajor>(r, tile, 0, 0, lane); });
}

void fragments_of_products() {
  Table formula = table(32, 8), sums = table(32, 8), rounded = table(32, 16);
  using Tile = FactorTile<16, 16, true, 32>;
  for (int lane = 0; lane < 32; lane++) {
    for (int i = 0; i < 4; i++) {
      at(formula, lane, 2 * i) = fragment_row(lane, i);
      at(formula, lane, 2 * i + 1) = fragment_column(lane, i);
    }
    for (int which = 0; which < 2; which++) {
      float d[2][4];
      for (int i = 0; i < 8; i++)
        d[i / 4][i % 4] = static_cast<float>(which ? fragment_column(lane, i) : fragment_row(lane, i));
      uint32_t a[4];
      round_to_a(a, d, 0);
      for (int v = 0; v < 8; v++)
        at(rounded, lane, 2 * v + which) = static_cast<int64_t>(from_bits(a[v / 2], v % 2));
    }
  }
  for (int which = 0; which < 2; which++)
    run(32, [&] {
      char* const a_tile = dynamic_shared();
      char* const b_tile = a_tile + Tile::kBytes;
      if (threadIdx.x == 0) {
        put<Tile>(a_tile, 16, 16, [&](int r, int d) { return d > 0 ? 0.0f : which ? 1.0f : static_cast<float>(r); });
        put<Tile>(b_tile, 16, 16, [&](int r, int d) { return d > 0 ? 0.0f : which ? static_cast<float>(r) : 1.0f; });
      }
      __syncthreads();
      const int lane = static_cast<int>(threadIdx.x);
      uint32_t a[4], b[4];
      load_a<Tile, true>(a, a_tile, 0, 0, lane);
      load_b<Tile, true>(b, b_tile, 0, 0, lane);
      float d[4] = {};
      mma(d, a, b[0], b[1]);
      for (int i = 0; i < 4; i++) at(sums, lane, 2 * i + which) = static_cast<int64_t>(d[i]);
    });
  found["mma_m16n8k16_d_row_column"]["fragment_row, fragment_column"] = json_pairs(formula);
  found["mma_m16n8k16_d_row_column"]["mma"] = json_pairs(sums);
  found["mma_m16n8k16_a_row_depth"]["round_to_a"] = json_pairs(rounded);
}

/// Four 8×8 matrices, row by row: the elements of each lane after a load, or their places in a store.
void matrices() {
  Table plain = table(32, 8), transposed = plain, stored = plain;
  run(32, [&] {
    auto* const elements = reinterpret_cast<uint16_t*>(dynamic_shared());
    const int lane = static_cast<int>(threadIdx.x);
    if (lane == 0)
      for (int i = 0; i < 256; i++) elements[i] = static_cast<uint16_t>(i);
    __syncthreads();
    uint32_t r[2][4];
    ldmatrix(r[0], elements + 8 * lane);
    ldmatrix_trans(r[1], elements + 8 * lane);
    for (int v = 0; v < 8; v++) {
      at(plain, lane, v) = r[0][v / 2] >> 16 * (v % 2) & 0xffff;
      at(transposed, lane, v) = r[1][v / 2] >> 16 * (v % 2) & 0xffff;
    }
    __syncthreads();
    uint32_t own[4];
    for (int i = 0; i < 4; i++)
      own[i] = static_cast<uint32_t>(8 * lane + 2 * i) | static_cast<uint32_t>(8 * lane + 2 * i + 1) << 16;
    stmatrix(elements + 8 * lane, own);
    __syncthreads();
    if (lane == 0)
      for (int i = 0; i < 256; i++) at(stored, elements[i] / 8, elements[i] % 8) = i;
  });
  found["ldmatrix_x4_source_element"]["ldmatrix"] = json(plain);
  found["ldmatrix_x4_trans_source_element"]["ldmatrix_trans"] = json(transposed);
  found["stmatrix_x4_target_element"]["stmatrix"] = json(stored);
}

void print() {
  k_major<64, 64>();
  k_major<128, 64>();
  k_major<64, 128>();
  mn_major<64, 64>();
  mn_major<128, 64>();
  mn_major<64, 128>();
  sums_of_a_warpgroup<64>();
  sums_of_a_warpgroup<128>();
  sums_of_a_warpgroup<256>();
  factor_in_registers();
  fragments_of_factors<true>("load_a or load_b, K-major");
  fragments_of_factors<false>("load_a or load_b, MN-major");
  fragments_of_products();
  matrices();
  char descriptor[32];
  std::snprintf(descriptor, sizeof descriptor, "\"0x%016llx\"",
                static_cast<unsigned long long>(descriptor_at(0x1230, 0x2000)));
  found["descriptor_start_0x1230_leading_0x2000_stride_1024_sw128"]["descriptor_at"] = descriptor;

  const char* between = "{";
  for (const auto& [name, by] : found) {
    std::printf("%s\"%s\":", between, name.c_str());
    const char* separator = "{";
    for (const auto& [who, what] : by) {
      std::printf("%s\"%s\":%s", separator, who.c_str(), what.c_str());
      separator = ",";
    }
    std::printf("}");
    between = ",";
  }
  std::printf("}\n");
}

}  // namespace
}  // namespace steptrain::cuda

int main() {
  // Kernels here have more shared memory than a block of sm_80 may ask for.
  setenv("STEPTRAIN_EMULATED_CAPABILITY", "90", 1);
  steptrain::cuda::print();
}
