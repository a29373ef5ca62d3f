/* SPDX-License-Identifier: Apache-2.0
 *
 * places.h - where a device of rondo_data_parallel has its memory: the host, or a GPU.
 */
#ifndef RD_DDP_PLACES_H
#define RD_DDP_PLACES_H

#include "base/gpu.h"

typedef struct rd_place {
    int gpu; /* -1: the host */
    rd_cu_context context;
} rd_place;

/* gpu: its number, or -1. RONDO_INVALID_ARGUMENT: there is none; `device` is who was to have it. */
rondo_result rd_place_open(rd_place *place, int gpu, int device);
void rd_place_close(rd_place *place);

/* Whether code at that place can use it; else names it. */
rondo_result rd_place_check(const rd_place *place, const char *where, const char *what, const float *ptr);

rondo_result rd_place_alloc(const rd_place *place, float **ptr, size_t count);
void rd_place_free(const rd_place *place, float *ptr); /* NULL is fine */

/* Between memory of that place and of any other; done when they return. */
rondo_result rd_place_copy(const rd_place *place, float *to, const float *from, size_t count);
rondo_result rd_place_zero(const rd_place *place, float *at, size_t count);
/* to += from, from memory of any place: on a GPU by way of the host. */
rondo_result rd_place_add(const rd_place *place, float *to, const float *from, size_t count);

/* Makes the GPU current in this thread; and no longer, when what any thread gave it is done. */
rondo_result rd_place_enter(const rd_place *place);
rondo_result rd_place_leave(const rd_place *place);

#endif
