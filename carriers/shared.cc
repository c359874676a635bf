#include "carriers/shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"

namespace steptrain {
// One unit with the other carriers, whose functions have the same names.
namespace shared {
namespace {

/// Bytes of all rings together, and of one: short enough to stay in the caches of both processes.
constexpr size_t kAll = size_t{32} << 20, kMost = size_t{256} << 10, kLeast = size_t{4} << 10;
/// Bytes after which the other process may begin to read.
constexpr size_t kRun = size_t{64} << 10;
/// Looks at the rings before it sleeps between two looks.
constexpr int kSpins = 200;
constexpr std::chrono::microseconds kSleep{50};

/// How far one process has written bytes for another, and how far that one has read them. A line of the cache each.
struct Marks {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> taken;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes share it");

/// The file: marks of each pair, then the bytes of each ring. The sender counts first.
class Shared {
 public:
  Shared(int rank, int size, char* memory, size_t ring)
      : rank_(static_cast<size_t>(rank)), size_(static_cast<size_t>(size)), memory_(memory), ring_(ring) {}
  ~Shared() { munmap(memory_, bytes_of(size_, ring_)); }

  static size_t ring_of(size_t size) {
    const size_t each = std::min(kMost, kAll / (size * size));
    return std::max(kLeast, each / kLeast * kLeast);
  }
  static size_t bytes_of(size_t size, size_t ring) { return size * size * (sizeof(Marks) + ring); }

  /// Sends `from[r]` to each other rank r, and fills `to[r]` with what it sends.
  int exchange(const steptrain_part* from, const steptrain_part* to) {
    std::vector<size_t> sent(size_, 0), arrived(size_, 0);
    for (int spins = 0;;) {
      size_t moved = 0, left = 0;
      for (size_t r = 0; r < size_; r++) {
        if (r == rank_) continue;
        moved += put(r, from[r], sent[r]) + take(r, to[r], arrived[r]);
        left += from[r].bytes - sent[r] + to[r].bytes - arrived[r];
      }
      if (left == 0) return 0;
      if (cancelled_) {
        error_ = "it was cancelled, since a process of the job was lost";
        return 1;
      }
      if (moved > 0)
        spins = 0;
      else if (++spins > kSpins)
        std::this_thread::sleep_for(kSleep);
    }
  }

  int all_to_all(const char* from, char* to, size_t step, size_t bytes) {
    std::vector<steptrain_part> out(size_), in(size_);
    for (size_t r = 0; r < size_; r++) {
      out[r] = {const_cast<char*>(from) + r * step, bytes};
      in[r] = {to + r * bytes, bytes};
    }
    if (bytes > 0) std::memmove(in[rank_].data, out[rank_].data, bytes);
    return exchange(out.data(), in.data());
  }

  int refused(void* stream) {
    if (!stream) return 0;
    error_ = "shared memory is the host's; on a GPU take nccl or tcp";
    return 1;
  }

  void cancel() { cancelled_ = true; }
  const char* error() const { return error_.c_str(); }

 private:
  Marks& marks(size_t from, size_t to) { return reinterpret_cast<Marks*>(memory_)[from * size_ + to]; }
  char* bytes(size_t from, size_t to) {
    return memory_ + size_ * size_ * sizeof(Marks) + (from * size_ + to) * ring_;
  }

  /// As much as there is room for, at most a run. Returns how much, and adds it to `done`.
  size_t put(size_t to, const steptrain_part& part, size_t& done) {
    if (done == part.bytes) return 0;
    Marks& own = marks(rank_, to);
    const uint64_t written = own.written.load(std::memory_order_relaxed);
    const size_t room = ring_ - static_cast<size_t>(written - own.taken.load(std::memory_order_acquire));
    const size_t count = std::min({room, part.bytes - done, kRun});
    const size_t at = static_cast<size_t>(written % ring_), first = std::min(count, ring_ - at);
    char* const ring = bytes(rank_, to);
    const char* const source = static_cast<const char*>(part.data) + done;
    if (count > 0) {
      std::memcpy(ring + at, source, first);
      std::memcpy(ring, source + first, count - first);
      own.written.store(written + count, std::memory_order_release);
    }
    done += count;
    return count;
  }

  size_t take(size_t from, const steptrain_part& part, size_t& done) {
    if (done == part.bytes) return 0;
    Marks& theirs = marks(from, rank_);
    const uint64_t taken = theirs.taken.load(std::memory_order_relaxed);
    const size_t there = static_cast<size_t>(theirs.written.load(std::memory_order_acquire) - taken);
    const size_t count = std::min({there, part.bytes - done, kRun});
    const size_t at = static_cast<size_t>(taken % ring_), first = std::min(count, ring_ - at);
    const char* const ring = bytes(from, rank_);
    char* const into = static_cast<char*>(part.data) + done;
    if (count > 0) {
      std::memcpy(into, ring + at, first);
      std::memcpy(into + first, ring, count - first);
      theirs.taken.store(taken + count, std::memory_order_release);
    }
    done += count;
    return count;
  }

  size_t rank_, size_;
  char* memory_;
  size_t ring_;
  std::atomic<bool> cancelled_{false};
  std::string error_;
};

Shared& of(void* self) {
  return *static_cast<Shared*>(self);
}

int all_to_all(void* self, const void* from, void* to, size_t bytes, void* stream) {
  if (of(self).refused(stream)) return 1;
  return of(self).all_to_all(static_cast<const char*>(from), static_cast<char*>(to), bytes, bytes);
}

int all_gather(void* self, const void* from, void* to, size_t bytes, void* stream) {
  if (of(self).refused(stream)) return 1;
  return of(self).all_to_all(static_cast<const char*>(from), static_cast<char*>(to), 0, bytes);
}

int exchange(void* self, const steptrain_part* from, const steptrain_part* to) {
  return of(self).exchange(from, to);
}

void cancel(void* self) {
  of(self).cancel();
}

void close(void* self) {
  delete static_cast<Shared*>(self);
}

const char* error_of(void* self) {
  return of(self).error();
}

}  // namespace

static steptrain_carrier open_carrier(const std::string& path, int rank, int size) {
  const size_t ring = Shared::ring_of(static_cast<size_t>(size));
  const size_t bytes = Shared::bytes_of(static_cast<size_t>(size), ring);
  const auto failed = [&](int code) {
    return Error("E_CLUSTER", "the shared memory " + path + " does not open: " + std::strerror(code));
  };
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (rank == 0 ? O_CREAT | O_EXCL : 0), 0600);
  if (file < 0) throw failed(errno);
  int code = 0;
  struct stat about {};
  // All of it now: where memory for it ends later, a process that writes is killed.
  if (rank == 0)
    code = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  else if (fstat(file, &about) != 0 || static_cast<size_t>(about.st_size) != bytes)
    code = EINVAL;
  void* memory = MAP_FAILED;
  if (code == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) code = errno;
  }
  ::close(file);
  if (code != 0) {
    if (rank == 0) unlink(path.c_str());
    throw failed(code);
  }
  auto own = std::make_unique<Shared>(rank, size, static_cast<char*>(memory), ring);
  return {STEPTRAIN_CARRIER_VERSION,
          rank,
          size,
          own.release(),
          all_to_all,
          all_gather,
          exchange,
          cancel,
          close,
          error_of};
}

}  // namespace shared

steptrain_carrier open_shared(const std::string& path, int rank, int size) {
  return shared::open_carrier(path, rank, size);
}

}  // namespace steptrain
