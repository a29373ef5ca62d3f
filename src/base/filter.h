/* SPDX-License-Identifier: Apache-2.0
 *
 * filter.h - which of several named things a setting means: network interfaces, RDMA devices.
 *
 * A filter is a list: "eth,ib" takes what begins so; "=eth0" exactly that; "^eth" all but those. A mark holds for the
 * names after it up to the next mark.
 */
#ifndef RD_BASE_FILTER_H
#define RD_BASE_FILTER_H

#include <stdbool.h>

enum { RD_FILTER_ENTRIES = 64, RD_FILTER_NAME = 64 };

typedef struct rd_filter {
    int count;
    bool naming; /* some entry names what to take */
    struct {
        char name[RD_FILTER_NAME];
        bool exact, exclude;
    } entries[RD_FILTER_ENTRIES];
} rd_filter;

/* text: NULL takes everything. */
void rd_filter_parse(rd_filter *filter, const char *text);

/* EXCLUDED: by an entry. UNNAMED: others are asked for. OPEN: nothing is said of it. NAMED: it is asked for. */
typedef enum rd_filter_answer { RD_FILTER_EXCLUDED, RD_FILTER_UNNAMED, RD_FILTER_OPEN, RD_FILTER_NAMED } rd_filter_answer;
rd_filter_answer rd_filter_ask(const rd_filter *filter, const char *name);

#endif
