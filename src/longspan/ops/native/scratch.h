// Aligned scratch memory that outlives a call: one arena a thread, handed out as a stack, grown to the largest need
// and then reused, so that the kernels never pay for fresh pages inside a training step.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace longspan {

// The least memory asked for at once. Set to little from outside, each taking has its own block, whose bounds a
// sanitizer can watch.
#if !defined(LONGSPAN_SCRATCH_BLOCK)
#define LONGSPAN_SCRATCH_BLOCK (1u << 20)
#endif

class Scratch {
 public:
  Scratch() : arena_(local_arena()), block_(arena_.block), used_(arena_.used) {}
  ~Scratch() {
    arena_.block = block_;
    arena_.used = used_;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Uninitialised, aligned to a cache line, valid until this Scratch is destroyed.
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
        const std::size_t size = bytes > LONGSPAN_SCRATCH_BLOCK ? bytes : LONGSPAN_SCRATCH_BLOCK;
        void* memory = std::aligned_alloc(64, size);
        if (!memory) throw std::bad_alloc();
        blocks.push_back({static_cast<char*>(memory), size});
      }
      void* result = blocks[block].memory + used;
      used += bytes;
      return result;
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
