// Preloaded into a program with RocksDB 7.8: its write-lifetime hints reach a kernel of Linux 6.9 and later.
//
// RocksDB gives F_SET_RW_HINT the address of an enum of 32 bits. The kernel reads 64 there, and has refused what it does not know since then, so none of
// the hints arrives. Here they are passed on as 64 bits. At the end of the program a line says how many there were: "hints: N set, N refused".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned set, refused;

static int passed_on(const char *name, int fd, int command, void *argument) {
    int (*next)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);
    if (command != F_SET_RW_HINT) return next(fd, command, argument);
    uint32_t given;
    memcpy(&given, argument, sizeof given);
    uint64_t hint = given;
    int result = next(fd, command, &hint);
    __atomic_add_fetch(result == 0 ? &set : &refused, 1, __ATOMIC_RELAXED);
    return result;
}

#define PASSES_ON(name)                                                                                                                    \
    int name(int fd, int command, ...) {                                                                                                   \
        va_list rest;                                                                                                                      \
        va_start(rest, command);                                                                                                           \
        void *argument = va_arg(rest, void *);                                                                                             \
        va_end(rest);                                                                                                                      \
        return passed_on(#name, fd, command, argument);                                                                                    \
    }
PASSES_ON(fcntl)
PASSES_ON(fcntl64)

__attribute__((destructor)) static void tell(void) {
    if (set + refused > 0) fprintf(stderr, "hints: %u set, %u refused\n", set, refused);
}
