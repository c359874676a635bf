#!/bin/sh
# Builds build/Release/steptrain.node with CMake, nvcc and the headers in node_modules: no cmake-js, no network. For
# machines where the addon that came along does not load; elsewhere scripts/build.mjs does it.
# STEPTRAIN_CUDA_ARCHS: 80, 90a or both; default: what the GPU here needs.
set -eu
cd "$(dirname "$0")/../.."
command -v cmake > /dev/null || { echo "gpu-check: no cmake on PATH" >&2; exit 1; }
nvcc=$(command -v nvcc || ls "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc") || { echo "gpu-check: no nvcc found" >&2; exit 1; }
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 || true)
case $capability in
  9.0) own=90a ;;
  8.*) own=80 ;;
  *) own='80;90a' ;;
esac
launcher=
command -v ccache > /dev/null && launcher='-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache'
log=build/gpu-build.log
mkdir -p build/Release
# The flags are those of cmake-js.
{
  cmake -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-DBUILDING_NODE_EXTENSION $launcher \
    -DCMAKE_JS_INC="$PWD/node_modules/node-api-headers/include" -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$PWD/build/Release" \
    -DSTEPTRAIN_CUDA=ON -DSTEPTRAIN_CUDA_ARCHS="${STEPTRAIN_CUDA_ARCHS:-$own}" -DCMAKE_CUDA_COMPILER="$nvcc" &&
    cmake --build build/gpu --parallel "$(nproc)"
} > "$log" 2>&1 || {
  tail -n 30 "$log"
  exit 1
}
