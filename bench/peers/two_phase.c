/* SPDX-License-Identifier: Apache-2.0
 *
 * What two cores reach with a program that does nothing else: a float32 sum between two processes that share a window,
 * for the sizes of these tables alone, to be timed by serve.c. No checks, no records, no other types, no second call
 * under way: it says what a library's generality costs.
 *
 * Two phases for each slice. A rank copies what its peer will add into a slot of its own window; the peer adds its own
 * data and stores the sums in its buffer and back into the slot; the rank copies them out, and then the slot is free,
 * for which it needs no flag. Whoever reads a line of the window also writes it, so lines move from one cache to the
 * other instead of being shared by both, which costs several times as much when one of them writes next. A short
 * message takes one pass: all of it goes to the other side.
 *
 * All constants are what measured fastest where the two share an L3 cache, each size by itself.
 */
#include "base/hot.h"
#include "serve.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 64, STEP = 2 * LINE, SLOTS = 4, MOST_SLICE = 512 << 10, MOST_EXCHANGED = 1 << 10, BESIDE = LINE - 16 };

typedef float line __attribute__((vector_size(LINE), aligned(4), may_alias));

typedef struct flag {
    _Alignas(2 * LINE) _Atomic uint64_t count; /* some CPUs fetch lines in pairs */
    float beside[BESIDE / sizeof(float)];      /* a message that short travels with it */
} flag;

typedef struct note {
    flag full;
    float text[MOST_EXCHANGED / sizeof(float)];
} note;

/* What one rank copies into first. Slots begin in the middle of a page and large buffers of malloc's at the beginning
 * of one: a CPU takes a load for one of the bytes under way to memory when the lowest 12 bits of both addresses agree.
 */
typedef struct window {
    flag copied, summed; /* slices so far: by the owner, by its peer */
    note notes[2];       /* a note may be written again when the peer, by its next one, has shown that it was read */
    _Alignas(4096) char half_a_page[2048];
    _Alignas(LINE) char slots[SLOTS][MOST_SLICE];
} window;

static window *mine, *theirs;
static int rank;
static uint64_t slices, exchanges; /* before this call */

static void raise_flag(flag *f, uint64_t count)
{
    atomic_store_explicit(&f->count, count, memory_order_release);
}

static void await(const flag *f, uint64_t count)
{
    while (atomic_load_explicit(&f->count, memory_order_acquire) < count) rd_relax();
}

/* ---- Loops, once for each instruction set ---- */

#if defined(__x86_64__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

/* Steps of two lines; four were twice as slow in every other process. */
FOR_EACH_CPU static void copy(char *to, const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += STEP) {
        line a = *(const line *)(from + at), b = *(const line *)(from + at + LINE);
        *(line *)(to + at) = a;
        *(line *)(to + at + LINE) = b;
    }
}

FOR_EACH_CPU static void add(char *to, char *slot, const char *own, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += STEP) {
        line a = *(const line *)(own + at) + *(line *)(slot + at);
        line b = *(const line *)(own + at + LINE) + *(line *)(slot + at + LINE);
        *(line *)(slot + at) = a;
        *(line *)(slot + at + LINE) = b;
        *(line *)(to + at) = a;
        *(line *)(to + at + LINE) = b;
    }
}

FOR_EACH_CPU static void write_note(float *to, const float *from, size_t count)
{
    size_t i = 0;
    for (; count - i >= LINE / sizeof(float); i += LINE / sizeof(float)) *(line *)(to + i) = *(const line *)(from + i);
    for (; i < count; i++) to[i] = from[i];
}

FOR_EACH_CPU static void add_note(float *to, const float *own, const float *got, size_t count)
{
    size_t i = 0;
    for (; count - i >= LINE / sizeof(float); i += LINE / sizeof(float))
        *(line *)(to + i) = *(const line *)(own + i) + *(const line *)(got + i);
    for (; i < count; i++) to[i] = own[i] + got[i];
}

/* ---- The two ways ---- */

static void exchange(const float *from, float *to, size_t count)
{
    uint64_t now = ++exchanges;
    note *out = &mine->notes[now % 2], *in = &theirs->notes[now % 2];
    bool beside = count * sizeof(float) <= BESIDE;
    write_note(beside ? out->full.beside : out->text, from, count);
    raise_flag(&out->full, now);
    await(&in->full, now);
    add_note(to, from, beside ? in->full.beside : in->text, count);
}

/* How a half goes: slices are summed `apart` before they are copied out, so that the peer may be as late. */
typedef struct way {
    size_t slice, apart;
} way;

static way way_of(size_t half)
{
    if (half >= 8 << 20) return (way){256 << 10, 2};
    return (way){half < MOST_SLICE ? half : MOST_SLICE, 1};
}

static void two_phases(const char *from, char *to, size_t half)
{
    size_t first = rank ? half : 0, second = half - first; /* this rank's half, the peer's */
    way w = way_of(half);
    uint64_t count = half / w.slice;
    for (uint64_t i = 0; i < count + w.apart; i++) {
        size_t at = i * w.slice, late = (i - w.apart) * w.slice;
        if (i < count) {
            copy(mine->slots[i % SLOTS], from + second + at, w.slice);
            raise_flag(&mine->copied, slices + i + 1);
            await(&theirs->copied, slices + i + 1);
            add(to + first + at, theirs->slots[i % SLOTS], from + first + at, w.slice);
            raise_flag(&theirs->summed, slices + i + 1);
        }
        if (i < w.apart) continue;
        await(&mine->summed, slices + i - w.apart + 1);
        copy(to + second + late, mine->slots[(i - w.apart) % SLOTS], w.slice);
    }
    slices += count;
}

static bool call(const float *from, float *to, size_t count)
{
    size_t bytes = count * sizeof(float), half = bytes / 2;
    if (bytes <= MOST_EXCHANGED) {
        exchange(from, to, count);
        return true;
    }
    if (half % STEP == 0 && half % way_of(half).slice == 0) {
        two_phases((const char *)from, (char *)to, half);
        return true;
    }
    fprintf(stderr, "two_phase: %zu bytes are none of the sizes that it is for\n", bytes);
    return false;
}

/* Needs no launcher: the second rank is a child, which ends with its parent. */
int main(int argc, char **argv)
{
    window *windows = mmap(NULL, 2 * sizeof *windows, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = windows == MAP_FAILED ? -1 : fork();
    if (child < 0) {
        perror("two_phase: a window and a second process");
        return 1;
    }
    rank = child == 0;
    if (rank) prctl(PR_SET_PDEATHSIG, SIGKILL);
    mine = &windows[rank];
    theirs = &windows[!rank];
    setenv("LOCAL_RANK", rank ? "1" : "0", 1);
    peers_bind(argc, argv);
    int status = peers_serve(argc, argv, rank, 2, &(contestant){.call = call});
    if (!rank) waitpid(child, NULL, 0);
    return status;
}
