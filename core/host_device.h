// Marks what both a host compiler and nvcc compile, for the processor and for the GPU.
#pragma once

#ifdef __CUDACC__
#define STEPTRAIN_HOST_DEVICE __host__ __device__
#else
#define STEPTRAIN_HOST_DEVICE
#endif
