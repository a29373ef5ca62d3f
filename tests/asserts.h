/* SPDX-License-Identifier: Apache-2.0
 *
 * asserts.h - assertions on what calls return and say.
 */
#ifndef RONDO_TEST_ASSERTS_H
#define RONDO_TEST_ASSERTS_H

#include "base/status.h"
#include "test.h"

static inline void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("no \"%s\" in: %s", part, text);
}

static inline void assert_ok(rondo_result result)
{
    if (result != RONDO_SUCCESS) fail_msg("%s: %s", rondo_result_string(result), rd_last_error());
}

#endif
