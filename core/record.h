// One queued op: everything that the device needs to run it after the caller has moved on.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "core/allocator.h"
#include "core/args.h"
#include "core/error.h"
#include "core/graph_pool.h"

namespace steptrain {

class Graph;
struct Buffer;

/// What a wait learns: nothing, or the failure that poisoned the queue.
struct Failure {
  std::string code, message, hint, location, op, scope;
  int64_t number = 0;

  void explain(const Error& error) {
    code = error.code;
    message = error.what();
    hint = error.hint;
    location = error.location;
  }
};

struct Completion {
  virtual ~Completion() = default;
  /// Called once, on the queue's thread or the waiter's. `failure` is null when all went well. Must not wait for
  /// the host thread, which may be waiting for the queue.
  virtual void done(const Failure* failure) = 0;
};

struct Record {
  enum class Kind : uint8_t { op, upload, download, replay, signal };
  Kind kind = Kind::op;
  int op = -1;
  int scope = 0;
  int64_t number = 0;
  Args args;
  TensorView target;                       // upload, download
  std::unique_ptr<char[]> bytes;           // upload: the caller's data, copied
  void* destination = nullptr;             // download: host memory kept alive by the completion
  std::shared_ptr<Graph> graph;            // replay
  std::unique_ptr<Completion> completion;  // download, signal

  /// Lets go of what it holds; the plain fields are overwritten by the next use.
  void clear() {
    bytes.reset();
    graph.reset();
    completion.reset();
  }
};

/// Captured records, replayed in one call. A backend may attach its own compiled form.
class Graph {
 public:
  std::vector<Record> records;
  std::shared_ptr<GraphPool> pool;  // the memory of what its records make
  std::set<Buffer*> inputs;         // memory of others that its records use; the graph keeps it
  std::shared_ptr<void> compiled;   // a CUDA graph, say
};

}  // namespace steptrain
