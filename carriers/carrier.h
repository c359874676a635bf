// The plain C interface of what carries bytes among the processes of a job. The addon and the MPI plugin share this file and
// nothing else, so that a plugin may come from another compiler and any MPI.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Grows with every change of this file; a plugin of another number is refused.
#define STEPTRAIN_CARRIER_VERSION 1

/// One process's end of a communicator. The collectives are called by one thread, in the same order in every process, and
/// return 0, or something else where `error` says why. They do not return before `to` is filled, unless a stream is given.
struct steptrain_carrier {
  int version;
  int rank, size;
  void* self;
  /// Part r of `from` goes to rank r, and what rank r sent lies in part r of `to`. Parts of `bytes` each.
  int (*all_to_all)(void* self, const void* from, void* to, size_t bytes, void* stream);
  /// `from`, of `bytes`, of every rank, by rank.
  int (*all_gather)(void* self, const void* from, void* to, size_t bytes, void* stream);
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
