/* SPDX-License-Identifier: Apache-2.0
 *
 * fiber.c - the threads of a block, as fibers of one thread of the operating system: who runs next, barriers, warps.
 *
 * A fiber gives up the processor where a kernel's thread can have to wait: at a barrier, in a warp operation, in
 * rd_sim_spin, and at its end. Who runs then is taken in turns, or by a seed, since a kernel must not rely on either.
 */
#include "sanitize.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FIBERS = 1024, ALLOWED = 8 };
#if defined(SIM_SAN_address) || defined(SIM_SAN_thread)
enum { STACK_BYTES = 256 << 10 };
#else
enum { STACK_BYTES = 64 << 10 };
#endif
#define STACK_MARK 0x726f6e646f2d7374u /* at the far end of a stack: still there unless it overflowed */

enum state { ENDED, READY, AT_BARRIER, IN_WARP };

struct fiber {
    struct rd_sim_thread place;
    enum state state;
    unsigned mask; /* of the warp operation it is in */
    uint64_t value, *lanes;
    void *stack_pointer, *stack, *tsan, *fake_stack;
};

/* One thread of the operating system that runs blocks, one after the other. */
struct worker {
    struct fiber fiber[FIBERS];
    char *stacks;
    void *stack_pointer, *tsan, *fake_stack;
    const void *stack; /* the worker's own */
    size_t stack_bytes;
    struct fiber *current;
    struct sim_launch *launch;
    unsigned block, threads, live, at_barrier, phase;
    unsigned idle, pauses; /* spins since something moved; how long was waited since */
    unsigned random;
    rd_cu_result result;
    struct {
        uintptr_t from, to;
    } allowed[ALLOWED]; /* memory that was found to be the kernel's to touch */
    unsigned allowed_next;
    char tag[2]; /* barriers, for the thread sanitizer */
    void *shared;
    size_t shared_bytes;
};

static __thread struct worker *worker;

/* ---- Switching ----------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* Saves the callee-saved registers on this stack, and goes on where the other stack was left. */
void sim_switch(void **save, void *load);
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch,@function\nsim_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size sim_switch,.-sim_switch\n");

/* A stack that sim_switch begins `entry` on, aligned as after a call. */
static void *stack_begin(char *stack, void (*entry)(void))
{
    void **top = (void **)(stack + STACK_BYTES);
    top[-1] = NULL; /* entry never returns */
    *(void (**)(void)) & top[-2] = entry;
    memset(&top[-8], 0, 6 * sizeof *top);
    return &top[-8];
}
#elif defined(__aarch64__)
void sim_switch(void **save, void *load);
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch,%function\nsim_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n"
        ".size sim_switch,.-sim_switch\n");

static void *stack_begin(char *stack, void (*entry)(void))
{
    char *frame = stack + STACK_BYTES - 160;
    memset(frame, 0, 160);
    *(void (**)(void))(frame + 88) = entry; /* x30 */
    return frame;
}
#else
#error "fiber.c switches stacks on x86-64 and AArch64; add another processor beside them"
#endif

static void to_scheduler(bool for_good)
{
    struct fiber *self = worker->current;
    (void)for_good;
#ifdef SIM_SAN_thread
    __tsan_switch_to_fiber(worker->tsan, SIM_TSAN_NO_SYNC);
#endif
#ifdef SIM_SAN_address
    __sanitizer_start_switch_fiber(for_good ? NULL : &self->fake_stack, worker->stack, worker->stack_bytes);
#endif
    sim_switch(&self->stack_pointer, worker->stack_pointer);
#ifdef SIM_SAN_address
    __sanitizer_finish_switch_fiber(self->fake_stack, NULL, NULL);
#endif
}

static void to_fiber(struct fiber *fiber)
{
    worker->current = fiber;
#ifdef SIM_SAN_thread
    __tsan_switch_to_fiber(fiber->tsan, SIM_TSAN_NO_SYNC);
#endif
#ifdef SIM_SAN_address
    __sanitizer_start_switch_fiber(&worker->fake_stack, fiber->stack, STACK_BYTES);
#endif
    sim_switch(&worker->stack_pointer, fiber->stack_pointer);
#ifdef SIM_SAN_address
    __sanitizer_finish_switch_fiber(worker->fake_stack, NULL, NULL);
#endif
}

/* ---- A thread's life ----------------------------------------------------------------------------------------- */

static void moved(void)
{
    worker->idle = 0;
    worker->pauses = 0;
}

static void release_barrier(void)
{
    if (worker->at_barrier == 0 || worker->at_barrier < worker->live) return;
    for (unsigned i = 0; i < worker->threads; i++)
        if (worker->fiber[i].state == AT_BARRIER) worker->fiber[i].state = READY;
    worker->at_barrier = 0;
    worker->phase ^= 1;
}

/* A warp operation is complete when all lanes of its mask that have not ended are in it. Each gets what all gave. */
static void release_warp(struct fiber *fiber)
{
    struct fiber *first = &worker->fiber[(fiber - worker->fiber) / RD_SIM_WARP * RD_SIM_WARP];
    unsigned lanes = worker->threads - (unsigned)(first - worker->fiber);
    if (lanes > RD_SIM_WARP) lanes = RD_SIM_WARP;
    for (unsigned leader = 0; leader < lanes; leader++) {
        if (first[leader].state != IN_WARP) continue;
        unsigned mask = first[leader].mask, missing = 0;
        for (unsigned i = 0; i < lanes; i++)
            if ((mask >> i & 1) != 0 && first[i].state != ENDED)
                missing += first[i].state != IN_WARP || first[i].mask != mask;
        if (missing > 0) continue;
        for (unsigned i = 0; i < lanes; i++) {
            if ((mask >> i & 1) == 0 || first[i].state != IN_WARP) continue;
            for (unsigned k = 0; k < lanes; k++) first[i].lanes[k] = (mask >> k & 1) != 0 ? first[k].value : 0;
        }
        for (unsigned i = 0; i < lanes; i++)
            if ((mask >> i & 1) != 0 && first[i].state == IN_WARP) first[i].state = READY;
    }
}

static void thread_run(void)
{
#ifdef SIM_SAN_address
    __sanitizer_finish_switch_fiber(NULL, &worker->stack, &worker->stack_bytes);
#endif
    struct fiber *self = worker->current;
    SIM_ACQUIRE(&worker->launch);
    worker->launch->function->kernel->run(worker->launch->argument);
    SIM_RELEASE(&worker->launch);
    self->state = ENDED;
    worker->live--;
    moved();
    release_barrier();
    release_warp(self);
    to_scheduler(true);
    abort(); /* nobody goes back to one that has ended */
}

static const struct rd_sim_thread *service_self(void)
{
    return &worker->current->place;
}

static void service_spin(void)
{
    worker->idle++;
    to_scheduler(false);
}

static void service_barrier(void)
{
    char *tag = &worker->tag[worker->phase];
    SIM_RELEASE(tag);
    worker->current->state = AT_BARRIER;
    worker->at_barrier++;
    moved();
    release_barrier();
    to_scheduler(false);
    SIM_ACQUIRE(tag);
}

static void service_warp(unsigned mask, uint64_t value, uint64_t *lanes)
{
    struct fiber *self = worker->current;
    if ((mask >> self->place.lane & 1) == 0) {
        sim_say("kernel %s: lane %u calls a warp operation whose mask 0x%x leaves it out",
                worker->launch->function->name, self->place.lane, mask);
        abort();
    }
    memset(lanes, 0, RD_SIM_WARP * sizeof *lanes);
    SIM_RELEASE(self);
    self->mask = mask;
    self->value = value;
    self->lanes = lanes;
    self->state = IN_WARP;
    moved();
    release_warp(self);
    to_scheduler(false);
#ifdef SIM_SAN_thread
    struct fiber *first = self - self->place.lane;
    for (unsigned i = 0; i < RD_SIM_WARP; i++)
        if ((mask >> i & 1) != 0) SIM_ACQUIRE(&first[i]);
#endif
}

/* An access that a device would refuse ends the kernel; what its threads were doing is left where it is. */
static void service_touch(const void *touched, size_t bytes)
{
    uintptr_t address = (uintptr_t)touched, last = address + bytes - 1, stacks = (uintptr_t)worker->stacks;
    if (address - stacks < (uintptr_t)FIBERS * STACK_BYTES) return;
    for (int i = 0; i < ALLOWED; i++)
        if (address >= worker->allowed[i].from && last < worker->allowed[i].to) return;
    unsigned next = worker->allowed_next++ % ALLOWED;
    sim_lock();
    const char *fault = sim_memory_touch(worker->launch->function->context, address, bytes, &worker->allowed[next].from,
                                         &worker->allowed[next].to);
    sim_unlock();
    if (fault == NULL) return;
    const struct rd_sim_thread *at = &worker->current->place;
    sim_say("kernel %s, block (%u, %u, %u), thread (%u, %u, %u) touches %zu bytes at 0x%lx: %s",
            worker->launch->function->name, at->block.x, at->block.y, at->block.z, at->thread.x, at->thread.y,
            at->thread.z, bytes, (unsigned long)address, fault);
    worker->result = RD_CU_ERROR_ILLEGAL_ADDRESS;
    to_scheduler(false);
}

const struct rd_sim_services sim_services = {service_self, service_spin, service_barrier, service_warp, service_touch};

/* ---- A block ------------------------------------------------------------------------------------------------- */

static struct worker *worker_new(void)
{
    struct worker *made = calloc(1, sizeof *made);
    made->stacks = mmap(NULL, (size_t)FIBERS * STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made->stacks == MAP_FAILED) {
        sim_say("no memory for the stacks of a block's threads");
        abort();
    }
    return made;
}

static unsigned next_random(void)
{
    unsigned r = worker->random;
    r ^= r << 13, r ^= r >> 17, r ^= r << 5;
    return worker->random = r;
}

static void fibers_begin(void)
{
    const struct sim_launch *launch = worker->launch;
    struct rd_sim_dim size = launch->block, grid = launch->grid;
    unsigned b = worker->block;
    for (unsigned i = 0; i < worker->threads; i++) {
        struct fiber *fiber = &worker->fiber[i];
        fiber->place = (struct rd_sim_thread){
            .thread = {i % size.x, i / size.x % size.y, i / size.x / size.y},
            .block = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y},
            .block_size = size,
            .grid_size = grid,
            .lane = i % RD_SIM_WARP,
            .shared = worker->shared,
        };
        fiber->stack = worker->stacks + (size_t)i * STACK_BYTES;
        if (fiber->state != ENDED) SIM_UNPOISON(fiber->stack, STACK_BYTES); /* it was left in the middle */
        fiber->state = READY;
        *(uint64_t *)fiber->stack = STACK_MARK;
        fiber->stack_pointer = stack_begin(fiber->stack, thread_run);
#ifdef SIM_SAN_thread
        if (fiber->tsan == NULL) fiber->tsan = __tsan_create_fiber(0);
#endif
    }
}

/* Dynamic shared memory holds something else in every block, as on a device. */
static void shared_begin(void)
{
    size_t bytes = worker->launch->shared_bytes;
    if (bytes > worker->shared_bytes) {
        free(worker->shared);
        worker->shared = aligned_alloc(128, (bytes + 127) / 128 * 128);
        worker->shared_bytes = bytes;
    }
    if (bytes > 0) memset(worker->shared, 0xFB, bytes);
}

/* "12 at a barrier (0, 1, 2, ...)", for a message. */
static void list_state(enum state state, const char *where, char *text, size_t bytes)
{
    unsigned count = 0;
    char which[64] = "";
    for (unsigned i = 0; i < worker->threads; i++) {
        size_t used = strlen(which);
        if (worker->fiber[i].state != state) continue;
        if (count < 8) snprintf(which + used, sizeof which - used, "%s%u", count > 0 ? ", " : "", i);
        if (count++ == 8) snprintf(which + used, sizeof which - used, ", ...");
    }
    size_t used = strlen(text);
    if (count > 0) snprintf(text + used, bytes - used, "%s%u %s (%s)", used > 0 ? "; " : "", count, where, which);
}

static rd_cu_result deadlock(void)
{
    char text[512] = "";
    struct rd_sim_dim at = worker->fiber[0].place.block;
    list_state(AT_BARRIER, "in __syncthreads", text, sizeof text);
    list_state(IN_WARP, "in a warp operation", text, sizeof text);
    list_state(ENDED, "have returned", text, sizeof text);
    sim_say("kernel %s, block (%u, %u, %u): its threads wait for one another for ever: %s",
            worker->launch->function->name, at.x, at.y, at.z, text);
    return RD_CU_ERROR_LAUNCH_FAILED;
}

/* All that can run have called rd_sim_spin since something moved: other blocks, streams or processes have to. */
static void let_others_run(void)
{
    if (worker->pauses == 0) sim_launch_stuck(worker->launch);
    worker->idle = 0;
    sim_pause(&worker->pauses);
}

static rd_cu_result schedule(void)
{
    unsigned last = worker->threads - 1;
    while (worker->live > 0 && worker->result == RD_CU_SUCCESS) {
        unsigned start = worker->launch->seed != 0 ? next_random() % worker->threads : last + 1, ready = 0, chosen = 0;
        for (unsigned k = 0; k < worker->threads; k++) {
            unsigned i = (start + k) % worker->threads;
            if (worker->fiber[i].state != READY) continue;
            if (ready++ == 0) chosen = i;
            if (ready > worker->idle) break; /* at least one that has not spun */
        }
        if (ready == 0) return deadlock();
        if (worker->idle >= ready) let_others_run();
        to_fiber(&worker->fiber[last = chosen]);
    }
    return worker->result;
}

rd_cu_result sim_block_run(struct sim_launch *launch, unsigned index)
{
    if (worker == NULL) worker = worker_new();
    worker->launch = launch;
    worker->block = index;
    worker->threads = worker->live = launch->threads;
    worker->at_barrier = worker->phase = 0;
    worker->result = RD_CU_SUCCESS;
    memset(worker->allowed, 0, sizeof worker->allowed);
    worker->random = (launch->seed * 2654435761u) ^ ((index + 1) * 40503u) ^ 0x9e3779b9u;
    if (worker->random == 0) worker->random = 1;
    moved();
    shared_begin();
    fibers_begin();
#ifdef SIM_SAN_thread
    worker->tsan = __tsan_get_current_fiber();
#endif
    launch->function->kernel->share();
    SIM_RELEASE(&worker->launch);
    rd_cu_result result = schedule();
    SIM_ACQUIRE(&worker->launch);
    for (unsigned i = 0; i < launch->threads; i++) {
        if (*(uint64_t *)worker->fiber[i].stack == STACK_MARK) continue;
        sim_say("kernel %s: thread %u used more than %d KiB of stack", launch->function->name, i, STACK_BYTES >> 10);
        abort();
    }
    return result;
}
