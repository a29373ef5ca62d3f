/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_device.h - RDMA devices that this process has opened, each once for all its links.
 */
#ifndef RD_TRANSPORT_VERBS_DEVICE_H
#define RD_TRANSPORT_VERBS_DEVICE_H

#include "base/rdma.h"
#include "transport/verbs_lib.h"

typedef struct rd_verbs_device {
    struct rd_verbs_device *next;
    int links, generation;
    char name[RD_RDMA_NAME];
    struct ibv_context *context;
    struct ibv_pd *pd;
} rd_verbs_device;

/* The device for a link over `socket` (-1: any), opened if it is not, and the port of it to use. rd_verbs_device_close
 * it. */
rondo_result rd_verbs_device_open(int socket, const rd_settings *settings, rd_verbs_device **device, rd_rdma_port *port);
void rd_verbs_device_close(rd_verbs_device *device);

/* What the device has reported of itself since the last time (a port went down, came up, a fault): one line each to the
 * log. */
void rd_verbs_device_news(rd_verbs_device *device);

/* Registers memory, or says in words why that fails. */
rondo_result rd_verbs_device_register(rd_verbs_device *device, void *at, size_t bytes, struct ibv_mr **mr);

#endif
