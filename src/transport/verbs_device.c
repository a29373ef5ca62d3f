/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs_device.h"

#include "base/interface.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status.h"
#include "transport/verbs_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
RD_HOLD_AT_FORK(opening)
static rd_verbs_device *opened; /* of this process: a forked child forgets its parent's */

/* ---- Which ---- */

/* The network device whose address a socket has; "" when there is none. */
static void netdev_of(int socket, char *name, size_t bytes)
{
    rd_address own = {.bytes = sizeof own.at}, one = {0};
    struct ifaddrs *all = NULL;
    *name = '\0';
    if (socket < 0 || getsockname(socket, (struct sockaddr *)&own.at, &own.bytes) || getifaddrs(&all)) return;
    for (const struct ifaddrs *i = all; i && !*name; i = i->ifa_next) {
        if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
        memcpy(&one.at, i->ifa_addr, i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        if (rd_address_same(&own, &one)) snprintf(name, bytes, "%s", i->ifa_name);
    }
    freeifaddrs(all);
}

static rondo_result choose(rd_verbs_wish wish, const rd_settings *settings, rd_rdma_port *port, char *why, size_t bytes)
{
    char netdev[64];
    int count;
    rondo_result result;
    rd_rdma_port *list = calloc(RD_RDMA_PORTS, sizeof *list);
    if (!list) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for the list of RDMA devices");
    netdev_of(wish.socket, netdev, sizeof netdev);
    result = rd_rdma_list(RD_RDMA_SYSFS, settings, list, RD_RDMA_PORTS, &count);
    if (result == RONDO_SUCCESS) {
        const rd_rdma_port *best = rd_rdma_choose(list, count, wish.port, *netdev ? netdev : NULL, why, bytes);
        if (best) *port = *best;
        else result = rd_fail(RONDO_SYSTEM_ERROR, "%s", why);
    }
    free(list);
    return result;
}

/* ---- Opening ---- */

static rondo_result open_context(const rd_verbs_calls *ibv, const char *name, struct ibv_context **context)
{
    int count = 0, refused = 0;
    char file[80] = "";
    errno = 0;
    struct ibv_device **list = ibv->get_device_list(&count);
    struct ibv_context *found = NULL;
    rondo_result result = RONDO_SUCCESS;
    for (int i = 0; list && i < count && !*file; i++) {
        if (strcmp(ibv->get_device_name(list[i]), name) != 0) continue;
        snprintf(file, sizeof file, "/dev/infiniband/%.60s", list[i]->dev_name);
        found = ibv->open_device(list[i]);
        int error = errno;
        if (!found && access(file, R_OK | W_OK)) refused = errno; /* libibverbs' own errno may be another's */
        errno = error;
    }
    if (!found && (refused == EACCES || refused == EPERM))
        result = rd_fail(RONDO_SYSTEM_ERROR, "RDMA device %s may not be opened by user %u: chmod 666 /dev/infiniband/uverbs*"
                         ", or add the user to their group (container: --device /dev/infiniband)", name, getuid());
    else if (!found)
        result = rd_fail(RONDO_SYSTEM_ERROR, "libibverbs cannot open RDMA device %s (%s): its provider or "
                         "/dev/infiniband/uverbs* is missing; apt-get install ibverbs-providers, modprobe ib_uverbs "
                         "(container: --device /dev/infiniband)", name, errno ? strerror(errno) : "it is not listed");
    if (list) ibv->free_device_list(list);
    *context = found;
    return result;
}

static rondo_result open_device(const rd_verbs_calls *ibv, const char *name, rd_verbs_device **opens)
{
    rondo_result result;
    rd_verbs_device *device = calloc(1, sizeof *device);
    if (!device) return rd_fail(RONDO_SYSTEM_ERROR, "no memory for RDMA device %s", name);
    if ((result = open_context(ibv, name, &device->context)) != RONDO_SUCCESS) goto free_device;
    device->pd = ibv->alloc_pd(device->context);
    if (!device->pd) {
        result = rd_fail_errno("RDMA device %s gives no protection domain", name);
        goto close_context;
    }
    fcntl(device->context->async_fd, F_SETFL, fcntl(device->context->async_fd, F_GETFL) | O_NONBLOCK);
    snprintf(device->name, sizeof device->name, "%s", name);
    device->generation = rd_generation();
    rd_verbs_memory_open();
    *opens = device;
    return RONDO_SUCCESS;

close_context:
    ibv->close_device(device->context);
free_device:
    free(device);
    return result;
}

rondo_result rd_verbs_device_open(rd_verbs_wish wish, const rd_settings *settings, rd_verbs_device **device,
                                  rd_rdma_port *port, char *why, size_t bytes)
{
    RD_TRY(choose(wish, settings, port, why, bytes));
    const rd_verbs_calls *ibv = rd_verbs_lib();
    if (!ibv) return RONDO_SYSTEM_ERROR;
    pthread_mutex_lock(&opening);
    if (opened && opened->generation != rd_generation()) opened = NULL; /* the parent's: nothing here may close it */
    rd_verbs_device *found = opened;
    while (found && strcmp(found->name, port->device) != 0) found = found->next;
    rondo_result result = found ? RONDO_SUCCESS : open_device(ibv, port->device, &found);
    if (result == RONDO_SUCCESS) {
        if (!found->links++) {
            found->next = opened;
            opened = found;
        }
        *device = found;
    }
    pthread_mutex_unlock(&opening);
    return result;
}

void rd_verbs_device_close(rd_verbs_device *device)
{
    const rd_verbs_calls *ibv = rd_verbs_lib();
    pthread_mutex_lock(&opening);
    bool last = --device->links == 0 && device->generation == rd_generation();
    for (rd_verbs_device **at = &opened; last && *at; at = &(*at)->next)
        if (*at == device) {
            *at = device->next;
            break;
        }
    if (last) rd_verbs_memory_close(device);
    pthread_mutex_unlock(&opening);
    if (!last) return;
    ibv->dealloc_pd(device->pd);
    ibv->close_device(device->context);
    free(device);
}

void rd_verbs_device_news(rd_verbs_device *device)
{
    const rd_verbs_calls *ibv = rd_verbs_lib();
    struct ibv_async_event event;
    while (!ibv->get_async_event(device->context, &event)) {
        bool of_port = event.event_type == IBV_EVENT_PORT_ERR || event.event_type == IBV_EVENT_PORT_ACTIVE;
        bool bad = event.event_type == IBV_EVENT_PORT_ERR || event.event_type == IBV_EVENT_DEVICE_FATAL;
        if (of_port)
            rd_log(bad ? RD_LOG_WARN : RD_LOG_INFO, "RDMA device %s: port %d %s", device->name,
                   event.element.port_num, bad ? "went down" : "is up");
        else
            rd_log(bad ? RD_LOG_WARN : RD_LOG_INFO, "RDMA device %s: %s", device->name,
                   ibv->event_type_str(event.event_type));
        ibv->ack_async_event(&event);
    }
}

/* ---- Memory ---- */

rondo_result rd_verbs_device_register(rd_verbs_device *device, void *at, size_t bytes, struct ibv_mr **mr)
{
    struct rlimit limit = {0};
    *mr = rd_verbs_lib()->reg_mr(device->pd, at, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (*mr) return RONDO_SUCCESS;
    int error = errno;
    if (error == ENOMEM && !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur != RLIM_INFINITY)
        return rd_fail(RONDO_SYSTEM_ERROR, "this process may lock %llu KiB of memory (RLIMIT_MEMLOCK), and an RDMA link "
                       "needs %zu KiB more: ulimit -l unlimited (for all users: memlock in /etc/security/limits.conf; "
                       "container: --ulimit memlock=-1)", (unsigned long long)limit.rlim_cur / 1024, (bytes + 1023) / 1024);
    errno = error;
    return rd_fail_errno("RDMA device %s does not register %zu bytes of memory", device->name, bytes);
}
