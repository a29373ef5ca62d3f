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

/* For which link: by the port that is named (NULL: none is), else by the interface of its connection (-1: any). */
typedef struct rd_verbs_wish {
    const char *port;
    int socket;
} rd_verbs_wish;

/* The device that serves best, opened if it is not, the port of it to use, and a sentence on why it is that one.
 * rd_verbs_device_close it. */
rondo_result rd_verbs_device_open(rd_verbs_wish wish, const rd_settings *settings, rd_verbs_device **device,
                                  rd_rdma_port *port, char *why, size_t bytes);
void rd_verbs_device_close(rd_verbs_device *device);

/* What the device has reported of itself since the last time (a port went down, came up, a fault): one line each to the
 * log. */
void rd_verbs_device_news(rd_verbs_device *device);

/* Registers memory, or says in words why that fails. */
rondo_result rd_verbs_device_register(rd_verbs_device *device, void *at, size_t bytes, struct ibv_mr **mr);

#endif
