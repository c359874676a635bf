#include "cuda/runtime/tensor_map.h"

#include <cuda_runtime_api.h>

#include "core/error.h"
#include "cuda/runtime/check.h"

namespace steptrain::cuda {
namespace {

decltype(&cuTensorMapEncodeTiled) encoder() {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    check(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
        "looking up the driver");
#else
    check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result),
          "looking up the driver");
#endif
    if (result != cudaDriverEntryPointSuccess || !found)
      throw Error("E_DEVICE", "the NVIDIA driver has no cuTensorMapEncodeTiled",
                  "install a driver for CUDA 12 or newer");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  return function;
}

}  // namespace

CUtensorMap make_tensor_map(const Stream& stream, const void* data, int64_t rows, int64_t columns,
                            int box_rows) {
  CUtensorMap map{};
  if (stream.measuring) return map;
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t row_bytes[] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult status =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), extents, row_bytes, box,
                steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw Error("E_DEVICE", format("the driver refuses a matrix of %lld x %lld (CUDA error %d)",
                                   static_cast<long long>(rows), static_cast<long long>(columns),
                                   static_cast<int>(status)));
  return map;
}

}  // namespace steptrain::cuda
