/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs_lib.h"

#include "base/process.h"
#include "base/status.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define LIBRARY "libibverbs.so.1"

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(loading)
static rd_verbs_calls calls;
static atomic_bool loaded;
static bool fork_safe;
enum { UNNEEDED = 2 /* IBV_FORK_UNNEEDED, which older headers lack */ };

static rondo_result load(void)
{
    static const struct {
        const char *name;
        size_t at;
    } wanted[] = {
#define ENTRY(name) {"ibv_" #name, offsetof(rd_verbs_calls, name)},
        RD_VERBS_CALLS(ENTRY)
#undef ENTRY
    };
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return rd_fail(RONDO_SYSTEM_ERROR, "RDMA needs %s, which cannot be loaded (%s): apt-get install "
                       "ibverbs-providers", LIBRARY, dlerror());
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *symbol = dlsym(library, wanted[i].name);
        if (!symbol) {
            dlclose(library);
            return rd_fail(RONDO_SYSTEM_ERROR, "%s has no %s: it is older than 1.1; upgrade rdma-core", LIBRARY,
                           wanted[i].name);
        }
        memcpy((char *)&calls + wanted[i].at, &symbol, sizeof symbol);
    }
    int (*forks)(void) = NULL; /* since version 1.13 */
    void *symbol = dlsym(library, "ibv_is_fork_initialized");
    memcpy(&forks, &symbol, sizeof symbol);
    symbol = dlsym(library, "ibv_reg_dmabuf_mr");
    memcpy(&calls.reg_dmabuf_mr, &symbol, sizeof symbol);
    fork_safe = forks && forks() == UNNEEDED;
    return RONDO_SUCCESS;
}

bool rd_verbs_fork_safe(void)
{
    return fork_safe;
}

const rd_verbs_calls *rd_verbs_lib(void)
{
    if (atomic_load_explicit(&loaded, memory_order_acquire)) return &calls;
    pthread_mutex_lock(&loading);
    bool there = atomic_load_explicit(&loaded, memory_order_relaxed) || load() == RONDO_SUCCESS;
    if (there) atomic_store_explicit(&loaded, true, memory_order_release);
    pthread_mutex_unlock(&loading);
    return there ? &calls : NULL;
}
