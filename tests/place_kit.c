/* SPDX-License-Identifier: Apache-2.0 */
#include "place_kit.h"

#include "base/status.h"
#include "test.h"

uint32_t random_state = 1;

uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)random_state * limit) >> 32);
}

rd_machine *machine_of(const char *description)
{
    rd_machine *machine = NULL;
    if (rd_machine_synthetic(&machine, description)) fail_msg("%s: %s", description, rd_last_error());
    return machine;
}

rd_place random_place(const rd_machine *machine, int pus, int hosts)
{
    rd_place place;
    assert_int_equal(rd_place_of_pu(machine, (int)random_below((uint32_t)pus), &place), RONDO_SUCCESS);
    place.host = (int32_t)random_below((uint32_t)hosts);
    uint32_t loose = random_below(10);
    if (loose >= 5) place.core = -1;
    if (loose >= 6) place.l2 = -1;
    if (loose >= 7) place.l3 = -1;
    if (loose >= 8) place.numa = -1;
    if (loose >= 9) place.package = -1;
    return place;
}

uint32_t cost_of(const rd_place *a, const rd_place *b)
{
    return rd_link_cost(rd_place_link(a, b), 1);
}
