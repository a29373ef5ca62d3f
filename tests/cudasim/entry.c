/* SPDX-License-Identifier: Apache-2.0
 *
 * entry.c - how the driver's functions are found, who may call them, and failures that a test asks for.
 */
#include "control.h"
#include "sanitize.h"
#include "sim.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAILURES = 16 };

struct failure {
    enum sim_call call;
    unsigned long from; /* fails from this call on, once; counted from 1 */
    rd_cu_result result;
    bool lost;
};

static const struct {
    const char *name;
    int version;
    void *function;
} entries[] = {
#define ENTRY(name, version, parameters) {#name, version, (void *)name},
    RD_CU_FUNCTIONS(ENTRY)
#undef ENTRY
};

__thread bool sim_in_host_function;

static atomic_ulong calls[SIM_CALLS];
static pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;
static struct failure failures[FAILURES];
static int failure_count;
static int initialised_in; /* process id, 0: in none yet */
static pthread_once_t once = PTHREAD_ONCE_INIT;

void sim_say(const char *format, ...)
{
    char text[1024];
    int used = snprintf(text, sizeof text, "cudasim[%d]: ", (int)getpid());
    va_list list;
    va_start(list, format);
    int more = vsnprintf(text + used, sizeof text - (size_t)used - 1, format, list);
    va_end(list);
    used = used + more < (int)sizeof text - 1 ? used + more : (int)sizeof text - 2;
    text[used++] = '\n';
    if (write(STDERR_FILENO, text, (size_t)used) < 0) return;
}

/* ---- Failures that are asked for ----------------------------------------------------------------------------------
 */

static int call_of(const char *name)
{
    for (int i = 0; i < SIM_KERNEL; i++)
        if (strcmp(entries[i].name, name) == 0) return i;
    return strcmp(name, "kernel") == 0 ? SIM_KERNEL : -1;
}

static bool add_failure(const char *call, unsigned long from, rd_cu_result result, bool lost)
{
    int which = call_of(call);
    if (which < 0 || failure_count == FAILURES || from == 0) return false;
    failures[failure_count++] = (struct failure){(enum sim_call)which, from, result, lost};
    return true;
}

/* "cuMemAlloc:3:2,kernel:5:719:lost" */
bool sim_fail_read(char *list)
{
    char *save = NULL;
    for (char *one = strtok_r(list, ",", &save); one != NULL; one = strtok_r(NULL, ",", &save)) {
        char call[64], lost[8] = "";
        unsigned long from = 0;
        unsigned result = RD_CU_ERROR_UNKNOWN;
        int n = sscanf(one, "%63[^:]:%lu:%u:%7s", call, &from, &result, lost);
        if (n < 2 || (n == 4 && strcmp(lost, "lost") != 0) || !add_failure(call, from, result, n == 4)) return false;
    }
    return true;
}

/* Counts a call; the failure that is due with it. */
static bool due(enum sim_call call, struct failure *found)
{
    unsigned long number = atomic_fetch_add_explicit(&calls[call], 1, memory_order_relaxed) + 1;
    bool is_due = false;
    if (failure_count == 0) return false;
    pthread_mutex_lock(&failing);
    for (int i = 0; i < failure_count && !is_due; i++) {
        if (failures[i].call != call || failures[i].from > number) continue;
        *found = failures[i];
        is_due = true;
        failures[i] = failures[--failure_count];
    }
    pthread_mutex_unlock(&failing);
    if (is_due)
        sim_say("%s fails with %u, as asked for", call < SIM_KERNEL ? entries[call].name : "a kernel", found->result);
    return is_due;
}

rd_cu_result sim_kernel_fault(void)
{
    struct failure failure;
    return due(SIM_KERNEL, &failure) ? failure.result : RD_CU_SUCCESS;
}

/* ---- Who may call -------------------------------------------------------------------------------------------------
 */

static bool needs_nothing(enum sim_call call)
{
    return call == SIM_cuDriverGetVersion || call == SIM_cuGetErrorName || call == SIM_cuGetErrorString ||
           call == SIM_cuInit;
}

rd_cu_result sim_enter(enum sim_call call)
{
    struct failure failure;
    pthread_once(&once, sim_settings_read);
    if (sim_settings.trace) sim_say("%s", entries[call].name);
    if (sim_in_host_function) {
        sim_say("%s is called by a host function, which must not use the driver", entries[call].name);
        return RD_CU_ERROR_NOT_PERMITTED;
    }
    if (!needs_nothing(call) && initialised_in != (int)getpid()) return RD_CU_ERROR_NOT_INITIALIZED;
    rd_cu_result forbidden = sim_capture_forbids(call);
    if (forbidden != RD_CU_SUCCESS) return forbidden;
    if (!due(call, &failure)) return RD_CU_SUCCESS;
    struct sim_context *context = failure.lost ? sim_context_current() : NULL;
    if (context == NULL) return failure.result;
    sim_context_lose(context, failure.result);
    return sim_context_lost(context);
}

rd_cu_result cuInit(unsigned flags)
{
    SIM_ENTER(cuInit);
    if (flags != 0) return RD_CU_ERROR_INVALID_VALUE;
    if (initialised_in != 0 && initialised_in != (int)getpid()) return RD_CU_ERROR_NOT_INITIALIZED; /* forked */
    if (sim_devices_begin() == 0) return RD_CU_ERROR_NO_DEVICE;
    initialised_in = (int)getpid();
    return RD_CU_SUCCESS;
}

rd_cu_result cuDriverGetVersion(int *version)
{
    SIM_ENTER(cuDriverGetVersion);
    *version = sim_settings.driver_version;
    return RD_CU_SUCCESS;
}

rd_cu_result cuGetErrorName(rd_cu_result result, const char **name)
{
    switch (result) {
#define NAME(name_of, value)                                                                                           \
    case value: *name = "CUDA_" #name_of; return RD_CU_SUCCESS;
        RD_CU_RESULTS(NAME)
#undef NAME
    default: *name = NULL; return RD_CU_ERROR_INVALID_VALUE;
    }
}

rd_cu_result cuGetErrorString(rd_cu_result result, const char **text)
{
    const char *name;
    *text = cuGetErrorName(result, &name) == RD_CU_SUCCESS ? "as the simulated driver says" : NULL;
    return *text != NULL ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_VALUE;
}

SIM_EXPORT rd_cu_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                            unsigned *found);

/* What is not there is a success that leaves NULL and says so. */
SIM_EXPORT rd_cu_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                            unsigned *found)
{
    pthread_once(&once, sim_settings_read);
    int call = call_of(name);
    unsigned ignored;
    if (found == NULL) found = &ignored;
    *function = NULL;
    *found = RD_CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (flags > 2) return RD_CU_ERROR_INVALID_VALUE;
    if (call < 0 || call == SIM_KERNEL || strcmp(name, sim_settings.lacks) == 0) return RD_CU_SUCCESS;
    *found = RD_CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (version < entries[call].version || entries[call].version > sim_settings.driver_version) return RD_CU_SUCCESS;
    *found = RD_CU_GET_PROC_ADDRESS_SUCCESS;
    *function = entries[call].function;
    return RD_CU_SUCCESS;
}

/* ---- For tests (control.h) ----------------------------------------------------------------------------------------
 */

SIM_EXPORT int cudasim_fail(const char *call, unsigned long after, unsigned result, int lost)
{
    int which = call_of(call);
    if (which < 0) return -1;
    pthread_mutex_lock(&failing);
    bool added = add_failure(call, atomic_load(&calls[which]) + after, result, lost != 0);
    pthread_mutex_unlock(&failing);
    return added ? 0 : -1;
}

SIM_EXPORT void cudasim_seed(unsigned seed)
{
    sim_settings.seed = seed;
}

SIM_EXPORT unsigned long cudasim_calls(const char *call)
{
    int which = call_of(call);
    return which < 0 ? 0 : atomic_load(&calls[which]);
}

SIM_EXPORT void cudasim_held(struct cudasim_held *held)
{
    sim_lock();
    *held = (struct cudasim_held){
        .contexts = sim_handle_count(SIM_CONTEXT),
        .streams = sim_handle_count(SIM_STREAM),
        .events = sim_handle_count(SIM_EVENT),
        .modules = sim_handle_count(SIM_MODULE),
        .device_memory = sim_range_count(SIM_DEVICE_MEMORY),
        .managed_memory = sim_range_count(SIM_MANAGED),
        .host_memory = sim_range_count(SIM_HOST_ALLOCATED),
        .registered = sim_range_count(SIM_HOST_REGISTERED),
        .imported = sim_range_count(SIM_IMPORTED),
        .mapped = sim_range_count(SIM_MAPPED),
        .allocations = sim_handle_count(SIM_ALLOCATION),
    };
    sim_unlock();
}
