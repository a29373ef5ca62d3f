/* SPDX-License-Identifier: Apache-2.0
 *
 * event.c - events: two counters, of records asked for and done, and when the latter was. Those of an interprocess
 * event lie in a page that others map.
 */
#include "sanitize.h"
#include "sim.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct counters {
    atomic_uint_fast64_t asked, done;
    atomic_int_fast64_t ns; /* of the record that is done */
};

struct sim_event {
    struct sim_handle handle;
    struct sim_context *context; /* of opened ones: where they were opened */
    struct counters *counters;
    bool shared, opened, timed;
    int fd;
    unsigned users;    /* works in line and the handle */
    uint64_t captured; /* by which capture it was recorded last; 0: by none */
};

static bool is_done(const struct sim_event *event, uint64_t record)
{
    return atomic_load_explicit(&event->counters->done, memory_order_acquire) >= record;
}

static void event_release(struct sim_event *event)
{
    if (--event->users > 0) return;
    if (event->shared)
        munmap(event->counters, sizeof *event->counters);
    else
        free(event->counters);
    if (event->fd >= 0) close(event->fd);
    free(event);
}

static struct sim_event *event_new(struct sim_context *context, struct counters *counters, int fd, bool shared)
{
    struct sim_event *event = calloc(1, sizeof *event);
    if (event == NULL) abort();
    event->context = context;
    event->counters = counters;
    event->fd = fd;
    event->shared = shared;
    event->users = 1;
    sim_lock();
    sim_handle_add(&event->handle, SIM_EVENT);
    sim_unlock();
    return event;
}

static struct counters *map_counters(int fd)
{
    void *page = mmap(NULL, sizeof(struct counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

rd_cu_result cuEventCreate(rd_cu_event *event, unsigned flags)
{
    SIM_ENTER_CONTEXT(cuEventCreate, context);
    bool shared = (flags & RD_CU_EVENT_INTERPROCESS) != 0;
    struct counters *counters;
    int fd = -1;
    if (flags > 7 || (shared && (flags & RD_CU_EVENT_DISABLE_TIMING) == 0)) return RD_CU_ERROR_INVALID_VALUE;
    if (shared) {
        fd = memfd_create("cudasim event", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, sizeof *counters) != 0) return RD_CU_ERROR_OPERATING_SYSTEM;
        counters = map_counters(fd);
    } else {
        counters = calloc(1, sizeof *counters);
    }
    if (counters == NULL) return RD_CU_ERROR_OUT_OF_MEMORY;
    struct sim_event *made = event_new(context, counters, fd, shared);
    made->timed = (flags & RD_CU_EVENT_DISABLE_TIMING) == 0;
    *event = (rd_cu_event)made;
    return RD_CU_SUCCESS;
}

rd_cu_result cuEventDestroy(rd_cu_event event)
{
    SIM_ENTER(cuEventDestroy);
    sim_lock();
    struct sim_event *found = sim_handle_find(event, SIM_EVENT);
    if (found != NULL) {
        sim_handle_remove(&found->handle);
        event_release(found);
    }
    sim_unlock();
    return found != NULL ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_HANDLE;
}

/* Finds it and keeps it in being until event_discard. */
static struct sim_event *event_hold(rd_cu_event event)
{
    sim_lock();
    struct sim_event *found = sim_handle_find(event, SIM_EVENT);
    if (found != NULL) found->users++;
    sim_unlock();
    return found;
}

static void event_drop(struct sim_event *event)
{
    sim_lock();
    event_release(event);
    sim_unlock();
}

static void discard(struct sim_work *work)
{
    event_release(work->as.event.event);
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static rd_cu_result run_record(struct sim_work *work)
{
    struct counters *counters = work->as.event.event->counters;
    SIM_RELEASE(counters);
    sim_lock();
    if (atomic_load(&counters->done) < work->as.event.record) {
        atomic_store(&counters->ns, nanoseconds());
        atomic_store(&counters->done, work->as.event.record);
    }
    sim_moved();
    sim_unlock();
    return RD_CU_SUCCESS;
}

rd_cu_result cuEventRecord(rd_cu_event event, rd_cu_stream stream)
{
    SIM_ENTER_WORK(cuEventRecord, in, stream);
    struct sim_event *found = event_hold(event);
    if (found == NULL) return RD_CU_ERROR_INVALID_HANDLE;
    if (found->context != in->context) {
        event_drop(found);
        return RD_CU_ERROR_INVALID_HANDLE;
    }
    struct sim_work *work = sim_work_new(run_record);
    work->discard = discard;
    SIM_RELEASE(work);
    sim_lock();
    work->as.event.event = found;
    found->captured = in->capture.status != RD_CU_STREAM_CAPTURE_STATUS_NONE ? in->capture.id : 0;
    if (!found->captured) work->as.event.record = atomic_fetch_add(&found->counters->asked, 1) + 1;
    sim_stream_put(in, work);
    sim_unlock();
    return RD_CU_SUCCESS;
}

/* Until that record is done, or the context in which is waited is lost. */
static void await(const struct sim_event *event, uint64_t record, const struct sim_context *context)
{
    unsigned turn = 0;
    if (event->shared) {
        while (!is_done(event, record) && context->lost == RD_CU_SUCCESS) sim_pause(&turn);
    } else {
        sim_lock();
        while (!is_done(event, record) && context->lost == RD_CU_SUCCESS) sim_await();
        sim_unlock();
    }
    SIM_ACQUIRE(event->counters);
}

static rd_cu_result run_wait(struct sim_work *work)
{
    await(work->as.event.event, work->as.event.record, work->stream->context);
    return RD_CU_SUCCESS;
}

/* Waits for what had been recorded when this was called; an event that was never recorded holds up nobody. */
rd_cu_result cuStreamWaitEvent(rd_cu_stream stream, rd_cu_event event, unsigned flags)
{
    SIM_ENTER_WORK(cuStreamWaitEvent, in, stream);
    if (flags != 0) return RD_CU_ERROR_INVALID_VALUE;
    struct sim_event *found = event_hold(event);
    if (found == NULL) return RD_CU_ERROR_INVALID_HANDLE;
    struct sim_work *work = sim_work_new(run_wait);
    work->discard = discard;
    SIM_RELEASE(work);
    sim_lock();
    work->as.event.event = found;
    work->as.event.record = atomic_load(&found->counters->asked);
    bool joined = !found->captured || sim_capture_join(in, found->captured);
    if (joined) sim_stream_put(in, work);
    sim_unlock();
    if (!joined) {
        event_drop(found);
        free(work);
    }
    return joined ? RD_CU_SUCCESS : RD_CU_ERROR_CAPTURED_EVENT;
}

rd_cu_result cuEventQuery(rd_cu_event event)
{
    SIM_ENTER(cuEventQuery);
    struct sim_event *found = event_hold(event);
    if (found == NULL) return RD_CU_ERROR_INVALID_HANDLE;
    rd_cu_result result = found->captured ? RD_CU_ERROR_CAPTURED_EVENT : sim_context_lost(found->context);
    if (result == RD_CU_SUCCESS && !is_done(found, atomic_load(&found->counters->asked)))
        result = RD_CU_ERROR_NOT_READY;
    if (result == RD_CU_SUCCESS) SIM_ACQUIRE(found->counters);
    event_drop(found);
    return result;
}

rd_cu_result cuEventSynchronize(rd_cu_event event)
{
    SIM_ENTER(cuEventSynchronize);
    struct sim_event *found = event_hold(event);
    if (found == NULL) return RD_CU_ERROR_INVALID_HANDLE;
    rd_cu_result result = RD_CU_ERROR_CAPTURED_EVENT;
    if (!found->captured) {
        await(found, atomic_load(&found->counters->asked), found->context);
        result = sim_context_lost(found->context);
    }
    event_drop(found);
    return result;
}

/* Of two that are done. The real driver's clock has steps of half a microsecond; so has this. */
static rd_cu_result elapsed(float *ms, const struct sim_event *from, const struct sim_event *to)
{
    if (!from || !to || !from->timed || !to->timed || from->context != to->context) return RD_CU_ERROR_INVALID_HANDLE;
    uint64_t asked_from = atomic_load(&from->counters->asked), asked_to = atomic_load(&to->counters->asked);
    if (asked_from == 0 || asked_to == 0) return RD_CU_ERROR_INVALID_HANDLE;
    if (!is_done(from, asked_from) || !is_done(to, asked_to)) return RD_CU_ERROR_NOT_READY;
    *ms = (float)((atomic_load(&to->counters->ns) - atomic_load(&from->counters->ns)) / 500) * 0.0005f;
    return RD_CU_SUCCESS;
}

rd_cu_result cuEventElapsedTime(float *ms, rd_cu_event from, rd_cu_event to)
{
    SIM_ENTER(cuEventElapsedTime);
    sim_lock();
    rd_cu_result result = elapsed(ms, sim_handle_find(from, SIM_EVENT), sim_handle_find(to, SIM_EVENT));
    sim_unlock();
    return result;
}

/* ---- Other processes ----------------------------------------------------------------------------------------------
 */

rd_cu_result cuIpcGetEventHandle(rd_cu_ipc_event *handle, rd_cu_event event)
{
    SIM_ENTER_CONTEXT(cuIpcGetEventHandle, context);
    rd_cu_result result = sim_settings.no_ipc ? RD_CU_ERROR_NOT_SUPPORTED : RD_CU_ERROR_INVALID_HANDLE;
    sim_lock();
    struct sim_event *found = sim_handle_find(event, SIM_EVENT);
    if (found != NULL && found->shared && !found->opened && !sim_settings.no_ipc) {
        sim_ticket_write(handle->bytes, (struct sim_ticket){.kind = SIM_EVENT, .fd = found->fd});
        result = RD_CU_SUCCESS;
    }
    sim_unlock();
    return result;
}

rd_cu_result cuIpcOpenEventHandle(rd_cu_event *event, rd_cu_ipc_event handle)
{
    SIM_ENTER_CONTEXT(cuIpcOpenEventHandle, context);
    struct sim_ticket ticket;
    int fd = sim_ticket_open(handle.bytes, SIM_EVENT, &ticket);
    if (fd < 0) return RD_CU_ERROR_INVALID_HANDLE;
    struct counters *counters = map_counters(fd);
    if (counters == NULL) {
        close(fd);
        return RD_CU_ERROR_MAP_FAILED;
    }
    struct sim_event *made = event_new(context, counters, fd, true);
    made->opened = true;
    *event = (rd_cu_event)made;
    return RD_CU_SUCCESS;
}
