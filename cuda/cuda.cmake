# The CUDA device: kernels for each of STEPTRAIN_CUDA_ARCHS (list of compute capabilities, 80 or 90a, say) and PTX
# of compute_80 for whatever is between or newer. The runtime is linked statically and looks libcuda up when it is first used,
# so that the addon loads on a machine that has neither driver nor GPU.
set(STEPTRAIN_CUDA_ARCHS "80;90a" CACHE STRING "compute capabilities to compile kernels for")
set(CMAKE_CUDA_ARCHITECTURES ${STEPTRAIN_CUDA_ARCHS})
list(TRANSFORM CMAKE_CUDA_ARCHITECTURES APPEND -real)
list(APPEND CMAKE_CUDA_ARCHITECTURES 80-virtual)
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  # CMake before 3.26 does not know that nvcc 12 has it.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit 12.0 REQUIRED)
message(STATUS "steptrain: building with CUDA ${CUDAToolkit_VERSION} for ${STEPTRAIN_CUDA_ARCHS}")

# Under STEPTRAIN_STRICT no warnings, and no kernel of sm_80 and sm_90a that spills registers: with the version of nvcc that
# docs/kernels/cuda.md gives the registers of, since each allots them in its own way. Some kernels spill up to 56 bytes on newer
# GPUs, which a build for those too may therefore do.
set(STRICT_OPTIONS "")
if(STEPTRAIN_STRICT)
  list(APPEND STRICT_OPTIONS -Werror=all-warnings)
  set(OTHER_ARCHS ${STEPTRAIN_CUDA_ARCHS})
  list(REMOVE_ITEM OTHER_ARCHS 80 90a)
  if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13.0 AND CUDAToolkit_VERSION VERSION_LESS 13.1 AND NOT OTHER_ARCHS)
    list(APPEND STRICT_OPTIONS -Xptxas=--warn-on-spills,--warning-as-error)
  endif()
endif()

# By a fifth smaller than what every driver reads; those that run CUDA 13 read it too.
set(COMPRESSION -Xfatbin=-compress-all)
if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13.0)
  set(COMPRESSION --compress-mode=size)
endif()

# Options that every kernel library shares.
function(add_kernels name)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
                        CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  # As on the CPU, contraction is written out where it is wanted, so that elementwise results agree between devices.
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr ${COMPRESSION} -Xcompiler=-Wall,-Wextra,-ffp-contract=off
      ${STRICT_OPTIONS}>)
  target_link_libraries(${name} PRIVATE CUDA::cudart_static)
  target_sources(steptrain PRIVATE $<TARGET_OBJECTS:${name}>)
endfunction()

# Reading CUDA's headers takes seconds, so small files are joined; those of many instantiations are compiled alone.
files_of(FLAT_CUDA cuda .cu)
files_of(ATTENTION_CUDA cuda/attention .cu)
files_of(GEMM_CUDA cuda/gemm .cu)
files_of(HEAD_CUDA cuda/head .cu)
foreach(folder FLAT ATTENTION GEMM HEAD)
  list(APPEND SM90_SOURCES ${${folder}_CUDA})
  list(FILTER ${folder}_CUDA EXCLUDE REGEX "/sm90_[^/]*$")
endforeach()
list(FILTER SM90_SOURCES INCLUDE REGEX "/sm90_[^/]*$")
set(SMALL_ATTENTION ${ATTENTION_CUDA})
list(FILTER SMALL_ATTENTION INCLUDE REGEX "/(attention_backward|cache|disentangled_.*|plan)\\.cu$")
list(REMOVE_ITEM ATTENTION_CUDA ${SMALL_ATTENTION})
files_of(RUNTIME_CUDA cuda/runtime .cc)
files_of(ATTENTION_HOST cuda/attention .cc)
files_of(GEMM_HOST cuda/gemm .cc)
set(CUDA_SOURCES ${ATTENTION_CUDA} ${GEMM_CUDA})
add_unit(CUDA_SOURCES cuda.cu ${FLAT_CUDA})
add_unit(CUDA_SOURCES cuda_attention.cu ${SMALL_ATTENTION})
add_unit(CUDA_SOURCES cuda_head.cu ${HEAD_CUDA})
add_unit(CUDA_SOURCES cuda_runtime.cc ${RUNTIME_CUDA})
add_unit(CUDA_SOURCES cuda_host.cc ${ATTENTION_HOST} ${GEMM_HOST})
add_kernels(cuda_kernels ${CUDA_SOURCES})
if("90a" IN_LIST STEPTRAIN_CUDA_ARCHS)
  # What only Hopper has; chosen at run time.
  add_kernels(cuda_kernels_sm90 ${SM90_SOURCES})
  set_target_properties(cuda_kernels_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real)
  target_compile_definitions(cuda_kernels PRIVATE STEPTRAIN_SM90)
endif()

target_compile_definitions(steptrain PRIVATE STEPTRAIN_CUDA)
target_link_libraries(steptrain PRIVATE CUDA::cudart_static)
set_target_properties(steptrain PROPERTIES LINKER_LANGUAGE CXX CUDA_ARCHITECTURES OFF)
