// The plain C interface of what carries bytes among the processes of a job. The addon and the MPI plugin share this file and
// nothing else, so that a plugin may come from another compiler and any MPI.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Grows with every change of this file; a plugin of another number is refused.
#define STEPTRAIN_CARRIER_VERSION 2

/// Bytes in host memory that go to one rank, or come from it.
struct steptrain_part {
  void* data;
  size_t bytes;
};

/// One process's end of a communicator. The collectives are called by one thread at a time, in the same order in every process, and
/// return 0, or something else where `error` says why. They do not return before `to` is filled, unless a stream is given.
struct steptrain_carrier {
  int version;
  int rank, size;
  void* self;
  /// Part r of `from` goes to rank r, and what rank r sent lies in part r of `to`. Parts of `bytes` each.
  int (*all_to_all)(void* self, const void* from, void* to, size_t bytes, void* stream);
  /// `from`, of `bytes`, of every rank, by rank.
  int (*all_gather)(void* self, const void* from, void* to, size_t bytes, void* stream);
  /// `from[r]` goes to each other rank r, and what rank r sends comes into `to[r]`, which has as many bytes. Null where the
  /// carrier has no host memory.
  int (*exchange)(void* self, const struct steptrain_part* from, const struct steptrain_part* to);
  /// From any thread: lets what waits for the others fail, and all that follows.
  void (*cancel)(void* self);
  /// All processes call it, unless one was lost. Nothing is called after it.
  void (*close)(void* self);
  /// Of the last failure; valid until the next call.
  const char* (*error)(void* self);
};

/// What a plugin exports, under this name. Waits for the other processes; `error` gets a sentence where it fails.
typedef int (*steptrain_open_carrier_function)(struct steptrain_carrier* carrier, char* error,
                                               size_t error_size);
#define STEPTRAIN_OPEN_CARRIER "steptrain_open_carrier"

#ifdef __cplusplus
}
#endif
