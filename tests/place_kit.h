/* SPDX-License-Identifier: Apache-2.0
 *
 * place_kit.h - machines described in words, and random places on them.
 */
#ifndef RONDO_TEST_PLACE_KIT_H
#define RONDO_TEST_PLACE_KIT_H

#include "topo/order.h"
#include "topo/ring.h"

/* As rd_machine_synthetic; fails the test where that does. */
rd_machine *machine_of(const char *description);

/* The same numbers for the same seed. */
extern uint32_t random_state;
uint32_t random_below(uint32_t limit);
/* A place on the machine, at times of a rank that may use a larger part of it. */
rd_place random_place(const rd_machine *machine, int pus, int hosts);

uint32_t cost_of(const rd_place *a, const rd_place *b);

#endif
