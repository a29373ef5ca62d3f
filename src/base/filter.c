/* SPDX-License-Identifier: Apache-2.0 */
#include "base/filter.h"

#include <stdio.h>
#include <string.h>

static bool is_mark(char c)
{
    return c == '^' || c == '=';
}

void rd_filter_parse(rd_filter *filter, const char *text)
{
    bool exact = false, exclude = false;
    *filter = (rd_filter){0};
    while (text && *text && filter->count < RD_FILTER_ENTRIES) {
        size_t length = strcspn(text, ",");
        const char *next = text + length + (text[length] == ',');
        if (is_mark(*text)) exact = exclude = false;
        for (; is_mark(*text); text++, length--) *(*text == '=' ? &exact : &exclude) = true;
        if (length) {
            int at = filter->count++;
            snprintf(filter->entries[at].name, RD_FILTER_NAME, "%.*s", (int)length, text);
            filter->entries[at].exact = exact;
            filter->entries[at].exclude = exclude;
            filter->naming |= !exclude;
        }
        text = next;
    }
}

rd_filter_answer rd_filter_ask(const rd_filter *filter, const char *name)
{
    bool named = false;
    for (int i = 0; i < filter->count; i++) {
        const char *entry = filter->entries[i].name;
        bool match = filter->entries[i].exact ? !strcmp(entry, name) : !strncmp(entry, name, strlen(entry));
        if (match && filter->entries[i].exclude) return RD_FILTER_EXCLUDED;
        named |= match;
    }
    if (named) return RD_FILTER_NAMED;
    return filter->naming ? RD_FILTER_UNNAMED : RD_FILTER_OPEN;
}
