// Gives a process a clock that tests can step: the time of day is the real one plus what the file named by PORTERO_CLOCK holds, microseconds
// as a 64-bit number of this machine's byte order. It asks the kernel itself and allocates nothing, so it works under jemalloc, as
// redis-server has it, where libfaketime hangs (github.com/wolfcw/libfaketime, issue 130).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *step;

__attribute__((constructor)) static void open_step(void) {
  const char *name = getenv("PORTERO_CLOCK");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  void *page = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED)
    _exit(78); // EX_CONFIG: better no process than one whose clock never steps
  step = page;
}

int clock_gettime(clockid_t id, struct timespec *at) {
  if (syscall(SYS_clock_gettime, id, at) != 0)
    return -1;
  if (step && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    int64_t us = *step + at->tv_nsec / 1000;
    at->tv_nsec %= 1000;
    at->tv_sec += us / 1000000;
    us %= 1000000;
    if (us < 0) {
      us += 1000000;
      at->tv_sec--;
    }
    at->tv_nsec += us * 1000;
  }
  return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0)
    return -1;
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at)
    *at = now.tv_sec;
  return now.tv_sec;
}
