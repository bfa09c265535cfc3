/* Makes the n-th file operation below a directory fail, or ends the process there. Loaded with LD_PRELOAD.

   Operations are counted in a page that forks share, so a parent reads what its child did. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { COUNT, KILL, TORN, ERROR_ONCE, ERROR_FROM, SIGNAL };
enum { READS = 1, WRITES = 2, NAMES = 4 };

static atomic_long *counter;
static long wanted;
static int kind = -1, value, which;
static char below[4096];

__attribute__((constructor)) static void begin(void) {
    counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* Concern the operation number `at` (from 1) of those `classes` below `directory`. */
void fault_arm(int how, long at, int argument, int classes, const char *directory) {
    wanted = at;
    value = argument;
    which = classes;
    snprintf(below, sizeof below, "%s", directory);
    atomic_store(counter, 0);
    kind = how;
}

void fault_disarm(void) { kind = -1; }

long fault_count(void) { return atomic_load(counter); }

static int is_below(const char *path) {
    char real[4096];
    if (path == NULL || kind < 0) return 0;
    if (path[0] != '/') {
        if (getcwd(real, sizeof real) == NULL) return 0;
        return strncmp(real, below, strlen(below)) == 0;
    }
    return strncmp(path, below, strlen(below)) == 0;
}

static int fd_below(int fd) {
    char link[64], path[4096];
    if (kind < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_below(path);
}

/* 0: go on. 1: fail with errno. 2: a torn write, then the end. */
static int hit(int class, int concerned) {
    if (kind < 0 || !(which & class) || !concerned) return 0;
    long now = atomic_fetch_add(counter, 1) + 1;
    if (kind == COUNT || now < wanted) return 0;
    if (kind == ERROR_FROM || now == wanted) {
        switch (kind) {
        case KILL: raise(SIGKILL); break;
        case TORN: return 2;
        case SIGNAL: raise(value); return 0;
        default: errno = value; return 1;
        }
    }
    return 0;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define END_IF(h) if ((h) == 2) raise(SIGKILL)
#define OPENER(name)                                                                                  \
    int name(const char *path, int flags, ...) {                                                      \
        REAL(name);                                                                                   \
        va_list list; va_start(list, flags);                                                          \
        mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(list, mode_t) : 0; va_end(list);     \
        int h = hit(flags & (O_CREAT | O_WRONLY | O_RDWR) ? WRITES : READS, is_below(path));          \
        END_IF(h); if (h) return -1;                                                                  \
        return real(path, flags, mode);                                                               \
    }
#define OPENER_AT(name)                                                                               \
    int name(int at, const char *path, int flags, ...) {                                              \
        REAL(name);                                                                                   \
        va_list list; va_start(list, flags);                                                          \
        mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(list, mode_t) : 0; va_end(list);     \
        int h = hit(flags & (O_CREAT | O_WRONLY | O_RDWR) ? WRITES : READS, is_below(path));          \
        END_IF(h); if (h) return -1;                                                                  \
        return real(at, path, flags, mode);                                                           \
    }
OPENER(open)
OPENER(open64)
OPENER_AT(openat)
OPENER_AT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    int h = hit(WRITES, fd_below(fd));
    if (h == 2) { real(fd, data, size / 2); raise(SIGKILL); }
    return h ? -1 : real(fd, data, size);
}
#define READER(name, kind_of, ...)                                                                    \
    { REAL(name); int h = hit(kind_of, fd_below(fd)); END_IF(h); if (h) return -1; return real(__VA_ARGS__); }
ssize_t read(int fd, void *data, size_t size) READER(read, READS, fd, data, size)
ssize_t pread(int fd, void *data, size_t size, off_t at) READER(pread, READS, fd, data, size, at)
ssize_t pread64(int fd, void *data, size_t size, off64_t at) READER(pread64, READS, fd, data, size, at)
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) READER(pwrite, WRITES, fd, data, size, at)
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) READER(pwrite64, WRITES, fd, data, size, at)
int fsync(int fd) READER(fsync, WRITES, fd)
int fdatasync(int fd) READER(fdatasync, WRITES, fd)
int ftruncate(int fd, off_t size) READER(ftruncate, WRITES, fd, size)
int ftruncate64(int fd, off64_t size) READER(ftruncate64, WRITES, fd, size)
#define CHANGER(name, path, ...)                                                                      \
    { REAL(name); int h = hit(NAMES, is_below(path)); END_IF(h); if (h) return -1; return real(__VA_ARGS__); }
int rename(const char *from, const char *to) CHANGER(rename, from, from, to)
int renameat(int a, const char *from, int b, const char *to) CHANGER(renameat, from, a, from, b, to)
int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
    CHANGER(renameat2, from, a, from, b, to, flags)
int link(const char *from, const char *to) CHANGER(link, from, from, to)
int unlink(const char *path) CHANGER(unlink, path, path)
int unlinkat(int at, const char *path, int flags) CHANGER(unlinkat, path, at, path, flags)
int mkdir(const char *path, mode_t mode) CHANGER(mkdir, path, path, mode)
int rmdir(const char *path) CHANGER(rmdir, path, path)
