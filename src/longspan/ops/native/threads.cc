#include "threads.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "simd.h"

namespace longspan {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("" ::: "memory");
#endif
}

struct Job {
  void (*call)(const void*, long);
  const void* body;
  long parts;
  std::atomic<long> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // the first one, for the calling thread

  void work() noexcept {
    for (long part; (part = next.fetch_add(1)) < parts;) {
      try {
        call(body, part);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  }
};

class Workers {
 public:
  // One job at a time: a kernel that finds the workers taken runs alone.
  void run(Job& job) {
    if (!turn_.try_lock()) return job.work();
    job_.store(&job);
    if (asleep_.load() > 0) {
      {
        const std::lock_guard<std::mutex> lock(door_);
      }
      wake_.notify_all();
    }
    job.work();
    job_.store(nullptr);
    for (Patience patience; inside_.load() > 0;) patience.wait();
    turn_.unlock();
  }

  // Where the system refuses another thread, those there are do the work.
  void grow(long count) noexcept {
    const std::lock_guard<std::mutex> lock(door_);
    try {
      for (; count_ < count; ++count_) std::thread([this] { live(); }).detach();
    } catch (const std::system_error&) {
    }
  }

 private:
  static constexpr long kLooks = 2000;  // about as long as the pauses between the kernels of a training step

  [[noreturn]] void live() {
    const FlushDenormals guard;
    for (long looks = 0;; ++looks) {
      if (job_.load() && help()) looks = 0;
      if (looks < kLooks) {
        for (int i = 0; i < 8; ++i) pause();
        if (looks % 16 == 15) sched_yield();
      } else {
        std::unique_lock<std::mutex> lock(door_);
        asleep_.fetch_add(1);
        wake_.wait(lock, [this] { return job_.load() != nullptr; });
        asleep_.fetch_sub(1);
        looks = 0;
      }
    }
  }

  // The job may be over and gone at any moment until `inside_` says that somebody looks at it.
  bool help() {
    inside_.fetch_add(1);
    Job* job = job_.load();
    const bool useful = job && job->next.load() < job->parts;
    if (useful) job->work();
    inside_.fetch_sub(1);
    return useful;
  }

  std::atomic<Job*> job_{nullptr};
  std::atomic<long> inside_{0}, asleep_{0};
  std::mutex turn_, door_;
  std::condition_variable wake_;
  long count_ = 0;
};

// Never destroyed: its threads may outlive everything that a process tears down at its end.
Workers& workers() {
  static Workers* all = new Workers;
  return *all;
}

std::atomic<long> threads_wanted{1};

}  // namespace

void set_threads(long count) {
  threads_wanted.store(count);
  if (count > 1) workers().grow(count - 1);
}

long threads() { return threads_wanted.load(std::memory_order_relaxed); }

void detail::run_parts(long parts, void (*call)(const void*, long), const void* body) {
  Job job{call, body, parts, {}, {}, {}};
  if (parts > 1 && threads() > 1) {
    workers().run(job);
  } else {
    job.work();
  }
  if (job.error) std::rethrow_exception(job.error);
}

void Patience::wait() {
  pause();
  if (++looks_ > 100) sched_yield();
}

}  // namespace longspan
