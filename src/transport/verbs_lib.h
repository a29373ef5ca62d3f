/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_lib.h - libibverbs, loaded when the first link wants it: one librondo.so runs with and without.
 *
 * The calls of the data path (post, poll, notify) are inline in its header and go through the opened device; those below
 * are looked up by name.
 */
#ifndef RD_TRANSPORT_VERBS_LIB_H
#define RD_TRANSPORT_VERBS_LIB_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#define RD_VERBS_CALLS(CALL)                                                                                         \
    CALL(get_device_list) CALL(free_device_list) CALL(get_device_name) CALL(open_device)             \
    CALL(close_device) CALL(query_port) CALL(get_async_event) CALL(ack_async_event) CALL(alloc_pd) CALL(dealloc_pd)  \
    CALL(reg_mr) CALL(dereg_mr) CALL(create_comp_channel) CALL(destroy_comp_channel) CALL(create_cq)                 \
    CALL(destroy_cq) CALL(get_cq_event) CALL(ack_cq_events) CALL(create_qp) CALL(modify_qp) CALL(destroy_qp)         \
    CALL(wc_status_str) CALL(event_type_str)

/* Some of these names are also macros, with arguments; without, they are the functions. */
typedef struct rd_verbs_calls {
#define RD_VERBS_MEMBER(name) __typeof__(ibv_##name) *name;
    RD_VERBS_CALLS(RD_VERBS_MEMBER)
#undef RD_VERBS_MEMBER
    /* NULL before rdma-core 34, whose headers may be older, too. */
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t address, int fd,
                                    int access);
} rd_verbs_calls;

/* Whether a page stays where a device finds it when this process forks, as newer kernels see to. Where it does not, user
 * memory must not be registered: a child's copy-on-write would move it away from under the device, and what libibverbs
 * offers instead (ibv_fork_init) takes the memory from the child. */
bool rd_verbs_fork_safe(void);

/* NULL, and this thread's last error, where it cannot be loaded. Never unloaded. */
const rd_verbs_calls *rd_verbs_lib(void);

#endif
