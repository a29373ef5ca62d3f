/* SPDX-License-Identifier: Apache-2.0 */
#include "core/record.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/process.h"
#include "core/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(rondo_record_call) == 64 && sizeof(rondo_record_header) == 648, "no padding");

#define PUT(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)
#define GET(word)        atomic_load_explicit(&(word), memory_order_relaxed)

rondo_result rd_recorder_open(rd_recorder **recorder)
{
    rd_recorder *made = calloc(1, sizeof *made);
    if (!made) return rd_fail_errno("no memory for the record of the last %d calls", RONDO_RECORD_CALLS);
    made->ticks = rd_ticks();
    made->ns = rd_now();
    *recorder = made;
    return RONDO_SUCCESS;
}

/* ---- Writing ---- */

uint64_t rd_record_begin(rd_recorder *recorder, const rd_call *calls, int together, uint64_t number)
{
    uint64_t index = GET(recorder->begun), count = calls->count;
    rd_entry *entry = &recorder->entries[index % RONDO_RECORD_CALLS];
    for (int i = 1; i < together; i++) count += calls[i].count;
    PUT(entry->kind, calls->kind);
    PUT(entry->collective, (uint8_t)calls->collective);
    PUT(entry->dtype, (uint8_t)calls->dtype);
    PUT(entry->op, (uint8_t)calls->op);
    PUT(entry->together, (uint32_t)together);
    PUT(entry->root, calls->root);
    PUT(entry->result, RONDO_IN_PROGRESS);
    PUT(entry->count, count);
    PUT(entry->begun, 0);
    PUT(entry->ended, 0);
    PUT(entry->number, number);
    atomic_store_explicit(&recorder->begun, index + 1, memory_order_release);
    return index;
}

void rd_record_time(rd_recorder *recorder, uint64_t index)
{
    PUT(recorder->entries[index % RONDO_RECORD_CALLS].begun, rd_ticks());
}

void rd_record_end(rd_recorder *recorder, uint64_t index, rondo_result result, bool at_once)
{
    rd_entry *entry = &recorder->entries[index % RONDO_RECORD_CALLS];
    if (GET(recorder->begun) > index + RONDO_RECORD_CALLS) return; /* written over since */
    if (!at_once && !GET(entry->begun)) rd_record_time(recorder, index);
    PUT(entry->result, result);
    PUT(entry->ended, at_once ? GET(entry->begun) + 1 : rd_ticks());
}

/* ---- Reading ---- */

/* Ticks run evenly; how fast shows from what passed since the recorder was made. */
static uint64_t real_ns(const rd_recorder *recorder, uint64_t ticks)
{
    struct timespec real;
    uint64_t now_ticks = rd_ticks();
    int64_t now = rd_now();
    if (!ticks) return 0;
    clock_gettime(CLOCK_REALTIME, &real);
    double each =
        now_ticks > recorder->ticks ? (double)(now - recorder->ns) / (double)(now_ticks - recorder->ticks) : 0;
    double ago = ticks < now_ticks ? (double)(now_ticks - ticks) * each : 0;
    return (uint64_t)real.tv_sec * 1000000000 + (uint64_t)real.tv_nsec - (uint64_t)ago;
}

static void read_entry(const rd_recorder *recorder, uint64_t index, rondo_record_call *call)
{
    const rd_entry *entry = &recorder->entries[index % RONDO_RECORD_CALLS];
    uint64_t begun = GET(entry->begun);
    *call = (rondo_record_call){
        .number = GET(entry->number),
        .begun_ns = real_ns(recorder, begun ? begun : rd_ticks()),
        .ended_ns = real_ns(recorder, GET(entry->ended)),
        .count = GET(entry->count),
        .root = GET(entry->root),
        .result = GET(entry->result),
        .kind = GET(entry->kind),
        .collective = GET(entry->collective),
        .dtype = GET(entry->dtype),
        .op = GET(entry->op),
        .together = GET(entry->together),
    };
    call->bytes = call->count * rd_dtype_bytes((rondo_dtype)call->dtype);
}

int rd_record_read(const rd_recorder *recorder, rondo_record_call *calls)
{
    uint64_t end = atomic_load_explicit(&recorder->begun, memory_order_acquire);
    uint64_t from = end > RONDO_RECORD_CALLS ? end - RONDO_RECORD_CALLS : 0;
    for (uint64_t i = from; i < end; i++) read_entry(recorder, i, &calls[i - from]);
    return (int)(end - from);
}

bool rd_record_latest(const rd_recorder *recorder, bool collective, rondo_record_call *call)
{
    uint64_t end = atomic_load_explicit(&recorder->begun, memory_order_acquire);
    for (uint64_t back = 1; back <= end && back <= RONDO_RECORD_CALLS; back++) {
        read_entry(recorder, end - back, call);
        bool is_collective = call->kind != RD_KIND_SEND && call->kind != RD_KIND_RECV;
        if (is_collective == collective && (collective || !call->ended_ns)) return true;
    }
    return false;
}

/* ---- Blocks ---- */

static bool put_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(fd, (const char *)data + done, bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

static bool put_block(int fd, const rondo_comm *comm)
{
    rondo_record_call *calls = calloc(RONDO_RECORD_CALLS, sizeof *calls);
    if (!calls) return false;
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    rondo_record_header header = {
        .version = RONDO_RECORD_VERSION,
        .bytes = sizeof header,
        .call_bytes = sizeof *calls,
        .calls = (uint32_t)rd_record_read(comm->recorder, calls),
        .comm_number = comm->number,
        .rank = comm->rank,
        .size = comm->size,
        .pid = (int32_t)getpid(),
        .result = rd_comm_stopped(comm),
        .written_ns = (uint64_t)real.tv_sec * 1000000000 + (uint64_t)real.tv_nsec,
    };
    memcpy(header.magic, RONDO_RECORD_MAGIC, sizeof header.magic);
    memcpy(header.job, comm->job, sizeof header.job);
    gethostname(header.host, sizeof header.host - 1);
    if (header.result) snprintf(header.error, sizeof header.error, "%.511s", comm->stop.text);
    bool good = put_all(fd, &header, sizeof header) && put_all(fd, calls, header.calls * sizeof *calls);
    free(calls);
    return good;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(lock)
static rondo_comm *enlisted;

/* Said when a job begins: what cannot be written when it fails is lost. */
static void prepare_directory(const char *directory)
{
    static atomic_flag prepared = ATOMIC_FLAG_INIT;
    struct stat about;
    if (!directory || atomic_flag_test_and_set(&prepared)) return;
    int error = mkdir(directory, 0700) && errno != EEXIST ? errno : 0; /* another rank may be faster */
    if (!error && stat(directory, &about)) error = errno;
    if (!error && !S_ISDIR(about.st_mode)) error = ENOTDIR;
    if (!error && access(directory, W_OK | X_OK)) error = errno;
    if (error)
        rd_log(RD_LOG_WARN,
               "RONDO_RECORD=%.400s: no records can be written there: %s; it must be a directory that may be written "
               "in, or whose parent may",
               directory, strerror(error));
}

void rd_record_enlist(rondo_comm *comm)
{
    prepare_directory(comm->settings.record);
    pthread_mutex_lock(&lock);
    comm->next_recorded = enlisted;
    enlisted = comm;
    pthread_mutex_unlock(&lock);
}

void rd_record_delist(rondo_comm *comm)
{
    pthread_mutex_lock(&lock);
    rondo_comm **at = &enlisted;
    while (*at && *at != comm) at = &(*at)->next_recorded;
    if (*at) *at = comm->next_recorded;
    pthread_mutex_unlock(&lock);
}

int rd_records_dump(void)
{
    int fd = memfd_create("rondo records", MFD_CLOEXEC);
    if (fd < 0) return -1;
    pthread_mutex_lock(&lock);
    for (const rondo_comm *comm = enlisted; comm; comm = comm->next_recorded)
        if (comm->generation == rd_generation() && !put_block(fd, comm)) break;
    pthread_mutex_unlock(&lock);
    return fd;
}

void rd_record_write(rondo_comm *comm)
{
    char path[512], host[64] = "";
    const char *directory = comm->settings.record;
    if (!directory || atomic_exchange(&comm->recorded, 1)) return;
    gethostname(host, sizeof host - 1);
    int length = snprintf(path, sizeof path, "%s/%s.%d.%02x%02x%02x%02x.%u.%d.rec", directory, host, (int)getpid(),
                          comm->job[0], comm->job[1], comm->job[2], comm->job[3], comm->number, comm->rank);
    int fd = length < (int)sizeof path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || !put_block(fd, comm))
        rd_log(RD_LOG_WARN, "rank %d: the record of the last calls could not be written to %s: %s", comm->rank, path,
               strerror(errno));
    if (fd >= 0) close(fd);
}
