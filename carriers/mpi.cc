// MPI as a plugin: compiled by `steptrain build --mpi` with the mpicxx of this machine, loaded where mpirun has started the
// processes. Parts travel in pieces, whose progress is polled: a call that waits for a lost process can be cancelled, and one
// that waits for a slow one burns no core.
// Without the C++ interface of old versions.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "carriers/carrier.h"

namespace {

constexpr size_t kPiece = size_t{4} << 20;
/// Looks at what is under way before it sleeps between two of them.
constexpr int kSpins = 200;
constexpr std::chrono::microseconds kSleep{50};

struct Mpi {
  int rank = 0, size = 1;
  std::atomic<bool> cancelled{false};
  std::string error;

  int failed(int code, const char* what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    error = std::string(what) + ": " + text;
    return 1;
  }

  int wait(std::vector<MPI_Request>& requests) {
    for (int done = 0, spins = 0;; spins++) {
      const int code =
          MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
      if (code != MPI_SUCCESS) return failed(code, "MPI_Testall");
      if (done) return 0;
      if (cancelled) {
        error = "it was cancelled, since a process of the job was lost";
        return 1;
      }
      if (spins > kSpins) std::this_thread::sleep_for(kSleep);
    }
  }

  /// Sends `from[r]` to each other rank r, and receives what it sends into `to[r]`.
  int exchange(const steptrain_part* from, const steptrain_part* to) {
    size_t longest = 0;
    for (int r = 0; r < size; r++)
      if (r != rank) longest = std::max({longest, from[r].bytes, to[r].bytes});
    std::vector<MPI_Request> requests;
    for (size_t begin = 0; begin < longest; begin += kPiece) {
      requests.clear();
      for (int r = 0; r < size; r++) {
        if (r == rank) continue;
        const auto add = [&](const steptrain_part& part, auto call) {
          if (begin >= part.bytes) return MPI_SUCCESS;
          const int count = static_cast<int>(std::min(kPiece, part.bytes - begin));
          requests.emplace_back();
          return call(static_cast<char*>(part.data) + begin, count, MPI_BYTE, r, 0, MPI_COMM_WORLD,
                      &requests.back());
        };
        if (const int code = add(to[r], MPI_Irecv)) return failed(code, "MPI_Irecv");
        if (const int code = add(from[r], MPI_Isend)) return failed(code, "MPI_Isend");
      }
      if (wait(requests) != 0) return 1;
    }
    return 0;
  }

  /// Sends `from + r·step` to each other rank r, and receives its bytes into `to + r·bytes`.
  int all(const char* from, size_t step, char* to, size_t bytes) {
    std::vector<steptrain_part> out(static_cast<size_t>(size)), in(out);
    for (size_t r = 0; r < out.size(); r++) {
      out[r] = {const_cast<char*>(from) + r * step, bytes};
      in[r] = {to + r * bytes, bytes};
    }
    const auto own = static_cast<size_t>(rank);
    if (bytes > 0) std::memmove(in[own].data, out[own].data, bytes);
    return exchange(out.data(), in.data());
  }

  int refused(void* stream) {
    if (!stream) return 0;
    error = "the MPI plugin carries host memory alone; on a GPU take nccl or tcp";
    return 1;
  }
};

Mpi& of(void* self) {
  return *static_cast<Mpi*>(self);
}

int all_to_all(void* self, const void* from, void* to, size_t bytes, void* stream) {
  if (of(self).refused(stream)) return 1;
  return of(self).all(static_cast<const char*>(from), bytes, static_cast<char*>(to), bytes);
}

int all_gather(void* self, const void* from, void* to, size_t bytes, void* stream) {
  if (of(self).refused(stream)) return 1;
  return of(self).all(static_cast<const char*>(from), 0, static_cast<char*>(to), bytes);
}

int exchange(void* self, const steptrain_part* from, const steptrain_part* to) {
  return of(self).exchange(from, to);
}

void cancel(void* self) {
  of(self).cancelled = true;
}

void close(void* self) {
  // After a loss MPI_Finalize would wait for ever.
  if (!of(self).cancelled) MPI_Finalize();
  delete static_cast<Mpi*>(self);
}

const char* error_of(void* self) {
  return of(self).error.c_str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int steptrain_open_carrier(steptrain_carrier* carrier,
                                                                             char* error, size_t size) {
  int level = 0;
  // The thread that opens is not that which calls afterwards, one after the other.
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS ||
      level < MPI_THREAD_SERIALIZED) {
    std::snprintf(error, size, "MPI gives thread level %d, and steptrain calls it from several threads (%d)",
                  level, MPI_THREAD_SERIALIZED);
    return 1;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  auto* mpi = new Mpi;
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &mpi->size);
  *carrier = {STEPTRAIN_CARRIER_VERSION,
              mpi->rank,
              mpi->size,
              mpi,
              all_to_all,
              all_gather,
              exchange,
              cancel,
              close,
              error_of};
  return 0;
}
