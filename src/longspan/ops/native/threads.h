// A few threads that wait for parts of a kernel. Work is claimed, never assigned: the calling thread takes whatever no
// worker has taken yet, so a worker that the system is slow to wake, or that a fork left behind, costs nothing. Each
// thread has scratch memory of its own.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace longspan {

// How many threads a kernel may use, the caller's included; 1 until set.
void set_threads(long count);
long threads();

namespace detail {
void run_parts(long parts, void (*call)(const void* body, long part), const void* body);
}

// Calls body(part) once for every part in [0, parts), in any order and from several threads. The first exception is
// thrown on to the caller, after all parts are done.
template <class Body>
void in_parallel(long parts, const Body& body) {
  detail::run_parts(parts, [](const void* b, long part) { (*static_cast<const Body*>(b))(part); }, &body);
}

struct Range {
  long begin, end;
  long size() const { return end - begin; }
};

// One of several nearly equal parts of [0, count), cut at multiples of `unit`.
inline Range part_of(long count, long parts, long part, long unit = 1) {
  const long units = (count + unit - 1) / unit;
  const long begin = units * part / parts * unit, end = units * (part + 1) / parts * unit;
  return {begin < count ? begin : count, end < count ? end : count};
}

// Threads worth waking for this many elementary operations: fewer take less time than the waking.
inline long parts_for(long operations) { return operations < (1 << 15) ? 1 : threads(); }

// Between two looks at a flag that another thread will set: brief at first, then giving the processor away.
class Patience {
 public:
  void wait();

 private:
  long looks_ = 0;
};

// Memory is asked for in multiples of this, a huge page. Set to a cache line from outside, each taking has its own
// block, whose bounds a sanitizer can watch.
#if !defined(LONGSPAN_SCRATCH_BLOCK)
#define LONGSPAN_SCRATCH_BLOCK (std::size_t{2} << 20)
#endif

// Aligned scratch memory that outlives a call: one arena per thread, handed out as a stack, grown to the largest need
// and then reused, so that the kernels never pay for fresh pages inside a training step.
class Scratch {
 public:
  Scratch() : arena_(local_arena()), block_(arena_.block), used_(arena_.used) {}
  ~Scratch() {
    arena_.block = block_;
    arena_.used = used_;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Uninitialized, aligned to a cache line, valid until this Scratch is destroyed.
  template <class T = float>
  T* take(std::size_t count) {
    return static_cast<T*>(arena_.take((count * sizeof(T) + 63) / 64 * 64));
  }

 private:
  struct Block {
    char* memory;
    std::size_t size;
  };
  struct Arena {
    std::vector<Block> blocks;
    std::size_t block = 0, used = 0;

    void* take(std::size_t bytes) {
      while (block < blocks.size() && used + bytes > blocks[block].size) {
        ++block;
        used = 0;
      }
      if (block == blocks.size()) {
        blocks.push_back(fresh(bytes));
      }
      void* result = blocks[block].memory + used;
      used += bytes;
      return result;
    }

    // In huge pages where the system has them: a walk reads its matrix from end to end at every step, and with small
    // pages an update takes 3 to 4 % longer.
    static Block fresh(std::size_t bytes) {
      constexpr std::size_t unit = LONGSPAN_SCRATCH_BLOCK;
      const std::size_t size = (bytes + unit - 1) / unit * unit;
      void* memory = std::aligned_alloc(unit, size);
      if (!memory) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
      if (unit % (std::size_t{2} << 20) == 0) madvise(memory, size, MADV_HUGEPAGE);  // without them all is well, too
#endif
      return {static_cast<char*>(memory), size};
    }
    ~Arena() {
      for (const Block& b : blocks) std::free(b.memory);
    }
  };

  static Arena& local_arena() {
    static thread_local Arena arena;
    return arena;
  }

  Arena& arena_;
  std::size_t block_, used_;
};

}  // namespace longspan
