// Preloaded: a disk that is full for the files whose path holds NO_SPACE, once NO_SPACE_AFTER bytes (0) have been written to them. A write that crosses
// that is cut short, as on a disk.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace {

std::atomic<ssize_t> left{[] {
  const char* after = getenv("NO_SPACE_AFTER");
  return after ? atol(after) : 0;
}()};

bool is_full(int file) {
  static const char* full = getenv("NO_SPACE");
  if (!full) return false;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = 0;
  return strstr(path, full) != nullptr;
}

// Bytes of `size` that still fit; -1 with errno where none does.
ssize_t room(int file, size_t size) {
  if (size == 0 || !is_full(file)) return static_cast<ssize_t>(size);
  ssize_t fits = std::min(left.load(), static_cast<ssize_t>(size));
  if (fits <= 0) {
    errno = ENOSPC;
    return -1;
  }
  left -= fits;
  return fits;
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t size) {
  static auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  ssize_t fits = room(file, size);
  return fits < 0 ? -1 : real(file, bytes, fits);
}

ssize_t pwrite64(int file, const void* bytes, size_t size, off64_t at) {
  static auto real = next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  ssize_t fits = room(file, size);
  return fits < 0 ? -1 : real(file, bytes, fits, at);
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t at) { return pwrite64(file, bytes, size, at); }

// Only the first part of a list is written, which is as good as any short write.
ssize_t writev(int file, const iovec* parts, int count) {
  static auto real = next<ssize_t (*)(int, const iovec*, int)>("writev");
  if (!is_full(file)) return real(file, parts, count);
  for (int i = 0; i < count; i++)
    if (parts[i].iov_len > 0) return write(file, parts[i].iov_base, parts[i].iov_len);
  return 0;
}
}
