/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.h - what the files of the simulated driver know of one another. It is a libcuda.so.1 for tests: devices are
 * memory of this process, streams are threads, kernels are libraries for the CPU. It keeps the real driver's rules
 * where programs trip over them, and says so on standard error when one is broken that a real GPU would answer with
 * silence.
 *
 *   thread.c    the one lock, threads, live handles
 *   settings.c  CUDASIM="devices=4 p2p=pairs ..."          memory.c   allocations, registrations
 *   pointer.c   what a pointer is
 *   entry.c     cuGetProcAddress, injected failures        share.c    what other processes open: IPC handles,
 * descriptors device.c    devices, topology, contexts                stream.c   streams and their order; event.c:
 * events module.c    image -> library of kernels                work.c     what streams do: copies, memory operations,
 * host functions launch.c    a kernel's blocks on threads               fiber.c    a block's threads, barriers, warps
 *   capture.c   streams captured into graphs
 */
#ifndef RONDO_CUDASIM_SIM_H
#define RONDO_CUDASIM_SIM_H

#include "base/gpu.h"
#include "kernel.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default")))

enum { SIM_DEVICES = 16 };

/* ---- The driver's functions: defined in these files, found by cuGetProcAddress_v2 alone ----------------------- */
#define SIM_DECLARE(name, version, parameters) rd_cu_result name parameters;
RD_CU_FUNCTIONS(SIM_DECLARE)
#undef SIM_DECLARE
#define SIM_CALL(name, version, parameters) SIM_##name,
enum sim_call { RD_CU_FUNCTIONS(SIM_CALL) SIM_KERNEL, SIM_CALLS };
#undef SIM_CALL

/* The first line of each function: returns for those who may not call, and where a failure is to be injected. */
#define SIM_ENTER(name)                                                                                                \
    do {                                                                                                               \
        rd_cu_result sim_refused_ = sim_enter(SIM_##name);                                                             \
        if (sim_refused_ != RD_CU_SUCCESS) return sim_refused_;                                                        \
    } while (0)
rd_cu_result sim_enter(enum sim_call call);
/* The same where a context must be current; *context becomes it. */
#define SIM_ENTER_CONTEXT(name, context)                                                                               \
    SIM_ENTER(name);                                                                                                   \
    struct sim_context *context = sim_context_current();                                                               \
    if ((context) == NULL) return RD_CU_ERROR_INVALID_CONTEXT;                                                         \
    if ((context)->lost != RD_CU_SUCCESS) return sim_context_lost(context)
/* The same where a stream says which context it is. */
#define SIM_ENTER_STREAM(name, found, handle)                                                                          \
    SIM_ENTER(name);                                                                                                   \
    sim_lock();                                                                                                        \
    struct sim_stream *found = sim_stream_find(handle, sim_context_current());                                         \
    sim_unlock();                                                                                                      \
    if ((found) == NULL) return (handle) == NULL ? RD_CU_ERROR_INVALID_CONTEXT : RD_CU_ERROR_INVALID_HANDLE;           \
    if ((found)->context->lost != RD_CU_SUCCESS) return sim_context_lost((found)->context)
/* The same where the stream is given work. */
#define SIM_ENTER_WORK(name, found, handle)                                                                            \
    SIM_ENTER_STREAM(name, found, handle);                                                                             \
    do {                                                                                                               \
        rd_cu_result sim_refused_ = sim_capture_work(found);                                                           \
        if (sim_refused_ != RD_CU_SUCCESS) return sim_refused_;                                                        \
    } while (0)

/* "CALL:NTH[:RESULT[:lost]],...": failures to inject; false: not understood. */
bool sim_fail_read(char *list);
/* The result to inject at this execution of a kernel; RD_CU_SUCCESS: none. */
rd_cu_result sim_kernel_fault(void);
/* Set while a host function runs. */
extern __thread bool sim_in_host_function;
/* Lines on standard error that begin with "cudasim[pid]: ". */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Settings ------------------------------------------------------------------------------------------------ */
enum sim_p2p { SIM_P2P_ALL, SIM_P2P_NONE, SIM_P2P_PAIRS, SIM_P2P_SWITCH, SIM_P2P_PCIE };
struct sim_settings {
    int devices, multiprocessors, capability, driver_version;
    size_t memory_bytes; /* of each device */
    enum sim_p2p p2p;
    unsigned seed; /* of the order of a block's threads; 0: in turns */
    bool trace, no_memory_operations, no_ipc, no_fds;
    bool no_rdma, no_flush, ordered_rdma, no_dmabuf; /* what RDMA devices may do, and when kernels see it */
    char pci[SIM_DEVICES][16];
    char lacks[64]; /* a function that this driver does not have */
    char plant[32]; /* a bug that kernels shall have (plant.sh) */
};
extern struct sim_settings sim_settings;
/* Reads CUDASIM; what it does not understand ends the process, since a test that runs with other settings proves
 * nothing. */
void sim_settings_read(void);

/* ---- One lock for everything, and one signal that something has moved ------------------------------------------- */
void sim_lock(void);
void sim_unlock(void);
void sim_moved(void);                       /* wakes all that sim_await */
void sim_await(void);                       /* until somebody calls sim_moved; the lock is held before and after */
void sim_await_one(pthread_cond_t *signal); /* the same for a signal of one's own */

/* Another thread runs this, with the lock held, which holds here, too. Threads never end: the thread sanitizer would
 * see those that come later free their local memory, which kernels used, and not why they may. */
void sim_thread_run(void (*run)(void *), void *argument);

/* Handles that are alive: a destroyed one is known to be none. With the lock held. */
enum sim_kind { SIM_CONTEXT = 1, SIM_STREAM, SIM_EVENT, SIM_MODULE, SIM_FUNCTION, SIM_ALLOCATION, SIM_GRAPH };
struct sim_handle {
    enum sim_kind kind;
    struct sim_handle *next;
};
void sim_handle_add(struct sim_handle *handle, enum sim_kind kind);
void sim_handle_remove(struct sim_handle *handle);
void *sim_handle_find(const void *handle, enum sim_kind kind); /* NULL: not alive, or of another kind */
struct sim_handle *sim_handle_next(struct sim_handle *handle); /* NULL: the first */
int sim_handle_count(enum sim_kind kind);

/* ---- Devices and contexts ----------------------------------------------------------------------------------- */
/* Devices have a number of their own, the same in all processes; ordinals are what CUDA_VISIBLE_DEVICES leaves. */
struct sim_context {
    struct sim_handle handle;
    int device, ordinal, retained;
    rd_cu_result lost;                   /* once set, every call in this context returns it */
    bool peer[SIM_DEVICES];              /* whose memory kernels here may touch */
    struct sim_stream *legacy, *streams; /* streams: all, also destroyed ones */
};
int sim_devices_begin(void); /* reads CUDA_VISIBLE_DEVICES; returns how many devices there are */
struct sim_context *sim_context_current(void);
/* Why the context is lost, or RD_CU_SUCCESS. A device ends its kernels when that happens; here they come to their ends, and
 * who is told waits for that (two seconds at most: one may wait for a peer), since what he does next is to take away their
 * memory. The lock is not held. */
rd_cu_result sim_context_lost(struct sim_context *context);
void sim_context_lose(struct sim_context *context, rd_cu_result result);
struct sim_context *sim_context_find(rd_cu_context context); /* NULL: not alive */
int sim_ordinal(int device);                                 /* -1: hidden */
int sim_device(int ordinal);                                 /* -1: no such */
bool sim_devices_reach(int from, int to);
/* Blocks in flight on a device, as threads and as blocks: what its multiprocessors can hold. */
bool sim_device_enter(int device, unsigned threads);
void sim_device_leave(int device, unsigned threads);
enum { SIM_THREADS_PER_MULTIPROCESSOR = 2048, SIM_BLOCKS_PER_MULTIPROCESSOR = 32 };
unsigned sim_max_threads(void); /* of a block */

/* ---- Memory -------------------------------------------------------------------------------------------------- */
enum sim_memory { SIM_DEVICE_MEMORY, SIM_MANAGED, SIM_HOST_ALLOCATED, SIM_HOST_REGISTERED, SIM_IMPORTED, SIM_MAPPED };
struct sim_range {
    struct sim_range *next;
    uintptr_t start;
    size_t bytes; /* as asked for */
    enum sim_memory kind;
    int device; /* where it lies; of host memory the device whose context made it */
    struct sim_context *context;
    uint64_t id;
    int fd;        /* of the memory behind it, -1: none */
    size_t offset; /* in fd */
    uintptr_t map; /* what to give back: pages around it */
    size_t map_bytes;
    bool accessible[SIM_DEVICES];      /* of SIM_MAPPED: by cuMemSetAccess */
    unsigned opens;                    /* of SIM_IMPORTED */
    struct sim_allocation *allocation; /* of SIM_MAPPED */
    char ticket[64];                   /* of SIM_IMPORTED */
};
static inline void *sim_pointer(rd_cu_address address)
{
    return (void *)(uintptr_t)address;
}
struct sim_range *sim_range_find(rd_cu_address address); /* the one that holds this byte; with the lock held */
void sim_range_add(struct sim_range *range);
void sim_range_remove(struct sim_range *range); /* does not free it */
int sim_range_count(enum sim_memory kind);
struct sim_range *sim_range_match(enum sim_memory kind, const char *ticket); /* the imported one with this handle */
void sim_context_memory_free(struct sim_context *context);
/* Address space that only allocations of this driver are in; bytes that are in none are nobody's. */
uintptr_t sim_reserve(size_t bytes, size_t alignment); /* 0: none left */
bool sim_unreserve(uintptr_t start, size_t bytes);     /* false: no such */
bool sim_memory_reserved(rd_cu_address address);
/* Takes away what lies there: touching it faults. */
void sim_unmap(uintptr_t address, size_t bytes);
/* What is wrong with an address that a kernel of this context is given, or NULL. With the lock held. */
const char *sim_memory_fault(const struct sim_context *context, rd_cu_address address);

/* The same for bytes that it is about to touch; where nothing is wrong, *from and *to become the range that holds them.
 */
const char *sim_memory_touch(const struct sim_context *context, uintptr_t address, size_t bytes, uintptr_t *from,
                             uintptr_t *to);
/* memcpy and memset that no sanitizer looks at, where it should not. */
void sim_copy(void *to, const void *from, size_t bytes);
void sim_fill(void *to, unsigned char value, size_t bytes);

/* A handle that another process opens: who has which descriptor. */
struct sim_ticket {
    uint32_t magic;
    int32_t kind, pid, fd, device;
    uint64_t offset, bytes, id;
};
void sim_ticket_write(char *bytes64, struct sim_ticket ticket);
int sim_ticket_open(const char *bytes64, int kind,
                    struct sim_ticket *ticket); /* a descriptor; -1: it is none, or gone */

/* ---- Streams ------------------------------------------------------------------------------------------------- */
struct sim_launch;
struct sim_event;
struct sim_work {
    struct sim_work *next;
    rd_cu_result (*run)(struct sim_work *work); /* by the stream's thread, without the lock */
    void (*discard)(struct sim_work *work);     /* NULL, or frees what it holds */
    struct sim_stream *stream;
    struct sim_wait *waits; /* for other streams, legacy order */
    union {
        struct {
            rd_cu_address to, from;
            size_t bytes;
            void *staged; /* a copy of pageable memory */
        } copy;
        struct {
            rd_cu_address address;
            unsigned char value;
            size_t bytes;
        } fill;
        struct {
            rd_cu_address address;
            uint64_t value;
            unsigned flags;
            bool wide;
        } word;
        struct {
            struct sim_event *event;
            uint64_t record;
        } event;
        struct {
            rd_cu_host_function function;
            void *argument;
        } host;
        struct sim_launch *launch;
    } as;
};
struct sim_capture {
    unsigned status, mode;
    uint64_t id, nodes; /* the same of all streams that it has drawn in */
    pthread_t by;
};
struct sim_stream {
    struct sim_handle handle;
    struct sim_stream *next; /* of its context */
    struct sim_context *context;
    struct sim_work *first, **end;
    uint64_t queued, done; /* works so far */
    bool nonblocking, destroyed, running;
    pthread_t owner; /* of a stream that is a thread's own */
    bool owned;
    pthread_cond_t arrived;
    struct sim_capture capture;
};
/* The stream that a handle means; *context: the current one, or NULL. NULL: it means none. With the lock held. */
struct sim_stream *sim_stream_find(rd_cu_stream handle, struct sim_context *context);
struct sim_work *sim_work_new(rd_cu_result (*run)(struct sim_work *));
/* Puts it in line, with what it has to wait for; the lock is held. Returns its number. */
uint64_t sim_stream_put(struct sim_stream *stream, struct sim_work *work);
/* Waits until the stream has done that many, or its context is lost. The lock is held. */
void sim_stream_await(struct sim_stream *stream, uint64_t number);
void sim_context_await(struct sim_context *context); /* all its streams */
void sim_streams_open(struct sim_context *context);  /* makes the legacy one */
void sim_streams_close(struct sim_context *context); /* ends all, which have nothing to do */
/* 64 yields, then sleeps of 20 and 200 microseconds: what waits for memory to change. */
void sim_pause(unsigned *turn);

/* ---- Streams captured into graphs ------------------------------------------------------------------------------- */
/* Why a call must not be made now, by this thread; a stream not be given work; a stream not be waited for. All RD_CU_SUCCESS
 * where it may; else the capture is spoiled. */
rd_cu_result sim_capture_forbids(enum sim_call call);
rd_cu_result sim_capture_work(struct sim_stream *stream);
rd_cu_result sim_capture_wait(struct sim_stream *stream);
/* Counts a work instead of doing it; false: the stream is not captured. With the lock held. */
bool sim_capture_takes(struct sim_stream *stream);
/* What comes on the stream is part of that capture, too; false: it has ended. With the lock held. */
bool sim_capture_join(struct sim_stream *stream, uint64_t id);

/* ---- Kernels ------------------------------------------------------------------------------------------------- */
struct sim_function {
    struct sim_handle handle;
    struct sim_function *next; /* of its module */
    struct sim_context *context;
    const struct rd_sim_kernel *kernel;
    int dynamic_shared_bytes;
    char name[64];
};
struct sim_launch {
    const struct sim_function *function;
    int device;
    struct rd_sim_dim grid, block;
    unsigned threads, blocks; /* of a block, of the grid */
    unsigned shared_bytes;
    unsigned seed;
    unsigned next, helpers; /* blocks that have begun; threads that were called to help */
    rd_cu_result result;
    _Alignas(16) char argument[RD_SIM_ARGUMENT_BYTES];
};
void sim_modules_close(struct sim_context *context);
rd_cu_result sim_launch_put(struct sim_stream *stream, struct sim_launch *launch);
rd_cu_result sim_launch_run(struct sim_launch *launch);
void sim_launch_stuck(struct sim_launch *launch); /* a block waits: another may have to begin */
/* Runs one block; RD_CU_ERROR_LAUNCH_FAILED after a message where its threads wait for one another. */
rd_cu_result sim_block_run(struct sim_launch *launch, unsigned index);
extern const struct rd_sim_services sim_services;

#endif
