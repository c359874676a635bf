# The CUDA device: kernels for each of STEPTRAIN_CUDA_ARCHS (list of compute capabilities, 80 or 90a, say) and PTX
# of compute_80 for whatever is newer. The runtime is linked statically and looks libcuda up when it is first used,
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

# Under STEPTRAIN_STRICT no warnings, and no kernel that spills registers: with the version of nvcc that docs/kernels/cuda.md
# gives the registers of, since each allots them in its own way.
set(STRICT_OPTIONS "")
if(STEPTRAIN_STRICT)
  list(APPEND STRICT_OPTIONS -Werror=all-warnings)
  if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13.0 AND CUDAToolkit_VERSION VERSION_LESS 13.1)
    list(APPEND STRICT_OPTIONS -Xptxas=--warn-on-spills,--warning-as-error)
  endif()
endif()

# Options that every kernel library shares.
function(add_kernels name)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
                        CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  # As on the CPU, contraction is written out where it is wanted, so that elementwise results agree between devices.
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr -Xfatbin=-compress-all -Xcompiler=-Wall,-Wextra,-ffp-contract=off
      ${STRICT_OPTIONS}>)
  target_link_libraries(${name} PRIVATE CUDA::cudart_static)
  target_sources(steptrain PRIVATE $<TARGET_OBJECTS:${name}>)
endfunction()

# Files of many instantiations, and those for Hopper, are compiled alone; the others of a folder as one.
set(ALONE "/(sm90_|backward_bf16|forward_bf16|paged_bf16|portable|attention_paged|product_|skinny|few_rows|linear_)[^/]*\\.cu$")
file(GLOB_RECURSE SM90_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} cuda/sm90_*.cu)
set(CUDA_SOURCES "")
foreach(folder cuda cuda/attention cuda/gemm cuda/head)
  files_of(TOGETHER ${folder} .cu)
  if(NOT folder STREQUAL cuda/head)
    set(LARGE ${TOGETHER})
    list(FILTER LARGE INCLUDE REGEX ${ALONE})
    list(APPEND CUDA_SOURCES ${LARGE})
    list(FILTER TOGETHER EXCLUDE REGEX ${ALONE})
  endif()
  list(REMOVE_ITEM TOGETHER ${SM90_SOURCES})
  string(REPLACE / _ unit ${folder})
  add_unit(CUDA_SOURCES ${unit}.cu ${TOGETHER})
endforeach()
list(REMOVE_ITEM CUDA_SOURCES ${SM90_SOURCES})
files_of(RUNTIME cuda/runtime .cc)
add_unit(CUDA_SOURCES cuda_runtime.cc ${RUNTIME})
file(GLOB HOST CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} cuda/gemm/*.cc cuda/attention/*.cc)
add_unit(CUDA_SOURCES cuda_host.cc ${HOST})
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
